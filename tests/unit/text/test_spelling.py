import pytest

from seq2seq.config import TokenizerConfig
from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.spelling import joints, spellings
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.text.words import is_whole


@pytest.fixture(scope="module")
def small() -> SentencePieceTokenizer:
    lines = ["the house and the boat, the houseboat.", "(house) blue shirt - boat: 猫 看见"] * 9
    return train_tokenizer(lines, TokenizerConfig(vocab_size=33, byte_fallback=False))[0]


def written(tokenizer: Tokenizer, words: str) -> list[tuple[str, bool, bool]]:
    return [
        ("|".join(tokenizer.pieces(one.ids)), one.whole_start, one.whole_end) for one in spellings(tokenizer, words)
    ]


def plain(tokenizer: Tokenizer, words: str) -> list[tuple[str, bool, bool]]:
    """Without the borders of pieces."""
    return [(pieces.replace("|", ""), start, end) for pieces, start, end in written(tokenizer, words)]


def test_words_are_written_with_a_space_before_them_or_none(small):
    assert plain(small, "house") == [("▁house", False, True), ("house", True, True)]
    assert plain(small, " the \t house ") == [("▁the▁house", False, True), ("the▁house", True, True)]
    assert plain(small, "(house)") == [("▁(house)", False, False), ("(house)", False, False)]
    assert plain(small, "boat,") == [("▁boat,", False, False), ("boat,", True, False)]


def test_words_of_languages_without_spaces_may_stand_anywhere(small):
    assert plain(small, "看见") == [("▁看见", False, False), ("看见", False, False)]


@pytest.mark.parametrize("words", ["Ω", "house Ω", "犬", "Ω犬house"])
def test_words_that_the_tokenizer_has_no_pieces_for_are_refused(small, words):
    with pytest.raises(ValueError, match=rf"'{words}' has characters that the target tokenizer has no pieces for"):
        spellings(small, words)


def test_without_a_character_that_words_can_stand_behind_they_are_written_in_one_way():
    tokenizer, _ = train_tokenizer(["the house and the boat"] * 9, TokenizerConfig(vocab_size=16, byte_fallback=False))
    assert plain(tokenizer, "house") == [("▁house", False, True)]


def test_words_that_normalisation_leaves_nothing_of_are_refused(small):
    with pytest.raises(ValueError, match="normalisation leaves nothing of '\\\\u200b'; expected words"):
        spellings(small, "\u200b")


def test_every_place_in_a_text_where_words_stand_whole_is_told_by_pieces(small):
    """The pieces of a text contain one of the spellings, at a place where it is whole, if the text has the words."""
    joined = joints(small)
    texts = ["the houseboat", "house", "the (house) boat", "a house.", "boat-house", "house boathouse", "houses house,"]
    found = {}
    for text in texts:
        ids = small.encode(text)
        found[text] = any(
            tuple(ids[at : at + len(one.ids)]) == one.ids
            and not (one.whole_start and at > 0 and ids[at - 1] in joined.opening)
            and not (one.whole_end and at + len(one.ids) < len(ids) and ids[at + len(one.ids)] in joined.continuing)
            for one in spellings(small, "house")
            for at in range(len(ids))
        )
        places = [at for at in range(len(text)) if text.startswith("house", at)]
        assert found[text] == any(is_whole(text, at, at + 5) for at in places)
    assert list(found.values()) == [False, True, True, True, True, True, True]


def test_pieces_are_joined_where_letters_meet(small):
    special = small.special
    joined = joints(small)
    for id_, piece in enumerate(small.pieces(range(small.vocab_size))):
        letters = set("abdehilnorstu")
        if id_ == special.unk:
            assert id_ in joined.opening
            assert id_ in joined.continuing
        elif id_ in (special.pad, special.bos, special.eos):
            assert id_ not in joined.opening | joined.continuing
        else:
            assert (id_ in joined.opening) == (piece[-1] in letters)
            assert (id_ in joined.continuing) == (piece[0] in letters)


def test_bytes_of_other_characters_than_ascii_are_taken_for_letters(tiny_lines):
    tokenizer, _ = train_tokenizer(tiny_lines, TokenizerConfig(vocab_size=310))
    joined = joints(tokenizer)
    ids = dict(zip(tokenizer.pieces(range(310)), range(310), strict=True))
    assert {ids["<0xCE>"], ids["<0x41>"]} <= joined.opening & joined.continuing
    assert ids["<0x2C>"] not in joined.opening | joined.continuing
    (one, other) = spellings(tokenizer, "Ω")
    assert tokenizer.pieces(one.ids) == ["▁", "<0xCE>", "<0xA9>"]
    assert tokenizer.pieces(other.ids) == ["<0xCE>", "<0xA9>"]
    assert (one.whole_start, one.whole_end) == (False, True)
    assert (other.whole_start, other.whole_end) == (True, True)
    assert [(one.whole_start, one.whole_end) for one in spellings(tokenizer, "☺")] == [(False, False)] * 2


def test_a_byte_level_tokenizer_writes_words_behind_a_space_in_other_pieces():
    tokenizers = pytest.importorskip("tokenizers")
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(["the house and the boat"] * 9, trainer)
    tokenizer = HuggingFaceTokenizer(inner.to_str().encode(), Conventions(SpecialIds(0, 0, 0, 0)))
    assert plain(tokenizer, "house") == [("house", True, True), ("▁house", False, True)]
    assert plain(tokenizer, "猫") == [("<0xE7><0x8C><0xAB>", False, False), ("▁<0xE7><0x8C><0xAB>", False, False)]
    joined = joints(tokenizer)
    assert 0 not in joined.opening | joined.continuing  # the end, though it is the unknown piece too
    space = tokenizer.encode(" ")[0]
    assert space not in joined.opening | joined.continuing
