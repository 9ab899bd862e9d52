"""Tables of `seq2seq inspect`: for a terminal of any width, and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

NOTE = "note"
"""Name of the column that is left out on a terminal where there is no room for it."""

NOTE_ROOM = 34
"""Characters that a note must have room for."""

NARROWEST = 12
"""Characters that a column of text keeps however narrow the terminal is."""


class Format(Enum):
    """How findings are printed."""

    table = "table"
    json = "json"
    markdown = "markdown"


@dataclass(frozen=True)
class Grid:
    """A table with a heading above it and remarks below."""

    title: str
    columns: tuple[str, ...]
    """Names. ``>name`` is right-justified, for numbers; the others are text, which may be wrapped."""
    rows: tuple[tuple[str, ...], ...]
    """A row with nothing but its first cell is a heading within the table."""
    below: tuple[str, ...] = ()


def show(grids: Sequence[Grid], *, aligned: bool = False) -> None:
    """Print tables to the width of the terminal.

    Args:
        grids: The tables.
        aligned: All have the same columns: they are made equally wide, and the columns are named once.
    """
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    for number, grid in enumerate(grids):
        console.print()
        if aligned and number == 0:
            console.print(_table(grid, _widths(grids, console.width), named=True, rows=False))
        console.print(grid.title, markup=False, style="bold")
        alike = grids if aligned else [grid]
        console.print(_table(grid, _widths(alike, console.width), named=not aligned, rows=True))
        for line in grid.below:
            console.print(line, markup=False)


def _table(grid: Grid, widths: Sequence[int], *, named: bool, rows: bool) -> "Table":
    """One table with columns of the given widths, with their names, its rows, or both."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=named, header_style="italic", padding=(0, 1, 0, 0))
    for name, width in zip(grid.columns, widths, strict=True):
        if width:
            table.add_column(
                name.lstrip(">"), width=width, justify="right" if name.startswith(">") else "left", overflow="fold"
            )
    for row in grid.rows if rows else ():
        style = "" if any(row[1:]) else "cyan"
        table.add_row(*(Text(cell) for cell, width in zip(row, widths, strict=True) if width), style=style)
    return table


def _widths(grids: Sequence[Grid], room: int) -> list[int]:
    """The columns' widths; 0 for one that is left out."""
    columns = grids[0].columns
    widths = [
        max(
            len(name.lstrip(">")),
            *(len(row[place]) for grid in grids for row in grid.rows if place == 0 or any(row[1:])),
        )
        for place, name in enumerate(columns)
    ]
    if NOTE in columns:
        place = columns.index(NOTE)
        left = room - sum(widths[:place]) - place
        widths[place] = min(left, widths[place]) if left >= NOTE_ROOM else 0
    texts = [place for place, name in enumerate(columns) if name != NOTE and not name.startswith(">")]
    while sum(widths) + sum(width > 0 for width in widths) - 1 > room:
        widest = max(texts, key=lambda place: widths[place])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths


def markdown(grids: Sequence[Grid], level: int = 2) -> list[str]:
    """The tables as lines of Markdown, their titles as headings of the given level."""
    lines: list[str] = []
    for grid in grids:
        lines += [f"{'#' * level} {grid.title}", "", _line([name.lstrip(">") for name in grid.columns])]
        lines.append(_line(["---:" if name.startswith(">") else "---" for name in grid.columns]))
        for row in grid.rows:
            cells = list(row) if any(row[1:]) else [f"**{row[0]}**", *row[1:]]
            lines.append(_line([cell.replace("|", "\\|") for cell in cells]))
        lines += ["", *(line + "\n" for line in grid.below)]
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
