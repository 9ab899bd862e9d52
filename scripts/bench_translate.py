"""Measures how fast a model translates. Prints one JSON object: median, min and max of each figure over the rounds.

    python scripts/bench_translate.py outputs/demo/latest/bundle --input test.en --reference test.de

Each round is a new process that loads the model and translates in four modes, one after the other: beam search and
greedy search, each with all lines at once (batched, sorted by length) and line by line. Each mode has a few lines to
warm up with. Target tokens are the pieces of the translations, EOS included. startup_seconds runs from the start of
the process until the model is loaded, imports included.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import measuring

from seq2seq.text.lines import read_lines
from seq2seq.training.provenance import environment

if TYPE_CHECKING:
    from seq2seq.translator import Translator

WARMUP_LINES = 4


@dataclass(frozen=True)
class Task:
    """What every round does."""

    model: str
    device: str
    threads: int
    lines: list[str]
    beam_size: int
    one_by_one: int


@dataclass(frozen=True)
class Round:
    """What one process found."""

    startup_seconds: float
    peak_rss_mb: float
    modes: dict[str, dict[str, float]]
    texts: dict[str, list[str]]
    device: str
    target_lang: str | None


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="folder of a bundle, as seq2seq train writes it")
    parser.add_argument("--input", required=True, help="source text, one segment a line")
    parser.add_argument("--reference", help="its translation; BLEU of each mode is given then")
    parser.add_argument("--beam-size", type=measuring.at_least_one, default=5, help="default: %(default)s")
    parser.add_argument(
        "--one-by-one",
        type=measuring.at_least_one,
        default=100,
        help="first lines that are also translated alone (default: %(default)s)",
    )
    measuring.add_common_options(parser)
    return parser


def measure(task: Task, started: float) -> Round:
    """One round, in a process of its own that was started at `started`."""
    import torch

    from seq2seq.translator import Translator

    torch.set_num_threads(task.threads)
    translator = Translator.load(task.model, task.device)
    startup_seconds = time.time() - started
    modes, texts = {}, {}
    for how in ("batched", "one_by_one"):
        for search, beam_size in (("beam", task.beam_size), ("greedy", 1)):
            name = f"{search}_{how}"
            modes[name], texts[name] = _mode(translator, task, beam_size, alone=how == "one_by_one")
    languages = translator.bundle.languages
    return Round(startup_seconds, measuring.peak_rss_mb(), modes, texts, str(translator.device), languages[1])


def _mode(translator: "Translator", task: Task, beam_size: int, alone: bool) -> tuple[dict[str, float], list[str]]:
    """Rates and translations of one mode."""
    decode = replace(translator.bundle.decode, beam_size=beam_size, n_best=1)
    jobs = [[line] for line in task.lines[: task.one_by_one]] if alone else [task.lines]
    translator.translate(task.lines[:WARMUP_LINES], decode)
    clock, cpu_clock = time.perf_counter(), time.process_time()
    answers = [answer for job in jobs for answer in translator.translate(job, decode)]
    seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu_clock
    num_tokens = sum(len(answer.ids) for answer in answers)
    rates = {
        "sentences_per_second": len(answers) / seconds,
        "target_tokens_per_second": num_tokens / seconds,
        "target_tokens_per_cpu_second": num_tokens / cpu_seconds,
        "milliseconds_per_sentence": 1000 * seconds / len(answers),
    }
    return rates, [answer.text for answer in answers]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds, and what they say together."""
    lines = read_lines(args.input)
    references = read_lines(args.reference) if args.reference is not None else None
    if not lines:
        raise ValueError(f"{args.input} has no lines; give text to translate")
    if references is not None and len(references) != len(lines):
        raise ValueError(
            f"{args.input} has {len(lines)} lines and {args.reference} {len(references)}; line n of one must translate "
            "line n of the other"
        )
    machine = measuring.machine()
    task = Task(args.model, args.device, args.threads, lines, args.beam_size, args.one_by_one)
    rounds = []
    for number in range(1, args.rounds + 1):
        rounds.append(measuring.in_fresh_process(measure, task, time.time()))
        rate = rounds[-1].modes["beam_batched"]["sentences_per_second"]
        print(f"round {number} of {args.rounds}: beam {args.beam_size}, {rate:.1f} sentences/s", file=sys.stderr)
    modes: dict[str, dict[str, Any]] = {}
    for name, texts in rounds[0].texts.items():
        modes[name] = {"lines": len(texts), **measuring.spreads([found.modes[name] for found in rounds])}
        if references is not None:
            modes[name] |= _bleu(texts, references, rounds[0].target_lang)
    return {
        "benchmark": "translate",
        "modes": modes,
        "startup_seconds": measuring.spread([found.startup_seconds for found in rounds]),
        "peak_rss_mb": measuring.spread([found.peak_rss_mb for found in rounds]),
        "settings": vars(args) | {"warmup_lines": WARMUP_LINES},
        "machine": machine | {"device": rounds[0].device},
        "versions": environment(),
    }


def _bleu(texts: list[str], references: list[str], target_lang: str | None) -> dict[str, Any]:
    """The score of one mode's translations; line by line these are the first lines only."""
    from seq2seq.evaluation.metrics import corpus_scores

    (bleu,) = corpus_scores(texts, [references[: len(texts)]], metrics=["bleu"], target_lang=target_lang)
    return {"bleu": round(bleu.score, 2), "bleu_signature": bleu.signature}


def main() -> None:
    args = options().parse_args()
    try:
        found = run(args)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
