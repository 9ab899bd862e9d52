"""Corpus scores of translations: BLEU, chrF2++ and TER as sacreBLEU computes them, each with its signature.

Nothing is computed here. The module chooses sacreBLEU's options, refuses input that would silently give a wrong score,
and returns the results as values. References are raw text: no tokenizer of ours ever touches them.

Source: Post 2018, arXiv:1804.08771 (sacreBLEU and its signatures); Papineni et al. 2002 (BLEU); Popović 2015 and
2017 (chrF, chrF++); Snover et al. 2006 (TER). Deviations: none; the numbers are those of the `sacrebleu` command.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from sacrebleu.metrics.base import Score
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF, CHRFScore
from sacrebleu.metrics.ter import TER

from seq2seq.config import nearest
from seq2seq.text.bleu_tokenizer import bleu_tokenizer, instantiate_bleu

Metric: TypeAlias = BLEU | CHRF | TER

METRICS = ("bleu", "chrf", "ter")
"""The words that users type, in the order in which scores are shown."""


class _Chrf(CHRF):
    """sacreBLEU's chrF, always with a plain float.

    Of resampled counts it gives NumPy's float32, but a float where nothing matches, and its mean of both is a
    TypeError.
    """

    def _compute_score_from_stats(self, stats: Any) -> CHRFScore:
        result = super()._compute_score_from_stats(stats)
        return CHRFScore(float(result.score), self.char_order, self.word_order, self.beta)


@dataclass(frozen=True)
class Confidence:
    """A 95 % confidence interval, `mean` plus or minus `half_width`, from bootstrap resampling of the sentences."""

    mean: float
    half_width: float
    num_resamples: int
    seed: str


@dataclass(frozen=True)
class BleuDetail:
    """What a BLEU score is made of; lengths are in tokens of sacreBLEU's tokenizer."""

    precisions: tuple[float, ...]
    """Of n-grams of one to four tokens, in per cent, after smoothing."""
    counts: tuple[int, ...]
    """Matched n-grams."""
    totals: tuple[int, ...]
    """All n-grams of the hypotheses."""
    brevity_penalty: float
    length_ratio: float
    """Length of the hypotheses over that of the closest references."""
    hypothesis_length: int
    reference_length: int


@dataclass(frozen=True)
class MetricScore:
    """One metric's score of a whole corpus, from 0 to 100 (TER may be larger, and smaller is better)."""

    metric: str
    """The word for it in options and file names: bleu, chrf or ter."""
    name: str
    """sacreBLEU's name: BLEU, chrF2++ or TER."""
    score: float
    """Not rounded."""
    signature: str
    """Everything another person needs to get the same number."""
    bleu: BleuDetail | None = None
    """Of BLEU only."""
    confidence: Confidence | None = None
    """When asked for."""

    def line(self, width: int = 1) -> str:
        """The score as sacreBLEU prints it: name, signature, score with `width` decimals, what it is made of."""
        text = f"{self.name}|{self.signature} = {self.score:.{width}f}"
        if self.confidence is not None:
            text += f" (μ = {self.confidence.mean:.{width}f} ± {self.confidence.half_width:.{width}f})"
        return f"{text} {bleu_parts(self.bleu)}" if self.bleu is not None else text

    def as_dict(self) -> dict[str, Any]:
        """The same as plain builtins, for JSON; what a metric does not have is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def bleu_parts(detail: BleuDetail) -> str:
    """Precisions, brevity penalty and lengths, in sacreBLEU's words."""
    precisions = "/".join(f"{precision:.1f}" for precision in detail.precisions)
    return (
        f"{precisions} (BP = {detail.brevity_penalty:.3f} ratio = {detail.length_ratio:.3f} "
        f"hyp_len = {detail.hypothesis_length} ref_len = {detail.reference_length})"
    )


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metrics: Sequence[str] = METRICS,
    target_lang: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
    confidence: int | None = None,
) -> list[MetricScore]:
    """Scores of a corpus, one for each of `metrics`, in their order.

    Args:
        hypotheses: The translations, detokenised text, one for each sentence.
        references: One list for each reference SET (not for each sentence), each as long as `hypotheses`.
        metrics: Any of bleu, chrf, ter.
        target_lang: Language code that chooses BLEU's tokenizer (zh, ja and ko have their own, others 13a).
        tokenize: sacreBLEU's name of the tokenizer to use instead.
        lowercase: Ignore case in BLEU and chrF (TER always does).
        confidence: Number of bootstrap resamples for a 95 % confidence interval; None computes none.

    Raises:
        ValueError: when the shapes disagree, there are no sentences, or an option is unknown.
    """
    check_shapes(hypotheses, references)
    if confidence is not None and confidence < 2:
        raise ValueError(f"confidence={confidence} is too few bootstrap resamples; choose 2 or more (1000 is usual)")
    built = build_metrics(metrics, target_lang=target_lang, tokenize=tokenize, lowercase=lowercase)
    return [_score(word, metric, hypotheses, references, confidence) for word, metric in built.items()]


