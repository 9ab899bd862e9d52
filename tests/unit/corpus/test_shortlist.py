import dataclasses
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from seq2seq.config import TokenizerConfig
from seq2seq.corpus.shortlist import Shortlist, build_shortlist, coverage, read_shortlist, write_shortlist
from seq2seq.corpus.translation_table import learn_table
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.tokenizer_training import train_tokenizer


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


@pytest.fixture
def small() -> Shortlist:
    """Of 4 source and 11 target pieces."""
    table = np.array([[9, 4], [5, -1], [-1, -1], [8, 9]], dtype=np.int32)
    return Shortlist(11, table, ids(-1, 7, -1, -1), ids(3, 6, 2), ids(0, 1), ("left", "right"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = ["ant bee cat 3 , dog.", "elk fox gnu hen 1 7 !", "ant elk cat hen 1.", "fox bee dog gnu 3,"] * 5
    return train_tokenizer(lines, TokenizerConfig(vocab_size=30, byte_fallback=False))[0]


def pieces(shortlist: Shortlist, *arguments: list[list[int]]) -> list[list[int]]:
    return [row.nonzero()[0].tolist() for row in shortlist.allowed(*arguments)]


def test_a_sentence_has_what_its_source_asks_for_and_what_is_always_there(small):
    assert pieces(small, [[0, 0], [1, 2], [2], []]) == [
        [0, 1, 2, 3, 4, 6, 9],
        [0, 1, 2, 3, 5, 6, 7],
        [0, 1, 2, 3, 6],
        [0, 1, 2, 3, 6],
    ]
    assert small.allowed([]).shape == (0, 11)


def test_what_must_be_there_is_added_to_its_own_sentence(small):
    assert pieces(small, [[2], [2]], [[10, 6, 4], []]) == [[0, 1, 2, 3, 4, 6, 10], [0, 1, 2, 3, 6]]


def test_a_smaller_one_has_the_first_pieces_of_each_list(small):
    assert pieces(small.cut(1, 2), [[0]]) == [[0, 1, 3, 6, 9]]
    assert pieces(small.cut(2, 0), [[0]]) == [[0, 1, 4, 9]]


def test_it_is_read_back_as_it_was_written(small, tmp_path):
    write_shortlist(small, tmp_path / "s")
    back = read_shortlist(tmp_path / "s")
    for field in dataclasses.fields(Shortlist):
        np.testing.assert_array_equal(getattr(back, field.name), getattr(small, field.name))
    write_shortlist(small.cut(1, 2), tmp_path / "s")  # views are written as what they show
    assert pieces(read_shortlist(tmp_path / "s"), [[0]]) == [[0, 1, 3, 6, 9]]


def test_it_is_built_of_probable_frequent_and_equal_pieces_signs_and_special_ones(tokenizer):
    lines = ["ant bee cat 3 , dog.", "elk fox gnu hen 1 7 !"]
    pairs = [(tokenizer.encode(line), tokenizer.encode(line)) for line in lines]
    table = learn_table(lambda: pairs, tokenizer.vocab_size, tokenizer.vocab_size, passes=2)
    built = build_shortlist(table, tokenizer, tokenizer, candidates=2, frequent=3)
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    assert (built.candidates == table.best(tokenizer.vocab_size, 2)).all()
    seen = table.target_counts > 0
    assert (built.same == np.where(seen, np.arange(tokenizer.vocab_size), -1)).all()
    assert table.target_counts[built.frequent].tolist() == sorted(table.target_counts.tolist())[::-1][:3]
    special = tokenizer.special
    signs = {names.index(name) for name in names if name.removeprefix("\u2581") in ("3", "1", "7", ",", ".", "!")}
    assert set(built.always.tolist()) == {special.pad, special.bos, special.eos, special.unk} | {
        sign for sign in signs if seen[sign]
    }
    assert len(built.always) > 7
    built.check(tokenizer, tokenizer)


def test_no_more_pieces_are_frequent_than_the_text_has(tokenizer):
    pairs = [(tokenizer.encode("ant"), tokenizer.encode("bee"))]
    table = learn_table(lambda: pairs, tokenizer.vocab_size, tokenizer.vocab_size, passes=1)
    built = build_shortlist(table, tokenizer, tokenizer, candidates=1, frequent=1000)
    assert sorted(built.frequent.tolist()) == sorted(set(tokenizer.encode("bee")))


def test_a_shortlist_of_another_tokenizer_is_refused(small, tokenizer):
    with pytest.raises(ValueError, match="made with another source tokenizer: SHA-256 left, this one has"):
        small.check(tokenizer, tokenizer)
    half = dataclasses.replace(small, sha256=(tokenizer.sha256, "right"))
    with pytest.raises(ValueError, match="made with another target tokenizer: SHA-256 right, this one has"):
        half.check(tokenizer, tokenizer)


def test_ids_outside_the_vocabulary_and_uneven_parts_are_refused(small):
    with pytest.raises(ValueError, match="ids from -1 to 11 in candidates, the target vocabulary has 11"):
        dataclasses.replace(small, candidates=small.candidates + 2 * (small.candidates == 9))
    with pytest.raises(ValueError, match="ids from -1 to 3 in frequent"):
        dataclasses.replace(small, frequent=ids(-1, 3))
    with pytest.raises(ValueError, match="candidates for 4 source pieces, spellings for 3"):
        dataclasses.replace(small, same=ids(1, 2, 3))


def damage(path: Path, *, metadata: dict[str, str] | None = None, **changes: np.ndarray) -> None:
    arrays = {
        "candidates": np.full((4, 2), -1, dtype=np.int32),
        "same": ids(-1, 7, -1, -1),
        "frequent": ids(3),
        "always": ids(0),
    }
    plain = {"format": "seq2seq shortlist", "format_version": "1", "num_targets": "11"}
    save_file(arrays | changes, path, plain | (metadata or {}))


def test_files_that_are_no_shortlist_are_refused(tmp_path):
    path = tmp_path / "s.safetensors"
    with pytest.raises(FileNotFoundError, match="does not exist; `seq2seq data shortlist` makes"):
        read_shortlist(path)
    damage(path)
    assert read_shortlist(path).sha256 == ("", "")
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"s\.safetensors is damaged \(.*make it again"):
        read_shortlist(path)
    damage(path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="is not a shortlist"):
        read_shortlist(path)
    damage(path, metadata={"format_version": "2"})
    with pytest.raises(ValueError, match="has format version '2', this package reads 1"):
        read_shortlist(path)
    damage(path, frequent=np.array([1.5]))
    with pytest.raises(ValueError, match=r"is damaged: it has .*float64"):
        read_shortlist(path)
    damage(path, metadata={"num_targets": "-1"})
    with pytest.raises(ValueError, match=r"expected .* and num_targets"):
        read_shortlist(path)
    damage(path, frequent=ids(99))
    with pytest.raises(ValueError, match="is damaged: the shortlist has ids from 99 to 99 in frequent"):
        read_shortlist(path)


def test_coverage_counts_pieces_and_whole_sentences(small):
    found = coverage(small, [([0], [9, 4, 10]), ([1, 2], [5, 7]), ([2], [4])])
    assert (found.num_pieces, found.covered, found.num_sentences, found.whole) == (6, 4, 3, 1)
    assert found.mean_size == (7 + 7 + 5) / 3
    assert found.batch_size == 9
    with pytest.raises(ValueError, match="no pair to measure the shortlist with"):
        coverage(small, [])
