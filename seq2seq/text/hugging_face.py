"""Tokenizers in Hugging Face's tokenizer.json, read by the package `tokenizers`: GPT-2's, LLaMA's, Qwen's.

The file holds the pieces and how text is cut into them. Which piece ends a text, and whether one begins it, stands in
the files around it, whose reader gives it here.
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from seq2seq.text.special import SpecialIds
from seq2seq.text.subword_sampling import SPACE
from seq2seq.text.tokenizer import Tokenizer, table_digest, unencodable

if TYPE_CHECKING:
    import tokenizers


@dataclass(frozen=True)
class Conventions:
    """What tokenizer.json does not say.

    Attributes:
        special: The four special ids; several may be one, where a model has no padding or no unknown piece of its own.
        adds_bos: Whether a text begins with BOS; None asks the file's post-processor.
        stop: Further ids that end a text, such as the one behind a chat model's turn.
    """

    special: SpecialIds
    adds_bos: bool | None = None
    stop: tuple[int, ...] = ()


class HuggingFaceTokenizer(Tokenizer):
    """The tokenizer of a tokenizer.json.

    Names of special pieces that stand in a text (``<|endoftext|>``) are text to `encode`, so that no line of a corpus
    can end itself, and special pieces to `prompt`, which chat models' prompts are made with.
    """

    format: ClassVar[str] = "huggingface"
    data: bytes
    """The file."""
    adds_bos: bool
    """Whether `prompt` begins with BOS."""
    stop: tuple[int, ...]
    """Ids beside EOS that end a text."""

    def __init__(self, data: bytes, conventions: Conventions, name: str = "the given bytes"):
        """Read a tokenizer.json.

        Args:
            data: Contents of the file.
            conventions: What it does not say.
            name: What error messages call it.

        Raises:
            ValueError: the file is damaged, an id is outside the vocabulary, or the package tokenizers is missing.
        """
        self._tokenizer = _read(data, name)
        self._tokenizer.encode_special_tokens = True
        self._pieces = _table(self._tokenizer)
        self.data, self.special, self.stop = data, conventions.special, conventions.stop
        self.vocab_size = len(self._pieces)
        try:
            self.special.check_imported(self.vocab_size)
        except ValueError as error:
            raise ValueError(f"tokenizer {name}: {error}") from None
        outside = [id_ for id_ in self.stop if not 0 <= id_ < self.vocab_size]
        if outside:
            raise ValueError(
                f"tokenizer {name}: stop ids {outside} are outside the vocabulary of {self.vocab_size} pieces; "
                "expected generation_config.json and tokenizer.json to belong to one model"
            )
        self._added = dict(self._tokenizer.get_added_tokens_decoder())
        marked = {id_ for id_, token in self._added.items() if token.special}
        self._dropped = marked | {self.special.pad, self.special.bos, self.special.eos, self.special.unk}
        adds_bos = conventions.adds_bos
        self.adds_bos = _begins_with(self._tokenizer, self.special.bos) if adds_bos is None else adds_bos
        self._byte_level = "ByteLevel" in _types(json.loads(data).get("decoder"))

    def __reduce__(self) -> tuple[type["HuggingFaceTokenizer"], tuple[bytes, Conventions]]:
        return type(self), (self.data, Conventions(self.special, self.adds_bos, self.stop))

    @functools.cached_property
    def sha256(self) -> str:
        """Hex digest of the file and of the conventions."""
        special = self.special
        rest = json.dumps([special.pad, special.bos, special.eos, special.unk, self.adds_bos, self.stop]).encode()
        return hashlib.sha256(hashlib.sha256(self.data).digest() + rest).hexdigest()

    @functools.cached_property
    def vocabulary_sha256(self) -> str:
        """Hex digest of the pieces in the order of their ids, as the file spells them."""
        return table_digest(self._pieces)

    def files(self, side: str) -> dict[str, bytes]:
        """tokenizer.json, or target_tokenizer.json."""
        return {"tokenizer.json" if side == "source" else f"{side}_tokenizer.json": self.data}

    def describe(self) -> dict[str, Any]:
        """The facts that every tokenizer has, and the conventions."""
        return super().describe() | {"adds_bos": self.adds_bos, "stop_ids": list(self.stop)}

    def encode(self, line: str) -> list[int]:
        """Ids of a text, without BOS and EOS; no id for an empty one.

        Raises:
            ValueError: the text has half a surrogate pair, so there is no UTF-8 for it.
        """
        return _ids(self._tokenizer, line)

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` of every line, in order; faster than one by one."""
        try:
            return [list(found.ids) for found in self._tokenizer.encode_batch(list(lines), add_special_tokens=False)]
        except (TypeError, UnicodeError):  # `encode` knows which line it is
            return [self.encode(line) for line in lines]

    def prompt(self, text: str) -> list[int]:
        """What a language model is given to go on from: BOS if its texts begin with one, and the text.

        Names of special pieces in the text are those pieces. An empty text is BOS.
        """
        bos = self.special.bos
        named = any(token.content in text for id_, token in self._added.items() if token.special)
        ids = _ids(self._with_special if named else self._tokenizer, text)
        # A chat template may have written BOS already.
        return [bos, *ids] if not ids or (self.adds_bos and ids[0] != bos) else ids

    @functools.cached_property
    def _with_special(self) -> "tokenizers.Tokenizer":
        """The same, but for special pieces that are named in a text."""
        return _read(self.data, "the given bytes")

    def decode_text(self, ids: Iterable[int]) -> str:
        """Text of the ids, special ones dropped, every space and line feed kept; broken UTF-8 becomes U+FFFD.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        kept = [self._checked(id_) for id_ in ids if id_ not in self._dropped]
        return str(self._tokenizer.decode(kept, skip_special_tokens=True))

    def spans(self, line: str) -> list[tuple[int, int]]:
        """For each id of `encode(line)` where the text that it stands for begins and ends in the line, in characters.

        Raises:
            ValueError: the text has half a surrogate pair, so there is no UTF-8 for it.
        """
        try:
            return list(self._tokenizer.encode(line, add_special_tokens=False).offsets)
        except (TypeError, UnicodeError) as error:
            raise unencodable(line) from error

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of every id for people to read: ``▁`` for a space, ``<0xE4>`` for a byte that is no character.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return [self._readable(self._checked(id_)) for id_ in ids]

    def _readable(self, id_: int) -> str:
        piece = self._pieces[id_]
        if not self._byte_level or id_ in self._added:
            return piece
        return _from_byte_level(piece).replace(" ", SPACE)

    @functools.cached_property
    def byte_ids(self) -> frozenset[int]:
        """Ids of the pieces that spell one byte of a character outside the vocabulary; none where all text is bytes."""
        spelled = {f"<0x{byte:02X}>" for byte in range(256)}
        return frozenset(id_ for id_, piece in enumerate(self._pieces) if piece in spelled)


def _read(data: bytes, name: str) -> "tokenizers.Tokenizer":
    try:
        import tokenizers
    except ImportError as error:
        raise ValueError(
            f"reading tokenizer {name} needs the package tokenizers; pip install 'seq2seq[interop]'"
        ) from error
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:  # the package raises nothing narrower
        raise ValueError(f"tokenizer {name} is not a tokenizer.json ({len(data)} bytes read): {error}") from error
    # Some files keep the limits of a past training; every text is wanted whole.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _ids(tokenizer: "tokenizers.Tokenizer", text: str) -> list[int]:
    try:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)
    except (TypeError, UnicodeError) as error:
        raise unencodable(text) from error


def _table(tokenizer: "tokenizers.Tokenizer") -> list[str]:
    """The pieces in the order of their ids, as the file spells them; ids without a piece get a name."""
    pieces = {id_: piece for piece, id_ in tokenizer.get_vocab(with_added_tokens=True).items()}
    return [pieces.get(id_, f"<unused{id_}>") for id_ in range(max(pieces, default=-1) + 1)]


def _begins_with(tokenizer: "tokenizers.Tokenizer", bos: int) -> bool:
    """Whether the post-processor puts BOS in front of a text."""
    whole = tokenizer.encode("a", add_special_tokens=True).ids
    return bool(whole[:1] == [bos] and tokenizer.encode("a", add_special_tokens=False).ids[:1] != [bos])


def _types(step: Any) -> set[str]:
    """Types of a step in the file, and of the steps inside."""
    if isinstance(step, list):
        return set().union(*(_types(inner) for inner in step))
    if not isinstance(step, dict):
        return set()
    return {str(step.get("type"))}.union(*(_types(value) for value in step.values()))


@functools.cache
def _byte_letters() -> dict[str, int]:
    """The letters that stand for the 256 bytes in the pieces of byte-level tokenizers, and their bytes.

    Source:
        Radford et al. 2019 (GPT-2), section 2.2: printable bytes of Latin-1 stand for themselves, the others get the
        letters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _from_byte_level(piece: str) -> str:
    """The text of a byte-level piece; bytes that are no character are written ``<0xE4>``."""
    letters = _byte_letters()
    if not all(letter in letters for letter in piece):
        return piece
    text = bytes(letters[letter] for letter in piece).decode("utf-8", errors="surrogateescape")
    return "".join(f"<0x{ord(char) - 0xDC00:02X}>" if 0xDC80 <= ord(char) <= 0xDCFF else char for char in text)
