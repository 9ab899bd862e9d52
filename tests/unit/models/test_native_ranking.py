"""seq2seq.models.native_ranking: ranking.cpp, built for registers of several widths, against torch and plain sorts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.models.native_ranking import NativeRanking
from seq2seq.search import LengthPenalty, SearchLimits, beam_search


@pytest.fixture(scope="module")
def ranking(native_library):
    return NativeRanking(native_library)


WIDTHS = [1, 2, 11, 63, 64, 65, 640, 1279, 8000]


def drawn(seed, width, scale=5.0):
    return torch.randn(3, width, generator=torch.Generator().manual_seed(seed)) * scale


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scale", [0.01, 5.0, 60.0])
@pytest.mark.parametrize("shift", [0.0, -3000.0, 3000.0])
def test_the_norm_is_the_logarithm_of_the_sum_of_exponentials(ranking, width, scale, shift):
    logits = drawn(3, width, scale) + shift
    exact = logits.double().logsumexp(1, keepdim=True)
    torch.testing.assert_close(torch.from_numpy(ranking.norm(logits)), exact, rtol=1e-9, atol=5e-7)


def test_one_piece_that_is_certain_has_log_probability_0(ranking):
    logits = torch.full((2, 100), -200.0)
    logits[:, 37] = 40.0
    assert ranking.norm(logits).tolist() == [[40.0], [40.0]]


@pytest.mark.parametrize("width", [7, 100])
def test_forbidden_pieces_count_for_nothing(ranking, width):
    logits = drawn(1, width)
    few = logits.clone()
    few[:, 3:] = -torch.inf
    exact = logits[:, :3].double().logsumexp(1, keepdim=True)
    torch.testing.assert_close(torch.from_numpy(ranking.norm(few)), exact, rtol=1e-9, atol=5e-7)


@pytest.mark.parametrize("place", [0, 5, 63, 64, 99])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_a_broken_model_gives_is_refused(ranking, place, value):
    logits = drawn(2, 100)
    logits[1, place] = value
    with pytest.raises(ValueError, match="the model's log-probabilities are NaN"):
        ranking.norm(logits)


def test_a_row_in_which_nothing_is_possible_is_refused(ranking):
    with pytest.raises(ValueError, match="the model's log-probabilities are NaN"):
        ranking.norm(torch.full((1, 100), -torch.inf))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    width=st.sampled_from(WIDTHS),
    count=st.integers(1, 12),
    decimals=st.sampled_from([None, 0, 1]),
    forbidden=st.booleans(),
)
def test_the_top_pieces_are_those_of_a_plain_sort_with_the_lower_id_first(
    ranking, seed, width, count, decimals, forbidden
):
    logits = drawn(seed, width)
    if decimals is not None:
        logits = logits.round(decimals=decimals)
    if forbidden:
        logits[:, ::3] = -torch.inf
    wanted = [sorted(range(width), key=lambda i, row=row: (-row[i], i))[:count] for row in logits.tolist()]
    assert ranking.top(logits, count).tolist() == wanted


def test_rising_logits_and_columns_of_others_are_ranked(ranking):
    logits = torch.arange(300.0).repeat(2, 1)
    assert ranking.top(logits, 3).tolist() == [[299, 298, 297]] * 2
    assert ranking.top(logits[:, ::2], 3).tolist() == [[149, 148, 147]] * 2
    assert ranking.norm(logits[:, ::2])[0, 0] == pytest.approx(298 + 0.14541345786885906, abs=1e-6)


class Nothing:
    """A state of rows that remember nothing."""

    def select(self, rows, sentences, places=None):
        return self


@pytest.mark.parametrize("beam_size", [2, 5])
def test_a_beam_search_by_it_finds_what_it_finds_without(ranking, beam_size):
    table = torch.randn(90, 90, generator=torch.Generator().manual_seed(4)).mul(3)
    limits = SearchLimits(bos=1, eos=2, suppressed=(0, 1), min_lengths=[1, 3], max_lengths=[9, 7])
    found, wanted = (
        beam_search(
            lambda tokens, state: (table[tokens[:, 0]], state),
            Nothing(),
            limits,
            beam_size=beam_size,
            n_best=2,
            penalty=LengthPenalty(),
            ranking=one,
            device="cpu",
        )
        for one in (ranking, None)
    )
    assert [[one.ids for one in some] for some in found] == [[one.ids for one in some] for some in wanted]
    for some, others in zip(found, wanted, strict=True):
        for one, other in zip(some, others, strict=True):
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=2e-6)


def test_other_numbers_than_float32_are_refused(ranking):
    for call in (ranking.norm, lambda logits: ranking.top(logits, 2)):
        with pytest.raises(ValueError, match=r"got torch\.float64 on cpu; leave a model that decodes by compiled code"):
            call(drawn(1, 9).double())
