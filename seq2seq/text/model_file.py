"""What a SentencePiece model file says about itself and the library does not tell.

The file is a protocol buffer (``sentencepiece_model.proto``). Kind, normalisation rule and the types of the pieces have
no accessor, and reading them through the protobuf package would make that package a dependency, so the few fields are
picked out here: a message is a row of (field number, wire type, value), and wire types are varint, 8 bytes,
length-prefixed bytes and 4 bytes (https://protobuf.dev/programming-guides/encoding).
"""

from collections.abc import Iterator
from dataclasses import dataclass

_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto
_PIECE_TYPE = 3
_MODEL_TYPE, _BYTE_FALLBACK = 3, 35  # fields of TrainerSpec
_RULE_NAME, _CHARACTER_MAP, _DUMMY_PREFIX, _REMOVE_SPACES = 1, 2, 3, 4  # fields of NormalizerSpec
_USER_DEFINED = 4  # value of a piece's type; absent means 1, normal


@dataclass(frozen=True)
class ModelFacts:
    """Facts read from a serialised model."""

    kind: str
    """unigram, bpe, word or char."""
    normalization: str
    """Name of the normalisation rule."""
    byte_fallback: bool
    """Whether unknown characters are spelled in bytes."""
    user_defined: frozenset[int]
    """Ids of pieces that were given by the user and are never split."""
    character_map: bytes
    """The normalisation rule, compiled; empty for identity."""
    dummy_prefix: bool
    """Whether a space is put in front of a text."""
    remove_spaces: bool
    """Whether spaces at both ends are removed and runs of them become one."""


def read_facts(model: bytes) -> ModelFacts:
    """The facts in a serialised model, which SentencePiece itself must have accepted before."""
    types: list[int] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in fields(model):
        if isinstance(value, int):
            continue
        if number == _PIECE:
            types.append(int(dict(fields(value)).get(_PIECE_TYPE, 1)))
        elif number == _TRAINER:
            trainer = dict(fields(value))
        elif number == _NORMALIZER:
            normalizer = dict(fields(value))
    kind = trainer.get(_MODEL_TYPE, 1)
    rule = normalizer.get(_RULE_NAME, b"")
    assert isinstance(kind, int)
    character_map = normalizer.get(_CHARACTER_MAP, b"")
    assert isinstance(rule, bytes)
    assert isinstance(character_map, bytes)
    return ModelFacts(
        kind=_KINDS.get(kind, f"number {kind}"),
        normalization=rule.decode("utf-8"),
        byte_fallback=bool(trainer.get(_BYTE_FALLBACK, 0)),
        user_defined=frozenset(id_ for id_, type_ in enumerate(types) if type_ == _USER_DEFINED),
        character_map=character_map,
        dummy_prefix=bool(normalizer.get(_DUMMY_PREFIX, 1)),
        remove_spaces=bool(normalizer.get(_REMOVE_SPACES, 1)),
    )


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field of a message; fixed-width numbers are passed over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = _varint(message, at)
            yield number, value
        elif wire_type == 2:
            length, at = _varint(message, at)
            yield number, message[at : at + length]
            at += length
        else:
            assert wire_type in (1, 5), f"wire type {wire_type}"
            at += 8 if wire_type == 1 else 4


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
