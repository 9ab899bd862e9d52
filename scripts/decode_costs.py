"""What one step of decoding costs at different lengths, what the cache takes, and where the time of a search goes."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from operator_names import is_attention, is_product
from torch.profiler import ProfilerActivity, profile, record_function

from seq2seq.config import Architecture, DecodeConfig, ModelConfig
from seq2seq.models.native_function import NativeFunction
from seq2seq.models.native_ranking import NativeRanking
from seq2seq.models.packed import Products
from seq2seq.translator import Translator
from seq2seq.translator.compiled_package import is_compiled

AROUND = 8
"""Steps on each side of a length that a figure is the median of."""


class _Watch:
    """Stands in the place of a model's `step` and writes down when it was called, and what the cache then was."""

    def __init__(self, model: Any) -> None:
        self.model, self.step = model, model.step
        self.called: list[tuple[float, float]] = []
        self.cache: list[tuple[int, int]] = []

    def __enter__(self) -> "_Watch":
        self.model.step = self._step
        return self

    def __exit__(self, *error: object) -> None:
        del self.model.step  # the method of its class is seen again

    def _step(self, tokens: torch.Tensor, state: Any) -> Any:
        started = time.perf_counter()
        found = self.step(tokens, state)
        self.called.append((started, time.perf_counter()))
        self.cache.append((found[1].num_bytes(), tokens.shape[0]))
        return found


def step_costs(
    bundle: str, threads: int, lines: Sequence[str], beam_size: int, lengths: tuple[int, int] = (64, 512)
) -> dict[str, float]:
    """Milliseconds of a step at two lengths, and bytes of the cache over those that the formula gives.

    A step is all that comes between two calls of the model, the model among it; the model alone is told besides.

    Args:
        bundle: The model's folder.
        threads: CPU threads.
        lines: What is translated at once, into as many pieces as are needed.
        beam_size: Hypotheses kept.
        lengths: The two lengths.

    Raises:
        ValueError: if the model has no such long positions.
    """
    torch.set_num_threads(threads)
    translator = Translator.load(bundle, "cpu", compiled=is_compiled(bundle))
    config = translator.bundle.model_config
    last = lengths[1] + AROUND + 1
    if config.max_positions is not None and config.max_positions <= last:
        raise ValueError(f"the model has learned positions for {config.max_positions} pieces, {last + 1} are needed")
    decode = DecodeConfig(
        beam_size=beam_size, min_length=last + 1, max_length=last + 1, max_length_factor=float(last), batch_tokens=10**6
    )
    translator.translate(lines[:1], DecodeConfig(beam_size=beam_size, max_length=AROUND))
    with _Watch(translator.model) as watch:
        answers = translator.translate(lines, decode)
    assert len(watch.called) == last + 1
    source = max(len(answer.source_ids[0]) for answer in answers)
    found: dict[str, float] = {}
    for length in lengths:
        # the call of number n, counted from 0, adds the piece that makes the cache n + 1 long
        calls = range(length - 1 - AROUND, length + AROUND)
        between = [watch.called[at + 1][0] - watch.called[at][0] for at in calls]
        model = [watch.called[at][1] - watch.called[at][0] for at in calls]
        found[f"step_{length}_ms"] = 1000 * statistics.median(between)
        found[f"model_step_{length}_ms"] = 1000 * statistics.median(model)
    first, second = lengths
    name = f"{second}_{first}"
    found[f"step_cost_ratio_{name}"] = found[f"step_{second}_ms"] / found[f"step_{first}_ms"]
    found[f"model_step_cost_ratio_{name}"] = found[f"model_step_{second}_ms"] / found[f"model_step_{first}_ms"]
    size = next(translator.model.parameters()).element_size()
    shares = [
        taken / cache_bytes(config, length, source, rows, len(lines), size)
        for length, (taken, rows) in enumerate(watch.cache, start=1)
    ]
    found["cache_memory_ratio"] = shares[second - 1]
    found["cache_memory_ratio_worst"] = max(shares[first - 1 : second])
    return found


