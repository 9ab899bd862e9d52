"""A folder that appears whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(path: str | Path, is_older: Callable[[Path], bool], kind: str) -> Iterator[Path]:
    """An empty folder beside `path`, which takes its place when the block ends without an error.

    Args:
        path: Where the folder is to be; an older one of the same kind is replaced.
        is_older: Whether what is at `path` is an older folder of the same kind.
        kind: What that is, for the message: ``a CTranslate2 model``.

    Raises:
        ValueError: if something else is at `path`.
        OSError: if it cannot be written; nothing is left then, and what was there before is as it was.
    """
    path = Path(path).resolve()
    if path.exists() and not is_older(path):
        raise ValueError(f"{path} exists and is not {kind}; choose another place or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        os.chmod(scratch, 0o755)
        yield scratch
        if path.exists():
            old = scratch.with_name(scratch.name + ".old")
            path.rename(old)
            try:
                scratch.rename(path)
            except BaseException:
                old.rename(path)
                raise
            shutil.rmtree(old)
        else:
            scratch.rename(path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
