"""Pictures in general: whether they can be made, their canvas in inches, and the file.

matplotlib is used through its Figure objects, without pyplot and its global state, and is imported only here and
where something is drawn.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seq2seq.shapes import Float
from seq2seq.text.lines import check_place, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

FORMATS = ("png", "svg", "pdf")

DPI = 120
"""Points of a picture for each inch: letters of `TEXT` points are then large enough to read at full size."""

TEXT, TITLE, HEADING = 7.0, 8.0, 11.0
"""Sizes of letters, in points, 72 to the inch."""

MAX_POINTS = 60_000_000
"""Of a PNG. They take four bytes each, and few programs show larger ones."""

COLOURS = "viridis"
"""Dark for 0, bright for 1, and equal steps look equal."""

BAR_WIDTH, BAR_HEIGHT = 0.14, 2.0
"""Inches of the colour bar."""

BAR_ROOM = 0.8
"""Inches that the colour bar takes with its figures."""


def check_picture(path: str | Path) -> None:
    """Refuse a picture that could not be written, to call before the work that it shows.

    Raises:
        ValueError: if the name does not end as a picture's does.
        FileNotFoundError: if the folder does not exist.
    """
    if _format(path) not in FORMATS:
        raise ValueError(f"{path}: a picture's name ends in .png, .svg or .pdf")
    check_place(path)


def _format(path: str | Path) -> str:
    return Path(path).suffix.lower().removeprefix(".")


@dataclass(frozen=True)
class Canvas:
    """A picture in the making. Places are in inches from its top left corner.

    All of it stands in one system of axes: one for each map, with its ticks, would take ten times as long.

    Attributes:
        axes: What is drawn on, all of the figure.
        families: Font families, for all text.
    """

    axes: "Axes"
    families: Sequence[str]

    @classmethod
    def new(cls, width: float, height: float, families: Sequence[str]) -> "Canvas":
        """An empty one."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(0.0, width), ylim=(height, 0.0))
        axes.set_axis_off()
        axes.set_autoscale_on(False)
        return cls(axes, families)

    @property
    def figure(self) -> "Figure":
        """The figure that the axes fill."""
        figure = self.axes.get_figure(root=True)
        assert figure is not None
        return figure

    @property
    def size(self) -> tuple[float, float]:
        """Width and height."""
        width, height = self.figure.get_size_inches()
        return float(width), float(height)

    def text(
        self,
        text: str,
        x: float,
        y: float,
        size: float,
        *,
        at: tuple[str, str] = ("left", "top"),
        upwards: bool = False,
        colour: str = "black",
    ) -> "Text":
        """Text at a place. A dollar in it is a dollar, not the start of a formula.

        Args:
            text: One line.
            x: From the left.
            y: From the top.
            size: Of the letters, in points.
            at: Which part of the text stands there, across (left, center, right) and down (top, center, bottom).
            upwards: Turned by a quarter, to be read from below.
            colour: Of the letters.
        """
        return self.axes.text(
            x,
            y,
            text,
            family=list(self.families),
            fontsize=size,
            parse_math=False,
            ha=at[0],
            va=at[1],
            rotation=90 if upwards else 0,
            color=colour,
        )

    def heat(self, values: Float[np.ndarray, "rows columns"], x: float, y: float, width: float, height: float) -> None:
        """A matrix as colours, 0 to 1, in the box with its top left corner there. Grey: no number."""
        from matplotlib import colormaps

        self.axes.imshow(
            values,
            cmap=colormaps[COLOURS].with_extremes(bad="lightgrey"),
            vmin=0.0,
            vmax=1.0,
            extent=(x, x + width, y + height, y),
            aspect="auto",
            interpolation="nearest",
        )

    def colour_bar(self, x: float, y: float, label: str) -> None:
        """What the colours mean."""
        height = min(BAR_HEIGHT, 0.7 * self.size[1])
        self.heat(np.linspace(1.0, 0.0, 256)[:, None], x, y, BAR_WIDTH, height)
        for value in (0.0, 0.25, 0.5, 0.75, 1.0):
            self.text(f"{value:g}", x + 1.4 * BAR_WIDTH, y + (1 - value) * height, TEXT, at=("left", "center"))
        self.text(label, x + 4.5 * BAR_WIDTH, y + height / 2, TITLE, at=("left", "center"), upwards=True)

    def save(self, path: str | Path, dpi: int = DPI) -> tuple[int, int]:
        """Write the picture, whole or not at all; its width and height in points.

        Args:
            path: Where to; the ending, .png, .svg or .pdf, says what is written.
            dpi: Points for each inch.

        Raises:
            ValueError: if it would be too large.
            OSError: if it cannot be written.
        """
        import matplotlib

        width, height = (round(side * dpi) for side in self.size)
        if width * height > MAX_POINTS and _format(path) == "png":
            raise ValueError(
                f"{path} would have {width} x {height} points, {MAX_POINTS // 1_000_000} million at most make a "
                "picture; choose fewer layers, heads or kinds of attention, the averages, a shorter text or a smaller "
                "--dpi, or write .svg or .pdf"
            )
        stream = io.BytesIO()
        # Without the time of its making and random names inside, the same picture has the same bytes.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(_format(path))
        with matplotlib.rc_context({"svg.hashsalt": "seq2seq"}):
            self.figure.savefig(stream, format=_format(path), dpi=dpi, metadata=metadata)
        write_bytes(path, stream.getvalue())
        return width, height


def text_width(texts: Sequence[str], size: float, families: Sequence[str]) -> float:
    """Inches that the widest of the texts takes in a row."""
    canvas = Canvas.new(1.0, 1.0, families)
    drawn = [canvas.text(text, 0.0, 0.0, size) for text in dict.fromkeys(texts)]
    return max((float(text.get_window_extent().width) for text in drawn), default=0.0) / float(canvas.figure.dpi)
