"""Texts that go on from uneven prompts with a cache equal those of plain forward passes, whatever the padding.

The slow twin has no cache and no padding: one forward pass over all pieces of one text. float64, tolerance 1e-10.
"""

import math
from collections.abc import Callable

import pytest
import torch

from seq2seq.config import (
    Activation,
    Architecture,
    AttentionBias,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    RopeConfig,
    RopeScaling,
    Tying,
)
from seq2seq.models import DecoderOnly, build_model
from seq2seq.nn.cache import BLOCK
from seq2seq.search import (
    Hypothesis,
    LengthPenalty,
    RepetitionPenalty,
    SearchLimits,
    Temperature,
    TopP,
    beam_search,
    greedy,
    random_source,
    sample,
)

V, EOS, PAD = 19, 2, 0
PROMPTS = [[5, 6, 7, 8, 9], [11], [3, 4, 3], [12, 13, 14, 15, 16, 17, 18, 12, 13], [6, 6]]
ALONE = {
    "num_encoder_layers": 0,
    "architecture": Architecture.decoder_only,
    "tying": Tying.two_way,
    "norm_placement": NormPlacement.pre,
    "dropout": 0.0,
}
FAMILIES = {
    "gpt2": {"positions": PositionKind.learned, "max_positions": 80, "activation": Activation.gelu_tanh},
    "sinusoidal": {"norm_placement": NormPlacement.post},
    "llama": {
        "positions": PositionKind.rope,
        "rope": RopeConfig(base=500.0, scaling=RopeScaling.llama3, factor=4.0, original_positions=16),
        "norm": NormKind.rms_norm,
        "num_kv_heads": 2,
        "activation": Activation.silu,
        "gated": True,
        "feed_forward_bias": False,
        "attention_bias": AttentionBias.none,
        "tying": Tying.none,
    },
}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> DecoderOnly:
    sizes = {"d_model": 24, "num_heads": 4, "d_ff": 20, "num_decoder_layers": 2}
    torch.manual_seed(4)
    made = build_model(ModelConfig(**(sizes | ALONE | FAMILIES[request.param])), V, V).double().eval()
    made.requires_grad_(False)
    for parameter in made.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.3)
    assert isinstance(made, DecoderOnly)
    return made


def limits(prompts: list[list[int]], longest: int) -> SearchLimits:
    count = len(prompts)
    starts = [prompt[-1] for prompt in prompts]
    return SearchLimits(1, EOS, (PAD,), [0] * count, [longest] * count, starts=starts, open_end=True)


