import pytest

from seq2seq.search import Hypothesis, SearchLimits
from seq2seq.search.hypotheses import FinishedPool


def limits(**changes: object) -> SearchLimits:
    values: dict[str, object] = {
        "bos": 1,
        "eos": 2,
        "suppressed": (0, 1),
        "min_lengths": [1, 2],
        "max_lengths": [4, 3],
        "prefixes": None,
    }
    return SearchLimits(**{**values, **changes})  # type: ignore[arg-type]


def ending(score: float, *ids: int) -> Hypothesis:
    return Hypothesis((*ids, 2), score, score, (score,), hit_limit=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_lengths": [1]}, "min_lengths has 1 entries for 2 sentences"),
        ({"prefixes": [[3], [4], []]}, "prefixes has 3 entries for 2 sentences"),
        ({"starts": [3]}, "starts has 1 entries for 2 sentences"),
        ({"suppressed": (0, 2)}, "eos=2 is among the suppressed ids"),
        ({"other_ends": (7, 0)}, "eos=0 is among the suppressed ids"),
        ({"other_ends": (3,), "prefixes": [[3], []]}, r"prefix of sentence 0 has ids \[3\] that are EOS"),
        ({"max_lengths": [4, 0], "min_lengths": [0, 0]}, "max_length=0 of sentence 1 leaves no room for EOS"),
        ({"min_lengths": [1, 4]}, "min_length=4 of sentence 1 is not between 0 and its max_length=3"),
        ({"min_lengths": [-1, 2]}, "min_length=-1 of sentence 0"),
        ({"prefixes": [[], [3, 4, 5]]}, "prefix of sentence 1 has 3 pieces, expected at most 2"),
        ({"prefixes": [[3, 2], []]}, r"prefix of sentence 0 has ids \[2\] that are EOS, suppressed"),
        ({"prefixes": [[3], [0, 1]]}, r"prefix of sentence 1 has ids \[0, 1\]"),
        ({"prefixes": [[-7], []]}, r"prefix of sentence 0 has ids \[-7\]"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        limits(**changes)


def test_ids_beyond_the_models_outputs_are_refused() -> None:
    asked = limits(prefixes=[[3], [11]])
    asked.check_vocab_size(12)
    with pytest.raises(ValueError, match="id 11 in bos, eos, suppressed, prefixes or starts is beyond the model's 11"):
        asked.check_vocab_size(11)


@pytest.mark.parametrize("changes", [{"starts": [3, 11]}, {"other_ends": (11,)}])
def test_starts_and_further_ends_are_among_the_ids_looked_at(changes: dict[str, object]) -> None:
    limits(**changes).check_vocab_size(12)
    with pytest.raises(ValueError, match="id 11 in"):
        limits(**changes).check_vocab_size(11)


def test_the_shortest_hypothesis_has_the_minimum_length_or_the_prefix_and_eos() -> None:
    assert limits(prefixes=[[3, 4], []]).shortest == [3, 2]


def test_the_pool_keeps_the_best_and_puts_the_first_found_first_among_equals() -> None:
    pool = FinishedPool(3)
    for hypothesis in (ending(-2.0, 3), ending(-1.0, 4), ending(-2.0, 5), ending(-1.0, 6), ending(-2.0, 7)):
        pool.add(hypothesis)
    assert [hypothesis.ids[0] for hypothesis in pool.best()] == [4, 6, 3]


def test_the_pool_accepts_only_what_would_enter() -> None:
    pool = FinishedPool(2)
    pool.add(ending(-1.0, 3))
    assert pool.accepts(-9.0)
    pool.add(ending(-2.0, 4))
    assert not pool.accepts(-2.0)
    assert pool.accepts(-1.9)


def test_of_two_identical_answers_the_pool_keeps_the_better() -> None:
    pool = FinishedPool(3, identity=lambda ids: ids[0] % 10)
    pool.add(ending(-3.0, 5))
    pool.add(ending(-2.0, 4))
    pool.add(ending(-1.0, 15))
    pool.add(ending(-1.5, 25))
    pool.add(ending(-2.0, 14))
    assert [hypothesis.ids[0] for hypothesis in pool.best()] == [15, 4]


def test_the_first_of_the_pool_does_not_depend_on_its_room() -> None:
    found = [ending(-3.0, 5), ending(-2.0, 4), ending(-2.0, 15), ending(-2.0, 24), ending(-4.0, 3)]
    firsts = []
    for room in (1, 2, 5):
        pool = FinishedPool(room, identity=lambda ids: ids[0] % 10)
        for hypothesis in found:
            pool.add(hypothesis)
        firsts.append(pool.best()[0])
    assert firsts == [found[1]] * 3
