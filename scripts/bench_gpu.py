"""Measures training on a CUDA GPU: compiled or not, with padding or without. Prints one JSON object.

    python scripts/bench_gpu.py
    python scripts/bench_gpu.py --model transformer_small --batch-tokens 8192 --rounds 5

Four settings of one model, in bfloat16 mixed precision: plain, compile, padding_free, and both. Each round runs all
four, each in a process of its own, over the same batches: random pieces in sentences of random lengths, put together by
length as in training. The clock runs over whole steps (forward, loss, backward, clipping, optimiser), the first ones,
in which compiling falls, left out and told by themselves. Target tokens are real ones. `matrix_share` is what the
matrix products of real positions alone would take at the rate of large products, which is measured in the same process,
over the time of the step; with --peak-tflops also over the rate that the card's maker gives. Ends with an error where
there is no such GPU.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import measuring
import torch
from bench_train import model_config

from seq2seq.config import Architecture, ModelConfig, OptimConfig
from seq2seq.corpus.batching import Batch, EncodedPairs, token_batches
from seq2seq.models import build_model
from seq2seq.models.stack import Execution
from seq2seq.nn.varlen import check_varlen
from seq2seq.text.special import SpecialIds
from seq2seq.training.loss import batch_loss
from seq2seq.training.optimizers import build_optimizer, set_rate
from seq2seq.training.provenance import environment

SETTINGS = {
    "plain": Execution(),
    "compile": Execution(compiled=True),
    "padding_free": Execution(padding_free=True),
    "compile_padding_free": Execution(compiled=True, padding_free=True),
}
FIRST_PIECE = 4
"""Smaller ids are special."""


@dataclass(frozen=True)
class Work:
    """What is computed in a round."""

    model: ModelConfig
    vocab_size: int
    batch_tokens: int
    updates: int
    warmup: int
    peak_tflops: float | None


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="transformer_base", help="name in conf/model (default: %(default)s)")
    for name, default, what in (
        ("--vocab-size", 32000, "pieces"),
        ("--batch-tokens", 32768, "budget of a batch"),
        ("--updates", 40, "updates timed"),
        ("--warmup", 10, "updates left out before"),
        ("--rounds", 3, "processes measured for each setting"),
    ):
        parser.add_argument(name, type=measuring.at_least_one, default=default, help=f"{what} (default: %(default)s)")
    parser.add_argument("--peak-tflops", type=float, help="the card's matrix peak in bfloat16, as its maker gives it")
    return parser


def check_gpu(config: ModelConfig) -> None:
    """Refuse a machine or a model that cannot be measured.

    Raises:
        ValueError: saying what is missing.
    """
    if not torch.cuda.is_available():
        raise ValueError(
            f"there is no GPU: torch {torch.__version__} finds no CUDA device; this benchmark measures nothing without "
            "one (scripts/bench_train.py measures CPUs)"
        )
    if config.architecture is not Architecture.encoder_decoder or config.gated or config.kv_heads != config.num_heads:
        raise ValueError("the count of operations is that of the original model; choose --model transformer_base")
    check_varlen(config.head_width, config.attention_dropout)


def batches(work: Work, seed: int = 1) -> list[Batch]:
    """As many batches as there are updates, of sentences of 8 to some 100 pieces, median 24."""
    draw = random.Random(seed)
    sources, targets = [], []
    while sum(map(len, sources)) < 1.2 * work.batch_tokens * (work.warmup + work.updates):
        length = min(120, 8 + round(draw.lognormvariate(2.8, 0.8)))
        for side, num in ((sources, length), (targets, max(1, round(length * draw.uniform(0.8, 1.25))))):
            side.append([draw.randrange(FIRST_PIECE, work.vocab_size) for _ in range(num)])
    pairs = EncodedPairs(sources, targets, SpecialIds(), SpecialIds())
    chosen = token_batches(pairs.source_lengths, pairs.target_lengths, work.batch_tokens, seed=seed)
    return [pairs[indices] for indices in chosen[: work.warmup + work.updates]]


def forward_products(config: ModelConfig, vocab_size: int, batch: Batch) -> int:
    """Multiply-adds of a forward pass over the real positions of a batch; those of a step are three times as many.

    Projections of attention, scores and weighted values, feed-forward networks, and logits.
    """
    d, f, heads = config.d_model, config.d_ff, config.num_heads * config.head_width
    sources, targets = batch.src_valid.sum(1).tolist(), batch.tgt_valid.sum(1).tolist()
    source, target = sum(sources), sum(targets)
    encoder = source * (4 * d * heads + 2 * d * f) + sum(2 * heads * length**2 for length in sources)
    own = target * (4 * d * heads + 2 * d * f) + sum(heads * length * (length + 1) for length in targets)
    cross = (target + source) * 2 * d * heads
    cross += sum(2 * heads * s * t for s, t in zip(sources, targets, strict=True))
    return config.num_encoder_layers * encoder + config.num_decoder_layers * (own + cross) + target * d * vocab_size


def product_rate(size: int = 8192, repeats: int = 20) -> float:
    """Multiply-adds a second of large matrix products in bfloat16."""
    one, other = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for timed in (3, repeats):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(timed):
            one @ other
        torch.cuda.synchronize()
    return repeats * size**3 / (time.perf_counter() - started)


def measure(work: Work, setting: str) -> dict[str, float]:
    """One setting, in a process of its own."""
    torch.manual_seed(1)
    optim = OptimConfig()
    model = build_model(work.model, work.vocab_size, work.vocab_size).cuda().train()
    model.execute(SETTINGS[setting])
    optimizer = build_optimizer(model, optim, fused=True)
    set_rate(optimizer.param_groups, 1e-4)
    given = [batch.to("cuda") for batch in batches(work)]
    products = sum(3 * forward_products(work.model, work.vocab_size, batch) for batch in given[work.warmup :])
    rate = product_rate()
    torch.cuda.reset_peak_memory_stats()

    def step(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            hidden = model.decode(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid)
            loss = batch_loss(model, hidden, batch.tgt_out, batch.tgt_valid, 0.1, optim.loss_chunk).loss
        (loss / batch.num_target_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach() / batch.num_target_tokens

    started = time.perf_counter()
    step(given[0])
    torch.cuda.synchronize()
    first = time.perf_counter() - started
    for batch in given[1 : work.warmup]:
        step(batch)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for batch in given[work.warmup :]:
        loss = step(batch)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return figures(work, given, seconds, products, rate) | {"first_step_seconds": first, "last_loss": float(loss)}


def figures(work: Work, given: Sequence[Batch], seconds: float, products: int, rate: float) -> dict[str, float]:
    """What the clock and the counts say together."""
    timed = given[work.warmup :]
    found = {
        "target_tokens_per_second": sum(batch.num_target_tokens for batch in timed) / seconds,
        "updates_per_second": len(timed) / seconds,
        "padding_share": sum(batch.num_padding for batch in timed) / sum(batch.num_positions for batch in timed),
        "tflops": 2e-12 * products / seconds,
        "matrix_share": products / rate / seconds,
        "peak_gpu_mb": torch.cuda.max_memory_allocated() / 2**20,
    }
    if work.peak_tflops is not None:
        found["share_of_peak"] = found["tflops"] / work.peak_tflops
    return found


def run(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds of all settings, and what they say."""
    config = replace(model_config(args.model), dropout=0.1)
    check_gpu(config)
    work = Work(config, args.vocab_size, args.batch_tokens, args.updates, args.warmup, args.peak_tflops)
    rounds: dict[str, list[dict[str, float]]] = {setting: [] for setting in SETTINGS}
    for number in range(1, args.rounds + 1):
        for setting, found in rounds.items():
            found.append(measuring.in_fresh_process(measure, work, setting))
            rate, share = found[-1]["target_tokens_per_second"], found[-1]["matrix_share"]
            told = f"{setting}: {rate:,.0f} target tokens/s, {share:.0%} of the rate of large products"
            print(f"round {number} of {args.rounds}, {told}", file=sys.stderr)
    return {
        "benchmark": "gpu",
        "settings": {setting: measuring.spreads(found) for setting, found in rounds.items()},
        "options": vars(args),
        "machine": measuring.machine() | {"device": torch.cuda.get_device_name()},
        "versions": environment(),
    }


def main() -> None:
    measuring.print_found(options(), run)


if __name__ == "__main__":
    main()
