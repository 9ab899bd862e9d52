"""Parallel text as ids, read anew each time it is gone through, so that a corpus of any size takes no memory."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from seq2seq.corpus.parallel import read_sides
from seq2seq.corpus.translation_table import Pair
from seq2seq.text.lines import count_lines, find_file, stream_lines
from seq2seq.text.tokenizer import Tokenizer

_AT_ONCE = 2000
"""Lines that are given to a tokenizer at once."""


class PairStream:
    """The pairs of two files, line by line, as ids without BOS and EOS; those that are blank on a side too.

    Args:
        source_path: Source text, one segment a line, plain or ``.gz``.
        target_path: Its translation, line by line.
        source: Tokenizer of the source.
        target: Tokenizer of the target.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not UTF-8 or can be read only once, or the numbers of lines differ.
    """

    def __init__(self, source_path: str | Path, target_path: str | Path, source: Tokenizer, target: Tokenizer) -> None:
        self._paths = find_file(source_path), find_file(target_path)
        self._tokenizers = source, target
        for path in self._paths:
            if not path.is_file():
                raise ValueError(
                    f"{path} is a pipe or device, which can be read only once, but the text is gone through several "
                    "times; write it to a file"
                )
        left, right = map(count_lines, self._paths)
        if left != right:
            read_sides(*self._paths)  # says where they look shifted
        self._num_lines = left

    def __len__(self) -> int:
        """Lines of each file."""
        return self._num_lines

    def __iter__(self) -> Iterator[Pair]:
        """All pairs, from the first one."""
        sides = (self._encoded(path, tokenizer) for path, tokenizer in zip(self._paths, self._tokenizers, strict=True))
        return iter(zip(*sides, strict=True))

    @staticmethod
    def _encoded(path: Path, tokenizer: Tokenizer) -> Iterator[list[int]]:
        lines = stream_lines(path)
        while some := list(islice(lines, _AT_ONCE)):
            yield from tokenizer.encode_batch(some)
