"""seq2seq.nn.rotary: only distances matter, the published scalings by recipes written out here, no longest length."""

import copy
import math

import pytest
import torch

from seq2seq.config import RopeConfig, RopeScaling
from seq2seq.nn.positions import Places
from seq2seq.nn.rotary import RotaryPositions, scaled_frequencies

B, H, T, K = 2, 3, 5, 8
EXACT = {"atol": 1e-12, "rtol": 0}
LINEAR = RopeConfig(scaling=RopeScaling.linear, factor=4.0)
LLAMA3 = RopeConfig(base=500_000.0, scaling=RopeScaling.llama3, factor=8.0, original_positions=8192)
YARN = RopeConfig(scaling=RopeScaling.yarn, factor=4.0, original_positions=4096)


def turned(x, places, config=None):
    config = config or RopeConfig()
    return RotaryPositions(x.shape[-1], config)(places, x).turn(x)


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(B, H, T, K, dtype=torch.float64)


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_entries_i_and_i_plus_half_are_a_pair_that_turns_by_position_over_base_to_the_2i_over_k(x, base):
    y = turned(x, Places.span(3, 3 + T), RopeConfig(base=base))
    for t in range(T):
        for i in range(K // 2):
            angle = (3 + t) * base ** (-2 * i / K)
            left, right = x[:, :, t, i], x[:, :, t, i + K // 2]
            cos, sin = math.cos(angle), math.sin(angle)
            torch.testing.assert_close(y[:, :, t, i], left * cos - right * sin, **EXACT)
            torch.testing.assert_close(y[:, :, t, i + K // 2], left * sin + right * cos, **EXACT)


@pytest.mark.parametrize("config", [RopeConfig(), LINEAR, LLAMA3, YARN], ids=lambda config: config.scaling.name)
def test_products_of_queries_and_keys_depend_on_their_distance_only(config):
    torch.manual_seed(2)
    query, key = torch.randn(1, 1, 1, K).double(), torch.randn(1, 1, 1, K).double()

    def product(m, n):
        at = [turned(vector, Places.span(place, place + 1), config) for vector, place in ((query, m), (key, n))]
        return (at[0] * at[1]).sum().item()

    for distance in (0, 1, 7, -3):
        products = [product(distance + n, n) for n in (3, 4, 50, 3000)]
        assert products == pytest.approx([products[0]] * 4, abs=1e-9)
    assert abs(product(1, 0) - product(2, 0)) > 1e-3
    plain = (query * key).sum().item()
    assert product(5, 5) == pytest.approx(plain * RotaryPositions(K, config).table[0, 0].item() ** 2, abs=1e-5)


def test_a_turned_vector_keeps_its_length_and_at_position_0_itself(x):
    y = turned(x, Places.span(0, T))
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1), **EXACT)
    torch.testing.assert_close(y[:, :, 0], x[:, :, 0], **EXACT)
    assert (y[:, :, 1:] - x[:, :, 1:]).abs().max() > 0.1


def test_rows_that_stand_at_different_places_are_turned_each_for_itself(x):
    index = torch.tensor([[4, 5, 6, 7, 8], [0, 0, 1, 2, 2]])
    y = turned(x, Places(index, 9))
    for b in range(B):
        torch.testing.assert_close(y[b], turned(x[b : b + 1], Places(index[b : b + 1], 9))[0], **EXACT)
    torch.testing.assert_close(y[0], turned(x[:1], Places.span(4, 9))[0], **EXACT)


def plain(base, width):
    """Radians a position of each pair."""
    return [base ** (-2 * i / width) for i in range(width // 2)]


def llama3(base, width, factor, low, high, original):
    """By the length of a pair's wave: long ones stretched, short ones not, those between by a blend."""
    result = []
    for frequency in plain(base, width):
        wave = 2 * math.pi / frequency
        if wave < original / high:
            result.append(frequency)
        elif wave > original / low:
            result.append(frequency / factor)
        else:
            smooth = (original / wave - low) / (high - low)
            result.append((1 - smooth) * frequency / factor + smooth * frequency)
    return result


def yarn(base, width, factor, fast, slow, original, truncate):
    """By a pair's number: `at(r)` is the pair that makes r turns in the original length."""

    def at(turns):
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = (math.floor(at(fast)), math.ceil(at(slow))) if truncate else (at(fast), at(slow))
    result = []
    for i, frequency in enumerate(plain(base, width)):
        ramp = min(1.0, max(0.0, (i - first) / (last - first)))
        result.append((1 - ramp) * frequency + ramp * frequency / factor)
    return result


@pytest.mark.parametrize(
    ("config", "recipe"),
    [
        (RopeConfig(base=1e6), plain(1e6, 64)),
        (LINEAR, [frequency / 4 for frequency in plain(10_000, 64)]),
        (LLAMA3, llama3(500_000, 64, 8, 1, 4, 8192)),
        (
            RopeConfig(
                scaling=RopeScaling.llama3,
                factor=3.0,
                original_positions=900,
                low_freq_factor=2.0,
                high_freq_factor=7.0,
            ),
            llama3(10_000, 64, 3, 2, 7, 900),
        ),
        (YARN, yarn(10_000, 64, 4, 32, 1, 4096, True)),
        (
            RopeConfig(
                base=5e5, scaling=RopeScaling.yarn, factor=6.0, original_positions=2000, beta_fast=20.0, beta_slow=2.0
            ),
            yarn(5e5, 64, 6, 20, 2, 2000, True),
        ),
        (
            RopeConfig(scaling=RopeScaling.yarn, factor=4.0, original_positions=4096, truncate=False),
            yarn(10_000, 64, 4, 32, 1, 4096, False),
        ),
    ],
    ids=["base", "linear", "llama3", "llama3_factors", "yarn", "yarn_betas", "yarn_not_truncated"],
)
def test_frequencies_are_those_of_the_recipe(config, recipe):
    frequencies, _ = scaled_frequencies(64, config)
    assert frequencies.dtype is torch.float64
    assert frequencies.tolist() == pytest.approx(recipe, rel=1e-12)


GOLDEN = {
    "linear": (LINEAR, [0.25, 0.025, 0.0025, 0.00025]),
    "llama3": (LLAMA3, [1.0, 0.03760603093086394, 0.0005248461610, 6.647869871181235e-06]),
    "yarn": (YARN, [1.0, 0.1, 0.00625, 0.00025]),
}
"""Radians a position of the four pairs of a head of width 8, worked out by hand.

linear: 10000^(-i/4) = 1, 0.1, 0.01, 0.001, over 4.
llama3: 500000^(-i/4) = 1, 0.037606, 0.00141421, 0.0000531830. In 8192 positions they make 1303.8, 49.03, 1.84385 and
    0.0693 turns: more than 4 for the first two, which stay; fewer than 1 for the last, which is divided by 8; the third
    is 0.281283 of the way from 1 to 4, so 0.00141421 * ((1 - 0.281283) / 8 + 0.281283).
yarn: 10000^(-i/4). 32 turns in 4096 positions are made by pair 8 ln(4096 / (64 pi)) / (2 ln 10000) = 1.31, 1 turn by
    pair 2.81; so the ramp goes from 1 to 3, pair 2 is in its middle: 0.01 * (1/2 + 1/2 * 1/4).
"""


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_frequencies(name):
    config, expected = GOLDEN[name]
    assert scaled_frequencies(8, config)[0].tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("config", "factor"),
    [
        (RopeConfig(), 1.0),
        (LINEAR, 1.0),
        (LLAMA3, 1.0),
        (YARN, 0.1 * math.log(4) + 1),
        (RopeConfig(scaling=RopeScaling.yarn, factor=0.5, original_positions=4096), 1.0),
        (RopeConfig(scaling=RopeScaling.yarn, factor=4.0, original_positions=4096, attention_factor=0.7), 0.7),
    ],
    ids=["none", "linear", "llama3", "yarn", "yarn_shorter", "yarn_given"],
)
def test_queries_and_keys_are_scaled_by_yarns_attention_factor_only(x, config, factor):
    assert scaled_frequencies(K, config)[1] == pytest.approx(factor)
    y = turned(x, Places.span(0, T), config)
    torch.testing.assert_close(y.norm(dim=-1), factor * x.norm(dim=-1), **EXACT)


def test_there_is_no_longest_length(x):
    rotary = RotaryPositions(K, RopeConfig())
    far = rotary(Places.span(4999, 4999 + T), x)
    angles = torch.arange(4999, 4999 + T).double()[:, None] * torch.tensor(plain(10_000, K), dtype=torch.float64)
    torch.testing.assert_close(far.cos[0, 0, :, : K // 2], angles.cos(), **EXACT)
    torch.testing.assert_close(far.sin[0, 0, :, K // 2 :], angles.sin(), **EXACT)
    near = rotary(Places.span(0, T), x)
    assert torch.equal(near.cos, RotaryPositions(K, RopeConfig())(Places.span(0, T), x).cos)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_angles_are_computed_in_float64_and_rounded_last(x, dtype):
    rotary = RotaryPositions(K, RopeConfig()).to(torch.bfloat16).to(dtype)
    rotation = rotary(Places.span(3000, 3000 + T), x.to(dtype))
    exact = (torch.arange(3000, 3000 + T).double()[:, None] * torch.tensor(plain(10_000, K), dtype=torch.float64)).cos()
    assert rotation.cos.dtype is rotation.sin.dtype is dtype
    error = (rotation.cos[0, 0, :, : K // 2].double() - exact).abs().max()
    assert error < max(torch.finfo(dtype).eps, 1e-12)
    assert rotation.turn(x.to(dtype)).dtype is dtype


def test_it_has_nothing_to_train_and_nothing_to_save():
    rotary = RotaryPositions(K, RopeConfig())
    assert list(rotary.parameters()) == []
    assert rotary.state_dict() == {}


def test_a_table_grown_in_inference_mode_serves_training_and_copies():
    rotary = RotaryPositions(K, RopeConfig())
    with torch.inference_mode():
        rotary(Places.span(999, 1000), torch.zeros(1))
    x = torch.ones(1, 1, 3, K, requires_grad=True)
    copy.deepcopy(rotary)(Places.span(500, 503), x).turn(x).sum().backward()
    assert x.grad.isfinite().all()


def test_it_works_after_being_built_without_memory(x):
    with torch.device("meta"):
        rotary = RotaryPositions(K, RopeConfig())
    rotation = rotary(Places.span(0, T), x)
    assert torch.equal(rotation.cos, RotaryPositions(K, RopeConfig())(Places.span(0, T), x).cos)


def test_the_gradient_of_a_turn_is_the_turn_back(x):
    rotation = RotaryPositions(K, YARN)(Places.span(3, 3 + T), x)
    torch.autograd.gradcheck(rotation.turn, (x[:1, :1].clone().requires_grad_(),))
