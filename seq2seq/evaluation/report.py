"""What `seq2seq evaluate` prints: the scores with their signatures and everything that was set, as a table or JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from seq2seq.evaluation.metrics import METRICS, MetricScore, bleu_parts, corpus_scores
from seq2seq.evaluation.significance import PairedScore, paired_bootstrap
from seq2seq.text.bleu_tokenizer import bleu_tokenizer
from seq2seq.text.lines import is_blank


@dataclass(frozen=True)
class Scoring:
    """What is computed from hypotheses and references."""

    metrics: Sequence[str] = METRICS
    target_lang: str | None = None
    tokenize: str | None = None
    lowercase: bool = False
    confidence: bool = False
    num_resamples: int = 1000
    """For confidence intervals and for the comparison with a baseline."""
    strict: bool = False
    """Refuse text that looks tokenised."""


@dataclass(frozen=True)
class Report:
    """Scores of one corpus, and how they came about."""

    scores: list[MetricScore]
    num_sentences: int
    num_references: int
    """Reference sets."""
    num_empty: int
    """Hypotheses without any character but white space."""
    settings: dict[str, Any]
    """Files and options by name, as plain builtins."""
    decode: dict[str, Any] | None = None
    """How the hypotheses were searched for; None when they were read from a file."""
    paired: list[PairedScore] = field(default_factory=list)
    """Comparison with the baseline, if there is one."""
    warnings: list[str] = field(default_factory=list)
    """What the user should know about the text."""

    def as_json(self) -> str:
        """One JSON object: scores and comparison by metric, counts, settings, decode settings, warnings."""
        return json.dumps(
            {
                "scores": {score.metric: score.as_dict() for score in self.scores},
                "paired": {score.metric: score.as_dict() for score in self.paired},
                "counts": {
                    "sentences": self.num_sentences,
                    "reference_sets": self.num_references,
                    "empty_hypotheses": self.num_empty,
                },
                "settings": self.settings,
                "decode": self.decode,
                "warnings": self.warnings,
            },
            ensure_ascii=False,
            indent=2,
        )

    def as_table(self) -> str:
        """One line a metric, what BLEU is made of, the comparison, the counts, the decode settings."""
        lines = []
        for score in self.scores:
            lines.append(_score_line(score))
            if score.bleu is not None:
                lines.append(" " * 10 + bleu_parts(score.bleu))
        lines += [_paired_line(score) for score in self.paired]
        empty = f", {self.num_empty} of the hypotheses empty" if self.num_empty else ""
        sets = "reference set" if self.num_references == 1 else "reference sets"
        lines.append(f"Scored    {self.num_sentences} sentences, {self.num_references} {sets}{empty}")
        if self.decode is not None:
            lines.append("Decode    " + " ".join(f"{name}={_plain(value)}" for name, value in self.decode.items()))
        return "\n".join(lines)


def make_report(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    scoring: Scoring,
    *,
    baseline: Sequence[str] | None = None,
    files: dict[str, Any] | None = None,
    decode: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> Report:
    """Scores of the hypotheses as `scoring` says, with everything that a reader needs to get them again.

    Args:
        hypotheses: The translations, one for each sentence.
        references: One list for each reference set.
        scoring: What to compute.
        baseline: Another system's translations, to compare with.
        files: Where the text came from, by name.
        decode: The search settings that the hypotheses were found with.
        warnings: What the user has been told about the text.

    Raises:
        ValueError: when the shapes disagree, or an option is unknown.
    """
    options: dict[str, Any] = {
        "target_lang": scoring.target_lang,
        "tokenize": bleu_tokenizer(scoring.target_lang, scoring.tokenize),
        "lowercase": scoring.lowercase,
    }
    num_resamples = scoring.num_resamples if scoring.confidence else None
    scores = corpus_scores(hypotheses, references, metrics=scoring.metrics, confidence=num_resamples, **options)
    paired = []
    if baseline is not None:
        paired = paired_bootstrap(
            hypotheses, baseline, references, metrics=scoring.metrics, num_resamples=scoring.num_resamples, **options
        )
    return Report(
        scores=scores,
        num_sentences=len(hypotheses),
        num_references=len(references),
        num_empty=sum(is_blank(line) for line in hypotheses),
        settings={**(files or {}), **options},
        decode=decode,
        paired=paired,
        warnings=list(warnings),
    )


def _score_line(score: MetricScore) -> str:
    interval = ""
    if score.confidence is not None:
        found = score.confidence
        interval = f"  95 % interval {found.mean:.2f} ± {found.half_width:.2f}"
    return f"{score.name:<8}{score.score:>7.2f}{interval}  {score.signature}"


def _paired_line(score: PairedScore) -> str:
    difference = score.score - score.baseline_score
    return (
        f"{score.name:<8}{difference:>+7.2f}  against the baseline's {score.baseline_score:.2f}, "
        f"p = {score.p_value:.4f}  {score.signature}"
    )


def _plain(value: Any) -> str:
    return "null" if value is None else str(value)
