import pytest

from seq2seq.evaluation.text_checks import (
    looks_tokenized,
    reference_warnings,
    tokenized_warning,
    written_without_spaces,
)

PLAIN = [
    "A man in an orange hat, starring at something.",
    "It costs 1,234.50 dollars... or so.",
    "Two men",
    "R&D; \"quoted\" and 'quoted'",
    "",
    "Wer? Ich!",
]
FRENCH = ["Qui est là ?", "Attention !", "Voici : une liste ; une autre.", "« Oui », dit-il."]


@pytest.mark.parametrize("lines", [PLAIN, FRENCH, [], [""], ["你好，世界。"], ["#1 ##"], ["mail me @ home"]])
def test_plain_text_does_not_look_tokenised(lines: list[str]) -> None:
    assert looks_tokenized(lines) is None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["▁A ▁man ▁in ▁an ▁or ange ▁hat"], "1 of 1 lines have SentencePiece pieces"),
        (["A man in an or@@ ange hat", "Two men"], "1 of 2 lines have BPE pieces"),
        (["ends in a piece@@"], "BPE pieces"),
        (["a man in an or ##ange hat"], "WordPiece pieces"),
        (["It &apos;s fine", "Yes"], "escapes of a tokenizer"),
        (["A man , in a hat .", "Two men .", "Yes"], "2 of 3 lines have a comma or full stop that stands free"),
        (["你好 ， 世界 。"], "1 of 1 lines have a comma or full stop that stands free"),
    ],
)
def test_pieces_and_detached_punctuation_are_noticed(lines: list[str], reason: str) -> None:
    found = looks_tokenized(lines)
    assert found is not None
    assert reason in found


def test_blank_lines_are_not_counted() -> None:
    assert looks_tokenized(["Yes .", "", "\u3000"]) == (
        "1 of 1 lines have a comma or full stop that stands free (' .' or ' ,')"
    )


def test_one_odd_line_among_many_decides_nothing() -> None:
    assert looks_tokenized(["All is well."] * 99 + ["A blank ▁ to fill in"]) is None
    assert looks_tokenized(["All is well."] * 9 + ["An odd line ."]) is None
    assert looks_tokenized(["No stop here"] * 99 + ["An odd line ."]) is None


def test_the_warning_names_the_text_and_says_what_to_do() -> None:
    warning = tokenized_warning("out.txt", ["▁A ▁man"])
    assert warning is not None
    assert warning.startswith("out.txt looks tokenised: 1 of 1 lines have SentencePiece pieces")
    assert warning.endswith("score plain, detokenised text")
    assert tokenized_warning("out.txt", PLAIN) is None


@pytest.mark.parametrize("line", ["我喜欢喝茶。", "私はお茶が好きです。", "ฉันชอบชา", "我用 Python 写程序"])
def test_scripts_without_spaces_are_recognised(line: str) -> None:
    assert written_without_spaces([line])


@pytest.mark.parametrize(
    "line", ["Ich mag Tee.", "Я люблю чай.", "나는 차를 좋아해요.", "", "1 2 3", "The word 茶 means tea."]
)
def test_scripts_with_spaces_are_not_taken_for_ones_without(line: str) -> None:
    assert not written_without_spaces([line])


def test_blank_references_are_reported_with_the_first_line() -> None:
    (warning,) = reference_warnings("ref", ["a", "", "b", "\u3000"], tokenizer="13a")
    assert "ref has 2 blank lines, the first at line 2" in warning


def test_chinese_references_under_the_ordinary_tokenizer_are_reported() -> None:
    (warning,) = reference_warnings("ref", ["我喜欢喝茶。"], tokenizer="13a")
    assert "written without spaces" in warning
    assert "--target-lang zh" in warning
    assert reference_warnings("ref", ["我喜欢喝茶。"], tokenizer="zh") == []
