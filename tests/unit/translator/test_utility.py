import sys
import time

import numpy as np
import pytest

from seq2seq.config import Utility
from seq2seq.translator import utility as module
from seq2seq.translator.utility import chrf, measure, shared_ngrams


def arrays(*rows: list[int]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.int64) for row in rows]


def test_common_ngrams_count_as_often_as_they_come_in_both():
    lengths, (ones, twos, threes) = shared_ngrams(arrays([7, 7, 9, 7, 7], [7, 7, 7, 8], [], [9]), 3)
    assert lengths.tolist() == [5, 4, 0, 1]
    assert ones.tolist() == [[5, 3, 0, 1], [3, 4, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]]
    assert twos.tolist() == [[4, 2, 0, 0], [2, 3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert threes.tolist() == [[3, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_nothing_is_shared_across_the_ends_of_sequences():
    _, (_, twos) = shared_ngrams(arrays([1, 2], [3, 1], [2, 3]), 2)
    assert twos.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_no_sequence_gives_empty_tables():
    lengths, tables = shared_ngrams([], 2)
    assert lengths.shape == (0,)
    assert [table.shape for table in tables] == [(0, 0), (0, 0)]


def test_a_large_vocabulary_is_counted_in_parts_with_the_same_result(monkeypatch):
    generator = np.random.default_rng(3)
    sequences = [generator.integers(0, 12, size) for size in (30, 1, 17, 0, 24)]
    whole = shared_ngrams(sequences, 3)[1]
    monkeypatch.setattr(module, "MATRIX_SIZE", 20)
    for part, expected in zip(shared_ngrams(sequences, 3)[1], whole, strict=True):
        assert part.tolist() == expected.tolist()


def test_a_row_is_the_hypothesis_and_a_column_the_reference():
    found = chrf(["abc", "abcdef"])
    assert found[0, 1] < found[1, 0]  # beta 2: recall counts more


def test_a_missing_analyser_is_told_before_anything_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(ValueError, match=r"'ja-mecab' .*pip install 'sacrebleu\[ja\]'"):
        measure(Utility.bleu, "ja")
    assert measure(Utility.chrf, "ja") is chrf


@pytest.mark.parametrize("utility", [Utility.chrf, Utility.bleu])
def test_a_hundred_candidates_are_compared_in_a_fraction_of_a_second(utility):
    generator = np.random.default_rng(5)
    vocabulary = ["".join(map(chr, generator.integers(97, 123, size))) for size in generator.integers(1, 12, 300)]
    base = list(generator.choice(vocabulary, 25))
    texts = []
    for _ in range(100):
        text = list(base)
        for place in generator.integers(0, 25, 5):
            text[place] = str(generator.choice(vocabulary))
        texts.append(" ".join(text))
    alike = measure(utility, None)
    alike(texts)
    started = time.process_time()
    alike(texts)
    assert time.process_time() - started < 0.5  # a call of sacreBLEU for each pair takes seconds
