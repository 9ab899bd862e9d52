"""A picture of what heads do: for each kind of attention a row of panels, one for each measure, layers by heads."""

import numpy as np

from seq2seq.inspection.attention import Kind
from seq2seq.inspection.heads import MEASURES, HeadProfile, HeadReport
from seq2seq.inspection.heads_report import HEADERS, NAMES, counted
from seq2seq.inspection.picture import BAR_ROOM, HEADING, TEXT, TITLE, Canvas, text_width
from seq2seq.inspection.picture_fonts import choose_fonts

CELL_WIDTH, CELL_HEIGHT = 0.34, 0.24
"""Inches of one head's field, which a figure of two decimals fits into."""

MIN_WIDTH = 1.3
"""Inches of a panel of few heads, so that its title has room."""

GAP, PAD = 0.16, 0.04
"""Inches between panels, and between a panel and its figures."""

LEFT, ABOVE, BELOW = 0.38, 0.24, 0.42
"""Inches for the numbers of layers, for a title, and for the numbers of heads."""

HEADING_ROOM = 0.34
"""Inches for a line of heading."""

BRIGHT = 0.55
"""From this value on a colour is so bright that a figure on it is black, not white."""


def heads_picture(report: HeadReport) -> Canvas:
    """The picture, not yet written."""
    families = choose_fonts([]).families
    kinds = {kind: [one for one in report.profiles if one.kind is kind] for kind in report.uniform}
    panels = {kind: _panels(own) for kind, own in kinds.items()}
    sizes = {kind: _size(own[0][1]) for kind, own in panels.items()}
    caption = f"heads over {counted(report)}"
    width = max(len(own) * sizes[kind][0] for kind, own in panels.items())
    width = GAP + max(width, text_width([caption], TITLE, families) + GAP) + BAR_ROOM
    canvas = Canvas.new(
        width, GAP + HEADING_ROOM * (1 + len(kinds)) + sum(size[1] for size in sizes.values()), families
    )
    canvas.text(caption, GAP, GAP, TITLE)
    y = GAP + HEADING_ROOM
    canvas.colour_bar(width - BAR_ROOM, y + HEADING_ROOM + ABOVE, "value")
    for kind, own in panels.items():
        canvas.text(_heading(kind, report), GAP, y, HEADING)
        for at, (title, values) in enumerate(own):
            _draw_panel(canvas, title, values, GAP + at * sizes[kind][0], y + HEADING_ROOM)
        y += HEADING_ROOM + sizes[kind][1]
    return canvas


def _heading(kind: Kind, report: HeadReport) -> str:
    uniform = {name: value for name, value in report.uniform[kind].items() if value is not None and name != "entropy"}
    shares = ", ".join(f"{HEADERS[name]} {value:.2f}" for name, value in uniform.items())
    return f"{NAMES[kind]}   (a uniform head: {shares})"


def _panels(profiles: list[HeadProfile]) -> list[tuple[str, np.ndarray]]:
    """Title and values, layers by heads, of each measure that these heads have."""
    shape = max(one.layer for one in profiles), max(one.head for one in profiles)
    panels = []
    for name in MEASURES:
        values = np.full(shape, np.nan)
        for one in profiles:
            value = one.measures[name]
            values[one.layer - 1, one.head - 1] = np.nan if value is None else value
        if not np.isnan(values).all():
            panels.append((HEADERS[name], values))
    return panels


def _size(values: np.ndarray) -> tuple[float, float]:
    """Width and height of a panel with what stands around it."""
    rows, columns = values.shape
    return LEFT + max(MIN_WIDTH, columns * CELL_WIDTH) + GAP, ABOVE + rows * CELL_HEIGHT + BELOW


def _draw_panel(canvas: Canvas, title: str, values: np.ndarray, x: float, y: float) -> None:
    rows, columns = values.shape
    left, top = x + LEFT, y + ABOVE
    width, height = max(MIN_WIDTH, columns * CELL_WIDTH), rows * CELL_HEIGHT
    canvas.heat(values, left, top, width, height)
    canvas.text(title, left + width / 2, top - PAD, TITLE, at=("center", "bottom"))
    for row in range(rows):
        middle = top + (row + 0.5) * CELL_HEIGHT
        canvas.text(str(row + 1), left - PAD, middle, TEXT, at=("right", "center"))
        for column in range(columns):
            value = values[row, column]
            colour = "black" if value >= BRIGHT else "white"
            place = left + (column + 0.5) * width / columns
            canvas.text(f"{value:.2f}".removeprefix("0"), place, middle, TEXT, at=("center", "center"), colour=colour)
    for column in range(columns):
        place = left + (column + 0.5) * width / columns
        canvas.text(str(column + 1), place, top + height + PAD, TEXT, at=("center", "top"))
    canvas.text("head", left + width / 2, top + height + BELOW / 2, TEXT, at=("center", "center"))
    canvas.text("layer", x, top + height / 2, TEXT, at=("left", "center"), upwards=True)
