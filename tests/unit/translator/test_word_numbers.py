import pytest

from seq2seq.config import TokenizerConfig
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.translator.word_numbers import SourceWords, is_spaced, word_numbers


@pytest.fixture(scope="module")
def tokenizer(tiny_lines):
    return train_tokenizer(tiny_lines, TokenizerConfig(vocab_size=61, byte_fallback=False))[0]


@pytest.mark.parametrize(
    ("language", "spaced"),
    [("de", True), (None, True), ("", True), ("zh", False), ("zh-Hant", False), ("ja_JP", False), ("zhx", True)],
)
def test_chinese_and_japanese_are_written_without_spaces(language, spaced):
    assert is_spaced(language) is spaced


def test_a_span_belongs_to_the_words_that_it_has_a_part_of():
    text = " ab  cde\u3000f "
    assert text.split() == ["ab", "cde", "f"]
    spans = [(0, 2), (2, 3), (3, 6), (6, 8), (8, 10), (10, 11), (2, 10)]
    assert word_numbers(text, spans) == [(0,), (0,), (1,), (1,), (2,), (2,), (0, 1, 2)]


def test_a_span_without_a_part_of_a_word_goes_with_the_next_word_and_at_the_end_with_the_last():
    text = "  ab  cd  "
    assert word_numbers(text, [(0, 0), (0, 2), (2, 2), (3, 3), (4, 6), (5, 5), (8, 8), (8, 10), (10, 10)]) == [
        (0,),
        (0,),
        (0,),
        (0,),
        (1,),
        (1,),
        (1,),
        (1,),
        (1,),
    ]
    assert word_numbers("  ", [(0, 0), (0, 2)]) == [(), ()]
    assert word_numbers("", [(0, 0)]) == [()]


def test_words_of_a_source_are_counted_in_the_line_as_it_was_read(tokenizer, nasty_text):
    for line in ["der  ant, 🐦½ und\u3000(yak) \u200b die. ", *(line for line in nasty_text.lines if len(line) < 99)]:
        words = SourceWords.of(tokenizer, line, spaced=True)
        assert words.words == line.split()
        assert len(words.numbers) == len(words.spans) == len(tokenizer.encode(line))
        for (start, end), numbers in zip(words.spans, words.numbers, strict=True):
            if line[start:end].split():
                assert len(numbers) == len(line[start:end].split())
                for number, part in zip(numbers, line[start:end].split(), strict=True):
                    assert part in words.words[number]


def test_what_is_copied_is_the_word_without_punctuation_or_the_piece_where_that_is_wanted(tokenizer):
    line = "(🐦ant), und ..."
    words = SourceWords.of(tokenizer, line, spaced=True)
    bird = next(place for place, (start, end) in enumerate(words.spans) if "🐦" in line[start:end])
    assert words.copied(bird, part=False) == "🐦ant"
    assert words.copied(bird, part=True).endswith("🐦")
    assert words.copied(len(words.spans) - 1, part=False) == "..."
    assert words.copied(0, part=True) in ("🐦ant", "(", "(🐦"), "a space that stands for nothing gives its word"


def test_in_a_line_without_spaces_each_piece_is_a_word(tokenizer):
    line = "我们看见猫。"
    words = SourceWords.of(tokenizer, line, spaced=False)
    assert words.numbers == [(place,) for place in range(len(words.spans))]
    assert "".join(words.words) == line
    last = len(words.spans) - 1
    assert words.copied(last, part=False) == line[slice(*words.spans[last])]
