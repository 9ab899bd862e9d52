"""A prompt in, its continuation out: a language model's bundle writes texts and scores given ones."""

from seq2seq.generator.generator import Generator
from seq2seq.generator.results import Ended, Generation, ScoredText

__all__ = ["Ended", "Generation", "Generator", "ScoredText"]
