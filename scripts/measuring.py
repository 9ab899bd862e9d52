"""What the benchmarks share: a fresh process for each round, medians, memory, and a description of the machine."""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """A new interpreter that does one thing after the other and keeps what it has loaded; it ends with the block."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn"))

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns, or raises, there."""
        return self._pool.submit(function, *args, **kwargs).result()


def in_fresh_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the function returns, or raises, in a new interpreter: no round profits from what another has warmed up."""
    with Worker() as worker:
        return worker.call(function, *args, **kwargs)


def children_cpu_seconds() -> float:
    """CPU seconds of all processes that this one has started and waited for. `os.times` counts in steps of 0.01."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak_rss_mb() -> float:
    """The most memory that this process has held so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss begins with the peak of the parent process there, even after exec
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest, to five digits."""
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: float(f"{value:.5g}") for name, value in found.items()}


def spreads(rounds: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """The spread of each figure over the rounds."""
    return {name: spread([found[name] for found in rounds]) for name in rounds[0]}


def machine() -> dict[str, Any]:
    """What the figures were measured on; a load above the benchmark's own threads means that others compute too."""
    return {
        "cpu": _cpu_model(),
        "logical_cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_1_minute": round(os.getloadavg()[0], 2),
    }


def print_found(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], dict[str, Any]]) -> None:
    """Run a benchmark with the options typed and print what it finds as JSON; a user's mistake ends it in one line."""
    args = parser.parse_args()
    try:
        found = run(args)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(json.dumps(found, indent=2))


def at_least_one(text: str) -> int:
    """An option's value as a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=at_least_one, default=3, help="processes measured (default: %(default)s)")
    parser.add_argument("--threads", type=at_least_one, default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument(
        "--device", choices=["auto", "cpu", "cuda", "mps"], default="auto", help="default: a GPU when there is one"
    )


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
