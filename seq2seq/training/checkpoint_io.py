"""How a checkpoint comes onto the disk, and how one that is damaged is told from a sound one."""

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from seq2seq.training.averaging import RUN_FILES
from seq2seq.training.run_folder import run_files
from seq2seq.training.whole_file import sync_folder, whole_file

LAST = "last.ckpt"
"""Where a run goes on from."""
BEFORE_LAST = "before_last.ckpt"
"""The one before, for when the last is damaged."""

_MEGABYTE = 1e6


class CheckpointNotWrittenError(OSError):
    """A disk that is full, or cannot be written to; the message says which checkpoint is there still."""


class WholeCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint whole or not at all, with the options and tokenizers of its run, and keeps the one before the
    last.

    Lightning's own does without bringing the file onto the disk, and copies the checkpoint in memory first.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write a file, which stands in the place of an older one only when it is complete.

        Args:
            checkpoint: Plain builtins and tensors.
            path: Where.
            storage_options: None; local files have no options.

        Raises:
            CheckpointNotWrittenError: if there is no room for it; what was there before is as it was.
        """
        assert storage_options is None
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = {**checkpoint, RUN_FILES: run_files(path.parent.parent)}
        sink = None
        try:
            with whole_file(path) as stream:
                sink = _Sink(stream)
                torch.save(checkpoint, sink)  # type: ignore[arg-type]  # of a stream, it needs these methods alone
                sink.check()
                if path.name == LAST:
                    _keep_before(path)
        except OSError as error:
            raise CheckpointNotWrittenError(_not_written(path, error, sink.num_bytes if sink else 0)) from error


class _Sink:
    """A stream that takes everything, and remembers the first error: torch's writer, which is C++, does not get over
    one, and it tells how much room would have been needed."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.num_bytes = 0
        self.error: OSError | None = None

    def write(self, content: Any) -> int:
        num_bytes = memoryview(content).nbytes
        self.num_bytes += num_bytes
        if self.error is None:
            try:
                self.stream.write(content)
            except OSError as error:
                self.error = error
        return num_bytes

    def flush(self) -> None:
        """Nothing to do; the file is flushed at its end."""

    def check(self) -> None:
        """Raise the error that there was."""
        if self.error is not None:
            raise self.error


def _keep_before(last: Path) -> None:
    """Give the last checkpoint, about to be replaced, a second name; one that is damaged replaces no sound one."""
    if not last.is_file() or not zipfile.is_zipfile(last):
        return
    before, scratch = last.with_name(BEFORE_LAST), last.with_name(f".{BEFORE_LAST}.part")
    scratch.unlink(missing_ok=True)
    try:
        os.link(last, scratch)
    except OSError:  # a file system without hard links; for a moment there is no last one then
        last.replace(before)
    else:
        scratch.replace(before)
    sync_folder(last.parent)


def _not_written(path: Path, error: OSError, num_bytes: int) -> str:
    free = shutil.disk_usage(path.parent).free
    good = next((file for name in (LAST, BEFORE_LAST) if is_sound(file := path.with_name(name))), None)
    rest = f"the last good one is {good}" if good is not None else "there is none before it"
    return (
        f"checkpoint could not be written to {path}: {(error.strerror or str(error)).lower()}; "
        f"{num_bytes / _MEGABYTE:.1f} MB are needed, {free / _MEGABYTE:.1f} MB are free; {rest}"
    )


def is_sound(path: str | Path) -> bool:
    """Whether there is a checkpoint, and no part of it is missing or changed."""
    return Path(path).is_file() and damage(path) is None


def damage(path: str | Path) -> str | None:
    """What is wrong with a checkpoint's file; None if its checksums are right.

    torch itself reads changed weights without a word.
    """
    path = Path(path)
    with path.open("rb") as stream:  # outside of what follows: a file that may not be read is not damaged
        try:
            with zipfile.ZipFile(stream) as archive:
                changed = archive.testzip()
        except zipfile.BadZipFile:
            return f"truncated, or no checkpoint at all: {path.stat().st_size} bytes without the end of a zip archive"
        except Exception as problem:  # of many kinds: what changed bytes claim, zipfile takes at its word
            return f"the list of its parts is changed ({str(problem) or type(problem).__name__})"
    return f"its part {changed} has another checksum" if changed is not None else None
