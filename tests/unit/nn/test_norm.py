"""seq2seq.nn.norm: RMSNorm's formula, the two kinds, and the three places where a norm may stand."""

import math

import pytest
import torch
from torch import nn

from seq2seq.config import NormKind, NormPlacement
from seq2seq.nn.norm import Residual, RMSNorm, build_norm

B, T, D = 2, 3, 8
EPS = 0.25


@pytest.fixture
def norm():
    torch.manual_seed(1)
    norm = RMSNorm(D, EPS).double()
    nn.init.normal_(norm.weight)
    return norm


@pytest.fixture
def x():
    torch.manual_seed(2)
    return torch.randn(B, T, D, dtype=torch.float64) + 0.5


def test_rms_norm_is_equation_4_of_its_paper_and_is_not_centred(norm, x):
    y = norm(x)
    for b in range(B):
        for t in range(T):
            root = math.sqrt(sum(value * value for value in x[b, t].tolist()) / D + EPS)
            expected = [w * value / root for w, value in zip(norm.weight.tolist(), x[b, t].tolist(), strict=True)]
            assert y[b, t].tolist() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_rms_norm_equals_torchs(norm, x, dtype, tolerance):
    theirs = nn.RMSNorm(D, EPS, dtype=dtype)
    with torch.no_grad():
        theirs.weight.copy_(norm.weight)
    x = x.to(dtype)
    torch.testing.assert_close(norm.to(dtype)(x), theirs(x), atol=tolerance, rtol=0)


@pytest.mark.parametrize(("dtype", "large"), [(torch.bfloat16, 1e15), (torch.float16, 6e4)])
def test_in_half_precision_the_mean_square_is_taken_in_float32(norm, x, dtype, large):
    norm = norm.to(dtype)
    exact = x.to(dtype).double() / (x.to(dtype).double().square().mean(-1, keepdim=True) + EPS).sqrt()
    assert norm(x.to(dtype)).dtype is dtype
    error = norm(x.to(dtype)).double() - norm.weight.double() * exact
    assert error.abs().max() < 2 * torch.finfo(dtype).eps * norm.weight.abs().max() * exact.abs().max()
    huge = torch.full((1, D), large, dtype=dtype)  # its square is beyond float16's range
    torch.testing.assert_close(norm(huge)[0], norm.weight, atol=0.01, rtol=0)


def test_a_vector_of_zeros_stays_zero_and_has_a_gradient(norm):
    x = torch.zeros(1, 1, D, dtype=torch.float64, requires_grad=True)
    y = norm(x)
    assert not y.any()
    y.sum().backward()
    torch.testing.assert_close(x.grad[0, 0], norm.weight.detach() / math.sqrt(EPS), atol=1e-12, rtol=0)


def test_rms_norms_gradient_is_that_of_the_formula(norm, x):
    torch.autograd.gradcheck(norm, (x[:1].requires_grad_(),))


@pytest.mark.parametrize(
    ("kind", "of", "names"),
    [(NormKind.layer_norm, nn.LayerNorm, ["weight", "bias"]), (NormKind.rms_norm, RMSNorm, ["weight"])],
)
def test_a_norm_is_built_as_the_identity_with_its_epsilon(kind, of, names):
    norm = build_norm(kind, D, EPS)
    assert type(norm) is of
    assert norm.eps == EPS
    assert [name for name, _ in norm.named_parameters()] == names
    assert torch.equal(norm.weight, torch.ones(D))
    assert kind is NormKind.rms_norm or torch.equal(norm.bias, torch.zeros(D))


def through(residual, x, norm):
    """The sublayer doubles what it is given."""
    return residual.after(x, 2 * residual.before(x, norm), norm)


def test_post_norms_the_sum(norm, x):
    torch.testing.assert_close(through(Residual(NormPlacement.post), x, norm), norm(x + 2 * x), atol=0, rtol=0)


def test_pre_norms_what_the_sublayer_is_given_and_leaves_the_stream_alone(norm, x):
    torch.testing.assert_close(through(Residual(NormPlacement.pre), x, norm), x + 2 * norm(x), atol=0, rtol=0)


def test_deepnorm_scales_the_input_and_norms_the_sum(norm, x):
    residual = Residual(NormPlacement.deepnorm, 1.5)
    torch.testing.assert_close(through(residual, x, norm), norm(1.5 * x + 2 * x), atol=0, rtol=0)


def test_the_placement_and_the_scale_show_in_print():
    assert str(Residual(NormPlacement.pre)) == "Residual(pre, scale=1)"
    assert str(Residual(NormPlacement.deepnorm, 1.5)) == "Residual(post, scale=1.5)"
