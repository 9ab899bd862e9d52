"""The log-probability of given texts: all positions at once, long texts in windows that overlap."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from seq2seq.bundle import Bundle
from seq2seq.corpus.batching import pad, token_batches
from seq2seq.corpus.documents import TextSize
from seq2seq.generator.prompts import num_positions
from seq2seq.generator.results import ScoredText
from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.nn.device import evaluation
from seq2seq.search.step import check_numbers

AT_ONCE = 1024
"""Places whose log-probabilities over the vocabulary are computed at once."""

DEFAULT_CONTEXT = 1024
"""Pieces that are read at once where the model itself knows no limit."""


@dataclass(frozen=True)
class Window:
    """A stretch of a text that is read at once."""

    text: int
    """Place of the text."""
    ids: tuple[int, ...]
    """All its pieces; each but the first is predicted."""
    num_scored: int
    """So many of the last ones count: those that no window before has scored."""


def score_texts(
    bundle: Bundle, texts: Sequence[str], *, context: int | None, count_end: bool, batch_tokens: int
) -> list[ScoredText]:
    """Each text scored, as `Generator.score` says."""
    context = _context(bundle, context)
    start, eos = bundle.target_tokenizer.prompt(""), bundle.target_tokenizer.special.eos
    encoded = []
    for text in texts:
        ids = bundle.target_tokenizer.encode(text)
        encoded.append([*start, *ids, *([eos] if count_end else [])])
    found: list[list[float]] = [[] for _ in texts]
    whole = [window for place, ids in enumerate(encoded) for window in windows(place, ids, len(start), context)]
    lengths = [len(window.ids) - 1 for window in whole]
    values: dict[int, list[float]] = {}
    for batch in token_batches(lengths, lengths, max(batch_tokens, *lengths, 1), shuffle=False):
        values.update(zip(batch, forced(bundle, [whole[at] for at in batch]), strict=True))
    for at, window in enumerate(whole):
        found[window.text] += values[at]
    return [
        _scored(bundle, text, ids[len(start) :], row, context)
        for text, ids, row in zip(texts, encoded, found, strict=True)
    ]


def _context(bundle: Bundle, context: int | None) -> int:
    positions = num_positions(bundle)
    if context is None:
        return positions or DEFAULT_CONTEXT
    if context < 2:
        raise ValueError(f"context={context} leaves nothing to predict from; give at least 2")
    if positions is not None and context > positions:
        raise ValueError(
            f"context={context}, but the model has learned {positions} positions; give at most {positions}"
        )
    return context


def windows(text: int, ids: Sequence[int], given: int, context: int) -> Iterator[Window]:
    """The windows of a text.

    Args:
        text: Place of the text, for the answer.
        ids: Its pieces.
        given: So many of the first ones are not scored.
        context: Most pieces that are read at once; the last piece of a window is predicted and not read.
    """
    done = given
    while done < len(ids):
        end = min(len(ids), context + 1)
        if done > given:
            end = min(len(ids), done + max(1, context // 2))
        begin = max(0, end - context - 1)
        yield Window(text, tuple(ids[begin:end]), end - done)
        done = end


def forced(bundle: Bundle, batch: Sequence[Window]) -> list[list[float]]:
    """Log-probabilities of the pieces of each window that count, in the same precision as in a search.

    Raises:
        ValueError: if they are NaN.
    """
    model, special = bundle.model, bundle.target_tokenizer.special
    assert isinstance(model, DecoderOnly)
    rows = [window.ids for window in batch]
    ids = pad(rows, special.pad).to(model.output.device)
    ends = torch.tensor([len(row) - 1 for row in rows])[:, None]
    begins = ends - torch.tensor([window.num_scored for window in batch])[:, None]
    places = torch.arange(ids.shape[1] - 1)
    counted = ((begins <= places) & (places < ends)).to(ids.device)
    values: list[float] = []
    with evaluation(model):
        hidden = model.read(ids[:, :-1])[counted]  # padding stands on the right, where nothing real looks
        # a part at a time, for what takes the memory is the outputs
        for part, wanted in zip(torch.split(hidden, AT_ONCE), torch.split(ids[:, 1:][counted], AT_ONCE), strict=True):
            logits = model.logits(part)
            dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
            values += logits.log_softmax(-1, dtype=dtype).gather(-1, wanted[:, None])[:, 0].tolist()
    check_numbers(np.array(values))
    left = iter(values)
    return [list(islice(left, window.num_scored)) for window in batch]


def _scored(bundle: Bundle, text: str, ids: Sequence[int], row: list[float], context: int) -> ScoredText:
    size = TextSize.of([text])
    notice = None
    if len(ids) > context:
        notice = f"a text of {len(ids)} pieces was read in windows of {context} that overlap by half"
    return ScoredText(
        text=text,
        log_prob=math.fsum(row),
        tokens=tuple(bundle.target_tokenizer.pieces(ids)),
        ids=tuple(ids),
        token_log_probs=tuple(row),
        num_bytes=size.bytes,
        num_characters=size.characters,
        notice=notice,
    )
