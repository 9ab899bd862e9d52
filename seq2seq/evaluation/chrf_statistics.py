"""Counts of chrF2++ that can be added over batches and processes, and the corpus score that their sum gives.

As with BLEU, the score of a corpus is no mean over its sentences: n-grams are counted first, over all of them, and one
score is computed from the sums.
"""

from collections.abc import Sequence

from seq2seq.evaluation.metrics import MetricScore, build_metrics, check_shapes

_NUM_COUNTS = 3 * (6 + 2)
"""N-grams of hypothesis and reference, and those that match: characters by one to six, words by one and two."""


def chrf_statistics(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> list[int]:
    """The counts of one part of a corpus, to be added to those of the others; zeros when the part is empty.

    Args:
        hypotheses: The translations of this part.
        references: One list for each reference set, as in `corpus_scores`.
        lowercase: As in `corpus_scores`; the same for every part.

    Raises:
        ValueError: when the shapes disagree.
    """
    if not hypotheses and references and not any(references):
        return [0] * _NUM_COUNTS
    check_shapes(hypotheses, references)
    metric = build_metrics(("chrf",), lowercase=lowercase)["chrf"]
    # sacreBLEU has no public way to a sentence's counts; a test holds the sum against its score of the whole
    counts: list[list[int]] = metric._extract_corpus_statistics(hypotheses, references)
    return [sum(column) for column in zip(*counts, strict=True)]


def corpus_chrf_from_statistics(
    statistics: Sequence[int], *, num_references: int = 1, lowercase: bool = False
) -> MetricScore:
    """Corpus chrF2++ from summed counts, equal to `corpus_scores` on the whole, signature included.

    Args:
        statistics: The sum over all parts, place by place.
        num_references: Number of reference sets, for the signature.
        lowercase: As in `chrf_statistics`.

    Raises:
        ValueError: when there is no reference set, or another number of counts than there are.
    """
    if num_references < 1:
        raise ValueError(f"num_references={num_references} must be at least 1")
    if len(statistics) != _NUM_COUNTS:
        raise ValueError(f"chrF2++ statistics are {_NUM_COUNTS} numbers, got {len(statistics)}")
    metric = build_metrics(("chrf",), lowercase=lowercase)["chrf"]
    # sacreBLEU writes the number of references into the signature when it scores; an empty sentence is enough.
    metric.corpus_score([""], [[""]] * num_references)
    result = metric._compute_score_from_stats(list(statistics))
    return MetricScore("chrf", result.name, result.score, metric.get_signature().format())
