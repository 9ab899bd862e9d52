"""`seq2seq score`: the log-probability that a model gives to translations, or a language model to texts."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.engines import load_translator
from seq2seq.cli.score_texts import is_language_model, print_scores, read_texts, shares
from seq2seq.cli.search_options import BatchTokens, Device, LengthExponent, Penalty, Threads
from seq2seq.cli.translate_inputs import STDIN
from seq2seq.text.lines import iter_lines, read_lines

if TYPE_CHECKING:
    from seq2seq.translator import ScoredPair, Translator


TEXTS = "Language models"


class Format(Enum):
    """How scores are written."""

    text = "text"
    jsonl = "jsonl"


@dataclass(frozen=True)
class Scored:
    """A translation and how probable it is."""

    line: int
    text: str
    pair: "ScoredPair"


def score(
    model: Annotated[str, typer.Argument(help="Bundle of the model.", show_default=False)],
    source: Annotated[
        str | None, typer.Argument(help="Source text; for a language model the texts, one a line.", show_default=False)
    ] = None,
    target: Annotated[str | None, typer.Argument(help="Its translations, line by line.", show_default=False)] = None,
    jsonl: Annotated[
        str | None,
        typer.Option(
            help="Instead of two files: what `seq2seq translate --format jsonl` has written. Scores the very pieces "
            "that search found, all of an n-best list in order."
        ),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="text: a log-probability (nats) a line. jsonl: an object a line.")
    ] = Format.text,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Also each piece with its log-probability: a tab, then piece=value ...")
    ] = False,
    penalty_form: Penalty = None,
    length_penalty: LengthExponent = None,
    max_source_length: Annotated[int | None, typer.Option(help="Longer source lines (in pieces) are refused.")] = None,
    whole_file: Annotated[
        bool, typer.Option("--whole-file", help="The file is one text.", rich_help_panel=TEXTS)
    ] = False,
    count_end: Annotated[
        bool, typer.Option("--count-end", help="Also the end of the document behind each.", rich_help_panel=TEXTS)
    ] = False,
    context: Annotated[
        int | None,
        typer.Option(
            help="Longer texts (in pieces) are read in windows that overlap by half. Default: the positions that the "
            "model has learned, else 1024; give the length of the blocks in training.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the log-probability of each translation: the sum over its pieces, the end included, in nats.

    Two files are split into pieces by the tokenizer. A search may have put the same text together from other pieces,
    which gives another number; --jsonl gives exactly those that `translate` has reported (up to rounding).

    A language model takes one file, and gives the log-probability of each of its lines as the beginning of a document,
    with the perplexity of all by piece, byte and character.

    seq2seq score outputs/.../bundle test.de test.en

    seq2seq translate outputs/.../bundle test.de --format jsonl | seq2seq score outputs/.../bundle --jsonl -
    """
    if is_language_model(model):
        translating = {
            "TARGET": target,
            "--jsonl": jsonl,
            "--penalty-form": penalty_form,
            "--length-penalty": length_penalty,
            "--max-source-length": max_source_length,
        }
        refuse(translating, "is for models that translate, and this one is a language model; leave it out")
        if source is None:
            raise UsageError(f"give one file of texts, a line each; {STDIN} is standard input")
        texts = read_texts(source, whole_file)
        print_scores(
            model, texts, format_ is Format.jsonl, per_token, count_end, context, batch_tokens, device, threads
        )
        return
    for_texts = {"--whole-file": whole_file or None, "--count-end": count_end or None, "--context": context}
    refuse(for_texts, "is for language models, and this one translates; leave it out")
    if jsonl is None and (source is None or target is None):
        raise UsageError("give SOURCE and TARGET, two files of which line n of one translates line n of the other")
    if jsonl is not None and source is not None:
        raise UsageError(f"--jsonl has both sides, but {source} was given too; leave one of them out")
    overrides = {
        "penalty_form": penalty_form,
        "length_penalty": length_penalty,
        "max_source_length": max_source_length,
        "batch_tokens": batch_tokens,
    }
    if jsonl is None:
        assert source is not None
        assert target is not None
        sources, targets = read_sides(source, target)
        pairs = load_translator(model, overrides, device, threads).score(sources, targets)
        scored = [Scored(line, *both) for line, both in enumerate(zip(targets, pairs, strict=True), start=1)]
    else:
        records = read_records(jsonl)
        scored = score_records(load_translator(model, overrides, device, threads), records)
    for row in scored:
        text = as_json(row, per_token) if format_ is Format.jsonl else as_text(row, per_token)
        sys.stdout.buffer.write(text.encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()
    print(summary(scored), file=sys.stderr)


def refuse(options: dict[str, Any], why: str) -> None:
    """Refuse the first option that has been given.

    Raises:
        UsageError: naming it.
    """
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} {why}")


