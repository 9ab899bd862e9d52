"""Scores of translations against raw references: BLEU, chrF2++ and TER, and whether a difference is real."""

from seq2seq.evaluation.bleu_statistics import BleuStatistics, bleu_statistics, corpus_bleu_from_statistics
from seq2seq.evaluation.metrics import MetricScore, corpus_scores, sentence_bleu
from seq2seq.evaluation.significance import PairedScore, paired_bootstrap
from seq2seq.evaluation.text_checks import looks_tokenized

__all__ = [
    "BleuStatistics",
    "MetricScore",
    "PairedScore",
    "bleu_statistics",
    "corpus_bleu_from_statistics",
    "corpus_scores",
    "looks_tokenized",
    "paired_bootstrap",
    "sentence_bleu",
]
