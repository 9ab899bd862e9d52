"""Tokenizers of Marian models in Hugging Face's form, OPUS-MT's too: pieces by SentencePiece, ids by a table.

A model has two SentencePiece models, source.spm and target.spm, and one table, vocab.json, from pieces to ids, which
are not those of the SentencePiece models.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from seq2seq.text.sentence_piece import load_processor
from seq2seq.text.spans import read_spans, read_surfaces
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer import Tokenizer, table_digest, unencodable

UNKNOWN, END, PADDING = "<unk>", "</s>", "<pad>"
# Multilingual models are told their target language by one piece in front: >>fra<<.
_LANGUAGE_CODE = re.compile(r">>[^\s<>]+<<")


class MarianTokenizer(Tokenizer):
    """One side of a Marian model's text: a SentencePiece model cuts it, the table gives the ids.

    Equal to `transformers.MarianTokenizer` but for two things, in both of which a line is left as its writer meant it:
    the name of a special piece in a line (``</s>``) is text, and only what is written like a language code
    (``>>fra<<``, no spaces inside) is taken for one. A code that the table lacks is the unknown piece there and here.
    """

    format: ClassVar[str] = "marian"
    model: bytes
    """The serialised SentencePiece model of this side."""
    vocabulary: bytes
    """The table as in the file: a JSON object from pieces to ids."""

    def __init__(self, model: bytes, vocabulary: bytes, bos: int, name: str = "the given bytes"):
        """Read a SentencePiece model and a table.

        Args:
            model: Contents of source.spm or target.spm.
            vocabulary: Contents of vocab.json.
            bos: Id that a translation starts from, `decoder_start_token_id` in config.json; mostly the padding's.
            name: What error messages call the files.

        Raises:
            ValueError: not a SentencePiece model, not a table that gives each id to one piece, special ones too, or a
                model and a table that have little in common.
        """
        self._processor = load_processor(model, name)
        self._pieces = _table(vocabulary, name)
        self._ids = {piece: id_ for id_, piece in enumerate(self._pieces)}
        missing = [piece for piece in (PADDING, END, UNKNOWN) if piece not in self._ids]
        if missing:
            raise ValueError(f"tokenizer {name}: the vocabulary has no {' and no '.join(missing)}; expected all three")
        self._check_table(name)
        self.model, self.vocabulary = model, vocabulary
        self.vocab_size = len(self._pieces)
        self.special = SpecialIds(pad=self._ids[PADDING], bos=bos, eos=self._ids[END], unk=self._ids[UNKNOWN])
        try:
            self.special.check_imported(self.vocab_size)
        except ValueError as error:
            raise ValueError(f"tokenizer {name}: {error}") from None
        self._dropped = frozenset((self.special.pad, self.special.bos, self.special.eos, self.special.unk))

    def _check_table(self, name: str) -> None:
        """Refuse a table that most of the model's pieces are unknown to: it is that of another model.

        Some may be: Marian makes the table of the pieces that its training text was cut into.
        """
        own, count = self._processor, self._processor.vocab_size()
        kept = [id_ for id_ in range(count) if not (own.is_control(id_) or own.is_unknown(id_) or own.is_byte(id_))]
        unknown = [piece for piece in own.id_to_piece(kept) if piece not in self._ids]
        if 2 * len(unknown) > len(kept):
            raise ValueError(
                f"tokenizer {name}: of the {len(kept)} pieces of its SentencePiece model the vocabulary lacks "
                f"{len(unknown)}, {', '.join(map(repr, unknown[:3]))} for example; expected files of one model"
            )

    def __reduce__(self) -> tuple[type["MarianTokenizer"], tuple[bytes, bytes, int]]:
        return type(self), (self.model, self.vocabulary, self.special.bos)

    @functools.cached_property
    def sha256(self) -> str:
        """Hex digest of model, table and start id."""
        parts = (self.model, self.vocabulary, str(self.special.bos).encode())
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

    @functools.cached_property
    def vocabulary_sha256(self) -> str:
        """Hex digest of the pieces in the order of their ids."""
        return table_digest(self._pieces)

    def files(self, side: str) -> dict[str, bytes]:
        """source.spm and vocab.json; target.spm and target_vocab.json, which are `transformers`' names too."""
        table = "vocab.json" if side == "source" else f"{side}_vocab.json"
        return {f"{side}.spm": self.model, table: self.vocabulary}

    def encode(self, line: str) -> list[int]:
        """Ids of one line, without EOS; no id for an empty one. A language code in front is one id.

        Raises:
            ValueError: the line has half a surrogate pair, so there is no UTF-8 for it.
        """
        code = _LANGUAGE_CODE.match(line)
        front = [code[0]] if code else []
        try:
            pieces = self._processor.encode(line[code.end() :] if code else line, out_type=str)
        except RuntimeError as error:
            raise unencodable(line) from error
        unknown = self.special.unk
        return [self._ids.get(piece, unknown) for piece in [*front, *pieces]]

    def front(self, ids: Sequence[int]) -> int:
        """1 for a line with a language code in front, else 0."""
        return int(bool(ids) and _LANGUAGE_CODE.fullmatch(self._pieces[ids[0]]) is not None)

    def decode_text(self, ids: Iterable[int]) -> str:
        """Text of the ids, special ones dropped, without spaces at its ends.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        kept = [self._pieces[self._checked(id_)] for id_ in ids if id_ not in self._dropped]
        text: str = self._processor.decode_pieces(kept)
        return text.replace("\u2581", " ").strip()

    def spans(self, line: str) -> list[tuple[int, int]]:
        """For each id of `encode(line)` where the text that it stands for begins and ends in the line, in characters.

        Raises:
            ValueError: the line has half a surrogate pair, so there is no UTF-8 for it.
        """
        code = _LANGUAGE_CODE.match(line)
        start = code.end() if code else 0
        try:
            rest = read_spans(self._processor.encode(line[start:], out_type="serialized_proto"), line[start:])
        except RuntimeError as error:
            raise unencodable(line) from error
        front = [(0, start)] if code else []
        return [*front, *((start + first, start + last) for first, last in rest)]

    def surfaces(self, ids: Sequence[int]) -> list[str]:
        """What each id gives to `decode_text`; nothing for special ones.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        message = self._processor.decode(self.pieces(ids), out_type="serialized_proto")
        found = [text.replace("\u2581", " ") for text in read_surfaces(message)]
        return ["" if id_ in self._dropped else text for id_, text in zip(ids, found, strict=True)]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of every id, special ones included.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return [self._pieces[self._checked(id_)] for id_ in ids]

    @functools.cached_property
    def byte_ids(self) -> frozenset[int]:
        """Ids of the pieces that stand for one byte."""
        known = self._processor.piece_to_id(list(self._pieces))
        return frozenset(id_ for id_, spm_id in enumerate(known) if self._processor.is_byte(spm_id))


def _table(vocabulary: bytes, name: str) -> Sequence[str]:
    """The pieces in the order of their ids."""
    problem = f"tokenizer {name}: the vocabulary is not a JSON object that gives each id from 0 on to one piece"
    try:
        table = json.loads(vocabulary)
    except ValueError as error:
        raise ValueError(f"{problem}: {error}") from None
    if not isinstance(table, dict) or not table:
        raise ValueError(f"{problem}; got {type(table).__name__} of {len(vocabulary)} bytes")
    pieces = {id_: piece for piece, id_ in table.items() if isinstance(id_, int)}
    if sorted(pieces) != list(range(len(table))):
        raise ValueError(f"{problem}; got {len(table)} pieces with {len(pieces)} different ids")
    return [pieces[id_] for id_ in range(len(pieces))]