def sentence_bleu(
    hypothesis: str,
    references: Sequence[str],
    *,
    target_lang: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> MetricScore:
    """BLEU of one sentence: 0 for an empty hypothesis, 100 for one equal to a reference, however short.

    Its mean over a corpus is not the corpus' BLEU; use `corpus_scores` for that. Orders without any n-gram are left out
    (sacreBLEU's effective_order), which the signature says.

    Args:
        hypothesis: The translation.
        references: Every reference of this one sentence.
        target_lang: As in `corpus_scores`.
        tokenize: As in `corpus_scores`.
        lowercase: As in `corpus_scores`.

    Raises:
        ValueError: when there is no reference, or an option is unknown.
    """
    if isinstance(references, str) or not references:
        raise ValueError(f"expected a list of one or more references of the sentence, got {references!r}")
    metric = instantiate_bleu(bleu_tokenizer(target_lang, tokenize), lowercase=lowercase, effective_order=True)
    result = metric.sentence_score(hypothesis, list(references))
    return MetricScore("bleu", result.name, result.score, metric.get_signature().format(), bleu_detail(result))


def build_metrics(
    metrics: Sequence[str], *, target_lang: str | None = None, tokenize: str | None = None, lowercase: bool = False
) -> dict[str, Metric]:
    """sacreBLEU's metric objects by our words for them; call it to check the options before a long job.

    Raises:
        ValueError: when no metric is asked for, one is unknown or named twice, or BLEU's tokenizer cannot be had.
    """
    if not metrics:
        raise ValueError(f"no metric to compute; choose from {', '.join(METRICS)}")
    for word in metrics:
        if word not in METRICS:
            raise ValueError(f"unknown metric {word!r}{nearest(word, METRICS)}")
    if len(set(metrics)) < len(metrics):
        raise ValueError(f"a metric is named twice in {', '.join(metrics)}; name each once")
    tokenizer = bleu_tokenizer(target_lang, tokenize)
    built: dict[str, Metric] = {}
    for word in metrics:
        if word == "bleu":
            built[word] = instantiate_bleu(tokenizer, lowercase=lowercase)
        elif word == "chrf":
            built[word] = _Chrf(word_order=2, lowercase=lowercase)
        else:
            built[word] = TER()
    return built


def check_shapes(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse references that are not one list for each set, as long as the hypotheses.

    sacreBLEU pairs the two with zip, so that with one list for each sentence it scores the first sentence alone and
    says nothing. With as many sets as sentences both readings have the same shape, and cannot be told apart.

    Raises:
        ValueError: naming both counts.
    """
    if isinstance(hypotheses, str):
        raise ValueError("hypotheses is one string, expected a list with one string for each sentence")
    if not hypotheses:
        raise ValueError("there are no hypotheses to score; expected at least one sentence")
    if not references:
        raise ValueError("there are no references; expected at least one list, as long as the hypotheses")
    if any(isinstance(lines, str) for lines in references):
        raise ValueError(
            "references holds strings, expected one list of strings for each reference set: with a single set give "
            "[references]"
        )
    for number, lines in enumerate(references, start=1):
        if len(lines) != len(hypotheses):
            hint = "every hypothesis needs its reference at the same position"
            if len(references) == len(hypotheses):
                hint = (
                    "there are as many lists as hypotheses, so this looks like one list for each sentence; give one "
                    "list for each reference set instead: list(zip(*references))"
                )
            raise ValueError(
                f"reference set {number} of {len(references)} has {len(lines)} sentences, but there are "
                f"{len(hypotheses)} hypotheses; {hint}"
            )


def bleu_detail(result: BLEUScore) -> BleuDetail:
    """What sacreBLEU's result is made of, as a value."""
    return BleuDetail(
        precisions=tuple(result.precisions),
        counts=tuple(result.counts),
        totals=tuple(result.totals),
        brevity_penalty=result.bp,
        length_ratio=float(result.ratio),
        hypothesis_length=result.sys_len,
        reference_length=result.ref_len,
    )


def _score(
    word: str, metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], confidence: int | None
) -> MetricScore:
    result = metric.corpus_score(hypotheses, references, n_bootstrap=confidence or 1)
    signature = metric.get_signature()
    return MetricScore(
        metric=word,
        name=result.name,
        score=result.score,
        signature=signature.format(),
        bleu=bleu_detail(result) if isinstance(result, BLEUScore) else None,
        confidence=None
        if confidence is None
        else _confidence(result, signature.format(), confidence, str(signature.info["seed"])),
    )


def _confidence(result: Score, signature: str, num_resamples: int, seed: str) -> Confidence:
    # The formatter is sacreBLEU's only public way to the interval; it leaves the interval out when its mean is 0.
    printed = json.loads(result.format(width=9, signature=signature, is_json=True))
    return Confidence(
        mean=printed.get("confidence_mean", 0.0),
        half_width=printed.get("confidence_var", 0.0),
        num_resamples=num_resamples,
        seed=seed,
    )
