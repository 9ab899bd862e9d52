"""A picture of what beam sizes and length penalties give: BLEU on the left, the length ratio on the right."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seq2seq.inspection.picture import HEADING, TEXT, TITLE, Canvas
from seq2seq.inspection.picture_fonts import choose_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 9.6, 4.4
"""Inches."""

MARKERS = "os^Dv*Px<>"
"""Told apart in black and white too, as are the kinds of lines."""

DASHES = ("-", "--", "-.", ":")

DARKEST, BRIGHTEST = 0.0, 0.75
"""Ends of the colours; what is brighter is hard to see on white."""


@dataclass(frozen=True)
class Measured:
    """What a beam size and a length penalty give."""

    beam_size: int
    length_penalty: float
    bleu: float
    length_ratio: float


def sweep_picture(points: Sequence[Measured], heading: str, caption: str, present: tuple[int, float]) -> Canvas:
    """The picture, not yet written. Each penalty is a line over the beam sizes; with one beam size the other way round.

    Args:
        points: At least one; every beam size with every penalty.
        heading: Of which model and text.
        caption: Below: how BLEU was measured.
        present: Beam size and penalty that are marked as those in use; they need not be among the points.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    families = choose_fonts([heading, caption]).families
    figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.07, right=0.855, top=0.87, bottom=0.2, wspace=0.22)
    _draw(left, points, present, "BLEU", lambda point: point.bleu)
    _draw(right, points, present, "length ratio (translations / references)", lambda point: point.length_ratio)
    right.axhline(1.0, color="black", linewidth=0.8, zorder=1)
    right.legend(
        title="length penalty" if len({point.beam_size for point in points}) > 1 else "beam size",
        loc="upper left",
        bbox_to_anchor=(1.03, 1.02),
        fontsize=TITLE,
        title_fontsize=TITLE,
        handlelength=3.2,
        labelspacing=1.0,
        frameon=False,
    )
    canvas = Canvas(left, families)
    for text, y, size in ((heading, 0.965, HEADING), (caption, 0.03, TEXT)):
        figure.text(
            0.07, y, text, family=list(families), fontsize=size, parse_math=False, va="top" if y > 0.5 else "bottom"
        )
    return canvas


def _draw(
    axes: "Axes", points: Sequence[Measured], present: tuple[int, float], name: str, value: Callable[[Measured], float]
) -> None:
    """One panel."""
    from matplotlib import colormaps

    by_beam = len({point.beam_size for point in points}) > 1
    series, across = _axes_of(points, by_beam)
    for at, one in enumerate(series):
        own = [point for point in points if (point.length_penalty if by_beam else point.beam_size) == one]
        shade = DARKEST + (BRIGHTEST - DARKEST) * at / max(1, len(series) - 1)
        axes.plot(
            [across.index(point.beam_size if by_beam else point.length_penalty) for point in own],
            [value(point) for point in own],
            label=f"{one:g}",
            color=colormaps["viridis"](shade),
            marker=MARKERS[at % len(MARKERS)],
            linestyle=DASHES[at % len(DASHES)],
            markersize=6,
            linewidth=1.4,
        )
    _mark(axes, points, present, across, by_beam, value)
    axes.set_xticks(range(len(across)), [f"{one:g}" for one in across])
    axes.set_xlabel("beam size" if by_beam else "length penalty", fontsize=TITLE)
    axes.set_ylabel(name, fontsize=TITLE)
    axes.tick_params(labelsize=TITLE)
    axes.grid(visible=True, color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)


def _axes_of(points: Sequence[Measured], by_beam: bool) -> tuple[list[float], list[float]]:
    """The values of the lines, and those of the ticks below them."""
    beams = sorted({float(point.beam_size) for point in points})
    penalties = sorted({point.length_penalty for point in points})
    return (penalties, beams) if by_beam else (beams, penalties)


def _mark(
    axes: "Axes",
    points: Sequence[Measured],
    present: tuple[int, float],
    across: Sequence[float],
    by_beam: bool,
    value: Callable[[Measured], float],
) -> None:
    """Rings around the setting in use, and around the one with the highest BLEU."""
    best = max(points, key=lambda point: point.bleu)
    used = [("in use", point) for point in points if (point.beam_size, point.length_penalty) == present]
    for name, point in [("best BLEU", best), *used]:
        axes.plot(
            across.index(point.beam_size if by_beam else point.length_penalty),
            value(point),
            marker="o" if name == "in use" else "s",
            markersize=13,
            markerfacecolor="none",
            markeredgecolor="black",
            markeredgewidth=1.1,
            linestyle="none",
            label=name,
            zorder=3,
        )
