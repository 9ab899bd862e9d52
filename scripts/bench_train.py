"""Measures how fast training is. Prints one JSON object: median, min and max of each figure over several processes.

    python scripts/bench_train.py
    python scripts/bench_train.py --source train.de --target train.en --tokenizer joint.spm --batch-tokens 4600
    python scripts/bench_train.py --vocab-rows 32000 --batch-tokens 8192 --updates 2 --rounds 1

What is timed is `seq2seq train` itself, with the clock held beside its optimiser steps. Each round is a new process;
its first updates are left out, and after the timed ones a few more run under a profiler. All rounds see the same
batches. Target tokens are real ones: EOS counts, padding does not. Shares are of the time inside torch's operators:
matrix products (matmul_share), fused attention kernels (attention_share), and the largest of the rest (other_shares).
target_tokens_per_cpu_second suffers least from other jobs on the machine.

In turn with it runs, each time in a process of its own, the loop that one would write with torch.nn's layers
(plain_loop.py): same sizes, dropout, loss and batches. Its figures stand in plain_loop; ratio_to_plain_loop and the
other ratios are ours over its, round by round. --vocab-rows makes the table of pieces as large as that of another
vocabulary, to see what it costs: the third command is how memory is compared.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import measuring
from omegaconf import OmegaConf

from seq2seq.cli.train import conf_dir
from seq2seq.config import (
    Accelerator,
    DataConfig,
    DecodeConfig,
    FinalWeights,
    ModelConfig,
    Precision,
    TokenizerConfig,
    TrainConfig,
    TrainerConfig,
    from_dict,
    nearest,
)
from seq2seq.training.provenance import environment

PROFILED = 2
"""Updates under the profiler."""

CORPUS = Path(__file__).resolve().parent.parent / "data" / "phrasebook_en_de"


@dataclass(frozen=True)
class Round:
    """What one process found."""

    figures: dict[str, float]
    others: dict[str, float]
    device: str


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=str(CORPUS / "train.en"), help="source text (default: the phrasebook)")
    parser.add_argument("--target", default=str(CORPUS / "train.de"), help="target text (default: the phrasebook)")
    vocabulary = parser.add_mutually_exclusive_group()
    vocabulary.add_argument("--tokenizer", help="SentencePiece model for both sides")
    vocabulary.add_argument(
        "--vocab-size", type=measuring.at_least_one, default=2000, help="else one is trained (default: %(default)s)"
    )
    parser.add_argument("--model", default="transformer_small", help="name in conf/model (default: %(default)s)")
    parser.add_argument(
        "--dropout", type=float, default=0.1, help="on sublayers, attention and activations (default: %(default)s)"
    )
    parser.add_argument("--vocab-rows", type=measuring.at_least_one, help="rows of the table, if more than pieces")
    parser.add_argument(
        "--plain-loop", action=argparse.BooleanOptionalAction, default=True, help="measure that too (default: yes)"
    )
    for name, default, what in (
        ("--batch-tokens", 4096, "budget of a batch"),
        ("--updates", 10, "updates timed"),
        ("--warmup", 3, "updates left out before"),
    ):
        parser.add_argument(name, type=measuring.at_least_one, default=default, help=f"{what} (default: %(default)s)")
    precisions = [Precision.fp32.name, Precision.bf16_mixed.name]
    parser.add_argument("--precision", choices=precisions, default=precisions[0], help="default: %(default)s")
    measuring.add_common_options(parser)
    return parser


def model_config(name: str, dropout: float | None = None, vocab_rows: int | None = None) -> ModelConfig:
    """The sizes in conf/model/NAME.yaml.

    Args:
        name: Which.
        dropout: In the place of all three of the file.
        vocab_rows: Least rows of the table of pieces.
    """
    known = {path.stem: path for path in conf_dir().glob("model/*.yaml")}
    if name not in known:
        raise ValueError(f"--model {name} is not in {conf_dir() / 'model'}{nearest(name, known)}")
    values: Any = OmegaConf.to_container(OmegaConf.load(known[name]))
    if dropout is not None:
        values |= dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), dropout)
    if vocab_rows is not None:
        values["vocab_multiple"] = vocab_rows
    return from_dict(ModelConfig, values)


@contextmanager
def tokenizer_model(args: argparse.Namespace) -> Iterator[str]:
    """The file of the tokenizer; without one, one is trained on the text, once for all rounds."""
    if args.tokenizer is not None:
        yield args.tokenizer
        return
    from seq2seq.corpus.parallel import read_parallel
    from seq2seq.text.tokenizer_training import train_tokenizer

    text = read_parallel(args.source, args.target)
    lines = chain(text.source, text.target)
    tokenizer, report = train_tokenizer(lines, TokenizerConfig(vocab_size=args.vocab_size))
    print(report.summary(), file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "joint.spm"
        path.write_bytes(tokenizer.model)
        yield str(path)


def train_config(args: argparse.Namespace, tokenizer: str) -> TrainConfig:
    """A run of just as many steps as are needed, validated once at its end, on one pair that is held out."""
    steps = args.warmup + args.updates + PROFILED
    return TrainConfig(
        model=model_config(args.model, args.dropout, args.vocab_rows),
        data=DataConfig(
            train_source=args.source,
            train_target=args.target,
            valid_size=1,
            batch_tokens=args.batch_tokens,
            max_length=min(args.batch_tokens, DataConfig.max_length),
            tokenizer=TokenizerConfig(source_model=tokenizer),
        ),
        decode=DecodeConfig(beam_size=1, max_length=4),
        trainer=TrainerConfig(
            max_steps=steps,
            validate_every=steps,
            keep_best=0,
            average_last=0,
            final_weights=FinalWeights.last,
            precision=Precision[args.precision],
            accelerator=Accelerator["gpu" if args.device == "cuda" else args.device],
            num_threads=args.threads,
        ),
    )


def measure(config: TrainConfig, warmup: int, updates: int) -> Round:
    """One round, in a process of its own."""
    from update_meter import UpdateMeter

    from seq2seq.training.fit import fit

    meter = UpdateMeter(warmup, updates, PROFILED)
    with tempfile.TemporaryDirectory() as folder:
        fit(config, Path(folder), callbacks=[meter])
    return Round(meter.figures, meter.others, meter.device)


def measure_plain(config: TrainConfig, warmup: int, updates: int) -> Round:
    """One round of the plain loop, in a process of its own."""
    import plain_loop
    from update_meter import UpdateMeter

    meter = plain_loop.measure_plain(config, UpdateMeter(warmup, updates, PROFILED))
    return Round(meter.figures, meter.others, meter.device)


def ratios(ours: Round, plain: Round) -> dict[str, float]:
    """Our figures over those of the plain loop of the same round."""
    names = {
        "ratio_to_plain_loop": "target_tokens_per_second",
        "ratio_to_plain_loop_per_cpu_second": "target_tokens_per_cpu_second",
        "memory_ratio_to_plain_loop": "peak_gpu_mb" if "peak_gpu_mb" in ours.figures else "peak_rss_mb",
    }
    return {name: ours.figures[figure] / plain.figures[figure] for name, figure in names.items()}


def largest(rounds: list[Round], number: int = 12) -> dict[str, float]:
    """The operators beside matrix products and attention that take most, with their mean share over the rounds."""
    names = {name for found in rounds for name in found.others}
    means = {name: sum(found.others.get(name, 0.0) for found in rounds) / len(rounds) for name in names}
    return {name: round(means[name], 4) for name in sorted(names, key=lambda name: -means[name])[:number]}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds, and what they say together."""
    machine = measuring.machine()
    rounds, plain = [], []
    with tokenizer_model(args) as tokenizer:
        config = train_config(args, tokenizer)
        if args.plain_loop:
            import plain_loop

            plain_loop.check_plain(config.model)
        for number in range(1, args.rounds + 1):
            rounds.append(measuring.in_fresh_process(measure, config, args.warmup, args.updates))
            said = f"{rounds[-1].figures['target_tokens_per_second']:,.0f} target tokens/s"
            if args.plain_loop:
                plain.append(measuring.in_fresh_process(measure_plain, config, args.warmup, args.updates))
                said += f", plain loop {plain[-1].figures['target_tokens_per_second']:,.0f}"
            print(f"round {number} of {args.rounds}: {said}", file=sys.stderr)
    settings = vars(args) | {"profiled": PROFILED}
    if args.tokenizer is not None:
        del settings["vocab_size"]
    found: dict[str, Any] = {"benchmark": "train", **measuring.spreads([found.figures for found in rounds])}
    if plain:
        found |= measuring.spreads([ratios(*pair) for pair in zip(rounds, plain, strict=True)])
        found["plain_loop"] = measuring.spreads([found.figures for found in plain])
    return {
        **found,
        "other_shares": largest(rounds),
        "settings": settings,
        "machine": machine | {"device": rounds[0].device},
        "versions": environment(),
    }


def main() -> None:
    measuring.print_found(options(), run)


if __name__ == "__main__":
    main()
