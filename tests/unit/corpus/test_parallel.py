import gzip
import hashlib
from pathlib import Path

import pytest

from seq2seq.corpus.parallel import fingerprint, listed_lines, pair_up, read_parallel, read_sides


def write(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def test_pairs_keep_their_line_numbers_when_blank_ones_are_left_out(tmp_path):
    source = write(tmp_path, "s", ["a", "", "c", "\u200b", "e", "f"])
    target = write(tmp_path, "t", ["A", "B", "C", "\u3000", " ", "F"])
    text = read_parallel(source, target)
    assert (text.source, text.target) == (["a", "c", "f"], ["A", "C", "F"])
    assert text.line_numbers == [1, 3, 6]
    assert (text.num_lines, text.one_sided, text.both_empty) == (6, [2, 5], [4])
    assert len(text) == 3


def test_a_notice_names_the_lines_that_are_blank_on_one_side():
    text = pair_up(["a"] * 15, ["A"] + [""] * 13 + ["B"])
    assert text.notice() == (
        "13 of 15 pairs are blank on one side and left out: lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more"
    )
    assert pair_up(["a", "b"], ["", "B"]).notice() == "1 of 2 pair is blank on one side and left out: line 1"
    assert pair_up(["a", ""], ["A", ""]).notice() is None


def test_unequal_files_are_refused_with_both_names_both_counts_and_the_place(tmp_path):
    lines = [f"{'word ' * (n % 7 + 1)}{n}." for n in range(200)]
    source = write(tmp_path, "train.de", lines)
    target = write(tmp_path, "train.en", lines[:56] + lines[57:])
    with pytest.raises(ValueError, match=r"train\.de has 200 lines but .*train\.en has 199") as told:
        read_parallel(source, target)
    assert "first look shifted near line 57, where" in str(told.value)
    assert f"{source} seems to have a line too many" in str(told.value)
    assert "56.' against" in str(told.value)


def test_a_file_that_ends_early_is_told_apart_from_a_shift(tmp_path):
    lines = [f"{'word ' * (n % 7 + 1)}{n}." for n in range(50)]
    source, target = write(tmp_path, "s", lines[:47]), write(tmp_path, "t", lines)
    with pytest.raises(ValueError, match=r"look parallel up to line 47, .* compare the end of .*t from line 48 on"):
        read_sides(source, target)


def test_an_empty_file_is_told_apart_too(tmp_path):
    with pytest.raises(ValueError, match=r"s has 0 lines but .*t has 2; .*one of the files is empty"):
        read_parallel(write(tmp_path, "s", []), write(tmp_path, "t", ["a", "b"]))


def test_text_without_a_full_pair_is_refused(tmp_path):
    source, target = write(tmp_path, "s", ["a", "", " "]), write(tmp_path, "t", ["", "b", ""])
    with pytest.raises(
        ValueError, match=r"no pair with text on both sides \(3 lines, 2 blank on one side, 1 on both\)"
    ):
        read_parallel(source, target)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such file: .*nothing"):
        read_parallel(tmp_path / "nothing", write(tmp_path, "t", ["a"]))


def test_a_fingerprint_is_the_checksum_of_the_bytes_and_the_number_of_lines(tmp_path):
    plain, packed = write(tmp_path, "s", ["a", "b", "c"]), tmp_path / "t.gz"
    packed.write_bytes(gzip.compress(b"x\ny"))
    prints = fingerprint([plain, str(tmp_path / "t")])
    assert prints == {
        str(plain): {"sha256": hashlib.sha256(b"a\nb\nc\n").hexdigest(), "lines": 3},
        str(packed): {"sha256": hashlib.sha256(packed.read_bytes()).hexdigest(), "lines": 2},
    }


def test_line_numbers_are_listed_up_to_ten():
    assert listed_lines([4]) == "line 4"
    assert listed_lines(list(range(1, 11))) == "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
    assert listed_lines(list(range(1, 13))).endswith("10 and 2 more")