def read_sides(source: str, target: str) -> tuple[list[str], list[str]]:
    """The lines of two files, blank ones too.

    Raises:
        ValueError: if they have different numbers of lines, or are not UTF-8.
        FileNotFoundError: if one is not there.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise ValueError(
            f"{source} has {len(sources)} lines but {target} has {len(targets)}; expected the same number, as line n "
            "of one translates line n of the other (`seq2seq data check` says where they look shifted)"
        )
    return sources, targets


@dataclass(frozen=True)
class Record:
    """One line that `translate` has written: what the model was given, and what it answered."""

    line: int
    source_ids: list[list[int]]
    translations: list[tuple[str, list[int]]]


def read_records(path: str) -> list[Record]:
    """The records of a file that `translate --format jsonl` has written; - is standard input.

    Raises:
        ValueError: naming the line that is something else.
        FileNotFoundError: if there is no such file.
    """
    lines = iter_lines(sys.stdin.buffer, "standard input") if path == STDIN else read_lines(path)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
            translations = [(str(found["text"]), _ids(found["ids"])) for found in values["translations"]]
            records.append(Record(int(values["line"]), [_ids(part) for part in values["source_ids"]], translations))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as problem:
            raise ValueError(
                f"{path}: line {number} is not what `seq2seq translate --format jsonl` writes ({problem!r}); expected "
                "an object with line, source_ids, and translations with text and ids"
            ) from problem
    return records


def _ids(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError(f"ids {values!r:.60} are not a list of whole numbers")
    return values


def score_records(translator: "Translator", records: Sequence[Record]) -> list[Scored]:
    """Every translation of every record, scored part by part where a line was split.

    Raises:
        ValueError: if a translation has not as many parts as its source.
    """
    from seq2seq.translator import ScoredPair

    eos = translator.bundle.target_tokenizer.special.eos
    sources: list[list[int]] = []
    targets: list[list[int]] = []
    wanted: list[tuple[int, str, int]] = []
    for record in records:
        for text, ids in record.translations:
            parts = _parts(ids, eos)
            if len(parts) != len(record.source_ids):
                raise ValueError(
                    f"line {record.line} has {len(record.source_ids)} source sequences, but ids for {len(parts)} "
                    f"(each ends with {eos}); score with the bundle that made them"
                )
            sources += record.source_ids
            targets += parts
            wanted.append((record.line, text, len(parts)))
    pairs = iter(translator.score_ids(sources, targets))
    scored = []
    for line, text, num_parts in wanted:
        own = [next(pairs) for _ in range(num_parts)]
        total = ScoredPair(
            log_prob=math.fsum(pair.log_prob for pair in own),
            score=math.fsum(pair.score for pair in own),
            tokens=tuple(token for pair in own for token in pair.tokens),
            ids=tuple(id_ for pair in own for id_ in pair.ids),
            token_log_probs=tuple(value for pair in own for value in pair.token_log_probs),
        )
        scored.append(Scored(line, text, total))
    return scored


def _parts(ids: list[int], eos: int) -> list[list[int]]:
    """The ids, cut behind every EOS."""
    parts: list[list[int]] = [[]]
    for id_ in ids:
        parts[-1].append(id_)
        if id_ == eos:
            parts.append([])
    return [part for part in parts if part]


def as_text(row: Scored, per_token: bool) -> str:
    """The log-probability; then, after a tab, those of the pieces if wanted."""
    return f"{row.pair.log_prob:.6f}" + (f"\t{shares(row.pair)}" if per_token else "")


def as_json(row: Scored, per_token: bool) -> str:
    """One JSON object."""
    record: dict[str, Any] = {
        "line": row.line,
        "text": row.text,
        "log_prob": row.pair.log_prob,
        "score": row.pair.score,
        "num_tokens": len(row.pair.ids),
    }
    if per_token:
        record |= {"tokens": row.pair.tokens, "ids": row.pair.ids, "token_log_probs": row.pair.token_log_probs}
    return json.dumps(record, ensure_ascii=False)


def summary(scored: Sequence[Scored]) -> str:
    """One sentence on all of them."""
    log_prob, pieces = math.fsum(row.pair.log_prob for row in scored), sum(len(row.pair.ids) for row in scored)
    text = f"{len(scored)} translations, {pieces} pieces, log-probability {log_prob:.4f}"
    if pieces:
        from seq2seq.generator.results import perplexity

        text += f", {log_prob / pieces:.4f} a piece, perplexity {perplexity(log_prob, pieces):.4f}"
    return text
