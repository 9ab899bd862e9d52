import pytest

import seq2seq.shapes
from seq2seq.inspection.letters import MEANINGS, bind, value_of

LETTERS = {"B": 2, "H": 3, "G": 5, "K": 7, "T": 11, "P": 13}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("B", 2),
        ("1", 1),
        ("HK+2GK", 3 * 7 + 2 * 5 * 7),
        ("P+T", 24),
        ("2 B H T^2 K", 2 * 2 * 3 * 121 * 7),
        ("4 B  + 10", 18),
        ("B^3", 8),
    ],
)
def test_a_formula_is_worth_what_it_says(formula, value):
    assert value_of(formula, LETTERS) == value


@pytest.mark.parametrize("formula", ["", "B+", "b", "B-H", "B*(H)", "B^"])
def test_what_is_no_sum_of_products_is_an_error_of_the_program(formula):
    with pytest.raises(AssertionError, match="not a sum of products"):
        value_of(formula, LETTERS)


def test_a_letter_that_stands_for_nothing_is_named():
    with pytest.raises(KeyError, match="Q"):
        value_of("2 Q", LETTERS)


def test_letters_are_bound_where_they_stand_alone_wherever_that_is():
    shapes = [("projection", ("B", "HK"), (2, 21)), ("heads", ("B", "H", "K"), (2, 3, 7))]
    assert bind(shapes, {"B": 2}) == {"B": 2, "H": 3, "K": 7}


def test_a_given_letter_is_not_bound_anew():
    with pytest.raises(AssertionError, match=r"ids: \['B'\] is \[2\] .* but \[3\] flowed"):
        bind([("ids", ("B",), (3,))], {"B": 2})


def test_the_letters_are_those_of_the_legend():
    legend = seq2seq.shapes.__doc__
    own = {"M", "U"}  # of formulas, not of shapes
    assert all(f"  {letter}  " in legend for letter in set(MEANINGS) - own)
