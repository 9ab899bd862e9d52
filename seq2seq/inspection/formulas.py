"""The counting formulas, each with the number that it gives for a model: nothing is built or run.

A formula is a sum of products of the letters of `seq2seq.shapes`, and its text is what is computed. N counts the
layers of the stack that is meant. Biases and norms are left out of the formulas for parameters; multiply-adds are those
of matrix products.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seq2seq.inspection.letters import value_of

Letters = Mapping[str, int]
"""What each letter stands for."""


@dataclass(frozen=True)
class Figure:
    """A number and the formula that gives it."""

    formula: str
    value: int

    @staticmethod
    def of(formula: str, letters: Letters) -> "Figure":
        """The formula's value. Double spaces and factors of 1, as there are in formulas put together, are left out."""
        terms = [" ".join(term.split()).removeprefix("1 ") for term in formula.split("+")]
        return Figure(" + ".join(terms), value_of(formula, letters))


def attention_parameters(letters: Letters) -> Figure:
    """Matrices of queries, keys, values and output of N layers: 4 D^2 in each, less with fewer key/value heads."""
    return Figure.of("4 N D^2" if _standard(letters) else "2 N D H K + 2 N D G K", letters)


def feed_forward_parameters(letters: Letters, *, gated: bool) -> Figure:
    """Both matrices of N feed-forward networks, or the three of gated ones."""
    return Figure.of(f"{3 if gated else 2} N D F", letters)


def table_parameters(letters: Letters) -> Figure:
    """An embedding or an output projection of its own; what is tied counts once."""
    return Figure.of("V D", letters)


def self_cache_elements(letters: Letters) -> Figure:
    """Keys and values of the positions so far, in all layers of the decoder."""
    return Figure.of("2 N B G T K", letters)


def cross_cache_elements(letters: Letters) -> Figure:
    """Keys and values of the source, in all layers of the decoder."""
    return Figure.of("2 N B G S K", letters)


def score_elements(letters: Letters, keys: str) -> Figure:
    """Attention scores of one layer; over one's own sequence, twice the length has four times as many.

    Args:
        letters: Sizes.
        keys: Letter of the positions that are looked at.
    """
    return Figure.of("B H T^2" if keys == "T" else f"B H T {keys}", letters)


def attention_products(letters: Letters, queries: str, keys: str) -> Figure:
    """Multiply-adds of scores and context in N layers.

    Args:
        letters: Sizes.
        queries: Letter of the positions that look; nothing for a single one.
        keys: Letter of the positions that are looked at.
    """
    lengths = f"{keys}^2" if queries == keys else f"{queries} {keys}".strip()
    width = "D" if letters["H"] * letters["K"] == letters["D"] else "H K"
    return Figure.of(f"2 N B {lengths} {width}", letters)


def self_projection_products(letters: Letters, positions: str) -> Figure:
    """Multiply-adds of the projections to queries, keys and values and of the output's, in N layers.

    Args:
        letters: Sizes.
        positions: Letter of the positions that are projected; nothing for a single one.
    """
    if _standard(letters):
        return Figure.of(f"4 N B {positions} D^2", letters)
    return Figure.of(f"2 N B {positions} D H K + 2 N B {positions} D G K", letters)


def cross_query_products(letters: Letters, positions: str) -> Figure:
    """Multiply-adds of cross-attention's projections of target positions: queries and output, in N layers."""
    return Figure.of(f"2 N B {positions} D H K", letters)


def cross_source_products(letters: Letters) -> Figure:
    """Multiply-adds of cross-attention's keys and values, once a sentence, in N layers."""
    return Figure.of("2 N B S D G K", letters)


def feed_forward_products(letters: Letters, positions: str, *, gated: bool) -> Figure:
    """Multiply-adds of N feed-forward networks."""
    return Figure.of(f"{3 if gated else 2} N B {positions} D F", letters)


def logit_products(letters: Letters, positions: str) -> Figure:
    """Multiply-adds of the projection onto the vocabulary."""
    return Figure.of(f"B {positions} D V", letters)


def _standard(letters: Letters) -> bool:
    """Whether the heads' widths add up to D and each has keys and values of its own."""
    return letters["G"] == letters["H"] and letters["H"] * letters["K"] == letters["D"]
