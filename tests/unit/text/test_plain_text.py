"""Tokenizers of plain text: nothing between the words is lost, however long the text."""

import pytest

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer

PLAY = "\n".join(
    f"{who}:\n  {what}, {number} and {3 * number}  times;\n\n    \tand so on.\n"
    for number in range(40)
    for who, what in (("FIRST", "we keep"), ("SECOND", "they leave"), ("ALL", "who knows"))
)
TEXTS = [
    PLAY,
    " two  spaces, and at the end three   ",
    "\n\n\n",
    "\n",
    " ",
    "  ",
    "line feed at the end\n",
    "tab\t, carriage return\r\n, nul\0, no-break\xa0space, \u2028, \ufeff mark, e\u0301, \u3000",
    "</s> <s> <unk> <pad> <0x41>",
    "x" * 5000,
    "🎉\n漢字",
    "",
]


def plain(kind: TokenizerKind, **changes: int | bool) -> TokenizerConfig:
    values = {"vocab_size": 315, "keep_whitespace": True, "normalization": "identity"}
    return TokenizerConfig(kind=kind, **(values | changes))


@pytest.fixture(scope="module", params=list(TokenizerKind), ids=lambda kind: kind.name)
def tokenizer(request) -> SentencePieceTokenizer:
    return train_tokenizer([PLAY], plain(request.param))[0]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_every_space_and_line_feed_comes_back(tokenizer, text):
    assert tokenizer.keeps_whitespace
    assert tokenizer.decode_text(tokenizer.encode(text)) == text


def test_parts_of_a_text_are_encoded_as_in_the_whole(tokenizer):
    lines = [line + "\n" for line in PLAY.split("\n")]
    assert tokenizer.encode("".join(lines)) == [id_ for line in lines for id_ in tokenizer.encode(line)]
    assert tokenizer.encode(PLAY) == tokenizer._processor.encode(PLAY)  # the library's own, of all in one


def test_half_a_surrogate_pair_is_refused_in_a_text_of_several_lines(tokenizer):
    with pytest.raises(ValueError, match=r"cannot be written as UTF-8; expected text without half a surrogate"):
        tokenizer.encode("a\nb\ud800\n")


def test_a_decoded_line_has_spaces_for_line_feeds(tokenizer):
    assert tokenizer.decode(tokenizer.encode("ALL:\n  we\n")) == "ALL:   we "


def test_the_line_feed_is_one_piece(tokenizer):
    assert [tokenizer.pieces([id_]) for id_ in tokenizer.encode("\n\n")] == [["\n"], ["\n"]]


def test_a_prompt_begins_with_bos(tokenizer):
    assert tokenizer.prompt("") == [tokenizer.special.bos]
    assert tokenizer.prompt("ALL:\n") == [tokenizer.special.bos, *tokenizer.encode("ALL:\n")]


def test_indentation_is_one_piece(corpus):
    text = "".join(f"if {line}:\n        return\n" for line in corpus)
    tokenizer, _ = train_tokenizer([text], plain(TokenizerKind.bpe, vocab_size=400))
    assert "▁▁▁▁" in tokenizer.pieces(tokenizer.encode("    x"))
    assert tokenizer.decode_text(tokenizer.encode("          x")) == "          x"


@pytest.mark.parametrize("text", ["word and " * 3000, "語" * 5000, ("語" * 70 + " ") * 300])
def test_a_line_longer_than_the_limit_is_cut_and_trained_on(text):
    config = plain(TokenizerKind.char, max_sentence_bytes=200, byte_fallback=False)
    tokenizer, report = train_tokenizer([text], config)
    assert (report.num_skipped_long, report.num_used >= 100) == (0, True)
    assert tokenizer.decode_text(tokenizer.encode(text)) == text


def test_without_the_option_text_is_tidied_and_says_so(unigram):
    assert not unigram.keeps_whitespace
    assert unigram.describe()["keeps_whitespace"] is False
    assert unigram.decode_text(unigram.encode(" haus\nbaum  ")) == "haus baum"


@pytest.mark.parametrize(
    ("vocab_size", "byte_fallback", "found"), [(2000, True, 303), (2000, False, 47), (30, False, 30)]
)
def test_a_tokenizer_of_characters_has_at_most_the_pieces_asked_for(vocab_size, byte_fallback, found):
    config = TokenizerConfig(kind=TokenizerKind.char, vocab_size=vocab_size, byte_fallback=byte_fallback)
    tokenizer, _ = train_tokenizer(PLAY.split("\n"), config)
    assert (tokenizer.kind, tokenizer.vocab_size) == (TokenizerKind.char, found)
    assert tokenizer.pieces(tokenizer.encode("we see")) == list("▁we▁see")


def test_a_tokenizer_of_characters_cannot_sample():
    tokenizer, _ = train_tokenizer(PLAY.split("\n"), TokenizerConfig(kind=TokenizerKind.char, vocab_size=300))
    with pytest.raises(
        ValueError, match=r"of kind char has one segmentation of a line only; set data.*bpe_dropout to 0"
    ):
        tokenizer.sample("we keep", config=TokenizerConfig(sampling_alpha=0.1), key=(1, 2, 3))
