"""Lines shared out to several who translate, and their answers put back in order.

The lines are read and filled into batches here, exactly as one process would do it, and whoever is free takes the next
batch: the same batches give the same answers to the last bit, whoever translates them. (A line that is split into parts
goes whole to its first part's batch, so that there batches are others, and scores the same up to rounding.)
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from seq2seq.cli.translate_job import Answer, Answers, Job, answer

if TYPE_CHECKING:
    from seq2seq.translator import Request
    from seq2seq.translator.batches import SourceLine
    from seq2seq.translator.line_translator import LineTranslator

AHEAD = 2
"""Windows of lines that are in the works at once; what is kept in memory does not grow with the input."""


PATIENCE = 1.0
"""Seconds that threads have to end which are at something when nobody wants it any more."""


@dataclass(frozen=True)
class Task:
    """Lines that are translated in one batch: their numbers, and they themselves."""

    lines: "list[tuple[int, Request]]"

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "lines": [[number, line.text, line.prefix, line.target, list(line.phrases)] for number, line in self.lines]
        }

    @classmethod
    def read(cls, plain: dict[str, Any]) -> "Task":
        """What `plain` has written."""
        from seq2seq.translator import Request

        return cls(
            [
                (number, Request(text, prefix, target, tuple(phrases)))
                for number, text, prefix, target, phrases in plain["lines"]
            ]
        )


Ask = Callable[[Task], Sequence[Answer]]
"""Translates a batch: an answer for each of its lines. It raises what went wrong."""


@dataclass(frozen=True)
class Window:
    """Lines that were read together."""

    tasks: list[Task]
    numbers: list[int]
    """Of its lines, in their order."""
    error: Exception | None
    """What ended the input behind them."""


def ask_here(engine: "LineTranslator", job: Job) -> Ask:
    """Has batches translated in this process."""

    def ask(task: Task) -> list[Answer]:
        numbers, lines = [number for number, _ in task.lines], [line for _, line in task.lines]
        found = engine.translate(lines, numbers=numbers, on_notice=lambda _: None)
        return [answer(translation, job.rows) for translation in found]

    return ask


def windows(job: Job, lines: "Iterable[Request]", first: int = 1) -> Iterator[Window]:
    """The input, cut into windows and these into batches, as `LineTranslator.windows` does it.

    Args:
        job: Model and options.
        lines: The input from line `first` on.
        first: Number of the first line.
    """
    from seq2seq.translator.batches import READ_AHEAD, take

    preparation, read = job.preparation(), deque["tuple[int, Request]"]()

    def prepared() -> "Iterator[SourceLine]":
        for number, line in enumerate(lines, start=first):
            source = preparation.prepare(number, line, job.decode)
            read.append((number, line))
            yield source

    sources = prepared()
    while True:
        window, error = take(sources, READ_AHEAD * job.decode.batch_tokens)
        requests = [read.popleft() for _ in window]
        tasks = [Task([requests[place] for place in places]) for places in _batches(window, job.decode.batch_tokens)]
        yield Window(tasks, [number for number, _ in requests], error)
        if error is not None or not window:
            return


def _batches(window: "Sequence[SourceLine]", budget: int) -> list[list[int]]:
    """Places of the lines, in the batches in which they are translated.

    A line in several parts goes where its first part goes, and blank ones, which nobody translates, with the first.
    """
    from seq2seq.translator.batches import part_batches

    line_of = [place for place, source in enumerate(window) for _ in source.parts]
    blank = [place for place, source in enumerate(window) if not source.parts]
    batches: list[list[int]] = []
    placed: set[int] = set()
    for batch in part_batches([part for source in window for part in source.parts], budget):
        lines = [line for line in dict.fromkeys(line_of[place] for place in batch) if line not in placed]
        placed.update(lines)
        if lines:
            batches.append(sorted(lines))
    if blank:
        batches[:1] = [sorted([*blank, *(batches[0] if batches else [])])]
    return batches


def deal(windows: Iterable[Window], workers: Sequence[Ask]) -> Answers:
    """The answers to all lines, in their order, while the workers go on with what comes after.

    Args:
        windows: What there is to do.
        workers: Those who do it, each asked by a thread of its own.

    Raises:
        Exception: what the first worker that failed has raised, or the error that ended the input.
    """
    dealer = _Dealer(workers)
    waiting: deque[Window] = deque()
    try:
        for window in windows:
            dealer.add(window)
            waiting.append(window)
            if len(waiting) == AHEAD:
                yield from dealer.answers(waiting.popleft())
        for window in waiting:
            yield from dealer.answers(window)
    finally:
        dealer.stop()


class _Dealer:
    """Hands out batches and keeps the answers until their turn has come."""

    def __init__(self, workers: Sequence[Ask]) -> None:
        self._tasks: queue.Queue[Task | None] = queue.Queue()
        self._found: dict[int, Answer] = {}
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, args=[ask], daemon=True, name=f"worker {number}")
            for number, ask in enumerate(workers)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, window: Window) -> None:
        for task in window.tasks:
            self._tasks.put(task)

    def answers(self, window: Window) -> Answers:
        for number in window.numbers:
            with self._changed:
                while number not in self._found:
                    if self._failure is not None:
                        raise self._failure
                    self._changed.wait()
                found = self._found.pop(number)
            yield replace(found, ends_window=number == window.numbers[-1])
        if window.error is not None:
            raise window.error

    def stop(self) -> None:
        """Let the threads end when they have done what they are at; those that do nothing have ended then.

        A thread that ends together with the interpreter may take the process down with it.
        """
        with self._tasks.mutex:
            self._tasks.queue.clear()
        for _ in self._threads:
            self._tasks.put(None)
        latest = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, latest - time.monotonic()))

    def _work(self, ask: Ask) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                found = ask(task)
            except BaseException as error:  # noqa: BLE001, RUF100  raised again where it is waited for
                with self._changed:
                    self._failure = self._failure or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._found.update((number, one) for (number, _), one in zip(task.lines, found, strict=True))
                self._changed.notify_all()
