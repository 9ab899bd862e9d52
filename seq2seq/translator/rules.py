"""The rules that the options ask for, for one batch."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig
from seq2seq.search import RepetitionPenalty, Rule, SearchLimits
from seq2seq.search.coverage import Coverage
from seq2seq.search.phrases import ForbiddenPhrases, PhrasePieces, SpelledPieces
from seq2seq.search.progress import Bonus, Progress
from seq2seq.search.repetition import NoRepeatNgram
from seq2seq.search.rules import Behind, Suppressed
from seq2seq.search.vocabulary import Vocabulary
from seq2seq.search.warpers import PiecePenalty, draw_filters
from seq2seq.shapes import Float, Tensor
from seq2seq.text.phrase_automaton import PhraseAutomaton
from seq2seq.text.piece_bytes import BROKEN, piece_bytes
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translator.batches import Part
from seq2seq.translator.phrases import batch_constraints


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


def batch_rules(
    bundle: Bundle, decode: DecodeConfig, parts: Sequence[Part], limits: SearchLimits, vocabulary: Vocabulary
) -> BatchRules:
    """The rules for these sentences, in the numbers of the vocabulary.

    No rule but the limits holds for what a line forces on its translation: that costs what the model says that it
    costs, and it may repeat itself. What follows it must keep the rules, as if the translation had begun with it by
    itself.

    Args:
        bundle: Its target tokenizer reads words and phrases.
        decode: Says what is wanted.
        parts: The sentences of the search, in its order.
        limits: Of the search.
        vocabulary: Numbers the pieces.
    """
    forced = [len(part.prefix) + part.forced for part in parts]
    return BatchRules(
        edits=[Behind(edit, forced) for edit in _edits(bundle.target_tokenizer, decode, vocabulary)],
        rules=[Behind(rule, forced) for rule in _rules(bundle, decode, limits, vocabulary)],
        filters=draw_filters(decode.temperature, decode.top_k, decode.top_p, decode.min_p) if decode.draws else [],
        progress=batch_constraints(bundle.target_tokenizer, decode, parts, vocabulary),
        bonus=Coverage(decode.coverage_penalty, _attended) if decode.coverage_penalty else None,
    )


def _attended(state: Any) -> Float[Tensor, "R S"]:
    """The attention to each source piece that a state which is watched has added up."""
    sums: Tensor = state.attended.sums
    return sums


def _edits(tokenizer: Tokenizer, decode: DecodeConfig, vocabulary: Vocabulary) -> list[Rule]:
    """What changes logits."""
    edits: list[Rule] = []
    if decode.repetition_penalty != 1:
        edits.append(RepetitionPenalty(decode.repetition_penalty))
    unknown = vocabulary.number(tokenizer.special.unk)
    if decode.unknown_penalty > 0 and unknown is not None:
        edits.append(PiecePenalty(unknown, decode.unknown_penalty))
    return edits


def _rules(bundle: Bundle, decode: DecodeConfig, limits: SearchLimits, vocabulary: Vocabulary) -> list[Rule]:
    """What forbids pieces."""
    rules: list[Rule] = []
    tokenizer = bundle.target_tokenizer
    unknown = vocabulary.number(tokenizer.special.unk)
    if decode.forbid_unknown and unknown is not None:
        rules.append(Suppressed([unknown], bundle.model.output.device))
    if decode.no_repeat_ngram:
        rules.append(NoRepeatNgram(decode.no_repeat_ngram))
    if decode.forbidden:
        pieces = phrase_pieces(tokenizer, decode, vocabulary)
        rules.append(ForbiddenPhrases(pieces, limits, cautious=decode.beam_size == 1))
    return rules


def phrase_pieces(tokenizer: Tokenizer, decode: DecodeConfig, vocabulary: Vocabulary) -> PhrasePieces:
    """The forbidden phrases over the pieces of the vocabulary."""
    wanted = tuple(decode.forbidden), decode.replace_unknown
    if vocabulary.shortlist is None:
        return _all_phrase_pieces(tokenizer, *wanted)
    return _phrase_pieces(tokenizer, *wanted, vocabulary.shortlist)


@functools.lru_cache(maxsize=4)
def _all_phrase_pieces(tokenizer: Tokenizer, phrases: tuple[str, ...], replace_unknown: bool) -> PhrasePieces:
    """Over all pieces; what has been worked out once is used again in the next batches."""
    return _phrase_pieces(tokenizer, phrases, replace_unknown, range(tokenizer.vocab_size))


def _phrase_pieces(
    tokenizer: Tokenizer, phrases: tuple[str, ...], replace_unknown: bool, ids: Sequence[int]
) -> PhrasePieces:
    spelled = list(piece_bytes(tokenizer))
    if replace_unknown:
        # A word of the source will stand there, so that words before and behind it end.
        spelled[tokenizer.special.unk] = BROKEN.encode()
    return PhrasePieces(_automaton(tokenizer, phrases), SpelledPieces([spelled[id_] for id_ in ids]))


@functools.lru_cache(maxsize=4)
def _automaton(tokenizer: Tokenizer, phrases: tuple[str, ...]) -> PhraseAutomaton:
    """Finds the phrases as they are written, and as the tokenizer's normalisation writes them."""
    forms = list(phrases)
    for phrase in phrases:
        ids = tokenizer.encode(phrase)
        normal = tokenizer.decode(ids)
        if normal.strip() and tokenizer.special.unk not in ids:
            forms.append(normal)
    return PhraseAutomaton(dict.fromkeys(forms))
