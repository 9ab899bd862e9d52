"""A SentencePiece model written as tokenizer.json, which `transformers` reads without SentencePiece.

The steps are those of SentencePiece: characters replaced by the compiled rule, spaces joined, one put in front, all of
them written ``▁``, then the whole text cut into pieces. `tokenizers` has the same algorithms; for byte-pair encoding it
wants the list of merges, which a SentencePiece model has only as an order of pieces.

Equal ids are promised for text without the names of special pieces in it: in ``</s>`` or ``<0x41>`` `tokenizers` sees
the piece of that name, SentencePiece several characters. Every result is tried on lines that bite before it is used.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

import sentencepiece

from seq2seq.config import TokenizerKind
from seq2seq.text.model_file import ModelFacts, read_facts
from seq2seq.text.sentence_piece import load_processor

SPACE = "▁"
_TRIAL_LINES = (
    "A line, with two words and a full stop.",
    "  spaces at both ends and  two inside ",
    "Größe, naïve café, ½ ﬁ ﬂ №5, “quoted” — and so on…",
    "我们看见猫。你好！ שלום עולם مرحبا 👨‍👩‍👧",
    "x" * 40 + "." * 40,
    "",
)
"""What every result is tried on, beside text made of the tokenizer's own pieces."""


def sentence_piece_json(model: bytes, *, bos_in_front: bool = False, name: str = "the given bytes") -> bytes:
    """A serialised SentencePiece model as the contents of a tokenizer.json.

    Args:
        model: To convert, of kind unigram, bpe or char.
        bos_in_front: Whether readers are to put BOS in front of every text.
        name: What error messages call it.

    Raises:
        ValueError: if it is no such model, the result gives other ids than it on the lines that it is tried on, or the
            package tokenizers is missing.
    """
    processor = load_processor(model, name)
    facts = read_facts(model)
    if facts.kind not in TokenizerKind.__members__:
        raise ValueError(f"{name} is of kind {facts.kind}; expected {', '.join(TokenizerKind.__members__)}")
    pieces = [str(processor.id_to_piece(id_)) for id_ in range(processor.vocab_size())]
    marked = [id_ for id_ in range(len(pieces)) if processor.is_control(id_) or processor.is_unknown(id_)]
    bos = processor.bos_id()
    content = json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                *(_added(id_, pieces[id_], special=True) for id_ in marked),
                *(_added(id_, pieces[id_], special=False) for id_ in sorted(facts.user_defined)),
            ],
            "normalizer": {"type": "Sequence", "normalizers": _normalizers(facts)},
            "pre_tokenizer": None,
            "post_processor": _template(bos, pieces[bos]) if bos_in_front and bos >= 0 else None,
            "decoder": _decoder(facts),
            "model": _model(facts, processor, pieces),
        },
        ensure_ascii=False,
    )
    _try(content, processor, name)
    return content.encode("utf-8")


def byte_level_json(vocabulary: bytes, merges: bytes, special: Sequence[str]) -> bytes:
    """The two files of GPT-2's byte-pair encoding as the contents of one tokenizer.json.

    Args:
        vocabulary: Contents of vocab.json.
        merges: Contents of merges.txt: a pair on each line, best first, and comments at the top.
        special: Pieces that are no text.

    Raises:
        ValueError: if a file is damaged.
    """
    try:
        ids = json.loads(vocabulary)
        if not isinstance(ids, dict):
            raise ValueError("vocab.json is not an object")
        marked = [_added(ids[piece], piece, special=True) for piece in special if piece in ids]
        lines = merges.decode("utf-8").split("\n")
        pairs = [line.split() for line in lines if line.strip() and not line.startswith("#version")]
        if not all(len(pair) == 2 for pair in pairs):
            raise ValueError("a line of merges.txt is not a pair")
    except (ValueError, TypeError) as problem:
        raise ValueError(f"vocab.json and merges.txt are damaged ({problem}); expected those of GPT-2") from problem
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": marked,
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {**_PLAIN_BPE, "vocab": ids, "merges": pairs},
        },
        ensure_ascii=False,
    ).encode("utf-8")


def _added(id_: int, piece: str, special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id_, "content": piece, **flags, "special": special}


def _normalizers(facts: ModelFacts) -> list[dict[str, Any]]:
    """What happens to a text before it is cut."""
    steps: list[dict[str, Any]] = []
    if facts.character_map:
        rule = base64.b64encode(facts.character_map).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": rule})
    if facts.remove_spaces:
        steps += [_replace({"Regex": "^ +|[ ▁]+$"}, ""), _replace({"Regex": " {2,}"}, " ")]
    if facts.dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE})
    return [*steps, _replace({"String": " "}, SPACE)]


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _decoder(facts: ModelFacts) -> dict[str, Any]:
    """Pieces back to text."""
    steps = [_replace({"String": SPACE}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if facts.dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _template(bos: int, piece: str) -> dict[str, Any]:
    """BOS in front of every text."""
    first, text = {"SpecialToken": {"id": piece, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, second],
        "special_tokens": {piece: {"id": piece, "ids": [bos], "tokens": [piece]}},
    }


_PLAIN_BPE: dict[str, Any] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


def _model(facts: ModelFacts, processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str]) -> dict[str, Any]:
    """The algorithm and its table."""
    if facts.kind == TokenizerKind.unigram.name:
        return {
            "type": "Unigram",
            "unk_id": processor.unk_id(),
            "vocab": [(piece, processor.get_score(id_)) for id_, piece in enumerate(pieces)],
            "byte_fallback": facts.byte_fallback,
        }
    return {
        **_PLAIN_BPE,
        "unk_token": pieces[processor.unk_id()],
        "fuse_unk": True,
        "byte_fallback": facts.byte_fallback,
        "vocab": {piece: id_ for id_, piece in enumerate(pieces)},
        "merges": _merges(pieces) if facts.kind == TokenizerKind.bpe.name else [],
    }


def _merges(pieces: Sequence[str]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a piece, those of the earliest piece first, as SentencePiece merges."""
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        pairs = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        known = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
        merges += sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return merges


def _try(content: str, processor: sentencepiece.SentencePieceProcessor, name: str) -> None:
    """Refuse a result that does not do the same."""
    try:
        import tokenizers
    except ImportError as problem:
        raise ValueError(f"converting {name} needs the package tokenizers; pip install 'seq2seq[interop]'") from problem
    built = tokenizers.Tokenizer.from_str(content)
    plain = [id_ for id_ in range(processor.vocab_size()) if not _is_named(processor, id_)]
    own = [processor.decode(plain[at : at + 50]) for at in range(0, len(plain), 50)]
    for line in (*_TRIAL_LINES, *own):
        ours, theirs = processor.encode(line), built.encode(line, add_special_tokens=False).ids
        if ours != theirs:
            raise ValueError(
                f"{name} cannot be written as tokenizer.json: SentencePiece cuts {line!r:.60} into "
                f"{' '.join(processor.id_to_piece(ours)):.80}, and the result would cut it into "
                f"{' '.join(processor.id_to_piece(theirs)):.80}; use another tokenizer (kind bpe or unigram, without "
                "symbols of its own)"
            )


def _is_named(processor: sentencepiece.SentencePieceProcessor, id_: int) -> bool:
    """Whether the piece is one that text cannot spell: special, or a byte."""
    return bool(processor.is_control(id_) or processor.is_unknown(id_) or processor.is_byte(id_))
