"""Where the pieces of a text stand in it (`Tokenizer.spans`), and what each gives to a text (`Tokenizer.surfaces`)."""

import itertools
import json

import pytest

from seq2seq.config import TokenizerConfig
from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.tokenizer_training import train_tokenizer

LINES = [
    "der ant läuft.",
    "owl\u3000ant \u2460\u2461",
    "  ant   der ",
    "",
    " ",
    "\u200b a",
    "🐦 ant½🐦🐦",
    "ﬁx A\u030a\u0308!",
]


@pytest.fixture(scope="module")
def plain(tiny_lines):
    return train_tokenizer(tiny_lines, TokenizerConfig(vocab_size=61, byte_fallback=False))[0]


@pytest.fixture(scope="module")
def with_bytes(tiny_lines):
    return train_tokenizer(tiny_lines, TokenizerConfig(vocab_size=310))[0]


@pytest.fixture(scope="module")
def marian(plain):
    pieces = ["</s>", "<unk>", ">>fra<<", *plain.pieces(range(4, 61)), "<pad>"]
    table = json.dumps({piece: id_ for id_, piece in enumerate(pieces)})
    return MarianTokenizer(plain.model, table.encode(), bos=60)


@pytest.fixture(scope="module")
def hugging_face(tiny_lines):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(tiny_lines, trainer)
    return HuggingFaceTokenizer(tokenizer.to_str().encode(), Conventions(SpecialIds(0, 0, 0, 0)))


@pytest.fixture(params=["plain", "with_bytes", "marian", "hugging_face"])
def tokenizer(request) -> Tokenizer:
    return request.getfixturevalue(request.param)


def test_every_piece_has_a_span_and_spans_follow_one_another(tokenizer, nasty_text):
    for line in [*LINES, *(line for line in nasty_text.lines if len(line) < 100)]:
        spans = tokenizer.spans(line)
        assert len(spans) == len(tokenizer.encode(line))
        assert all(0 <= start <= end <= len(line) for start, end in spans)
        assert all(left[0] <= right[0] and left[1] <= right[1] for left, right in itertools.pairwise(spans))
        if line.strip() and tokenizer.format != "huggingface":
            # all that can be seen belongs to a piece, but for what normalisation drops, which stands at the edges
            assert all(before[1] >= after[0] for before, after in itertools.pairwise(spans))


def test_spans_are_in_characters_of_the_line_as_it_was_before_normalisation(plain, with_bytes):
    line = "der ö ant½x  🐦🐦 owl🐦."
    parts = [line[start:end] for start, end in plain.spans(line)]
    assert [part for part in parts if "🐦" in part] == ["🐦🐦", "🐦"]
    assert parts[plain.pieces(plain.encode(line)).index("▁ant")] == " ant"
    assert "½" in parts
    assert "".join(parts) == line
    assert "".join(line[start:end] for start, end in with_bytes.spans(line)) == line


def test_a_language_code_in_front_is_a_piece_of_its_own(marian):
    line = ">>fra<< der ant"
    spans = marian.spans(line)
    assert marian.pieces(marian.encode(line))[0] == ">>fra<<"
    assert line[slice(*spans[0])] == ">>fra<<"
    assert [line[start:end] for start, end in spans if end > start] == [">>fra<<", "der", " ant"]


def test_surfaces_together_are_the_text(tokenizer, nasty_text):
    for line in [*LINES, *(line for line in nasty_text.lines if len(line) < 100)]:
        ids = tokenizer.encode(line)
        surfaces = tokenizer.surfaces(ids)
        assert len(surfaces) == len(ids)
        joined, text = "".join(surfaces), tokenizer.decode_text(ids)
        assert joined.strip() == text.strip()
        if tokenizer.special.unk not in ids and tokenizer.format != "marian":
            assert joined == text


def test_special_pieces_give_nothing_to_a_text_and_change_nothing_around_them(plain, marian):
    for tokenizer in (plain, marian):
        ant, der = tokenizer.encode("ant"), tokenizer.encode("der")
        unknown, end = tokenizer.special.unk, tokenizer.special.eos
        surfaces = tokenizer.surfaces([unknown, *ant, unknown, *der, end])
        assert surfaces[0] == surfaces[len(ant) + 1] == surfaces[-1] == ""
        assert "".join(surfaces).strip() == "ant der"


def test_bytes_of_one_character_are_told_with_its_last_one_and_broken_ones_are_replaced(with_bytes, hugging_face):
    bird = with_bytes.encode("🐦")[-4:]
    assert with_bytes.surfaces([*bird, *bird[1:]]) == ["", "", "", "🐦", "\ufffd", "\ufffd", "\ufffd"]
    bird = hugging_face.encode("🐦")
    assert hugging_face.surfaces([*bird, *bird]) == ["", "", "", "🐦", "", "", "", "🐦"]
    assert hugging_face.surfaces([*bird[:3], *hugging_face.encode("ant")])[-1].endswith("ant")


def test_half_a_surrogate_pair_has_no_spans(tokenizer):
    with pytest.raises(ValueError, match="cannot be written as UTF-8"):
        tokenizer.spans("a\ud800b")


def test_surfaces_of_an_id_outside_the_vocabulary_are_refused(tokenizer):
    with pytest.raises(ValueError, match=f"id {tokenizer.vocab_size} is outside the vocabulary"):
        tokenizer.surfaces([tokenizer.vocab_size])