def cache_bytes(config: ModelConfig, target: int, source: int, rows: int, sentences: int, size: int) -> int:
    """Bytes of keys and values by the formula: of each hypothesis its own, and of each sentence those of the source."""
    per_position = 2 * config.num_decoder_layers * config.kv_heads * config.head_width * size
    if config.architecture is Architecture.decoder_only:
        return per_position * rows * (source + target)
    return per_position * (rows * target + sentences * source)


_KINDS = {
    "selection": {
        *("topk", "_log_softmax", "_softmax", "logsumexp", "max", "amax", "argmax", "sort", "exp", "exp_", "log"),
        *("log_", "sum", "gather", "masked_fill_", "scatter_", "isnan", "any", "nonzero", "where", "sub", "sub_"),
    },
    "cache": {
        *("index_select", "copy_", "cat", "clone", "index_copy_", "index_put_", "_index_put_impl_", "index", "empty"),
        *("new_empty", "empty_like", "empty_strided", "resize_", "take", "slice_scatter"),
    },
}


def kind_of(name: str) -> str:
    """What an operator of the profiler does in a search."""
    if is_product(name) or name == PROJECTION:
        return "matrix_products"
    if name == RANKING:
        return "selection"
    if is_attention(name):
        return "attention"
    if name == COMPILED:
        return name
    short = name.removeprefix("aten::")
    return next((kind for kind, names in _KINDS.items() if short in names), "other_operators")


COMPILED = "compiled_code"
"""What torch has compiled ahead of time, products among it, of which the profiler does not see the parts."""

PROJECTION, RANKING = "seq2seq::packed_product", "seq2seq::ranking"
"""The package's own C++, called from Python."""

_NATIVE: tuple[tuple[type, str, str], ...] = (
    (NativeFunction, "__call__", COMPILED),
    (Products, "__call__", PROJECTION),
    (NativeRanking, "norm", RANKING),
    (NativeRanking, "top", RANKING),
)


@contextmanager
def _native_code_named() -> Iterator[None]:
    """Have the profiler see calls of native code."""
    with ExitStack() as stack:
        for kind, method, name in _NATIVE:
            before = getattr(kind, method)
            setattr(kind, method, _named(before, name))
            stack.callback(setattr, kind, method, before)
        yield


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The same function, seen by the profiler."""

    def named(*arguments: Any) -> Any:
        with record_function(name):
            return function(*arguments)

    return named


def decode_profile(bundle: str, lines: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Shares of the time of a batched search: products, attention, selection, cache, compiled code, others, Python.

    It is that of one thread, as the profiler sees no others. Python is what is left of the wall clock, NumPy and all
    bookkeeping of the search among it; the profiler makes it more than it is, by `profiler_slowdown` for all together.

    Args:
        bundle: The model's folder.
        lines: What is translated.
        options: Values of `DecodeConfig`.
    """
    torch.set_num_threads(1)
    translator = Translator.load(bundle, "cpu", compiled=is_compiled(bundle))
    decode = DecodeConfig(**options)
    translator.translate(lines, decode)
    started = time.perf_counter()
    translator.translate(lines, decode)
    plain = time.perf_counter() - started
    with profile(activities=[ProfilerActivity.CPU]) as profiler, _native_code_named():
        started = time.perf_counter()
        translator.translate(lines, decode)
        seconds = time.perf_counter() - started
    times = {event.key: 1e-6 * event.self_cpu_time_total for event in profiler.key_averages()}
    kinds = ("matrix_products", "attention", *_KINDS, COMPILED, "other_operators")
    shares: dict[str, float] = dict.fromkeys(kinds, 0.0)
    for name, spent in times.items():
        shares[kind_of(name)] += spent / seconds
    shares["python"] = 1 - sum(times.values()) / seconds
    largest = sorted(times, key=lambda name: -times[name])[:20]
    return {
        "shares": {name: round(share, 4) for name, share in shares.items()},
        "largest": {name: round(times[name] / seconds, 4) for name in largest},
        "seconds": round(plain, 3),
        "profiler_slowdown": round(seconds / plain, 3),
    }
