"""`seq2seq data shortlist`: which target pieces a bundle chooses from, for each source sentence."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from seq2seq.corpus.pair_stream import PairStream
    from seq2seq.corpus.shortlist import Coverage, Shortlist
    from seq2seq.corpus.translation_table import Pair


class Format(Enum):
    """How coverages are printed."""

    table = "table"
    json = "json"


def shortlist(
    bundle: Annotated[
        Path, typer.Argument(help="A bundle that translates; its tokenizers are used.", show_default=False)
    ],
    source: Annotated[
        Path,
        typer.Option("--source", help="Source text of the training data, one segment a line.", show_default=False),
    ],
    target: Annotated[Path, typer.Option("--target", help="Its translation, line by line.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write. Default: shortlist.safetensors in the bundle.", show_default=False
        ),
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Target pieces for each source piece.")] = 20,
    frequent: Annotated[int, typer.Option(min=0, help="Most frequent target pieces, for every sentence.")] = 1000,
    passes: Annotated[int, typer.Option(min=1, help="How often the text is gone through to learn from it.")] = 5,
    against: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Source and target of other text, as validation: how much of that target do shortlists of several "
            "sizes have?",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How --against is printed.")] = Format.table,
) -> None:
    """Learn from parallel text which target pieces each source piece asks for, and keep that in the bundle.

    `seq2seq translate --shortlist` then chooses among these pieces alone, which is faster, much so for large
    vocabularies. The path of the file is printed.

    seq2seq data shortlist bundle --source train.de --target train.en --against val.de val.en
    """
    from seq2seq.bundle import load_tokenizers, read_config
    from seq2seq.config import Task
    from seq2seq.corpus.pair_stream import PairStream
    from seq2seq.corpus.shortlist import FILE, build_shortlist, write_shortlist
    from seq2seq.corpus.translation_table import learn_table
    from seq2seq.text.lines import check_place

    if read_config(bundle)["task"] != Task.translation.name:
        raise ValueError(f"{bundle} is a language model, which does not translate; a shortlist is for translation")
    path = output if output is not None else bundle / FILE
    check_place(path)
    tokenizers = load_tokenizers(bundle)
    other = PairStream(*against, *tokenizers) if against is not None else None
    pairs = PairStream(source, target, *tokenizers)
    with _followed(pairs, passes) as followed:
        table = learn_table(followed, tokenizers[0].vocab_size, tokenizers[1].vocab_size, passes=passes)
    learned = build_shortlist(table, *tokenizers, candidates=candidates, frequent=frequent)
    write_shortlist(learned, path)
    print(
        f"learned from {table.num_pairs:,} pairs ({table.passed_over:,} blank on a side or too long): "
        f"{(learned.candidates >= 0).sum():,} candidates of {tokenizers[0].vocab_size:,} source pieces, "
        f"{len(learned.frequent):,} frequent pieces of {tokenizers[1].vocab_size:,}",
        file=sys.stderr,
    )
    if other is not None:
        _print_coverage(learned, list(other), format_)
    print(path)


@contextmanager
def _followed(pairs: "PairStream", passes: int) -> "Iterator[Callable[[], Iterator[Pair]]]":
    """What gives the pairs anew at each call, while a bar on standard error shows all passes, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        Remaining(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("learning", total=passes * len(pairs))

        def again() -> "Iterator[Pair]":
            for number, pair in enumerate(pairs):
                if number % 1000 == 0:
                    progress.advance(task, 1000)
                yield pair

        yield again


def _print_coverage(learned: "Shortlist", pairs: "list[Pair]", format_: Format) -> None:
    """What this shortlist and smaller ones have of the targets, on standard output."""
    from dataclasses import asdict

    from seq2seq.corpus.shortlist import coverage

    width, depth = learned.candidates.shape[1], len(learned.frequent)
    rows: list[tuple[int, int, Coverage]] = []
    for frequent in dict.fromkeys((depth // 4, depth // 2, depth)):
        for candidates in dict.fromkeys((max(1, width // 4), max(1, width // 2), width)):
            rows.append((candidates, frequent, coverage(learned.cut(candidates, frequent), pairs)))
    if format_ is Format.json:
        found = [{"candidates": candidates, "frequent": frequent} | asdict(row) for candidates, frequent, row in rows]
        print(json.dumps(found, indent=2))
    else:
        _print_table(rows)


def _print_table(rows: "list[tuple[int, int, Coverage]]") -> None:
    from rich.console import Console
    from rich.table import Table

    from seq2seq.corpus.shortlist import BATCH

    table = Table(title="Target pieces that a shortlist has")
    for name in ("candidates", "frequent", "pieces", "whole sentences", "size", f"size, {BATCH} sentences"):
        table.add_column(name, justify="right")
    for candidates, frequent, row in rows:
        table.add_row(
            f"{candidates:,}",
            f"{frequent:,}",
            f"{row.covered / max(1, row.num_pieces):.2%}",
            f"{row.whole / row.num_sentences:.1%}",
            f"{row.mean_size:,.0f}",
            f"{row.batch_size:,.0f}",
        )
    Console().print(table)
