"""`--resume`: a long job that may be stopped at any moment and goes on where it was, losing and repeating nothing.

out.en.part       whole lines of output
out.en.part.json  the journal: how many lines of input they answer, how many bytes they are, a checksum of those lines
                  of the input, and the model and options

The journal is written after the lines have reached the disk; what stands behind them is cut off when the job goes on.
The lines of a window are answered together, and the journal is written at the ends of windows, so that the output is
that of a job which was never stopped, to the last bit. A job of which no line has been answered leaves nothing behind,
or what it left is passed over: it may begin again with other options.
"""

import contextlib
import gzip
import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from seq2seq.cli.engines import Backend
from seq2seq.cli.translate_job import Answer, Job
from seq2seq.text.lines import check_place

if TYPE_CHECKING:
    from seq2seq.translator import Request

VERSION = 1
"""Of the journal."""


@dataclass
class _Journal:
    """What is known about the part of the output that is there."""

    options: dict[str, Any]
    lines: int = 0
    bytes: int = 0
    notices: int = 0
    digest: str = hashlib.sha256().hexdigest()
    complete: bool = False


def options_of(job: Job, terms: str | None) -> dict[str, Any]:
    """All that decides what the output of a job is, beside its input, as JSON has it.

    Args:
        job: Model and options.
        terms: A terminology, whose content counts.

    Raises:
        ValueError: if drawn translations would go on otherwise than they would have.
    """
    from seq2seq.translator.checksums import bundle_checksum, file_checksum

    engine = job.engine
    if engine.backend is Backend.ctranslate2 and job.decode.draws:
        raise ValueError(
            f"temperature={job.decode.temperature} draws translations, and CTranslate2 draws them in the order of the "
            "lines from the start of a job, so that --resume cannot go on with them; take --backend torch"
        )
    plain = job.plain()
    return {
        "models": [bundle_checksum(model) for model in job.models],
        "terms": None if terms is None else file_checksum(terms),
        "engine": {name: plain["engine"][name] for name in ("backend", "compute", "weights", "average")},
        "decode": plain["decode"],
        "rows": plain["rows"],
    }


