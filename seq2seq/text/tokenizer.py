"""What every tokenizer can do, whichever library reads its files: text to ids and back."""

import abc
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from seq2seq.config import TokenizerConfig
from seq2seq.text.special import SpecialIds


class Tokenizer(abc.ABC):
    """Turns text into ids and ids into text, always the same way.

    Objects can be pickled (for the workers of a data loader) and compared by `sha256`. What is the same for one kind
    of files only (the kind of a SentencePiece model, its normalisation) is an attribute of that subclass.
    """

    format: ClassVar[str]
    """What the files are: sentencepiece, marian or huggingface."""
    vocab_size: int
    """Number of pieces, special ones included; ids are below it."""
    special: SpecialIds
    """Ids of padding, begin, end and unknown."""
    stop: tuple[int, ...] = ()
    """Ids beside EOS that end a text; some imported language models have them."""

    @abc.abstractmethod
    def encode(self, line: str) -> list[int]:
        """Ids of a text, without BOS and EOS; no id for an empty one.

        Raises:
            ValueError: the text has half a surrogate pair, so there is no UTF-8 for it.
        """

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` of every line, in order."""
        return [self.encode(line) for line in lines]

    def front(self, ids: Sequence[int]) -> int:
        """How many ids at the start of a line say what is to be done with all of it, such as the code of a language."""
        del ids  # a subclass knows
        return 0

    @abc.abstractmethod
    def decode_text(self, ids: Iterable[int]) -> str:
        """Text of the ids, special ones dropped, line feeds kept.

        Raises:
            ValueError: an id is outside the vocabulary.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids as one line: `decode_text` with a space for each line feed.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return self.decode_text(ids).replace("\n", " ")

    @abc.abstractmethod
    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of every id for people to read, special ones included; ``▁`` marks a space before it.

        Raises:
            ValueError: an id is outside the vocabulary.
        """

    @abc.abstractmethod
    def spans(self, line: str) -> list[tuple[int, int]]:
        """For each id of `encode(line)` where the text that it stands for begins and ends in the line, in characters.

        Spaces before a word mostly belong to its first piece. Both are equal where a piece stands for nothing in the
        line, such as a space that is put in front of every text, or shares a character with the next piece.

        Raises:
            ValueError: the text has half a surrogate pair, so there is no UTF-8 for it.
        """

    def surfaces(self, ids: Sequence[int]) -> list[str]:
        """What each id gives to `decode_text`; nothing for special ones.

        Together they are that text, except for spaces at its ends, or beside special pieces.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        found: list[str] = []
        start = told = 0  # what a piece gives depends on the ones before it, but not on those long before
        for end in range(1, len(ids) + 1):
            text = self.decode_text(ids[start:end])
            if end < len(ids) and text.endswith("\ufffd"):  # a character that later pieces complete
                found.append("")
                continue
            found.append(text[len(self.decode_text(ids[start:told])) :])
            start, told = told, end
        return found

    def prompt(self, text: str) -> list[int]:
        """What a language model is given to go on from: BOS, which its texts begin with, and the text."""
        return [self.special.bos, *self.encode(text)]

    def sample(self, line: str, *, config: TokenizerConfig, key: tuple[int, int, int]) -> list[int]:
        """Ids of one line under a segmentation drawn at random, for training only.

        Args:
            line: Text.
            config: Says which sampling: `sampling_alpha` and `sampling_nbest`, or `bpe_dropout`. With both off this is
                `encode`.
            key: Seed, epoch and index of the sentence. The same key gives the same ids in any order of calls and in
                any process; give the two sides of a pair different seeds.

        Raises:
            ValueError: this tokenizer cannot sample in that way.
        """
        if config.sampling_alpha == 0 and config.bpe_dropout == 0:
            return self.encode(line)
        raise ValueError(
            f"data.tokenizer.sampling_alpha={config.sampling_alpha} and data.tokenizer.bpe_dropout="
            f"{config.bpe_dropout} need a SentencePiece model, got a tokenizer of format {self.format}; set both to 0"
        )

    @property
    def byte_ids(self) -> frozenset[int]:
        """Ids of the pieces that spell one byte of a character outside the vocabulary; empty where there are none."""
        return frozenset()

    @property
    @abc.abstractmethod
    def sha256(self) -> str:
        """Hex digest of all that decides what the tokenizer does: equal if and only if two are the same."""

    @property
    @abc.abstractmethod
    def vocabulary_sha256(self) -> str:
        """Hex digest of the table from ids to pieces: equal where one embedding serves both tokenizers."""

    @abc.abstractmethod
    def files(self, side: str) -> dict[str, bytes]:
        """Names and contents of the files that `seq2seq.text.load.load_tokenizer` reads it back from.

        Args:
            side: "source" or "target"; the names of the two sides differ.
        """

    def describe(self) -> dict[str, Any]:
        """Plain facts for a bundle's config.json, `format`, `vocab_size`, `special_ids` and `sha256` among them."""
        special = self.special
        return {
            "format": self.format,
            "vocab_size": self.vocab_size,
            "special_ids": {"pad": special.pad, "bos": special.bos, "eos": special.eos, "unk": special.unk},
            "sha256": self.sha256,
        }

    def _checked(self, id_: int) -> int:
        if not 0 <= id_ < self.vocab_size:
            raise ValueError(f"id {id_} is outside the vocabulary of {self.vocab_size} pieces")
        return int(id_)


def unencodable(text: str) -> ValueError:
    """What `Tokenizer.encode` raises for a text that has no UTF-8."""
    return ValueError(
        f"{text!r:.80} cannot be written as UTF-8; expected text without half a surrogate pair, read the file with "
        "errors='strict'"
    )


def table_digest(pieces: Sequence[str]) -> str:
    """Hex digest of the pieces in the order of their ids."""
    return hashlib.sha256(json.dumps(pieces).encode("ascii")).hexdigest()
