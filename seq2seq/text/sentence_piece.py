"""Text to ids and back through a SentencePiece model, its special ids checked (Kudo and Richardson 2018)."""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import sentencepiece

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.model_file import ModelFacts, read_facts
from seq2seq.text.spans import read_spans, read_surfaces
from seq2seq.text.special import SpecialIds
from seq2seq.text.subword_sampling import BpeDropout, UnigramSampler
from seq2seq.text.tokenizer import Tokenizer, table_digest, unencodable

# The library warns on stderr about long lines in n-best search; nobody could act on it.
sentencepiece.set_min_log_level(2)

_LINES = re.compile("[^\n]*\n|[^\n]+")


class SentencePieceTokenizer(Tokenizer):
    """The tokenizer of a SentencePiece model, as `seq2seq data tokenizer` trains them.

    The serialised model is the only truth: kind, special ids and normalisation are read from it.
    """

    format: ClassVar[str] = "sentencepiece"
    model: bytes
    """The serialised model, as in the ``.model`` file."""
    kind: TokenizerKind
    """Algorithm that the model was trained with."""
    normalization: str
    """Name of the rule that is applied to text before it is split, such as nmt_nfkc or identity."""
    byte_fallback: bool
    """Whether characters outside the vocabulary are spelled as UTF-8 bytes."""
    keeps_whitespace: bool
    """Whether `decode_text` gives back every space and line feed that `encode` was given."""

    def __init__(self, model: bytes, name: str = "the given bytes"):
        """Read a serialised model; `load` and `from_bytes` say the same in words.

        Raises:
            ValueError: not a SentencePiece model, one of another kind, or without a special symbol.
        """
        self._processor = load_processor(model, name)
        facts = read_facts(model)
        self.model = model
        self.vocab_size = int(self._processor.vocab_size())
        self._user_defined = facts.user_defined
        self.kind = _kind(facts, name)
        self.normalization = facts.normalization
        self.byte_fallback = facts.byte_fallback
        self.keeps_whitespace = (
            self._processor.piece_to_id("\n") in facts.user_defined
            and not facts.dummy_prefix
            and not facts.remove_spaces
        )
        self.special = SpecialIds(
            pad=self._processor.pad_id(),
            bos=self._processor.bos_id(),
            eos=self._processor.eos_id(),
            unk=self._processor.unk_id(),
        )
        try:
            self.special.check(self.vocab_size)
        except ValueError as error:
            raise ValueError(f"tokenizer {name}: {error}") from None
        self._dropped = frozenset((self.special.pad, self.special.bos, self.special.eos, self.special.unk))

    @classmethod
    def load(cls, path: str | Path) -> "SentencePieceTokenizer":
        """The tokenizer in a SentencePiece ``.model`` file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: as in the constructor, naming the file.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"no tokenizer at {path}; expected a SentencePiece .model file "
                "(train one with `seq2seq data tokenizer`)"
            )
        return cls(path.read_bytes(), str(path))

    @classmethod
    def from_bytes(cls, model: bytes) -> "SentencePieceTokenizer":
        """The tokenizer that a serialised model describes."""
        return cls(model)

    def __reduce__(self) -> tuple[type["SentencePieceTokenizer"], tuple[bytes]]:
        return type(self), (self.model,)

    @property
    def sha256(self) -> str:
        """Hex digest of the serialised model: equal if and only if two tokenizers are the same."""
        return hashlib.sha256(self.model).hexdigest()

    @functools.cached_property
    def vocabulary_sha256(self) -> str:
        """Hex digest of the pieces in the order of their ids."""
        return table_digest(self.pieces(range(self.vocab_size)))

    def files(self, side: str) -> dict[str, bytes]:
        """The model, as ``source.spm`` or ``target.spm``."""
        return {f"{side}.spm": self.model}

    def describe(self) -> dict[str, Any]:
        """The facts that every tokenizer has, and kind, normalisation and byte fallback of the model."""
        return super().describe() | {
            "kind": self.kind.name,
            "normalization": self.normalization,
            "byte_fallback": self.byte_fallback,
            "keeps_whitespace": self.keeps_whitespace,
        }

    @functools.cached_property
    def byte_ids(self) -> frozenset[int]:
        """Ids of the pieces that stand for one byte; empty without byte fallback."""
        return frozenset(id_ for id_ in range(self.vocab_size) if self._processor.is_byte(id_))

    def encode(self, line: str) -> list[int]:
        """Ids of a text, without BOS and EOS; no id for an empty one.

        Where the line feed is a piece, the text may be long: it is split there first, which changes no id.

        Raises:
            ValueError: the text has half a surrogate pair, so there is no UTF-8 for it.
        """
        try:
            if "\n" in line and self._splits_at_line_feeds:
                return list(chain.from_iterable(self.encode_batch(_LINES.findall(line))))
            ids: list[int] = self._processor.encode(line, out_type=int)
        except RuntimeError as error:
            raise unencodable(line) from error
        return ids

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` of every line, in order; faster than one by one."""
        try:
            ids: list[list[int]] = self._processor.encode(list(lines), out_type=int)
        except TypeError:  # the library's word for a line without UTF-8; `encode` knows which one
            return [self.encode(line) for line in lines]
        return ids

    def sample(self, line: str, *, config: TokenizerConfig, key: tuple[int, int, int]) -> list[int]:
        """Ids of one line under a segmentation drawn at random, for training only.

        Args:
            line: Text.
            config: Says which sampling: `sampling_alpha` and `sampling_nbest`, or `bpe_dropout`. With both off this is
                `encode`.
            key: Seed, epoch and index of the sentence. The same key gives the same ids in any order of calls and in
                any process; give the two sides of a pair different seeds.

        Raises:
            ValueError: the sampling is not for this kind of tokenizer.
        """
        if config.sampling_alpha == 0 and config.bpe_dropout == 0:
            return self.encode(line)
        if self.kind is TokenizerKind.char:
            raise ValueError(
                "a tokenizer of kind char has one segmentation of a line only; set data.tokenizer.sampling_alpha and "
                "data.tokenizer.bpe_dropout to 0"
            )
        if config.kind is not self.kind:
            raise ValueError(
                f"sampling is set up for tokenizer.kind={config.kind.name}, but this tokenizer is {self.kind.name}; "
                f"set tokenizer.kind={self.kind.name} and "
                + ("tokenizer.sampling_alpha" if self.kind is TokenizerKind.unigram else "tokenizer.bpe_dropout")
            )
        if config.sampling_alpha > 0:
            return self._unigram_sampler.sample(line, config.sampling_alpha, config.sampling_nbest, key)
        return self._bpe_dropout.sample(line, config.bpe_dropout, key)

    @functools.cached_property
    def _splits_at_line_feeds(self) -> bool:
        return self.keeps_whitespace and sum("\n" in piece for piece in self.pieces(range(self.vocab_size))) == 1

    @functools.cached_property
    def _unigram_sampler(self) -> UnigramSampler:
        return UnigramSampler(self._processor, self._user_defined)

    @functools.cached_property
    def _bpe_dropout(self) -> BpeDropout:
        return BpeDropout(self._processor, self._user_defined, self.byte_fallback)

    def decode_text(self, ids: Iterable[int]) -> str:
        """Text of the ids, special ones dropped, line feeds kept; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        kept = [self._checked(id_) for id_ in ids if id_ not in self._dropped]
        text: str = self._processor.decode(kept, out_type=str)
        return text

    def spans(self, line: str) -> list[tuple[int, int]]:
        """For each id of `encode(line)` where the text that it stands for begins and ends in the line, in characters.

        Raises:
            ValueError: the text has half a surrogate pair, so there is no UTF-8 for it.
        """
        try:
            return read_spans(self._processor.encode(line, out_type="serialized_proto"), line)
        except RuntimeError as error:
            raise unencodable(line) from error

    def surfaces(self, ids: Sequence[int]) -> list[str]:
        """What each id gives to `decode_text`; nothing for special ones.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        checked = [self._checked(id_) for id_ in ids]
        found = read_surfaces(self._processor.decode(checked, out_type="serialized_proto"))
        return ["" if id_ in self._dropped else text for id_, text in zip(checked, found, strict=True)]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of every id, special ones included.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return [str(self._processor.id_to_piece(self._checked(id_))) for id_ in ids]

    def export_vocabulary(self) -> Iterator[str]:
        r"""Lines for people to read: id, piece and score, separated by tabs.

        Characters that would break a line or cannot be seen are escaped (``\t``, ``\u2028``), a backslash is doubled.
        Never read back: the model is the truth.
        """
        for id_, piece in enumerate(self.pieces(range(self.vocab_size))):
            yield f"{id_}\t{_escaped(piece)}\t{self._processor.get_score(id_):.6g}"


def load_processor(model: bytes, name: str) -> sentencepiece.SentencePieceProcessor:
    """The library's object for a serialised model.

    Raises:
        ValueError: it is not a SentencePiece model.
    """
    problem = f"{name} is not a SentencePiece model ({len(model)} bytes read)"
    if not model:
        raise ValueError(problem)
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, OSError, ValueError) as error:
        raise ValueError(f"{problem}: {error}") from error
    return processor


def _kind(facts: ModelFacts, name: str) -> TokenizerKind:
    if facts.kind not in TokenizerKind.__members__:
        raise ValueError(f"tokenizer {name} is of kind {facts.kind}; expected {', '.join(TokenizerKind.__members__)}")
    return TokenizerKind[facts.kind]


def _escaped(piece: str) -> str:
    return "".join(_escaped_character(character) for character in piece)


def _escaped_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character == " " or character.isprintable():
        return character
    code = ord(character)
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code, f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
