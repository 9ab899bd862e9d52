"""Lines of text in and out of files, under one contract for the whole package.

Only LF, or CRLF, ends a line. Everything else that some programs take for a line end (a lone CR, form feed, U+0085,
U+2028, the file separators) is text and stays where it is, so N lines in are N lines out and N is what ``wc -l`` says
(plus one if the last line has no LF). Text is UTF-8 in both directions, whatever the locale; one byte-order mark at
the start of a file is removed. Files compressed with gzip are known by their first two bytes, which cannot start
UTF-8 text.
"""

import contextlib
import difflib
import gzip
import io
import os
import secrets
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Control, format (zero-width and direction marks, soft hyphen), space, line and paragraph separator.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


@runtime_checkable
class ByteLines(Protocol):
    """Anything that gives one line of bytes at a time, LF included: an open binary file, ``sys.stdin.buffer``."""

    def readline(self) -> bytes:
        """The next line up to and with its LF; empty at the end."""


def read_lines(path: str | Path) -> list[str]:
    """All lines of a text file, plain or gzip, without their line ends.

    Args:
        path: The file. When it does not exist, the same name with (or without) ``.gz`` is tried.

    Raises:
        FileNotFoundError: neither name exists.
        ValueError: it is a folder, not UTF-8, or broken gzip.
    """
    found = find_file(path)
    with _open_bytes(found) as stream:
        return list(iter_lines(stream, str(found)))


def stream_lines(path: str | Path) -> Iterator[str]:
    """The lines that `read_lines` gives, each read when it is asked for; fails where it fails."""
    found = find_file(path)
    with _open_bytes(found) as stream:
        yield from iter_lines(stream, str(found))


def count_lines(path: str | Path) -> int:
    """Number of lines that `read_lines` gives, without keeping them; fails where it fails."""
    found = find_file(path)
    with _open_bytes(found) as stream:
        return sum(1 for _ in iter_lines(stream, str(found)))


def iter_lines(stream: ByteLines, name: str) -> Iterator[str]:
    """Lines of an open binary stream, each as soon as it has been read.

    Args:
        stream: Bytes, not decoded and not split by anyone before.
        name: What error messages call the stream.

    Raises:
        ValueError: bytes that are not UTF-8 (naming line, byte and offset), or gzip data that breaks off.
    """
    number = 0
    while True:
        try:
            raw = stream.readline()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{name}: gzip data breaks off or is damaged after line {number} ({error}); "
                "check it with `gzip -t` and copy the file again"
            ) from error
        if not raw:
            return
        number += 1
        if number == 1:
            start = raw
            raw = raw.removeprefix(_BOM)
            if not raw:  # a file of one byte-order mark and nothing else has no line
                return
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(_not_utf8(name, number, raw, error, start)) from None
        yield line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, each ended by LF; the file appears whole or not at all.

    Written beside the target under a temporary name, then renamed; a name that ends in ``.gz`` is compressed (the
    same lines always give the same bytes). What is not a regular file (a pipe, a device) is written to directly.
    A CR at the very end of a line, and U+FEFF at the very start of the first, are written but read back as part of
    the line end and as byte-order mark.

    Raises:
        ValueError: a line contains LF, so the file would have more lines than were given; or half a surrogate pair.
        FileNotFoundError: the folder does not exist.
    """
    with _whole_file(path) as stream:
        if str(path).endswith(".gz"):
            with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as packed:
                _write(packed, lines, str(path))
        else:
            _write(stream, lines, str(path))


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file that appears whole or not at all, as `write_lines` does.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: a folder has that name.
    """
    with _whole_file(path) as stream:
        stream.write(data)


def check_place(path: str | Path) -> None:
    """Refuse a place that `write_lines` could not write to, to call before the work whose result goes there.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: a folder has that name, or there is no name.
    """
    if not str(path):
        raise ValueError("the name of the file to write is empty; give a name")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(f"{path} is a folder; expected the name of a file to write")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {target.parent}; create it first")


@contextlib.contextmanager
def _whole_file(path: str | Path) -> Iterator[io.BufferedWriter]:
    """A stream to a temporary file beside `path`, which takes its place if nothing fails."""
    check_place(path)
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a pipe or device: renaming would replace it
        with target.open("wb") as stream:
            yield stream
        return
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_blank(line: str) -> bool:
    """True if nothing in the line can be seen: no character, or only white space, format and control characters.

    Wider than `str.isspace`: U+200B, U+2060, U+FEFF and soft hyphens are invisible too.
    """
    return not line or all(unicodedata.category(character) in _INVISIBLE_CATEGORIES for character in line)


def find_file(path: str | Path) -> Path:
    """The file that a name stands for: itself, or the same name with ``.gz`` added or taken off.

    Raises:
        FileNotFoundError: neither exists; names both, and the nearest name in that folder.
        ValueError: it is a folder.
    """
    if not str(path):
        raise ValueError("the name of the file to read is empty; give a name")
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; expected a text file, plain or .gz")
    twin = path.with_name(path.name.removesuffix(".gz") if path.name.endswith(".gz") else path.name + ".gz")
    for candidate in (path, twin):
        if candidate.is_dir():
            raise ValueError(f"{candidate} is a folder; expected a text file, plain or .gz")
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"no such file: {path} (looked for {twin.name} too){_nearest(path)}")


def _nearest(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"; the folder {folder} does not exist either (looked from {Path.cwd()})"
    with contextlib.suppress(PermissionError):
        names = [entry.name for entry in folder.iterdir()]
        close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
        if close:
            return f"; did you mean {folder / close[0]}?"
    return f"; nothing in {folder.resolve()} has a name like it"


def _open_bytes(path: Path) -> io.BufferedReader | gzip.GzipFile:
    stream = path.open("rb")
    if stream.peek(2)[:2] == _GZIP_MAGIC:
        return _OwningGzipFile(stream)
    return stream


class _OwningGzipFile(gzip.GzipFile):
    """A gzip reader that closes the file below it, which `gzip.GzipFile` leaves open when given a stream."""

    def __init__(self, stream: io.BufferedReader):
        self._below = stream
        super().__init__(fileobj=stream, mode="rb")

    def close(self) -> None:
        super().close()
        self._below.close()


def _not_utf8(name: str, number: int, raw: bytes, error: UnicodeDecodeError, start: bytes) -> str:
    message = (
        f"{name}: line {number} is not UTF-8: byte 0x{raw[error.start]:02X} at offset {error.start} of the line "
        f"({error.reason})"
    )
    if start.startswith(_GZIP_MAGIC):  # from a pipe; files are unpacked
        return message + "; this is gzip data, unpack it first: `gzip -dc FILE |`"
    if start.startswith(_UTF16_MARKS):
        return message + "; the file starts like UTF-16, convert it with `iconv -f UTF-16 -t UTF-8`"
    return message + "; expected UTF-8, convert the file (for Western text try `iconv -f WINDOWS-1252 -t UTF-8`)"


def _write(stream: io.BufferedIOBase, lines: Iterable[str], name: str) -> None:
    for number, line in enumerate(lines, start=1):
        if "\n" in line:
            raise ValueError(f"{name}: line {number} to be written contains a line feed: {line!r:.80}")
        try:
            stream.write(line.encode("utf-8") + b"\n")
        except UnicodeEncodeError as error:
            raise ValueError(f"{name}: line {number} cannot be written as UTF-8: {error}") from None
