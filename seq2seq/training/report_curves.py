"""The curves of a run report as SVG: metrics by optimiser step, one run or several laid over each other."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seq2seq.training.run_history import RunHistory, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by the colour-blind too (Okabe and Ito 2008); one for each run, or for each curve of one run."""

MOST_POINTS = 600
"""Of a curve; more are averaged in groups, since nobody can see them."""

WIDTH, HEIGHT = 5.6, 3.1
"""Inches of a chart."""


@dataclass(frozen=True)
class Chart:
    """What stands in one system of axes."""

    title: str
    """With the unit."""
    curves: tuple[tuple[str, str], ...]
    """Metric and what it is called beside the others."""
    logarithmic: bool = False
    """Whether the values are so."""
    note: str = ""
    """What a reader should know."""


CHARTS = (
    Chart(
        "Loss (nats a piece)",
        (
            ("train/loss", "training, smoothed"),
            ("valid/nll", "validation, not smoothed"),
            ("valid/loss", "validation, smoothed"),
        ),
    ),
    Chart("Perplexity", (("train/perplexity", "training"), ("valid/perplexity", "validation")), logarithmic=True),
    Chart("BLEU and chrF2++", (("valid/bleu", "BLEU"), ("valid/chrf", "chrF2++"))),
    Chart("Bits a byte", (("valid/bits_per_byte", "validation"),)),
    Chart(
        "Share of right pieces",
        (("valid/teacher_forced_accuracy", "teacher-forced"), ("valid/free_running_accuracy", "free-running")),
        note="Free-running: the model reads its own predictions, as it does when it translates.",
    ),
    Chart("Exposure gap", (("valid/exposure_gap", "teacher-forced minus free-running"),)),
    Chart("Share of replaced pieces", (("train/mixing_rate", "scheduled sampling"),)),
    Chart("Learning rate", (("train/lr", "learning rate"),)),
    Chart("Norm of the gradients before clipping", (("train/grad_norm", "norm"),), logarithmic=True),
    Chart("Target tokens a second", (("train/target_tokens_per_second", "training"),)),
    Chart("Skipped steps", (("train/skipped_steps", "gradients not finite"),)),
)
"""In the order of the page. A chart none of whose metrics was logged is left out, as is one that is 0 throughout."""


def charts_of(runs: Sequence[RunHistory]) -> list[Chart]:
    """The charts that have something to show."""
    return [chart for chart in CHARTS if any(_shown(run, metric) for run in runs for metric, _ in chart.curves)]


def _shown(run: RunHistory, metric: str) -> Series | None:
    series = run.metrics.get(metric)
    return series if series is not None and any(series.values) else None


def chart_svg(chart: Chart, runs: Sequence[RunHistory]) -> str:
    """One chart as an `<svg>` element.

    With several runs a colour is a run and the kind of line a metric; with one run a colour is a metric.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for run_number, run in enumerate(runs):
        for curve_number, (metric, called) in enumerate(chart.curves):
            series = _shown(run, metric)
            if series is None:
                continue
            several = len(runs) > 1
            _draw(
                axes,
                thinned(series),
                f"{run.name}: {called}" if several else called,
                COLOURS[(run_number if several else curve_number) % len(COLOURS)],
                ("-", "--", ":")[curve_number % 3] if several else "-",
            )
    axes.set_title(chart.title, fontsize=10, loc="left")
    axes.set_xlabel("optimiser step", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if chart.logarithmic:
        _make_logarithmic(axes)
    if len(runs) > 1 or len(chart.curves) > 1:
        axes.legend(fontsize=7, frameon=False)
    stream = io.StringIO()
    # letters stay letters, and the same run gives the same file
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.title, "font.family": "sans-serif"}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = stream.getvalue()
    return text[text.index("<svg") :]


def _make_logarithmic(axes: "Axes") -> None:
    """A logarithmic axis with plain numbers, also between the powers of ten where few of them are in sight."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_major_formatter(plain)
    axes.yaxis.set_minor_formatter(plain if high < 20 * low else NullFormatter())
    axes.tick_params(axis="y", which="minor", labelsize=7)


def _draw(axes: "Axes", series: Series, label: str, colour: str, style: str) -> None:
    few = len(series.steps) <= 40
    axes.plot(
        series.steps,
        series.values,
        style,
        color=colour,
        label=label,
        linewidth=1.4,
        marker="o" if few else None,
        markersize=3,
    )


def thinned(series: Series, most: int = MOST_POINTS) -> Series:
    """At most `most` points: means of as many groups of neighbours where there are more."""
    if len(series.steps) <= most:
        return series
    steps = [round(float(group.mean())) for group in np.array_split(np.array(series.steps), most)]
    values = [float(group.mean()) for group in np.array_split(np.array(series.values), most)]
    return Series(steps, values)
