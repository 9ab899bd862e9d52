import random
from collections import defaultdict

import numpy as np
import pytest

from seq2seq.corpus import translation_table
from seq2seq.corpus.translation_table import Pair, TranslationTable, learn_table

S, V = 7, 11


def corpus(count: int = 30, seed: int = 3) -> list[Pair]:
    draw = random.Random(seed)
    return [
        (
            [draw.randrange(S) for _ in range(draw.randint(1, 5))],
            [draw.randrange(V) for _ in range(draw.randint(1, 6))],
        )
        for _ in range(count)
    ]


def slow_model_1(pairs: list[Pair], passes: int) -> dict[tuple[int, int], float]:
    """Model 1 in loops; source S is the empty word."""
    table: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(passes):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in pairs:
            for piece in target:
                everything = sum(table[word, piece] for word in [*source, S])
                for word in [*source, S]:
                    counts[word, piece] += table[word, piece] / everything
                    totals[word] += table[word, piece] / everything
        table = defaultdict(float, {key: count / totals[key[0]] for key, count in counts.items()})
    return table


@pytest.mark.parametrize("passes", [1, 2, 5])
def test_the_table_is_that_of_model_1_in_loops(passes, monkeypatch):
    monkeypatch.setattr(translation_table, "MAX_LINKS", 40)  # several blocks
    pairs = corpus()
    found = learn_table(lambda: pairs, S, V, passes=passes)
    expected = slow_model_1(pairs, passes)
    assert found.keys.tolist() == sorted(word * V + piece for word, piece in expected)
    wanted = [expected[divmod(int(key), V)] for key in found.keys]
    np.testing.assert_allclose(found.probabilities, wanted, rtol=1e-12)
    assert found.target_counts.tolist() == [sum(t.count(piece) for _, t in pairs) for piece in range(V)]
    assert found.num_pairs == 30


def test_pieces_that_come_together_by_chance_lose_to_those_that_translate_each_other():
    # piece 0 of the target stands in every sentence, so that by counts alone it belongs to everything
    pairs = [([word], [word + 1, 0]) for word in range(3)] + [([3, word], [4, word + 1, 0, 0]) for word in range(3)]
    pairs += [([3], [4, 0])] * 2
    raw = learn_table(lambda: pairs, 4, 5, passes=1)
    learned = learn_table(lambda: pairs, 4, 5, passes=20)
    assert raw.best(4, 1)[:, 0].tolist() == [0, 0, 0, 0]
    assert learned.best(4, 1)[:, 0].tolist() == [1, 2, 3, 4]


def test_the_best_pieces_stand_in_order_and_ties_by_number():
    table = TranslationTable(
        num_targets=V,
        keys=np.array([0 * V + 3, 0 * V + 4, 0 * V + 9, 2 * V + 5, 2 * V + 6, 3 * V + 1]),
        probabilities=np.array([0.2, 0.5, 0.2, 0.3, 0.3, 1.0]),
        target_counts=np.ones(V, dtype=np.int64),
        num_pairs=1,
        passed_over=0,
    )
    assert table.best(3, 2).tolist() == [[4, 3], [-1, -1], [5, 6]]  # source 3 is the empty word


def test_pairs_blank_on_a_side_or_too_long_are_passed_over(monkeypatch):
    monkeypatch.setattr(translation_table, "MAX_PIECES", 3)
    pairs: list[Pair] = [([], [1]), ([1], []), ([1] * 4, [1]), ([1], [1] * 4), ([1, 2, 3], [5, 5, 5])]
    table = learn_table(lambda: pairs, S, V, passes=3)
    assert (table.num_pairs, table.passed_over) == (1, 4)
    assert np.flatnonzero(table.target_counts).tolist() == [5]


def test_a_table_that_grows_too_large_keeps_the_best_of_each_source_piece(monkeypatch):
    pairs: list[Pair] = [([word], [piece]) for word in range(S) for piece in range(V) for _ in range(piece + word + 1)]
    monkeypatch.setattr(translation_table, "MAX_ENTRIES", 2 * (S + 1) * 3)
    table = learn_table(lambda: pairs, S, V, passes=2)
    assert [np.flatnonzero(table.keys // V == word).size for word in range(S)] == [3] * S
    assert sorted(set((table.keys % V).tolist())) == [V - 3, V - 2, V - 1]
    np.testing.assert_allclose(np.bincount(table.keys // V, table.probabilities), 1.0)


def test_a_corpus_without_any_pair_is_refused():
    with pytest.raises(ValueError, match="none of 2 pairs has 1 to 512 pieces on both sides"):
        learn_table(lambda: [([], [1]), ([1], [])], S, V, passes=1)
