"""`--devices N`: so many processes translate, each with the whole model, and this one reads, deals and writes."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING

from seq2seq.cli import processes
from seq2seq.cli.engines import Backend, EngineOptions
from seq2seq.cli.processes import Member
from seq2seq.cli.translate_channel import Channel, WorkerError, asking
from seq2seq.cli.translate_job import Answer, Answers, Job
from seq2seq.cli.translate_shares import Ask, Task, deal, windows

if TYPE_CHECKING:
    from seq2seq.translator import Request

COMMAND = [sys.executable, "-m", "seq2seq.cli.translate_worker"]


def shared_answers(job: Job, lines: "Iterable[Request]", *, first: int = 1) -> Answers:
    """The answers to all lines, in their order, by `job.engine.devices` processes; none is left behind.

    Args:
        job: What each of them does.
        lines: The input from line `first` on.
        first: Number of the first line.

    Raises:
        ValueError: if there are not so many GPUs, or what a process that failed has said; the others are ended.
    """
    prepare(job)
    jobs = [replace(job, engine=share(job.engine, rank)) for rank in range(job.engine.devices)]
    with tempfile.TemporaryDirectory(prefix="seq2seq-") as folder, _ended_by_signals():
        members: list[Member] = []
        try:
            for rank, own in enumerate(jobs):
                environment = _threads(own.engine)
                members.append(processes.start(COMMAND, rank, len(jobs), environment, Path(folder), pipes=True))
            asks = [_asking(member, own, len(jobs)) for member, own in zip(members, jobs, strict=True)]
            yield from deal(windows(job, lines, first), asks)
        finally:
            processes.end(members)
            for member in members:
                _close(member)


def prepare(job: Job) -> None:
    """Do once what the processes would else all do: convert the model.

    Raises:
        ValueError: if drawn translations would not depend on the seed, or the model cannot be converted.
    """
    if job.engine.backend is not Backend.ctranslate2:
        return
    if job.decode.draws:
        raise ValueError(
            f"temperature={job.decode.temperature} draws translations, and CTranslate2 draws them in the order of the "
            "lines, which several processes do not keep; leave out --devices, or take --backend torch"
        )
    from seq2seq.translator.ctranslate2_conversion import converted

    converted(job.model, job.engine.compute.name)


def share(engine: EngineOptions, rank: int) -> EngineOptions:
    """The options of one of the processes: its own GPU, or its part of the CPU's threads.

    Raises:
        ValueError: if there are not so many GPUs.
    """
    device = engine.place
    if device != "cpu":
        import torch

        num_gpus = torch.cuda.device_count()
        if device == "auto":
            device = "cuda" if num_gpus else "cpu"
        if device == "mps":
            raise ValueError(f"--devices {engine.devices} needs so many GPUs, and there is one of kind mps")
        if device == "cuda":
            if num_gpus < engine.devices:
                raise ValueError(
                    f"--devices {engine.devices} is more than the {num_gpus} GPUs that torch sees here; give as many, "
                    "or --device cpu for processes that share its threads"
                )
            return replace(engine, device=f"cuda:{rank}", devices=1)
    from seq2seq.nn.device import threads_wanted

    total = engine.threads or threads_wanted() or _num_cores()
    own = total // engine.devices + (rank < total % engine.devices)
    return replace(engine, device=device, threads=max(1, own), devices=1)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads(engine: EngineOptions) -> Mapping[str, str]:
    """What tells the libraries of a process how many threads it has, before they start any."""
    return {} if engine.threads is None else {"OMP_NUM_THREADS": str(engine.threads)}


def _asking(member: Member, job: Job, number: int) -> Ask:
    """Has batches translated by one of the processes."""
    reader, writer = _pipes(member)
    ask = asking(Channel(reader, writer), job)

    def or_say_why(task: Task) -> Sequence[Answer]:
        try:
            return ask(task)
        except EOFError as ended:
            member.process.wait()
            raise WorkerError(*processes.told(member, number)) from ended

    return or_say_why


def _pipes(member: Member) -> tuple[IO[bytes], IO[bytes]]:
    """What the process writes, and what it reads."""
    assert member.process.stdin is not None
    assert member.process.stdout is not None
    return member.process.stdout, member.process.stdin


def _close(member: Member) -> None:
    for stream in _pipes(member):
        with suppress(BrokenPipeError):  # what it was sent and has not read
            stream.close()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Inside, the signals that end a process end it in an orderly way, so that it can end those it has started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    kinds = [signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` sets it
        kinds.append(signal.SIGHUP)
    before = {kind: signal.signal(kind, stop) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
