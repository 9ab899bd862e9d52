"""Measures how fast a model translates, beside other programs with the same weights. Prints one JSON object.

    python scripts/bench_translate.py outputs/demo/latest/bundle --input test.en --reference test.de
    python scripts/bench_translate.py BUNDLE --input test2016.de --reference test2016.en --rounds 5 --profile

In each round every engine has a process of its own, and they take turns: in one mode after the other each engine
translates the same lines. Modes are beam search and greedy search, each with all lines at once (batch) and line by line
(single). Engines are this package and, where they are installed, CTranslate2 (on what `seq2seq convert` makes of the
model; all threads on one batch, and as *_workers a batch for each thread) and Hugging Face's generate; --peer-command
adds any program that translates lines. Each figure is given as median, min and max over the rounds; a ratio is taken in
each round.

ratio_batch_* and the like are our sentences/s over those of the other engine, ratio_single_* our milliseconds over its.
If the bundle has compiled code (seq2seq convert --to aoti), that is what is measured as ours, in all figures, and the
modules are an engine of their own: ratio_modules_*.

All engines search by the same rule: a sentence is done when as many hypotheses have ended as the beam is wide. By
default this package goes on until nothing better can come: *_own_stop is that. What could not be measured is null, with
the reason in `missing`. Besides: what a step costs at target length 512 beside 64, the bytes of the cache beside those
of the formula (2 * layers * heads * head width * positions, of each hypothesis and of each source), the seconds until
the help and the first translation are there, and with --profile where the time of a batched beam search goes.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import measuring
from translation_rounds import PEERS, WARMUP_LINES, Plan, Round, backend_of, one_round

QUICK_LINES = 4
LENGTHS, QUICK_LENGTHS = (64, 512), (9, 24)
"""Target lengths at which steps are timed."""
BATCHED_STEPS = 16
"""Sentences whose steps are timed together, besides those of one alone."""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="folder of a bundle, as seq2seq train writes it")
    parser.add_argument("--input", required=True, help="source text, one segment a line")
    parser.add_argument("--reference", help="its translation; BLEU of each mode is given then")
    for name, default, what in (
        ("--beam-size", 5, "hypotheses of the beam search"),
        ("--one-by-one", 100, "first lines that are also translated alone"),
        ("--max-length", 100, "pieces of a translation at most"),
        ("--peer-batch", 64, "lines of a peer's batch"),
        ("--start-ups", 5, "processes started to see how long help and first translation take"),
    ):
        parser.add_argument(name, type=measuring.at_least_one, default=default, help=f"{what} (default: %(default)s)")
    parser.add_argument(
        "--batch-tokens", type=measuring.at_least_one, help="source pieces of our batch (default: the model's own)"
    )
    parser.add_argument(
        "--peers", nargs="*", choices=list(PEERS), default=list(PEERS), help="compare with these only (default: all)"
    )
    parser.add_argument(
        "--peer-command",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "COMMAND"),
        help="a program that reads lines and writes their translations by beam search, such as joeynmt "
        "'joeynmt translate model.yaml'; its start-up, as one line shows it, is taken off",
    )
    parser.add_argument(
        "--hugging-face", metavar="FOLDER", help="the model for Hugging Face (default: it is converted)"
    )
    parser.add_argument("--profile", action="store_true", help="tell where the time of a batched beam search goes")
    parser.add_argument(
        "--quick", action="store_true", help=f"a trial: {QUICK_LINES} lines, one of them alone, short steps"
    )
    measuring.add_common_options(parser)
    return parser


def compared(plan: Plan, rounds: list[Round]) -> dict[str, Any]:
    """All ratios, null where there is nothing to compare with."""
    found: dict[str, Any] = {}
    for ratio in plan.ratios():
        if all(name in rounds[0].figures for name in (ratio.engine, ratio.other)):
            found[ratio.name] = measuring.spread(
                [
                    one.figures[ratio.engine][ratio.mode][ratio.figure]
                    / one.figures[ratio.other][ratio.other_mode or ratio.mode][ratio.figure]
                    for one in rounds
                ]
            )
        else:
            found[ratio.name] = None
            reasons = [plan.missing.get(name) for name in (ratio.engine, ratio.other)]
            plan.missing[ratio.name] = next(filter(None, reasons), f"--peer-command does not name {ratio.other}")
    return found


def tables(plan: Plan, rounds: list[Round], references: list[str] | None, target_lang: str | None) -> dict[str, Any]:
    """Figures and BLEU of each engine in each mode."""
    found: dict[str, Any] = {}
    for name, modes in rounds[0].figures.items():
        table: dict[str, Any] = {}
        for mode in modes:
            texts = rounds[0].texts[name][mode]
            table[mode] = {"lines": len(texts)}
            table[mode] |= measuring.spreads([one.figures[name][mode] for one in rounds])
            if references is not None:
                table[mode] |= bleu(texts, references, target_lang)
        found[name] = {"modes": table}
        if name in plan.wanted:
            found[name]["startup_seconds"] = measuring.spread([one.startup[name] for one in rounds])
    return found


def bleu(texts: list[str], references: list[str], target_lang: str | None) -> dict[str, Any]:
    """The score of one mode's translations; line by line these are the first lines only."""
    from seq2seq.evaluation.metrics import corpus_scores

    (score,) = corpus_scores(texts, [references[: len(texts)]], metrics=["bleu"], target_lang=target_lang)
    return {"bleu": round(score.score, 2), "bleu_signature": score.signature}


