"""Files that are there whole or not at all, whatever ends the process that writes them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_SCRATCH = ".{}.part"


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` when the block ends without an error.

    It is on the disk by then, and so is its name: a machine that loses power has the old file or the new one.

    Args:
        path: Where the file is to be; its folder is there already.

    Raises:
        OSError: if it cannot be written; nothing is left then, and what was there before is as it was.
    """
    path = Path(path)
    scratch = path.with_name(_SCRATCH.format(path.name))
    try:
        with scratch.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise


def write_whole(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all.

    Raises:
        OSError: if it cannot be written; what was there before is as it was.
    """
    try:
        with whole_file(path) as stream:
            stream.write(text.encode("utf-8"))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    if os.name != "posix":  # elsewhere a folder cannot be opened, and names are written at once
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: str | Path) -> list[Path]:
    """The half-written files that a killed process has left in a folder; they are gone now."""
    leftovers = sorted(Path(folder).glob(_SCRATCH.format("*")))
    for file in leftovers:
        file.unlink(missing_ok=True)
    return leftovers
