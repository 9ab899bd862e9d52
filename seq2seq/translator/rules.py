"""The rules that the options ask for, for one batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig
from seq2seq.search.progress import Bonus, Progress
from seq2seq.search.rules import Rule
from seq2seq.search.vocabulary import Vocabulary
from seq2seq.search.warpers import MinP, Temperature, TopK, TopP
from seq2seq.translator.batches import Part


@dataclass(frozen=True)
class BatchRules:
    """What the search of one batch is given besides its limits."""

    edits: list[Rule] = field(default_factory=list)
    """Change logits."""
    rules: list[Rule] = field(default_factory=list)
    """Forbid pieces."""
    filters: list[Rule] = field(default_factory=list)
    """Change the probabilities that are drawn by."""
    progress: Progress | None = None
    """Shares out the beam."""
    bonus: Bonus | None = None
    """Adds to scores."""


def batch_rules(bundle: Bundle, decode: DecodeConfig, parts: Sequence[Part], vocabulary: Vocabulary) -> BatchRules:
    """The rules for these sentences, in the numbers of the vocabulary.

    Args:
        bundle: Its target tokenizer reads words and phrases.
        decode: Says what is wanted.
        parts: The sentences of the search, in its order.
        vocabulary: Numbers the pieces.
    """
    del bundle, parts, vocabulary
    return BatchRules(filters=draw_filters(decode))


def draw_filters(decode: DecodeConfig) -> list[Rule]:
    """What is done to the probabilities before a piece is drawn, in the order in which `transformers` does it."""
    rules: list[Rule] = []
    if not decode.draws:
        return rules
    if decode.temperature != 1:
        rules.append(Temperature(decode.temperature))
    if decode.top_k is not None:
        rules.append(TopK(decode.top_k))
    if decode.top_p < 1:
        rules.append(TopP(decode.top_p))
    if decode.min_p > 0:
        rules.append(MinP(decode.min_p))
    return rules
