from pathlib import Path

import pytest

from seq2seq.config import TokenizerConfig
from seq2seq.corpus.check import CorpusReport, check_parallel
from seq2seq.text.tokenizer_training import train_tokenizer

SOURCE = ["ein Haus", "", "zwei Häuser", "ein Haus", "OK", "\tTab\xa0x", "x", " ", "Ã¤ \ufffd\0", "ein kurzer Satz"]
TARGET = ["a house", "one", "two houses", "a house", "OK", "tab", "y", "\u200b", "a\u2028e\rb", "a short one " * 20]


def write(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


@pytest.fixture
def report(tmp_path: Path) -> CorpusReport:
    return check_parallel(write(tmp_path, "s", SOURCE), write(tmp_path, "t", TARGET))


def test_lines_words_and_characters_are_counted(report):
    assert (report.source.lines, report.target.lines) == (10, 10)
    assert (report.source.words, report.target.words) == (15, 73)
    assert report.source.characters == sum(map(len, SOURCE))
    assert (report.source.blank, report.target.blank) == (2, 1)
    assert report.pairs == 8
    assert report.source.piece_use is None


def test_blank_repeated_and_equal_lines_are_named(report):
    assert (report.one_sided, report.both_blank) == ([2], [8])
    assert (report.source.duplicates, report.target.duplicates, report.duplicate_pairs) == (1, 1, 1)
    assert report.equal_sides == [5]


def test_the_longest_lines_are_named_with_their_length(report):
    assert [(long.line, long.characters, long.pieces) for long in report.target.longest[:2]] == [
        (10, 240, None),
        (3, 10, None),
    ]
    assert len(report.source.longest) == 5


def test_a_ratio_far_from_the_usual_one_is_an_outlier(report):
    assert report.ratio_outliers == [10]
    assert 0.5 < report.usual_ratio < 1.5


def test_odd_characters_are_counted_with_their_first_line(report):
    source = {oddity.what: (oddity.count, oddity.first_line) for oddity in report.source.oddities}
    target = {oddity.what: (oddity.count, oddity.first_line) for oddity in report.target.oddities}
    assert source == {
        "tabs": (1, 6),
        "no-break spaces (U+00A0)": (1, 6),
        "replacement characters (U+FFFD), left by a failed conversion": (1, 9),
        "control characters": (1, 9),
        "lines that look encoded in UTF-8 twice": (1, 9),
    }
    assert target == {
        "invisible format characters (zero-width, direction marks, soft hyphens)": (1, 8),
        "line separators (U+0085, U+2028, U+2029)": (1, 9),
        "carriage returns inside a line": (1, 9),
    }


def test_a_tokenizer_counts_pieces_unknown_and_byte_pieces(tmp_path):
    source, target = write(tmp_path, "s", ["ab", "abc🎉", "ba"]), write(tmp_path, "t", ["abab", "a🎉🎉b", ""])
    text = ["ab ba c", "cab abc"]
    with_bytes, _ = train_tokenizer(text, TokenizerConfig(vocab_size=264))
    without, _ = train_tokenizer(text, TokenizerConfig(vocab_size=8, byte_fallback=False))
    report = check_parallel(source, target, source_tokenizer=with_bytes, target_tokenizer=without)
    use = report.source.piece_use
    assert (use.unknown, use.byte_pieces, use.lines_affected) == (0, 4, 1)
    assert use.pieces == sum(len(with_bytes.encode(line)) for line in ("ab", "abc🎉", "ba"))
    assert use.byte_rate == pytest.approx(4 / use.pieces)
    use = report.target.piece_use
    assert (use.unknown, use.byte_pieces, use.lines_affected) == (1, 0, 1)
    assert use.unknown_rate == pytest.approx(1 / use.pieces)
    assert report.source.longest[0].line == 2
    assert report.source.longest[0].pieces == len(with_bytes.encode("abc🎉"))


def test_pairs_of_another_corpus_that_stand_in_this_one_are_named(tmp_path):
    ours = write(tmp_path, "s", ["a", "b", "c"]), write(tmp_path, "t", ["A", "B", "C"])
    other = write(tmp_path, "vs", ["x", "a", "b", "", "y"]), write(tmp_path, "vt", ["X", "A", "other", "", "C"])
    overlap = check_parallel(*ours, against=other).overlap
    assert (overlap.pairs, overlap.shared_sources, overlap.shared_targets, overlap.shared_pairs) == (4, 2, 2, [2])


def test_files_without_lines_give_an_empty_report(tmp_path):
    report = check_parallel(write(tmp_path, "s", []), write(tmp_path, "t", []))
    assert (report.pairs, report.usual_ratio, report.source.longest) == (0, 1.0, [])


def test_unequal_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"s has 1 lines but .*t has 2"):
        check_parallel(write(tmp_path, "s", ["a"]), write(tmp_path, "t", ["a", "b"]))
    equal = write(tmp_path, "e", ["a"])
    with pytest.raises(ValueError, match=r"e has 1 lines but .*t has 2"):
        check_parallel(equal, equal, against=(equal, tmp_path / "t"))
