"""The search for translations of one batch: from pieces of the source to pieces of the target."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig
from seq2seq.models import Ensemble, Transformer
from seq2seq.search import (
    DeadEndError,
    Hypothesis,
    LengthPenalty,
    SearchLimits,
    beam_search,
    random_source,
    sample,
)
from seq2seq.search.step import EstimateFunction, StepFunction
from seq2seq.search.vocabulary import Vocabulary
from seq2seq.translator.alignments import aligned_head, aligned_layer
from seq2seq.translator.batches import Part, length_limits, pad
from seq2seq.translator.rules import BatchRules, batch_rules
from seq2seq.translator.shortlists import narrowed, of_model, own_pieces


def search(
    model: Transformer | Ensemble,
    bundle: Bundle,
    parts: Sequence[Part],
    decode: DecodeConfig,
    text: Callable[[tuple[int, ...]], str],
    *,
    scored: bool = True,
) -> list[list[Hypothesis]]:
    """Up to `decode.num_found` hypotheses for each part, best first; drawn ones in the order of their numbers.

    What is drawn depends on the seed, the number of the line, that of the sample and where the part starts in the line.

    Args:
        model: The network that translates.
        bundle: Its tokenizers, and its shortlist, which is there if `decode.shortlist` asks for it.
        parts: What to translate.
        decode: Options.
        text: What ids spell; hypotheses that spell the same are one answer.
        scored: Whether log-probabilities are wanted where the search finds its way without them: with a beam of 1.

    Raises:
        ValueError: if a part has no possible hypothesis.
    """
    narrow = narrowed(model, bundle, parts, forbids=_forbids(model, decode, scored)) if decode.shortlist else None
    vocabulary = Vocabulary() if narrow is None else Vocabulary(narrow.pieces)
    device = model.output.device
    # each kind of model has its own kind of state
    step: StepFunction[Any] = model.step if narrow is None else narrow.step
    estimate: EstimateFunction[Any] | None = None
    if narrow is None and isinstance(model, Transformer) and model.estimated is not None:
        estimate = model.estimated_step
    # every sample is a sentence of the search
    wanted = [part for part in parts for _ in range(decode.num_found)] if decode.draws else parts
    limits = _limits(bundle, decode, wanted, vocabulary, len(model.output))
    rules = batch_rules(bundle, decode, wanted, limits, vocabulary)
    if narrow is not None:
        rules.rules.extend(own_pieces(narrow, len(wanted) // len(parts)))
    start = model.start if narrow is None else narrow.start
    state: Any = start(*pad([part.source for part in parts], bundle.source_tokenizer.special.pad, device))
    if decode.coverage_penalty:
        state = state.watch(aligned_layer(bundle.model_config, decode), aligned_head(decode))
    try:
        if decode.draws:
            hypotheses = _drawn(step, state, limits, rules, parts, decode, device)
        else:
            hypotheses = beam_search(
                step,
                state,
                limits,
                beam_size=decode.beam_size,
                n_best=decode.num_found,
                penalty=LengthPenalty(decode.penalty_form, decode.length_penalty),
                patience=decode.patience,
                identity=lambda numbers: text(vocabulary.ids(numbers)),
                edits=rules.edits,
                rules=rules.rules,
                progress=rules.progress,
                bonus=rules.bonus if rules.bonus is None or narrow is None else of_model(rules.bonus),
                scored=scored,
                estimate=estimate,
                ranking=model.ranking if isinstance(model, Transformer) else None,
                device=device,
            )
    except DeadEndError as error:
        raise ValueError(_no_way(wanted[error.sentence], decode)) from error
    return [
        [replace(one, ids=vocabulary.ids(one.ids), hit_limit=one.hit_limit and not part.forced) for one in found]
        for part, found in zip(parts, hypotheses, strict=True)
    ]


def _forbids(model: Transformer | Ensemble, decode: DecodeConfig, scored: bool) -> bool:
    """Whether a narrowed model may give -inf: where no norm is taken, or not by torch, to which that is slow."""
    if decode.draws or not isinstance(model, Transformer):
        return False
    return model.ranking is not None if decode.beam_size > 1 else not scored


def _no_way(part: Part, decode: DecodeConfig) -> str:
    """What is said of a line for which the search has come to a dead end, with all that may have led there."""
    usual = DecodeConfig()
    names = ("min_length", "min_length_factor", "no_repeat_ngram", "forbidden", "forbid_unknown", "shortlist")
    reasons = [f"{name}={getattr(decode, name)}" for name in names if getattr(decode, name) != getattr(usual, name)]
    if part.prefix:
        reasons.append("its target" if part.forced else "its prefix")
    reasons += [f"the phrases {list(part.phrases)}"] if part.phrases else []
    if not reasons:
        return f"line {part.number} has no translation: all pieces that may come next have probability 0 in this model"
    where = "" if decode.beam_size == 1 else f" among the {decode.beam_size} hypotheses of its beam"
    return (
        f"line {part.number} has no translation{where}: nothing may come next that agrees "
        f"with {', '.join(reasons)}; take {'one of them' if len(reasons) > 1 else 'it'} back"
        + ("" if decode.draws else ", or raise beam_size")
    )


def _drawn(
    step: StepFunction[Any],
    state: Any,
    limits: SearchLimits,
    rules: BatchRules,
    parts: Sequence[Part],
    decode: DecodeConfig,
    device: torch.device,
) -> list[list[Hypothesis]]:
    """The samples of each part; of a forced one, which are all alike, the first."""
    rows = torch.arange(len(parts), device=device).repeat_interleave(decode.num_found)
    found = sample(
        step,
        state.select(rows, rows),
        limits,
        filters=rules.filters,
        sources=[
            random_source(decode.seed, part.number, number, part.first)
            for part in parts
            for number in range(decode.num_found)
        ],
        penalty=LengthPenalty(decode.penalty_form, decode.length_penalty),
        edits=rules.edits,
        rules=rules.rules,
        device=device,
    )
    samples = iter(found)
    own = [[next(samples) for _ in range(decode.num_found)] for _ in parts]
    return [drawn[:1] if part.forced else drawn for part, drawn in zip(parts, own, strict=True)]


def _limits(
    bundle: Bundle, decode: DecodeConfig, parts: Sequence[Part], vocabulary: Vocabulary, num_outputs: int
) -> SearchLimits:
    """What may be produced, in the numbers of the vocabulary."""
    special, vocab_size = bundle.target_tokenizer.special, bundle.target_tokenizer.vocab_size
    # Imported models may have one id for EOS and others; what ends a translation must remain possible.
    unwanted = {special.pad, special.bos} - {special.eos}
    suppressed = [vocabulary.number(id_) for id_ in (*sorted(unwanted), *range(vocab_size, num_outputs))]
    lengths = [length_limits(decode, len(part.source), len(part.prefix) + part.room, part.positions) for part in parts]
    for at, part in enumerate(parts):
        if part.forced:
            lengths[at] = (len(part.prefix) + 1, len(part.prefix) + 1)
    prefixes = [vocabulary.numbers(part.prefix) for part in parts]
    bos, eos = vocabulary.number(special.bos), vocabulary.number(special.eos)
    assert bos is not None
    assert eos is not None
    assert None not in prefixes, "a shortlist contains the prefixes"
    return SearchLimits(
        bos=bos,
        eos=eos,
        suppressed=tuple(number for number in suppressed if number is not None),
        min_lengths=[shortest for shortest, _ in lengths],
        max_lengths=[longest for _, longest in lengths],
        prefixes=[prefix or [] for prefix in prefixes],
    )