class PartialOutput:
    """The output of a job so far. To be used as a context; what has been committed stays, whatever happens in it.

    Args:
        output: Where the whole output is to be.
        options: All that decides what it is, as `options_of` gives it.

    Raises:
        ValueError: if the place is not one for a file, another process writes there, or what is there is of another
            model or other options.
        FileNotFoundError: if its folder does not exist.
    """

    def __init__(self, output: str | Path, options: dict[str, Any]) -> None:
        check_place(output)
        self._output = Path(os.path.realpath(output))
        if self._output.exists() and not self._output.is_file():
            raise ValueError(f"{output} is not a regular file, so a job cannot go on with it; leave --resume out")
        self.part = self._output.with_name(self._output.name + ".part")
        self._journal_file = self._output.with_name(self._output.name + ".part.json")
        self._temporary = self._journal_file.with_name(self._journal_file.name + ".tmp")
        self._journal = self._read(options)
        self._committed = self._journal.lines
        self._answered = hashlib.sha256()
        self._read_ahead: deque[bytes] = deque()
        self._stream: IO[bytes] | None = None

    @property
    def complete(self) -> bool:
        """Whether all is done, and a stop came only after that."""
        return self._journal.complete

    @property
    def lines(self) -> int:
        """Lines of the input that have been answered."""
        return self._journal.lines

    @property
    def committed(self) -> int:
        """How many of them are safe, whatever happens."""
        return self._committed

    @property
    def notices(self) -> int:
        """How many of them there was a notice for."""
        return self._journal.notices

    def __enter__(self) -> "PartialOutput":
        self._stream = self.part.open("r+b" if self.part.exists() else "w+b")
        _lock(self._stream, self.part)
        if not self._committed:
            self._write_journal()
        size = self._stream.seek(0, os.SEEK_END)
        if size < self._journal.bytes:
            self._stream.close()
            raise ValueError(
                f"{self.part} has {size} bytes, expected at least the {self._journal.bytes} that {self._journal_file} "
                "tells of; remove both and start anew"
            )
        self._stream.truncate(self._journal.bytes)
        self._stream.seek(self._journal.bytes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            if error is not None and not self._committed:
                for path in (self._temporary, self._journal_file, self.part):
                    path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # such as a full disk, which has been told of
                self._stream.close()

    def remaining(self, lines: "Iterable[Request]", source: str) -> "Iterator[Request]":
        """The lines that are still to be answered.

        Raises:
            ValueError: if those that have been answered are not at the beginning of the input any more.
        """
        number = 0
        for number, line in enumerate(lines, start=1):
            told = _told(line)
            if number <= self.lines:
                self._answered.update(told)
                if number == self.lines:
                    self._check_beginning(source)
                continue
            self._read_ahead.append(told)
            yield line
        if number < self.lines:
            raise ValueError(
                f"{source} has {number} lines, but {self.lines} have been translated already into {self.part}; put the "
                f"old input back, or remove {self.part} and {self._journal_file.name} and start anew"
            )

    def write(self, answer: Answer) -> None:
        """Add the answer to the next line; at the end of a window it is made sure that nothing gets lost."""
        assert self._stream is not None
        data = b"".join(row.encode("utf-8") + b"\n" for row in answer.rows)
        self._stream.write(data)
        self._answered.update(self._read_ahead.popleft())
        self._journal.lines += 1
        self._journal.bytes += len(data)
        self._journal.notices += answer.notice is not None
        if answer.ends_window:
            self._commit()

    def finish(self) -> None:
        """Put the output in its place, compressed if its name ends in .gz."""
        assert self._stream is not None
        self._journal.complete = True
        self._commit()
        if self._output.name.endswith(".gz"):
            packed = self._output.with_name(self._output.name + ".part.gz")
            with self.part.open("rb") as plain, packed.open("wb") as stream:
                with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as whole:
                    shutil.copyfileobj(plain, whole)
                stream.flush()
                os.fsync(stream.fileno())
            packed.replace(self._output)
            self.part.unlink()
        else:
            self.part.replace(self._output)
        self._journal_file.unlink()

    def clear(self) -> None:
        """Take the journal of a job away that was stopped after its output had been put in its place."""
        self._journal_file.unlink()

    def _commit(self) -> None:
        assert self._stream is not None
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._journal.digest = self._answered.hexdigest()
        self._write_journal()
        self._committed = self._journal.lines

    def _write_journal(self) -> None:
        with self._temporary.open("w", encoding="utf-8") as stream:
            json.dump({"version": VERSION, **vars(self._journal)}, stream, ensure_ascii=False)
            stream.flush()
            os.fsync(stream.fileno())
        self._temporary.replace(self._journal_file)

    def _read(self, options: dict[str, Any]) -> _Journal:
        """The journal that is there, or a new one."""
        if not self._journal_file.exists():
            if self.part.exists() and self.part.stat().st_size:
                raise ValueError(
                    f"{self.part} exists without its journal {self._journal_file.name}, so it is not known what it "
                    "is; remove it, or write to another place"
                )
            return _Journal(options)
        try:
            found = json.loads(self._journal_file.read_text(encoding="utf-8"))
            version = found.pop("version")
            journal = _Journal(**found)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{self._journal_file} is damaged ({error!r}); remove it and {self.part.name} and start anew"
            ) from error
        if version != VERSION:
            raise ValueError(f"{self._journal_file} has version {version}, expected {VERSION}; update seq2seq")
        if not journal.lines and not journal.complete:
            return _Journal(options)
        changed = _differences(journal.options, json.loads(json.dumps(options)))
        if changed:
            raise ValueError(
                f"{self.part} was begun with another model or other options: {'; '.join(changed)}; give the same "
                f"ones, or remove it and {self._journal_file.name} and start anew"
            )
        if journal.complete and self.part.exists():  # stopped between the last line and the renaming
            journal.complete = False
        return journal

    def _check_beginning(self, source: str) -> None:
        if self._answered.hexdigest() != self._journal.digest:
            raise ValueError(
                f"the first {self.lines} lines of {source}, or what other files say about them, have changed since "
                f"they were translated into {self.part}; put the old ones back, or remove it and "
                f"{self._journal_file.name} and start anew"
            )


def _told(line: "Request") -> bytes:
    """A line and all that is said about it, as bytes that no other line has."""
    return json.dumps([line.text, line.prefix, line.target, list(line.phrases)]).encode("ascii") + b"\n"


def _differences(old: dict[str, Any], new: dict[str, Any], where: str = "") -> list[str]:
    """Options that have changed, with both values."""
    found = []
    for name in old.keys() | new.keys():
        before, now = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            found += _differences(before, now, f"{where}{name}.")
        elif before != now:
            found.append(f"{where}{name} was {before!r:.80}, is {now!r:.80}")
    return sorted(found)


def _lock(stream: IO[bytes], path: Path) -> None:
    """Keep other processes from writing to the file as long as it is open, where the system can do that.

    Raises:
        ValueError: if another one writes to it.
    """
    try:
        import fcntl
    except ImportError:  # Windows, which refuses to rename what is open in another process
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        stream.close()
        raise ValueError(f"another process is writing {path}; wait for it, or write to another place") from error