def steps(args: argparse.Namespace, lines: list[str]) -> dict[str, Any]:
    """What steps cost: for one sentence alone (its ratios are the ones at the top), and for some together."""
    from decode_costs import step_costs

    lengths = QUICK_LENGTHS if args.quick else LENGTHS
    ratio = f"step_cost_ratio_{lengths[1]}_{lengths[0]}"
    some = {"one_sentence": lines[:1], "some_sentences": lines[:BATCHED_STEPS]}
    found: dict[str, Any] = {}
    try:
        found["steps"] = {
            name: measuring.spreads(
                [
                    measuring.in_fresh_process(step_costs, args.model, args.threads, given, args.beam_size, lengths)
                    for _ in range(args.rounds)
                ]
            )
            for name, given in some.items()
        }
    except ValueError as error:
        return {ratio: None, "cache_memory_ratio": None, "missing": str(error)}
    alone = found["steps"]["one_sentence"]
    return {name: alone[name] for name in (ratio, "cache_memory_ratio")} | found


def read(args: argparse.Namespace) -> tuple[list[str], list[str] | None]:
    """The text to translate, and its references.

    Raises:
        ValueError: if there is none, or they do not belong together.
    """
    from seq2seq.text.lines import read_lines

    lines = read_lines(args.input)
    references = read_lines(args.reference) if args.reference is not None else None
    if not lines:
        raise ValueError(f"{args.input} has no lines; give text to translate")
    if references is not None and len(references) != len(lines):
        raise ValueError(
            f"{args.input} has {len(lines)} lines and {args.reference} {len(references)}; line n of one must translate "
            "line n of the other"
        )
    if args.quick:
        lines, args.one_by_one, args.start_ups = lines[:QUICK_LINES], 1, 1
        references = references and references[:QUICK_LINES]
    return lines, references


def run(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds, and what they say together."""
    lines, references = read(args)
    from seq2seq.bundle import read_config
    from seq2seq.nn.device import find_device
    from seq2seq.training.provenance import environment

    args.device = str(find_device(args.device))
    target_lang = read_config(args.model)["target_lang"]
    machine = measuring.machine()
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(args, lines, Path(folder))
        for number in range(1, args.rounds + 1):
            rounds.append(one_round(plan, backwards=number % 2 == 0))
            print(f"round {number} of {args.rounds}: {said(rounds[-1])}", file=sys.stderr)
    found = compared(plan, rounds) | steps(args, lines)
    found |= first_answers(args, lines)
    if args.profile:
        from decode_costs import decode_profile

        patience = 1.0 if args.beam_size > 1 else None
        given = {"beam_size": args.beam_size, "patience": patience, "max_length": args.max_length}
        found["profile"] = measuring.in_fresh_process(decode_profile, args.model, lines, given)
    missing = plan.missing | ({"steps": found.pop("missing")} if "missing" in found else {})
    return {
        "benchmark": "translate",
        **found,
        "missing": missing,
        "engines": tables(plan, rounds, references, target_lang),
        "settings": vars(args) | {"warmup_lines": WARMUP_LINES, "backend": backend_of(args.model)},
        "machine": machine | {"device": rounds[0].device},
        "versions": environment(),
    }


def first_answers(args: argparse.Namespace, lines: list[str]) -> dict[str, Any]:
    """Seconds until the help, and a translation, are there; the first time, in which files are read, does not count."""
    from start_up import start_up

    line = next((line for line in lines if line.strip()), "")
    backend = backend_of(args.model)
    start_up(args.model, line, args.threads, backend)
    return measuring.spreads([start_up(args.model, line, args.threads, backend) for _ in range(args.start_ups)])


def said(found: Round) -> str:
    """A line about a round."""
    modes = list(dict.fromkeys(mode for table in found.figures.values() for mode in table))
    parts = []
    for mode in modes:
        rates = [
            f"{name} {table[mode]['sentences_per_second']:.1f}"
            for name, table in found.figures.items()
            if mode in table
        ]
        parts.append(f"{mode} {', '.join(rates)}")
    return "sentences/s: " + "; ".join(parts)


def main() -> None:
    measuring.print_found(options(), run)


if __name__ == "__main__":
    main()
