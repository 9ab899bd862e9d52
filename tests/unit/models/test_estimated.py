"""seq2seq.models.estimated: best pieces from estimates in bfloat16 are those of the logits themselves."""

import copy

import pytest
import torch

from seq2seq.models import estimated as module
from seq2seq.models.estimated import FEWEST, ROUNDED_AND_MORE, EstimatedProjection, RoughLogits

D, V, R = 24, 203, 40


@pytest.fixture(params=[True, False], ids=["laid_out", "plain"], autouse=True)
def laid_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With and without the operators of torch's compiler, whatever this CPU has."""
    if request.param and not module._packs():
        pytest.skip("this CPU has no matrix units for bfloat16")
    if not request.param:
        monkeypatch.setattr(module, "_packs", lambda: False)
    return request.param


def logits_of(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    logits = hidden.double() @ weight.double().t()
    return logits if bias is None else logits + bias.double()


def estimates_of(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> RoughLogits:
    return EstimatedProjection(weight, bias)(hidden, lambda: logits_of(hidden, weight, bias).float())


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("shift", [None, 0.0, 30.0, -30.0], ids=["no_bias", "bias", "above_zero", "below_zero"])
def test_the_best_pieces_are_those_of_the_logits(scale: float, shift: float | None) -> None:
    for seed in range(20):
        hidden, weight = random(R, D, seed=seed) * scale, random(V, D, seed=seed + 100) / 3
        bias = None if shift is None else (random(V, seed=seed + 200) + shift) * scale
        found = estimates_of(hidden, weight, bias).best()
        assert found is not None
        assert found.tolist() == logits_of(hidden, weight, bias).argmax(1, keepdim=True).tolist()


def test_pieces_that_bfloat16_cannot_tell_apart_are_told_apart() -> None:
    hidden, weight = random(R, D), random(V, D, seed=2) / 3
    best = logits_of(hidden, weight, None).argmax(1)
    near = weight[best] + 1e-5 * random(R, D, seed=3)
    weight = torch.cat([weight, near])
    wanted = logits_of(hidden, weight, None).argmax(1, keepdim=True)
    assert 10 < (wanted >= V).sum() < R
    estimates = estimates_of(hidden, weight)
    rough = estimates.values.float().argmax(1, keepdim=True)
    assert (rough != wanted).any()
    found = estimates.best()
    assert found is not None
    assert found.tolist() == wanted.tolist()


def test_of_equal_pieces_the_lowest_is_taken() -> None:
    hidden, weight = random(R, D), random(V, D, seed=2) / 3
    order = torch.randperm(2 * V, generator=torch.Generator().manual_seed(4))
    weight = torch.cat([weight, weight])[order]
    found = estimates_of(hidden, weight).best()
    assert found is not None
    logits = logits_of(hidden, weight, None).numpy()
    assert found[:, 0].tolist() == (logits > logits.max(1, keepdims=True) - 1e-9).argmax(1).tolist()


def check_bound(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> float:
    """The largest part of the bound that an error reaches."""
    projection = EstimatedProjection(weight, bias)
    values = projection(hidden, lambda: torch.empty(0, 0)).values.double()
    slack = torch.from_numpy(projection._matrix.slack(hidden.numpy())).double()
    error = (values - logits_of(hidden, weight, bias)).abs()
    bound = slack[:, None] + ROUNDED_AND_MORE * values.abs()
    assert (error <= bound).all()
    return float((error / bound).max())


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e4])
def test_no_logit_is_further_from_its_estimate_than_the_bound(scale: float) -> None:
    for seed in range(10):
        weight, hidden = random(V, D, seed=seed) / 3, random(R, D, seed=seed + 100) * scale
        for bias in (None, 50 * scale * random(V, seed=5), 1e4 * random(V, seed=6)):
            for reached in (check_bound(hidden, weight, bias), check_bound(hidden, scale * weight, bias)):
                assert reached > 0.01 or scale < 1


def test_the_bound_is_not_much_wider_than_it_must_be() -> None:
    # in the middle between two numbers of bfloat16, where most is lost, and all in the same direction
    middles = torch.full((R, D), 1 + 2.0**-8 - 2.0**-20)
    assert 0.6 < check_bound(middles, middles, None) <= 1
    assert 0.6 < check_bound(-middles, middles, torch.full((R,), -1 - 2.0**-8 + 2.0**-20)) <= 1


@pytest.mark.parametrize("scale", [2.0**-80, 2.0**-40, 1.0, 2.0**40])
def test_small_numbers_are_compared_as_others_are(scale: float) -> None:
    """Squares of small numbers are none in float32, but the errors are as large a part of them as of others."""
    above, below = 2.0**-8 / 128, -(2.0**-8) / 128
    hidden = torch.tensor([[1 + 7.5 / 128 + below, 1 + 4.5 / 128 + above]]).repeat(FEWEST, 1)
    weight = torch.tensor([[1 + 9.5 / 128 + below, 0.0], [0.0, 1 + 12.5 / 128 + above], *[[-1.0, -1.0]] * 40])
    for by_hidden, by_weight in ((scale, 1.0), (1.0, scale), (scale, 1 / scale)):
        estimates = estimates_of(hidden * by_hidden, weight * by_weight)
        assert estimates.values[0, 1] > estimates.values[0, 0]  # the wrong way round
        found = estimates.best()
        assert found is None or found.tolist() == [[0]] * FEWEST
        assert found is not None or scale < 2.0**-50


def test_what_is_forbidden_is_not_taken_and_one_piece_may_be_all_that_is_left() -> None:
    hidden, weight = random(R, D), random(V, D, seed=2) / 3
    estimates = estimates_of(hidden, weight)
    logits = logits_of(hidden, weight, None)
    for values in (estimates.values, logits):
        values.index_fill_(1, torch.arange(0, V, 2), -torch.inf)
        kept = values[:7, 11].clone()  # some of them below zero
        values[:7] = -torch.inf
        values[:7, 11] = kept
    assert (logits[:7, 11] < 0).any()
    found = estimates.best()
    assert found is not None
    assert found.tolist() == logits.argmax(1, keepdim=True).tolist()


def test_among_numbers_above_zero_too_what_is_forbidden_is_not_taken() -> None:
    hidden, weight = random(R, D), random(V, D, seed=2) / 3
    bias = torch.full((V,), 30.0)
    estimates, logits = estimates_of(hidden, weight, bias), logits_of(hidden, weight, bias)
    assert (logits.max(1).values > 20).all()
    for values in (estimates.values, logits):
        values.index_fill_(1, torch.arange(0, V, 3), -torch.inf)
    found = estimates.best()
    assert found is not None
    assert found.tolist() == logits.argmax(1, keepdim=True).tolist()


@pytest.mark.parametrize("number", [torch.nan, -torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_none_are_left_to_the_logits(number: float) -> None:
    hidden, weight = random(R, D), random(V, D, seed=2)
    broken = hidden.clone()
    broken[3, 5] = number
    assert estimates_of(broken, weight).best() is None
    weight[7, 2] = number
    assert estimates_of(hidden, weight).best() is None
    bias = torch.zeros(V)
    bias[4] = number
    assert estimates_of(hidden, random(V, D), bias).best() is None


def test_a_row_without_any_piece_is_left_to_the_logits() -> None:
    estimates = estimates_of(random(R, D), random(V, D, seed=2))
    estimates.values[2] = -torch.inf
    assert estimates.best() is None


def test_where_most_pieces_are_in_question_the_logits_are_asked() -> None:
    weight = random(1, D).expand(V, D) + 1e-6 * random(V, D, seed=2)
    estimates = estimates_of(random(R, D, seed=3), weight)
    assert estimates.best() is None
    assert estimates.logits().shape == (R, V)


def test_few_rows_other_precisions_and_changed_weights_are_not_for_it() -> None:
    weight, bias = torch.nn.Parameter(random(V, D), requires_grad=False), torch.zeros(V)
    projection = EstimatedProjection(weight, bias)
    hidden = random(FEWEST, D)
    assert projection.suits(hidden)
    assert not projection.suits(hidden[1:])
    assert not projection.suits(hidden.double())
    bias[3] = 1.0
    assert not projection.suits(hidden)


def test_a_copy_goes_by_its_own_weights() -> None:
    hidden, weight = random(R, D), random(V, D, seed=2)
    projection = EstimatedProjection(weight, None)
    assert projection(hidden, lambda: hidden).best() is not None
    twin = copy.deepcopy(projection)
    weight.neg_()
    assert not projection.suits(hidden)
    found = twin(hidden, lambda: hidden).best()
    assert found is not None
    assert found.tolist() == logits_of(hidden, -weight, None).argmax(1, keepdim=True).tolist()


def test_bits_are_rounded_down() -> None:
    numbers = torch.rand(50) * 100
    bits = module._bits(numbers.numpy())
    back = module._of_bits(bits)
    assert (back <= numbers.numpy()).all()
    assert (back >= numbers.numpy() * (1 - 2.0**-7)).all()
