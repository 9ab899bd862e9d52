import pytest

from seq2seq.text.words import find_whole, in_word, is_whole


@pytest.mark.parametrize("character", [*"aZ9_äßжא가ᄋ०", "\u0301", "\u200d", "²"])
def test_letters_digits_and_marks_are_inside_words(character):
    assert in_word(character)


@pytest.mark.parametrize("character", [*" .-'’|–«、。猫ネねกက", "ｱ", "\u3000", "👩", "𠮷"])
def test_punctuation_spaces_and_scripts_without_spaces_are_not(character):
    assert not in_word(character)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("Hausboot", "Haus", -1),
        ("Hausboot am Haus", "Haus", 12),
        ("Rathaus", "haus", -1),
        ("Haus-Boot", "Haus", 0),
        ("das Haus.", "Haus", 4),
        ("(Haus)", "Haus", 1),
        ("neues Hausboot neues Haus", "neues Haus", 15),
        ("Haus 30", "Haus 3", -1),
        ("我们看见猫。", "看见", 2),
        ("使用GPU计算", "GPU", 2),
        ("使用GPUs计算", "GPU", -1),
        ("U.S.A", "U.S.", 0),
        ("cafe\u0301 cafe", "cafe", 6),
        ("", "Haus", -1),
    ],
)
def test_words_are_found_where_no_letter_goes_on_before_or_behind(text, words, expected):
    assert find_whole(text, words) == expected


def test_a_stretch_is_whole_only_if_both_its_ends_are():
    assert is_whole("ein Haus", 4, 8)
    assert not is_whole("ein Haus", 4, 7)
    assert not is_whole("ein Haus", 5, 8)
