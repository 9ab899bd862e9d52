"""report.html: a run on one page that needs no network: curves, sample translations, options, versions."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seq2seq.text.lines import write_bytes
from seq2seq.training.report_curves import chart_svg, charts_of
from seq2seq.training.run_history import RunHistory, changed_options, read_history

log = logging.getLogger(__name__)

REPORT_FILE = "report.html"

MOST_ANSWERS = 12
"""Validations whose translations of a sample are shown: the first, the last, and some between, evenly."""

_FIGURES = (
    ("valid/bleu", "BLEU", "{:.1f}"),
    ("valid/chrf", "chrF2++", "{:.1f}"),
    ("valid/perplexity", "Perplexity", "{:.2f}"),
    ("valid/bits_per_byte", "Bits a byte", "{:.3f}"),
    ("valid/exposure_gap", "Exposure gap", "{:.3f}"),
    ("train/target_tokens_per_second", "Target tokens/s", "{:,.0f}"),
)
"""Metrics whose last value stands at the top, with how it is written."""


def write_report(run_dirs: Sequence[str | Path], file: str | Path) -> None:
    """Write the page of one run, or of several beside each other.

    Args:
        run_dirs: Folders of runs, finished or not.
        file: Where the page goes.

    Raises:
        FileNotFoundError: if a folder is not a run's.
        ValueError: if what stands there cannot be read.
    """
    write_bytes(file, report_page([read_history(run_dir) for run_dir in run_dirs]).encode("utf-8"))


def report_page(runs: Sequence[RunHistory]) -> str:
    """The page as HTML, all of it in one text."""
    environment = Environment(
        loader=PackageLoader("seq2seq.training", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    charts = [
        {"svg": Markup(chart_svg(chart, runs)), "title": chart.title, "note": chart.note} for chart in charts_of(runs)
    ]
    return environment.get_template("report.html.j2").render(
        title=", ".join(run.name for run in runs), charts=charts, runs=[_described(run) for run in runs]
    )


def _described(run: RunHistory) -> dict[str, Any]:
    """What the page says of a run."""
    figures = [("Steps", f"{run.num_steps:,}")]
    for metric, called, form in _FIGURES:
        value = run.last(metric)
        if value is not None:
            figures.append((called, form.format(value)))
    return {
        "name": run.name,
        "started": run.facts.get("started", "unknown"),
        "seed": run.facts.get("seed", "unknown"),
        "figures": figures,
        "has_metrics": bool(run.metrics),
        "samples": [
            {
                "place": line.place,
                "source": line.source,
                "reference": line.reference,
                "answers": some_of(line.answers, MOST_ANSWERS),
            }
            for line in run.samples
        ],
        "changed": [(name, _written(value)) for name, value in changed_options(run.config).items()],
        "config": yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True),
        "versions": run.facts.get("versions", {}),
        "files": [(path, found) for path, found in run.facts.get("data", {}).items()],
    }


def _written(value: Any) -> str:
    """An option's value as one would type it."""
    return (
        yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000).removesuffix("...\n").strip()
    )


def some_of(answers: Sequence[tuple[int, str]], most: int) -> list[tuple[int, str]]:
    """The first, the last, and so many between, evenly, that `most` are chosen."""
    if len(answers) <= most:
        return list(answers)
    return [answers[i * (len(answers) - 1) // (most - 1)] for i in range(most)]
