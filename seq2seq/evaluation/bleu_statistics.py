"""Counts that can be added over batches and processes, and the corpus BLEU that their sum gives.

BLEU is not a mean over sentences or batches: n-gram counts and lengths are summed first, and one score is computed from
the sums. Every part of a corpus, however split, gives the same score this way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU

from seq2seq.evaluation.metrics import MetricScore, bleu_detail, check_shapes
from seq2seq.text.bleu_tokenizer import bleu_tokenizer, instantiate_bleu

_ORDERS = 4


@dataclass(frozen=True)
class BleuStatistics:
    """Sufficient statistics of BLEU; the default is that of no sentences, and ``+`` joins two parts of a corpus."""

    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Matched n-grams of one to four tokens."""
    totals: tuple[int, int, int, int] = (0, 0, 0, 0)
    """All n-grams of the hypotheses."""
    hypothesis_length: int = 0
    """In tokens of sacreBLEU's tokenizer."""
    reference_length: int = 0
    """Of the reference closest in length, for each sentence."""

    def __add__(self, other: "BleuStatistics") -> "BleuStatistics":
        return self.from_values([mine + theirs for mine, theirs in zip(self.values(), other.values(), strict=True)])

    def values(self) -> list[int]:
        """The ten numbers in a fixed order, for a tensor that is summed over processes."""
        return [self.hypothesis_length, self.reference_length, *self.counts, *self.totals]

    @classmethod
    def from_values(cls, values: Sequence[int]) -> "BleuStatistics":
        """The inverse of `values`.

        Raises:
            ValueError: when there are not ten numbers.
        """
        if len(values) != 2 + 2 * _ORDERS:
            raise ValueError(f"BLEU statistics are {2 + 2 * _ORDERS} numbers, got {len(values)}")
        hypothesis_length, reference_length, c1, c2, c3, c4, t1, t2, t3, t4 = (int(value) for value in values)
        return cls((c1, c2, c3, c4), (t1, t2, t3, t4), hypothesis_length, reference_length)


def bleu_statistics(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    target_lang: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> BleuStatistics:
    """The statistics of one part of a corpus; those of no sentences when the part is empty.

    Args:
        hypotheses: The translations of this part.
        references: One list for each reference set, as in `corpus_scores`.
        target_lang: As in `corpus_scores`; the same for every part.
        tokenize: As in `corpus_scores`; the same for every part.
        lowercase: As in `corpus_scores`; the same for every part.

    Raises:
        ValueError: when the shapes disagree, or the tokenizer is unknown.
    """
    # A process may have no sentences of its own, and a part of no sentences is no error.
    if not hypotheses and references and not any(references):
        return BleuStatistics()
    check_shapes(hypotheses, references)
    metric = instantiate_bleu(bleu_tokenizer(target_lang, tokenize), lowercase=lowercase)
    result = metric.corpus_score(hypotheses, references)
    return BleuStatistics.from_values([result.sys_len, result.ref_len, *result.counts, *result.totals])


def corpus_bleu_from_statistics(
    statistics: BleuStatistics,
    *,
    num_references: int = 1,
    target_lang: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> MetricScore:
    """Corpus BLEU from summed statistics, equal to `corpus_scores` on the whole, signature included.

    Args:
        statistics: The sum over all parts: ``sum(parts, start=BleuStatistics())``.
        num_references: Number of reference sets, for the signature.
        target_lang: As in `bleu_statistics`.
        tokenize: As in `bleu_statistics`.
        lowercase: As in `bleu_statistics`.

    Raises:
        ValueError: when there is no reference set, or the tokenizer is unknown.
    """
    if num_references < 1:
        raise ValueError(f"num_references={num_references} must be at least 1")
    metric = instantiate_bleu(bleu_tokenizer(target_lang, tokenize), lowercase=lowercase)
    # sacreBLEU writes the number of references into the signature when it scores; an empty sentence is enough.
    metric.corpus_score([""], [[""]] * num_references)
    result = BLEU.compute_bleu(
        correct=list(statistics.counts),
        total=list(statistics.totals),
        sys_len=statistics.hypothesis_length,
        ref_len=statistics.reference_length,
        smooth_method=metric.smooth_method,
        smooth_value=metric.smooth_value,
    )
    return MetricScore("bleu", result.name, result.score, metric.get_signature().format(), bleu_detail(result))
