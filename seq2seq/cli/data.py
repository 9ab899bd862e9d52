"""`seq2seq data`: train a tokenizer, look at parallel text before training on it, learn shortlists from it."""

import dataclasses
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.data_shortlist import shortlist
from seq2seq.cli.options import explain
from seq2seq.config import TokenizerConfig, TokenizerKind

if TYPE_CHECKING:
    from seq2seq.corpus.check import CorpusReport, SideReport
    from seq2seq.text.tokenizer import Tokenizer

app = typer.Typer(no_args_is_help=True, help="Train a tokenizer; check parallel text; learn a shortlist.")
app.command("shortlist")(shortlist)

_HELP = {name: text for name, _, text in explain(TokenizerConfig)}


class Format(Enum):
    """How findings are printed."""

    table = "table"
    json = "json"


@app.command("tokenizer")
def tokenizer(
    files: Annotated[list[str], typer.Argument(help="Text, one segment a line, UTF-8, plain or .gz.")],
    output: Annotated[str, typer.Option("--output", "-o", help="File to write; .model is added if it is missing.")],
    kind: Annotated[TokenizerKind, typer.Option(help=_HELP["kind"])] = TokenizerConfig.kind,
    vocab_size: Annotated[int, typer.Option(help=_HELP["vocab_size"])] = TokenizerConfig.vocab_size,
    byte_fallback: Annotated[bool, typer.Option(help=_HELP["byte_fallback"])] = TokenizerConfig.byte_fallback,
    character_coverage: Annotated[
        float, typer.Option(help=_HELP["character_coverage"])
    ] = TokenizerConfig.character_coverage,
    normalization: Annotated[str, typer.Option(help=_HELP["normalization"])] = TokenizerConfig.normalization,
    keep_whitespace: Annotated[bool, typer.Option(help=_HELP["keep_whitespace"])] = TokenizerConfig.keep_whitespace,
    max_sentence_bytes: Annotated[
        int, typer.Option(help=_HELP["max_sentence_bytes"])
    ] = TokenizerConfig.max_sentence_bytes,
    seed: Annotated[int, typer.Option(help="Draws the lines used of a corpus of more than 5 million.")] = 1,
    vocab: Annotated[
        bool, typer.Option("--vocab", help="Also write the pieces as text, for people; nothing reads it back.")
    ] = False,
) -> None:
    """Train a SentencePiece tokenizer on text files, of one language or of both for a joint vocabulary."""
    from seq2seq.text.lines import check_place, read_lines, write_bytes, write_lines
    from seq2seq.text.tokenizer_training import train_tokenizer

    config = TokenizerConfig(
        kind=kind,
        vocab_size=vocab_size,
        byte_fallback=byte_fallback,
        character_coverage=character_coverage,
        normalization=normalization,
        keep_whitespace=keep_whitespace,
        max_sentence_bytes=max_sentence_bytes,
    )
    check_place(output)
    path = Path(output if output.endswith(".model") else output + ".model")
    check_place(path)
    lines = [line for file in files for line in read_lines(file)]
    trained, report = train_tokenizer(lines, config, seed=seed)
    write_bytes(path, trained.model)
    print(report.summary(), file=sys.stderr)
    print(path)
    if vocab:
        text = path.with_suffix(".vocab.txt")
        write_lines(text, trained.export_vocabulary())
        print(text)


@app.command("check")
def check(
    source: Annotated[str, typer.Argument(help="Source text, one segment a line.")],
    target: Annotated[str, typer.Argument(help="Its translation, line by line.")],
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(
            help="A .model file or a bundle: count pieces and unknown ones too; twice for two vocabularies, "
            "the source's first."
        ),
    ] = None,
    against: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Another pair of files, as validation or test: how much of it stands in this one?"),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="What to print on stdout.")] = Format.table,
) -> None:
    """Count what is in two files of parallel text and name what looks wrong, with line numbers.

    Files of unequal length, or not in UTF-8, are an error.
    """
    import json

    from seq2seq.corpus.check import check_parallel

    source_tokenizer, target_tokenizer = _load_tokenizers(tokenizer or [])
    report = check_parallel(
        source, target, source_tokenizer=source_tokenizer, target_tokenizer=target_tokenizer, against=against
    )
    if format_ is Format.json:
        print(json.dumps(dataclasses.asdict(report), ensure_ascii=False, indent=2))
    else:
        _print_tables(report)


