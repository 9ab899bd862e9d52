"""The log-probability of given translations: forced decoding, all positions at once."""

import math
from collections.abc import Sequence

import torch

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig
from seq2seq.models import Ensemble, Transformer
from seq2seq.nn.device import evaluation
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.search.step import check_numbers
from seq2seq.translator.batches import pad, token_batches
from seq2seq.translator.results import ScoredPair


def score_ids(
    model: Transformer | Ensemble,
    bundles: Sequence[Bundle],
    source_ids: Sequence[Sequence[int]],
    target_ids: Sequence[Sequence[int]],
    decode: DecodeConfig,
) -> list[ScoredPair]:
    """Each target sequence scored as a translation of its source, as `Translator.score_ids` says.

    Args:
        model: The network that scores.
        bundles: What it was made of: tokenizers, which are the same in all, and sizes.
        source_ids: What the model is given.
        target_ids: What is scored.
        decode: Length penalty and batch size.

    Raises:
        ValueError: if there are not as many targets as sources, an id is not in its vocabulary, a source is empty, or
            the model's log-probabilities are NaN.
    """
    if len(source_ids) != len(target_ids):
        raise ValueError(
            f"got {len(source_ids)} sources and {len(target_ids)} targets; give one target for each source"
        )
    bundle = bundles[0]
    _check(source_ids, bundle.source_tokenizer.vocab_size, "source")
    _check(target_ids, bundle.target_tokenizer.vocab_size, "target")
    rows: dict[int, list[float]] = {place: [] for place in range(len(target_ids))}
    places = [place for place in rows if len(target_ids[place])]
    for place in places:
        if not len(source_ids[place]):
            raise ValueError(f"source sequence {place + 1} is empty; expected at least EOS")
        for one in bundles:
            one.model_config.check_lengths(len(source_ids[place]), len(target_ids[place]), f"pair {place + 1}")
    lengths = [len(source_ids[place]) + len(target_ids[place]) for place in places]
    for batch in token_batches(lengths, decode.batch_tokens):
        chosen = [places[at] for at in batch]
        sources, targets = [source_ids[place] for place in chosen], [target_ids[place] for place in chosen]
        found = _forced(model, bundle, sources, targets)
        rows.update(zip(chosen, found, strict=True))
    penalty = LengthPenalty(decode.penalty_form, decode.length_penalty)
    return [_pair(bundle, target_ids[place], row, penalty) for place, row in rows.items()]


def _forced(
    model: Transformer | Ensemble,
    bundle: Bundle,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> list[list[float]]:
    """Log-probability of every target piece. Normalised over the same outputs and in the same precision as search."""
    device = model.output.device
    special = bundle.target_tokenizer.special
    src, src_valid = pad(sources, bundle.source_tokenizer.special.pad, device)
    tgt_in, _ = pad([[special.bos, *target[:-1]] for target in targets], special.pad, device)
    tgt_out, tgt_valid = pad(targets, special.pad, device)
    with evaluation(model):
        logits = model(src, src_valid, tgt_in, tgt_valid)
        dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
        log_probs = logits.log_softmax(-1, dtype=dtype).gather(-1, tgt_out[..., None])[..., 0]
    check_numbers(log_probs.cpu().numpy()[tgt_valid.cpu().numpy()])
    return [row[: len(target)] for row, target in zip(log_probs.tolist(), targets, strict=True)]


def _pair(bundle: Bundle, ids: Sequence[int], token_log_probs: list[float], penalty: LengthPenalty) -> ScoredPair:
    log_prob = math.fsum(token_log_probs)
    return ScoredPair(
        log_prob=log_prob,
        score=log_prob / penalty(len(ids)) if ids else 0.0,
        tokens=tuple(bundle.target_tokenizer.pieces(ids)),
        ids=tuple(ids),
        token_log_probs=tuple(token_log_probs),
    )


def _check(sequences: Sequence[Sequence[int]], vocab_size: int, side: str) -> None:
    for number, ids in enumerate(sequences, start=1):
        outside = [id_ for id_ in ids if not 0 <= id_ < vocab_size]
        if outside:
            raise ValueError(
                f"{side} sequence {number} has ids {outside[:5]} outside the vocabulary of {vocab_size} pieces; "
                "score with the bundle that made them"
            )
