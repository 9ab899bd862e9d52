"""Text in, text out: a bundle translates lines and scores given translations."""

from seq2seq.translator.request import Request
from seq2seq.translator.results import Candidate, ScoredPair, Translation
from seq2seq.translator.terminology import Terminology, read_phrases
from seq2seq.translator.translator import Translator

__all__ = ["Candidate", "Request", "ScoredPair", "Terminology", "Translation", "Translator", "read_phrases"]
