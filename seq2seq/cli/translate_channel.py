"""How the process that shares out lines talks with those that translate them: a JSON object a line, to and fro."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any

from seq2seq.cli.errors import told
from seq2seq.cli.translate_job import Answer, Job
from seq2seq.cli.translate_shares import Ask, Task, ask_here


class Channel:
    """Sends and receives objects.

    Args:
        reader: Gives what the other side has sent.
        writer: Takes what is for the other side.
    """

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader, self._writer = reader, writer

    def send(self, message: dict[str, Any]) -> None:
        """Let the other side have it."""
        self._writer.write(json.dumps(message).encode("ascii") + b"\n")
        self._writer.flush()

    def receive(self) -> dict[str, Any] | None:
        """What the other side has sent; None if it has ended."""
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            return None
        message: dict[str, Any] = json.loads(line)
        return message


class WorkerError(ValueError):
    """What went wrong in a worker.

    Args:
        message: Its error.
        exit_code: The code that goes with it.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def work(channel: Channel, here: Callable[[Job], Job] | None = None) -> int:
    """Translate what is asked for over the channel until it is closed; the exit code.

    Errors that users can cause and mend are told to the other side.

    Args:
        channel: To whoever shares out the lines.
        here: What is different in this process about the job; None for nothing.
    """
    try:
        order = channel.receive()
        if order is None:
            return 0
        job = Job.read(order) if here is None else here(Job.read(order))
        ask = ask_here(job.load(), job)
        while (message := channel.receive()) is not None:
            found = ask(Task.read(message))
            channel.send({"answers": [[one.rows, one.notice, one.hit_limit] for one in found]})
    except (BrokenPipeError, ConnectionResetError):
        return 0
    except Exception as error:
        known = told(error)
        if known is None:
            raise
        channel.send({"error": known[0], "exit_code": known[1]})
        return known[1]
    return 0


def asking(channel: Channel, job: Job) -> Ask:
    """Has batches translated by whoever is at the other end, who is told of the job at once.

    What comes back raises a `WorkerError` with what went wrong there, and an `EOFError` if nobody is there any more.

    Args:
        channel: To a process that does `work`.
        job: What it is to do.
    """

    def say(message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have told before it ended
            channel.send(message)

    def ask(task: Task) -> Sequence[Answer]:
        say(task.plain())
        reply = channel.receive()
        if reply is None:
            raise EOFError("the other side has ended")
        if "error" in reply:
            raise WorkerError(reply["error"], reply["exit_code"])
        return [Answer(rows, notice, hit_limit) for rows, notice, hit_limit in reply["answers"]]

    say(job.plain())
    return ask
