"""Equal processes that are started together, watched, and ended together.

When one of them fails, the others, who would wait for it for ever, are ended, and its error alone is told. None is left
behind: not after an interrupt, and not when this process is killed, which each of them notices.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ERROR_FILE = "SEQ2SEQ_ERROR_FILE"
"""In the environment of such a process: where it writes what went wrong, instead of on standard error."""
PARENT = "SEQ2SEQ_PARENT"
"""In the environment of such a process: the number of the process that has started it."""

POLL_SECONDS = 0.05
GRACE_SECONDS = 5.0
"""How long the others may take to end by themselves when one has failed."""
ORPHAN_SECONDS = 60.0
"""How long a process whose parent has died may take to write a checkpoint."""


class ProcessFailedError(ValueError):
    """What the process that failed first said.

    Args:
        message: Its error.
        exit_code: The code that it ended with; 128 + the signal's number for one that was killed.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass
class Member:
    """One of the processes."""

    rank: int
    process: "subprocess.Popen[bytes]"
    error_file: Path

    @property
    def failed(self) -> bool:
        """Whether it has ended, and not well."""
        return bool(self.process.poll())

    def failed_at(self) -> float:
        """When it noticed; the one that was killed, which could not, comes first."""
        return self.error_file.stat().st_mtime if self.error_file.exists() else 0.0


def run_together(command: Sequence[str], number: int, environment: Mapping[str, str]) -> int | None:
    """Run a command `number` times at once, and wait until all have ended.

    Each has RANK, LOCAL_RANK, NODE_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment,
    as torchrun would set them. Signals that this process is sent are passed on; after the second all are killed.

    Args:
        command: Program and arguments.
        number: How many processes.
        environment: Further variables.

    Returns:
        The signal that this process was sent and all have ended by; None if they have ended well.

    Raises:
        ProcessFailedError: if one fails; the others are ended.
    """
    with tempfile.TemporaryDirectory(prefix="seq2seq-") as folder:
        members: list[Member] = []
        failed: list[Member] = []
        with _signals_passed_on(members) as received:
            try:
                port = _free_port()
                for rank in range(number):
                    members.append(start(command, rank, number, environment, Path(folder), port=port))
                _wait(members, received)
                failed = [member for member in members if member.failed]
            finally:
                end(members)
        if received and (failed or len(received) > 1):
            return received[0]
        if not failed:
            return None
        first = min(failed, key=Member.failed_at)
        raise ProcessFailedError(*told(first, number))


def start(
    command: Sequence[str],
    rank: int,
    number: int,
    environment: Mapping[str, str],
    folder: Path,
    *,
    port: int | None = None,
    pipes: bool = False,
) -> Member:
    """Start one of `number` processes, which knows its place and this process, and writes errors into the folder.

    Args:
        command: Program and arguments.
        rank: Its number, from 0.
        number: How many there are.
        environment: Further variables.
        folder: Where its error is to be written.
        port: Where the processes meet, if they do.
        pipes: Whether this process writes its input and reads its output.
    """
    error_file = folder / f"error_{rank}.txt"
    place = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "NODE_RANK": 0,
        "WORLD_SIZE": number,
        "LOCAL_WORLD_SIZE": number,
        ERROR_FILE: error_file,
        PARENT: os.getpid(),
    }
    if port is not None:
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    process = subprocess.Popen(
        list(command),
        env=os.environ | environment | {name: str(value) for name, value in place.items()},
        stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
        stdout=subprocess.PIPE if pipes else None,
        start_new_session=True,  # or Ctrl-C would reach it from the terminal and from here
    )
    return Member(rank, process, error_file)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait(members: Sequence[Member], received: Sequence[int]) -> None:
    """Wait until all have ended, or one has failed and the others have had their time."""
    failed_at: float | None = None
    while any(member.process.poll() is None for member in members):
        if failed_at is None and any(member.failed for member in members):
            failed_at = time.monotonic()
        over = failed_at is not None and time.monotonic() - failed_at > GRACE_SECONDS
        if over or len(received) > 1:
            return
        time.sleep(POLL_SECONDS)


def end(members: Sequence[Member]) -> None:
    """Kill those that are left, with the processes that they have started."""
    for member in members:
        if member.process.poll() is None:
            if hasattr(os, "killpg"):
                os.killpg(member.process.pid, signal.SIGKILL)
            else:
                member.process.kill()
            member.process.wait()


@contextmanager
def _signals_passed_on(members: Sequence[Member]) -> Iterator[list[int]]:
    """Send the processes the signals that this one gets; those are noted in the list."""
    received: list[int] = []

    def pass_on(signum: int, frame: FrameType | None) -> None:
        received.append(signum)
        for member in members:
            if member.process.poll() is None:
                member.process.send_signal(signum)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    kinds = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` sets it
        kinds.append(signal.SIGHUP)
    before = {signum: signal.signal(signum, pass_on) for signum in kinds}
    try:
        yield received
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def told(member: Member, number: int) -> tuple[str, int]:
    """What a failed process said, and its exit code."""
    code = member.process.returncode
    who = f"process {member.rank} of {number} (rank {member.rank})"
    if code < 0:
        name = signal.Signals(-code).name
        why = "; was there enough memory?" if name == "SIGKILL" else ""
        return f"{who} was ended by {name}{why}; the others were stopped", 128 - code
    if member.error_file.exists():
        return member.error_file.read_text(encoding="utf-8"), code
    return f"{who} ended with code {code} and has not said why; the others were stopped", code


def tell_parent_of_errors() -> None:
    """Have an error that nobody expected, with its traceback, told by the parent, if this is such a process."""
    file = os.environ.get(ERROR_FILE)
    if file is None:
        return

    def write(kind: type[BaseException], error: BaseException, trace: object) -> None:
        import traceback

        Path(file).write_text("".join(traceback.format_exception(error)).rstrip(), encoding="utf-8")

    sys.excepthook = write


def end_with_parent() -> None:
    """Watch the parent, if this is such a process: when it has died, ask this one to stop, and later make it."""
    parent = os.environ.get(PARENT)
    if parent is None:
        return

    def watch() -> None:
        while os.getppid() == int(parent):
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ORPHAN_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watch of the parent").start()