def _load_tokenizers(paths: list[str]) -> "tuple[Tokenizer | None, Tokenizer | None]":
    from seq2seq.text.sentence_piece import SentencePieceTokenizer

    if len(paths) > 2:
        raise UsageError(f"--tokenizer was given {len(paths)} times; expected once, or twice for source and target")
    if not paths:
        return None, None
    if len(paths) == 1 and Path(paths[0]).is_dir():
        from seq2seq.bundle import load_tokenizers

        return load_tokenizers(paths[0])
    loaded = [SentencePieceTokenizer.load(path) for path in paths]
    return loaded[0], loaded[-1]


def _print_tables(report: "CorpusReport") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Parallel text")
    table.add_column("")
    for side, name in ((report.source, "source"), (report.target, "target")):
        table.add_column(f"{name}\n{side.path}", justify="right", overflow="fold")
    for label, *cells in zip(*(_side_rows(side) for side in (report.source, report.target)), strict=True):
        table.add_row(label[0], label[1], cells[0][1])
    console = Console()
    console.print(table)
    for finding in _findings(report):
        console.print(finding, markup=False, highlight=False, soft_wrap=True)


def _side_rows(side: "SideReport") -> list[tuple[str, str]]:
    rows = [
        ("lines", f"{side.lines:,}"),
        ("words", f"{side.words:,}"),
        ("characters", f"{side.characters:,}"),
        ("blank lines", f"{side.blank:,}"),
        ("repeated lines", f"{side.duplicates:,}"),
    ]
    if side.piece_use is not None:
        use = side.piece_use
        rows += [
            ("pieces", f"{use.pieces:,}"),
            ("unknown pieces", f"{use.unknown:,} ({use.unknown_rate:.3%})"),
            ("byte pieces", f"{use.byte_pieces:,} ({use.byte_rate:.3%})"),
        ]
    longest = (
        f"line {long.line}: " + (f"{long.characters:,}" if long.pieces is None else f"{long.pieces:,} pieces")
        for long in side.longest
    )
    rows.append(("longest lines", "\n".join(longest)))
    return rows


def _findings(report: "CorpusReport") -> Iterator[str]:
    """One sentence for each thing that is worth a look."""
    from seq2seq.corpus.check import MAX_RATIO
    from seq2seq.corpus.parallel import listed_lines

    numbered: list[tuple[str, list[int]]] = [
        ("pairs blank on one side, left out of training", report.one_sided),
        ("pairs blank on both sides, left out of training", report.both_blank),
        ("pairs with the same text on both sides", report.equal_sides),
        (
            f"pairs more than {MAX_RATIO:g} times longer or shorter than usual (usual: {report.usual_ratio:.2f} "
            "target characters for each of the source)",
            report.ratio_outliers,
        ),
    ]
    yield f"pairs with text on both sides: {report.pairs:,}"
    yield f"pairs that repeat an earlier one: {report.duplicate_pairs:,}"
    for what, numbers in numbered:
        if numbers:
            yield f"{what}: {len(numbers):,} ({listed_lines(numbers)})"
    for name, side in (("source", report.source), ("target", report.target)):
        for oddity in side.oddities:
            yield f"{name}: {oddity.what}: {oddity.count:,} (first in line {oddity.first_line})"
    overlap = report.overlap
    if overlap is not None:
        shared = f" ({listed_lines(overlap.shared_pairs)})" if overlap.shared_pairs else ""
        yield (
            f"{overlap.source_path} and {overlap.target_path}: of their {overlap.pairs:,} pairs this text has "
            f"{len(overlap.shared_pairs):,}{shared}, of their source lines {overlap.shared_sources:,}, of their target "
            f"lines {overlap.shared_targets:,}"
        )
