"""How far a job has come through its lines, for people who watch."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0
"""Seconds before a job is long enough for a progress bar."""

Answer = TypeVar("Answer")


class LineProgress:
    """A bar on standard error for a job that takes more than some seconds, if that is a terminal.

    Args:
        lines: What is answered, or how many that is, None if that is not known; so it is of a list.
        wanted: Whether there may be a bar.
        doing: The word in front of it.
        each: Answers to each line.
    """

    def __init__(
        self, lines: Iterable[str] | int | None, wanted: bool, *, doing: str = "translating", each: int = 1
    ) -> None:
        self.done = 0
        self._doing = doing
        number = len(lines) if isinstance(lines, list) else lines
        self._total = each * number if isinstance(number, int) else None
        self._wanted = wanted and sys.stderr.isatty()
        self._start = time.monotonic()
        self._bar: Progress | None = None

    def follow(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """The same answers, counted."""
        for answer in answers:
            self.done += 1
            if self._wanted and self._bar is None and time.monotonic() - self._start > PATIENCE:
                self._show()
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=self.done)
            yield answer

    def print(self, text: str) -> None:
        """A line above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr)

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self._bar = Progress(
            TextColumn(self._doing),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("lines"),
            TimeElapsedColumn(),
            Remaining(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
        )
        self._bar.add_task("", total=self._total)
        self._bar.start()
