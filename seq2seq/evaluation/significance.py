"""Whether one system is better than another by more than chance: paired bootstrap resampling, by sacreBLEU.

Source: Koehn 2004 (paired bootstrap resampling), as sacreBLEU implements it after Moses. Deviations: two systems with
the same score have p = 1; sacreBLEU counts only resamples whose difference is strictly larger than the observed one,
and so gives the smallest p that there is to a system compared with itself.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.significance import PairedTest, Result

from seq2seq.evaluation.metrics import METRICS, build_metrics, check_shapes


@dataclass(frozen=True)
class PairedScore:
    """One metric of a system and of the baseline that it is compared with, on the same sentences."""

    metric: str
    name: str
    score: float
    baseline_score: float
    p_value: float
    """Probability of a difference at least this large if both systems were equally good."""
    signature: str
    """Names the number of resamples and the seed too."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain builtins, for JSON."""
        return asdict(self)


def paired_bootstrap(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metrics: Sequence[str] = METRICS,
    num_resamples: int = 1000,
    target_lang: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[PairedScore]:
    """Scores of a system and a baseline with the p-value of their difference, one for each of `metrics`.

    Args:
        hypotheses: The system's translations.
        baseline: The other system's translations of the same sentences.
        references: One list for each reference set, as in `corpus_scores`.
        metrics: Any of bleu, chrf, ter.
        num_resamples: Corpora that are drawn.
        target_lang: As in `corpus_scores`.
        tokenize: As in `corpus_scores`.
        lowercase: As in `corpus_scores`.

    Raises:
        ValueError: when the shapes disagree, or an option is unknown.
    """
    if num_resamples < 2:
        raise ValueError(f"num_resamples={num_resamples} is too few; choose 2 or more (1000 is usual)")
    check_shapes(hypotheses, references)
    if len(baseline) != len(hypotheses):
        raise ValueError(
            f"the baseline has {len(baseline)} sentences, but there are {len(hypotheses)} hypotheses; both must "
            "translate the same sentences"
        )
    built = build_metrics(metrics, target_lang=target_lang, tokenize=tokenize, lowercase=lowercase)
    systems = [("baseline", baseline), ("system", hypotheses)]
    signatures, results = PairedTest(systems, built, references, test_type="bs", n_samples=num_resamples)()
    # sacreBLEU answers by its own names, in the order of the metrics that went in; "System" heads the systems' names.
    names = [name for name in results if name != "System"]
    return [
        _paired(word, name, results[name], signatures[name].format()) for word, name in zip(built, names, strict=True)
    ]


def _paired(word: str, name: str, results: Sequence[str | Result], signature: str) -> PairedScore:
    baseline, system = results
    assert isinstance(baseline, Result)
    assert isinstance(system, Result)
    assert system.p_value is not None
    p_value = 1.0 if system.score == baseline.score else float(system.p_value)
    return PairedScore(word, name, float(system.score), float(baseline.score), p_value, signature)
