"""How long the command takes to answer: its help, its first translation, and beside them what `import torch` takes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from measuring import children_cpu_seconds


def command() -> list[str]:
    """The command `seq2seq` of this Python."""
    script = Path(sys.executable).with_name("seq2seq")
    return [str(script)] if script.exists() else [sys.executable, "-m", "seq2seq"]


def first_output(arguments: Sequence[str], text: str = "", threads: int = 1) -> tuple[float, float]:
    """Seconds from starting a process until its first line is there (or its end), and its CPU seconds.

    Args:
        arguments: The program and its arguments.
        text: Its standard input.
        threads: CPU threads that it is told to use.

    Raises:
        ValueError: if it fails, with the end of what it said.
    """
    cpu, started = children_cpu_seconds(), time.perf_counter()
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=errors, env=environment) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(text.encode())
            process.stdin.close()
            process.stdout.readline()
            seconds = time.perf_counter() - started
            process.stdout.read()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    cpu = children_cpu_seconds() - cpu
    if process.returncode != 0:
        raise ValueError(f"{' '.join(arguments)} ended with {process.returncode}: {said[-300:]}")
    return seconds, cpu


def start_up(bundle: str, line: str, threads: int, backend: str = "torch") -> dict[str, float]:
    """One measurement of each; the process of the first translation is asked for that one alone."""
    importing, importing_cpu = first_output([sys.executable, "-c", "import torch"], threads=threads)
    helping, helping_cpu = first_output([*command(), "--help"], threads=threads)
    translating, translating_cpu = first_output(
        [*command(), "translate", bundle, "--device", "cpu", "--backend", backend], line + "\n", threads
    )
    return {
        "help_seconds": helping,
        "help_cpu_seconds": helping_cpu,
        "import_torch_seconds": importing,
        "import_torch_cpu_seconds": importing_cpu,
        "first_translation_seconds": translating,
        "first_translation_cpu_seconds": translating_cpu,
        "first_translation_over_import_torch_seconds": translating - importing,
    }
