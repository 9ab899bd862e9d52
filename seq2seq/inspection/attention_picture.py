"""A picture of attention maps: for each kind of attention a row of means, and below it a grid, layers by heads.

Every map has its pieces on both axes, in letters that can be read at full size, so the picture grows with the
sentence and with the number of maps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seq2seq.inspection.attention import Attention, Chosen, HeatMap, Kind
from seq2seq.inspection.picture import BAR_ROOM, HEADING, TEXT, TITLE, Canvas, text_width
from seq2seq.inspection.picture_fonts import Fonts
from seq2seq.shapes import Float

MAX_PIECES = 120
"""On one axis. More would be a map of more than 19 inches."""

CELL = 0.155
"""Inches of a row or column, which a line of `TEXT` points fits into."""

MIN_SIDE = 1.45
"""Inches of a map of few pieces, so that its title has room."""

MAX_LABEL = 30
"""Characters of a piece on an axis; the rest of a longer one is cut off."""

GAP, PAD = 0.14, 0.04
"""Inches between maps, and between a map and its pieces."""

NAME_ROOM = 0.2
"""Inches for the name of an axis."""

TITLE_ROOM, HEADING_ROOM = 0.24, 0.34
"""Inches for the title of a map, and for the heading of a kind of attention."""


@dataclass(frozen=True)
class _Section:
    """One kind of attention with its sizes in inches."""

    chosen: Chosen
    queries: list[str]
    keys: list[str]
    label_width: float
    label_height: float

    @property
    def attention(self) -> Attention:
        return self.chosen.attention

    @property
    def side(self) -> tuple[float, float]:
        """Width and height of a map without its labels."""
        return max(MIN_SIDE, CELL * len(self.keys)), max(MIN_SIDE, CELL * len(self.queries))

    @property
    def pitch(self) -> tuple[float, float]:
        """From one map to the next: name of the axis, labels, map."""
        width, height = self.side
        return (
            NAME_ROOM + self.label_width + width + 2 * GAP,
            TITLE_ROOM + height + self.label_height + NAME_ROOM + GAP,
        )

    @property
    def rows(self) -> list[list[HeatMap]]:
        return [row for row in [self.chosen.means, *self.chosen.heads] if row]

    @property
    def size(self) -> tuple[float, float]:
        width, height = self.pitch
        return max(map(len, self.rows)) * width, HEADING_ROOM + len(self.rows) * height

    def heading(self, output: str) -> str:
        """What is seen, how to read it, and where the target came from, of which an encoder knows nothing."""
        if self.attention.kind is Kind.encoder:
            return self.attention.name
        how = {Kind.decoder: "grey: later pieces, masked", Kind.cross: "rows: pieces predicted"}
        return f"{self.attention.name} ({how[self.attention.kind]}); output: {output}"


def attention_picture(chosen: Sequence[Chosen], fonts: Fonts, output: str) -> Canvas:
    """The picture, not yet written.

    Args:
        chosen: The maps.
        fonts: Chosen for the pieces of all of them.
        output: How the target came about, for the headings.

    Raises:
        ValueError: for more pieces than fit into a picture.
    """
    for one in chosen:
        longest = max(len(one.attention.queries), len(one.attention.keys))
        if longest > MAX_PIECES:
            raise ValueError(
                f"{one.attention.name} has {longest} pieces on an axis, a picture has room for {MAX_PIECES}; choose a "
                "shorter text, or --format json for the numbers"
            )
    sections = [_measured(one, fonts) for one in chosen]
    headings = [section.heading(output) for section in sections]
    heading_width = text_width(headings, HEADING, fonts.families)
    width = GAP + max(heading_width + GAP, *(section.size[0] for section in sections)) + BAR_ROOM
    canvas = Canvas.new(width, GAP + sum(section.size[1] for section in sections), fonts.families)
    y = GAP
    canvas.colour_bar(width - BAR_ROOM, y + HEADING_ROOM + TITLE_ROOM, "weight")
    for section, heading in zip(sections, headings, strict=True):
        _draw(canvas, section, heading, y)
        y += section.size[1]
    return canvas


def _measured(chosen: Chosen, fonts: Fonts) -> _Section:
    queries, keys = _labels(chosen.attention.queries, fonts), _labels(chosen.attention.keys, fonts)
    return _Section(
        chosen, queries, keys, text_width(queries, TEXT, fonts.families), text_width(keys, TEXT, fonts.families)
    )


def _labels(pieces: Sequence[str], fonts: Fonts) -> list[str]:
    """The pieces as they stand on an axis."""
    written = [fonts.written(piece) for piece in pieces]
    return [label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…" for label in written]


def _draw(canvas: Canvas, section: _Section, heading: str, y: float) -> None:
    canvas.text(heading, GAP, y, HEADING)
    for heat, x_map, y_map in _places(section, GAP, y + HEADING_ROOM):
        _draw_map(canvas, section, heat, x_map, y_map)


def _places(section: _Section, x: float, y: float) -> Iterator[tuple[HeatMap, float, float]]:
    """Each map with the top left corner of its share of the picture."""
    width, height = section.pitch
    for at_row, row in enumerate(section.rows):
        for at, heat in enumerate(row):
            yield heat, x + at * width, y + at_row * height


def _draw_map(canvas: Canvas, section: _Section, heat: HeatMap, x: float, y: float) -> None:
    """One map with its title, its pieces and the names of its axes, in a share with its top left corner there."""
    left, top = x + GAP + NAME_ROOM + section.label_width, y + TITLE_ROOM
    width, height = section.side
    canvas.heat(_seen(section.attention, heat), left, top, width, height)
    canvas.text(heat.title, left + width / 2, top - PAD, TITLE, at=("center", "bottom"))
    for at, label in enumerate(section.queries):
        middle = top + (at + 0.5) * height / len(section.queries)
        canvas.text(label, left - PAD, middle, TEXT, at=("right", "center_baseline"))
    for at, label in enumerate(section.keys):
        middle = left + (at + 0.5) * width / len(section.keys)
        canvas.text(label, middle, top + height + PAD, TEXT, at=("center", "top"), upwards=True)
    below = top + height + section.label_height + 2 * PAD
    canvas.text("keys (looked at)", left + width / 2, below, TEXT, at=("center", "top"))
    canvas.text("queries (looking)", x, top + height / 2, TEXT, at=("left", "center"), upwards=True)


def _seen(attention: Attention, heat: HeatMap) -> Float[np.ndarray, "Q K"]:
    """The weights; no number where a causal mask forbids to look."""
    weights: Float[np.ndarray, "Q K"] = heat.weights.numpy()
    return np.where(np.triu(weights == 0, 1), np.nan, weights) if attention.kind is Kind.decoder else weights
