"""What `seq2seq translate` reads: the input, and files that say something about each of its lines."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from seq2seq.cli import UsageError
from seq2seq.text.lines import count_lines, find_file, iter_lines, stream_lines

if TYPE_CHECKING:
    from seq2seq.translator import Request

STDIN = "-"

LINES = "Files that say something about each line"


@dataclass(frozen=True)
class LineFiles:
    """Files beside the input, as typed; all but the terms have a line for each line of it."""

    prefixes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Line n is what translation n starts with; an empty line leaves it free.",
            rich_help_panel=LINES,
        ),
    ] = None
    force: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Line n is the whole translation n, which is scored and aligned (forced decoding).",
            rich_help_panel=LINES,
        ),
    ] = None
    phrases: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Line n has the phrases that translation n must contain, with tabs between; a|b is one of the two.",
            rich_help_panel=LINES,
        ),
    ] = None
    terms: Annotated[
        str | None,
        typer.Option(
            metavar="TSV",
            help="Terms and their translations, with a tab between: what a line has of the former, its translation "
            "must have of the latter.",
            rich_help_panel=LINES,
        ),
    ] = None
    ordered_phrases: Annotated[
        bool | None,
        typer.Option(
            "--ordered/--any-order", help="The phrases come in the order of their line.", rich_help_panel=LINES
        ),
    ] = None

    @property
    def by_line(self) -> dict[str, str]:
        """The files that have a line for each line of the input, by their options."""
        files = {"--prefixes": self.prefixes, "--force": self.force, "--phrases": self.phrases}
        return {option: name for option, name in files.items() if name is not None}

    def check(self, source: str) -> int | None:
        """Refuse files that do not go together or with the input; the number of its lines, if that can be known.

        What can be read only once, standard input or a pipe, is not read here: lines are compared when they come.

        Raises:
            UsageError: for options that exclude each other.
            ValueError: if a file has more or fewer lines than the input, or is not UTF-8.
            FileNotFoundError: if there is no such file.
        """
        if self.force is not None and (
            others := [name for name in ("prefixes", "phrases", "terms") if getattr(self, name)]
        ):
            raise UsageError(
                f"--force gives whole translations, so --{others[0]} has nothing to say; leave one of the two out"
            )
        if self.ordered_phrases and self.phrases is None:
            raise UsageError("--ordered is for --phrases FILE, whose lines have an order; give it too")
        if [source, *self.by_line.values()].count(STDIN) > (source == STDIN):
            raise UsageError(
                f"standard input ({STDIN}) is the text to translate; name a file for {_named(self.by_line)}"
            )
        total = _num_lines(source)
        for option, name in self.by_line.items():
            found = _num_lines(name)
            if total is not None and found is not None and found != total:
                raise ValueError(_uneven(option, name, f"has {found} lines", source, f"has {total}"))
        return total

    def can_be_read_again(self, source: str) -> bool:
        """Whether the input and all that is said about its lines are in files, not in pipes."""
        names = [source, *self.by_line.values(), *([] if self.terms is None else [self.terms])]
        return not any(_is_read_once(name) for name in names)


def requests(source: str, files: LineFiles) -> "Iterator[Request]":
    """The lines of the input, each with what the files say about it.

    Raises:
        ValueError: for text that is not UTF-8, or if a file ends before the input or after it.
    """
    from seq2seq.translator import Request, Terminology
    from seq2seq.translator.terminology import split_phrases

    name = "standard input" if source == STDIN else source
    lines = iter_lines(sys.stdin.buffer, name) if source == STDIN else stream_lines(source)
    terms = None if files.terms is None else Terminology.load(files.terms)
    beside = {option: stream_lines(file) for option, file in files.by_line.items()}
    number = 0
    for number, line in enumerate(lines, start=1):
        found = {option: next(answers, None) for option, answers in beside.items()}
        for option in (option for option, answer in found.items() if answer is None):
            has = f"ends after line {number - 1}"
            raise ValueError(_uneven(option, files.by_line[option], has, name, "goes on"))
        phrases = list(split_phrases(found.get("--phrases") or ""))
        if terms is not None:
            phrases += [phrase for phrase in terms.phrases(line) if phrase not in phrases]
        try:
            yield Request(
                line, prefix=found.get("--prefixes") or "", target=found.get("--force"), phrases=tuple(phrases)
            )
        except ValueError as error:
            raise ValueError(f"line {number} of {name}: {error}") from error
    for option, answers in beside.items():
        if next(answers, None) is not None:
            raise ValueError(_uneven(option, files.by_line[option], "has more lines", name, f"ends after {number}"))


def _is_read_once(name: str) -> bool:
    """Whether it is standard input, a pipe or a device.

    Raises:
        ValueError: if it is a folder.
        FileNotFoundError: if there is no such file.
    """
    return name == STDIN or not find_file(name).is_file()


def _num_lines(name: str) -> int | None:
    """How many lines a file has; None of what can be read only once."""
    return None if _is_read_once(name) else count_lines(name)


def _uneven(option: str, file: str, has: str, source: str, other: str) -> str:
    return f"{option} {file} {has}, but {source} {other}; line n of one is about line n of the other, so give as many"


def _named(options: Iterable[str]) -> str:
    return " and ".join(options)
