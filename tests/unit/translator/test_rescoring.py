from seq2seq.config import PenaltyForm
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.translator import Candidate
from seq2seq.translator.rescoring import Pool, rescored


def power(exponent: float) -> LengthPenalty:
    return LengthPenalty(PenaltyForm.power, exponent)


def pool(*found: tuple[int, float], full: bool = True, exponent: float = 0.0, longest: int = 10) -> Pool:
    penalty = power(exponent)
    rows = [
        Candidate(str(length), log_prob / penalty(length), log_prob, ("a",) * length, (1,) * length, (), False)
        for length, log_prob in found
    ]
    return Pool(sorted(rows, key=lambda one: -one.score), full, penalty, (1, longest))


def test_a_pool_with_all_hypotheses_is_simply_ranked_anew():
    found = pool((2, -2.0), (8, -3.0), full=False)
    assert rescored(found, power(0.0)).text == "2"
    assert rescored(found, power(1.0)).text == "8"


def test_what_a_full_pool_may_lack_must_not_be_able_to_win():
    # one of 10 pieces with log-probability -5 is possible, and would score -0.5 with exponent 1
    assert rescored(pool((2, -2.0), (8, -5.0)), power(1.0)) is None
    assert rescored(pool((2, -0.8), (8, -5.0)), power(1.0)).text == "2"
    assert rescored(pool((2, -2.0), (8, -5.0), longest=4), power(1.0)).text == "8"


def test_with_a_lower_exponent_the_shortest_possible_is_what_may_win():
    # the worst scores -0.5 under 1; one piece of that score has log-probability -0.5
    assert rescored(pool((4, -0.8), (8, -4.0), exponent=1.0), power(0.0)) is None
    assert rescored(pool((4, -0.4), (8, -4.0), exponent=1.0), power(0.0)).text == "4"


def test_a_tie_is_not_decided():
    assert rescored(pool((2, -2.0), (8, -8.0), full=False), power(1.0)) is None
