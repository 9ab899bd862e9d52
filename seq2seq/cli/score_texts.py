"""`seq2seq score` of a language model: the log-probability of texts, and perplexity in three units."""

import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seq2seq.cli.generate import STDIN, load_generator
from seq2seq.config import GenerateConfig, Task
from seq2seq.text.lines import iter_lines, read_lines

if TYPE_CHECKING:
    from seq2seq.generator import ScoredText
    from seq2seq.translator import ScoredPair


def is_language_model(model: str) -> bool:
    """Whether the bundle goes on from texts, and does not translate.

    Raises:
        FileNotFoundError: if there is no bundle.
        ValueError: if its config.json is damaged.
    """
    from seq2seq.bundle import read_config

    return str(read_config(model)["task"]) == Task.language_model.name


def read_texts(path: str, whole_file: bool) -> list[str]:
    """The lines of a file, or all of it as one text, each line ended by a line feed; - is standard input.

    Raises:
        ValueError: if it is not UTF-8.
        FileNotFoundError: if it is not there.
    """
    lines = iter_lines(sys.stdin.buffer, "standard input") if path == STDIN else read_lines(path)
    return ["".join(line + "\n" for line in lines)] if whole_file else list(lines)


def print_scores(
    model: str,
    texts: Sequence[str],
    as_jsonl: bool,
    per_token: bool,
    count_end: bool,
    context: int | None,
    batch_tokens: int | None,
    device: str,
    threads: int | None,
) -> None:
    """Score the texts, a line of output for each, and sum up on standard error.

    Raises:
        ValueError: for a context that the model does not have, or an unknown device.
    """
    generator = load_generator(model, device, threads)
    budget = batch_tokens if batch_tokens is not None else GenerateConfig().batch_tokens
    scored = generator.score(texts, context=context, count_end=count_end, batch_tokens=budget)
    for line, found in enumerate(scored, start=1):
        if found.notice is not None:
            print(f"seq2seq: line {line}: {found.notice}", file=sys.stderr)
        text = as_json(line, found, per_token) if as_jsonl else as_text(found, per_token)
        sys.stdout.buffer.write(text.encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()
    print(summary(scored), file=sys.stderr)


def as_text(found: "ScoredText", per_token: bool) -> str:
    """The log-probability; then, after a tab, those of the pieces if wanted."""
    return f"{found.log_prob:.6f}" + (f"\t{shares(found)}" if per_token else "")


def shares(found: "ScoredText | ScoredPair") -> str:
    """Each piece with its log-probability, in one row."""
    values = zip(found.tokens, found.token_log_probs, strict=True)
    return " ".join(f"{_visible(token)}={value:.6f}" for token, value in values)


def _visible(token: str) -> str:
    """The piece without line feeds and tabs, which would break the row."""
    return token.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def as_json(line: int, found: "ScoredText", per_token: bool) -> str:
    """One JSON object; a perplexity beyond all numbers is null there, as JSON has no infinity."""
    record: dict[str, Any] = {
        "line": line,
        "text": found.text,
        "log_prob": found.log_prob,
        "num_tokens": len(found.ids),
        "num_bytes": found.num_bytes,
        "num_characters": found.num_characters,
        "notice": found.notice,
    }
    for name in ("perplexity", "byte_perplexity", "character_perplexity"):
        value = getattr(found, name)
        record[name] = value if math.isfinite(value) else None
    if per_token:
        record |= {"tokens": found.tokens, "ids": found.ids, "token_log_probs": found.token_log_probs}
    return json.dumps(record, ensure_ascii=False)


def summary(scored: Sequence["ScoredText"]) -> str:
    """All of them together, in nats and perplexity by piece, byte and character."""
    from seq2seq.generator.results import perplexity

    log_prob = math.fsum(found.log_prob for found in scored)
    units = {
        "piece": sum(len(found.ids) for found in scored),
        "byte": sum(found.num_bytes for found in scored),
        "character": sum(found.num_characters for found in scored),
    }
    text = f"{len(scored)} texts, {units['piece']} pieces, log-probability {log_prob:.4f}"
    for unit, count in units.items():
        if count:
            text += f"; a {unit}: {log_prob / count:.4f}, perplexity {perplexity(log_prob, count):.4f}"
    return text
