"""Lines shared out to processes that torchrun has started: rank 0 reads, deals and writes, and all translate."""

import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from seq2seq.cli import UsageError
from seq2seq.cli.engines import EngineOptions
from seq2seq.cli.translate_channel import Channel, asking, work
from seq2seq.cli.translate_devices import prepare
from seq2seq.cli.translate_job import Answers, Job
from seq2seq.cli.translate_shares import ask_here, deal, windows
from seq2seq.training import launch

if TYPE_CHECKING:
    from seq2seq.translator import Request

PATIENCE = timedelta(minutes=10)
"""Longest that the processes wait for one another at the start."""


def is_one_of_several() -> bool:
    """Whether torchrun has started this process together with others."""
    place = launch.place()
    return place is not None and place.num_ranks > 1


def follows() -> bool:
    """Whether another one of those processes reads and writes."""
    place = launch.place()
    return place is not None and place.rank > 0


def led_answers(job: Job, lines: "Iterable[Request]", *, first: int = 1) -> Answers:
    """The answers to all lines, in their order, on rank 0; the other ranks `follow`.

    Args:
        job: What each of them does.
        lines: The input from line `first` on.
        first: Number of the first line.

    Raises:
        ValueError: if the others do not come, or what one that failed has said.
    """
    place = launch.place()
    assert place is not None
    prepare(job)
    own = replace(job, engine=own_options(job.engine))
    with ExitStack() as stack:
        asks = [asking(stack.enter_context(channel), job) for channel in _followers(place.num_ranks - 1)]
        yield from deal(windows(job, lines, first), [ask_here(own.load(), own), *asks])


def follow(options: EngineOptions) -> int:
    """Translate what rank 0 hands this process until nothing is left; the exit code.

    Args:
        options: Where this process computes.
    """
    with _leader() as channel:
        return work(channel, lambda job: replace(job, engine=own_options(options, job.engine)))


def own_options(options: EngineOptions, told: EngineOptions | None = None) -> EngineOptions:
    """The options of this process: what rank 0 has told, on the device that is this one's of its machine.

    Args:
        options: As typed here.
        told: As typed for rank 0, if that is another one.

    Raises:
        UsageError: for one device with a number, or several processes of each process.
    """
    if options.devices > 1:
        raise UsageError(
            f"--devices {options.devices} starts processes, but torchrun has started this one; leave --devices out"
        )
    if ":" in options.device:
        raise UsageError(
            f"--device {options.device} is one device for all; give --device {options.device.split(':')[0]}"
        )
    device = replace(told or options, device=options.device).place
    if device in ("auto", "cuda"):
        import torch

        number = torch.cuda.device_count()
        if number:
            device = f"cuda:{int(os.environ['LOCAL_RANK']) % number}"
    return replace(told or options, device=device, threads=options.threads)


def _store() -> Any:
    """What the processes find one another by."""
    from torch.distributed.rendezvous import rendezvous

    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise ValueError(
                f"{name} is not in the environment, by which the processes find one another; start them with torchrun"
            )
    store, _, _ = next(iter(rendezvous("env://", timeout=PATIENCE)))
    return store


def _key() -> str:
    return f"seq2seq translate {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _followers(number: int) -> "Iterator[Any]":
    """Contexts with channels to the other processes, as they come."""
    token = secrets.token_hex(16)
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    with socket.create_server(("127.0.0.1" if one_machine else "", 0)) as server:
        server.settimeout(PATIENCE.total_seconds())
        host = "127.0.0.1" if one_machine else socket.getfqdn()
        store = _store()
        store.set(_key(), f"{host} {server.getsockname()[1]} {token}")
        found = 0
        while found < number:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                raise ValueError(
                    f"{found} of the {number} other processes have come within {PATIENCE}; are all of them running?"
                ) from None
            if _introduced(connection, token):
                found += 1
                yield _channel(connection)


def _introduced(connection: socket.socket, token: str) -> bool:
    """Whether it is one of those that were started together with this one; a stranger is shown out."""
    connection.settimeout(PATIENCE.total_seconds())
    said = b""
    while len(said) < len(token) and (part := connection.recv(len(token) - len(said))):
        said += part
    if secrets.compare_digest(said, token.encode()):
        connection.settimeout(None)
        return True
    connection.close()
    return False


@contextmanager
def _leader() -> Iterator[Channel]:
    """The channel to rank 0."""
    host, port, token = _store().get(_key()).decode().split()
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE.total_seconds())
    connection.settimeout(None)
    connection.sendall(token.encode())
    with _channel(connection) as channel:
        yield channel


@contextmanager
def _channel(connection: socket.socket) -> Iterator[Channel]:
    with connection, connection.makefile("rb") as reader, connection.makefile("wb") as writer:
        yield Channel(reader, writer)