def read(model: DecoderOnly, prompts: list[list[int]], side: str, room: int = 0):
    """The state after all but the last piece of each prompt, padded on one side, or on both with `room` more."""
    width = max(map(len, prompts)) - 1 + room
    ids, valid = torch.full((len(prompts), width), PAD), torch.zeros(len(prompts), width, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        length = len(prompt) - 1
        begin = {"right": 0, "left": width - length, "both": (width - length) // 2}[side]
        ids[row, begin : begin + length] = torch.tensor(prompt[:-1])
        valid[row, begin : begin + length] = True
    return model.prefill(ids, valid)[1]


def forward(model: DecoderOnly, prompt: list[int], found: Hypothesis) -> torch.Tensor:
    """Logits of each new piece, from one forward pass over prompt and text."""
    hidden = model.read(torch.tensor([[*prompt, *found.ids[:-1]]]))
    return model.logits(hidden)[0, len(prompt) - 1 :]


def assert_same(got: list[Hypothesis], expected: list[Hypothesis]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert (one.ids, one.hit_limit) == (other.ids, other.hit_limit)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-10)


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_greedy_texts_take_the_best_piece_of_plain_forward_passes_beyond_two_blocks_of_the_cache(model, side):
    longest = 2 * BLOCK - 8
    found = greedy(model.step, read(model, PROMPTS, side, room=3), limits(PROMPTS, longest), device="cpu")
    for prompt, one in zip(PROMPTS, found, strict=True):
        logits = forward(model, prompt, one)
        assert one.ids == tuple((logits[:, 1:].argmax(-1) + 1).tolist())
        own = logits.log_softmax(-1).gather(1, torch.tensor(one.ids)[:, None])[:, 0]
        assert one.token_log_probs == pytest.approx(own.tolist(), abs=1e-10)
        assert one.hit_limit == (len(one.ids) == longest and one.ids[-1] != EOS)
        assert EOS not in one.ids[:-1]


WAYS: dict[str, Callable[..., list[Hypothesis]]] = {
    "sampling": lambda model, state, asked, numbers: sample(
        model.step,
        state,
        asked,
        filters=[Temperature(1.2), TopP(0.95)],
        sources=[random_source(3, number, 1) for number in numbers],
        edits=[RepetitionPenalty(1.4, [PROMPTS[number] for number in numbers])],
        device="cpu",
    ),
    "beam": lambda model, state, asked, numbers: [
        best[0]
        for best in beam_search(model.step, state, asked, beam_size=3, n_best=1, penalty=LengthPenalty(), device="cpu")
    ],
}


@pytest.mark.parametrize("way", WAYS)
def test_beams_and_samples_of_uneven_prompts_equal_those_of_each_prompt_alone(model, way):
    numbers = list(range(len(PROMPTS)))
    left = WAYS[way](model, read(model, PROMPTS, "left"), limits(PROMPTS, 6), numbers)
    assert_same(left, WAYS[way](model, read(model, PROMPTS, "right"), limits(PROMPTS, 6), numbers))
    for number in numbers:
        own = [PROMPTS[number]]
        assert_same([left[number]], WAYS[way](model, read(model, own, "right"), limits(own, 6), [number]))
    assert len({one.ids for one in left}) > 2


def test_samples_are_drawn_as_plain_forward_passes_say(model):
    """The slow twin draws with the same random numbers, by loops over the pieces."""
    numbers = list(range(len(PROMPTS)))
    found = WAYS["sampling"](model, read(model, PROMPTS, "right"), limits(PROMPTS, 6), numbers)
    for number, one in zip(numbers, found, strict=True):
        source, ids = random_source(3, number, 1), list(PROMPTS[number])
        for piece, value, logits in zip(one.ids, one.token_log_probs, forward(model, ids, one), strict=True):
            assert value == pytest.approx(float(logits.log_softmax(-1)[piece]), abs=1e-10)
            assert piece == slow_draw(logits.tolist(), ids, source.random())
            ids.append(piece)


def slow_draw(logits: list[float], ids: list[int], number: float) -> int:
    """The piece that a random number stands for at repetition penalty 1.4, temperature 1.2 and top-p 0.95."""
    penalised = [(x * 1.4 if x < 0 else x / 1.4) if i in ids else x for i, x in enumerate(logits)]
    chances = [0.0 if i == PAD else math.exp(x / 1.2) for i, x in enumerate(penalised)]
    whole, kept, mass = sum(chances), set(), 0.0
    for i in sorted(range(V), key=lambda i: -chances[i]):
        if mass < 0.95 * whole:
            kept.add(i)
            mass += chances[i]
    total = 0.0
    for i in sorted(kept):
        total += chances[i]
        if total > number * mass:
            return i
    raise AssertionError("the chances do not add up")


def test_reading_a_prompt_at_once_equals_reading_it_piece_by_piece(model):
    prompt = PROMPTS[3]
    _, state = model.prefill(torch.tensor([prompt[:0]], dtype=torch.long), torch.ones(1, 0, dtype=torch.bool))
    for piece in prompt[:-1]:
        _, state = model.step(torch.tensor([[piece]]), state)
    asked = limits([prompt], 9)
    assert_same(
        greedy(model.step, state, asked, device="cpu"),
        greedy(model.step, read(model, [prompt], "right"), asked, device="cpu"),
    )


def test_padding_that_is_taken_for_text_gives_another_text(model):
    """The fault that the tests above would catch."""
    ids = torch.tensor([[PAD] * (9 - len(prompt)) + prompt[:-1] for prompt in PROMPTS])
    _, state = model.prefill(ids, torch.ones_like(ids, dtype=torch.bool))
    wrong = greedy(model.step, state, limits(PROMPTS, 6), device="cpu")
    right = greedy(model.step, read(model, PROMPTS, "left"), limits(PROMPTS, 6), device="cpu")
    assert any(
        w.token_log_probs[0] != pytest.approx(r.token_log_probs[0], abs=1e-3) for w, r in zip(wrong, right, strict=True)
    )
