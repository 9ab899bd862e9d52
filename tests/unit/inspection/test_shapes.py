"""The walk writes down what flows, changes nothing, and counts what torch's own counter counts."""

import dataclasses
import functools

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seq2seq.config import (
    Activation,
    Architecture,
    AttentionBias,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    Tying,
)
from seq2seq.inspection.hooks import listening
from seq2seq.inspection.recorder import Lengths, Recorder
from seq2seq.inspection.shapes import walk
from seq2seq.inspection.walk import Mode, Operation, Walk
from seq2seq.models import Transformer, build_model

B, S, T, V = 2, 5, 3, 11

PAPER = ModelConfig(8, 2, 12, 3, 2)
MODERN = ModelConfig(
    16,
    4,
    12,
    1,
    2,
    num_kv_heads=2,
    d_head=6,
    encoder_d_ff=14,
    norm=NormKind.rms_norm,
    norm_placement=NormPlacement.pre,
    positions=PositionKind.rope,
    attention_bias=AttentionBias.none,
    activation=Activation.silu,
    gated=True,
    qk_norm=True,
    tying=Tying.none,
    output_bias=True,
)
GPT = ModelConfig(
    8,
    2,
    12,
    0,
    2,
    architecture=Architecture.decoder_only,
    tying=Tying.two_way,
    norm_placement=NormPlacement.pre,
    positions=PositionKind.learned,
    max_positions=9,
    activation=Activation.gelu_tanh,
)
LLAMA = dataclasses.replace(
    MODERN,
    architecture=Architecture.decoder_only,
    num_encoder_layers=0,
    encoder_d_ff=None,
    qk_norm=False,
    output_bias=False,
    prefix_lm=True,
)
DEEP = dataclasses.replace(PAPER, norm_placement=NormPlacement.deepnorm, num_kv_heads=1, tying=Tying.two_way)
FAMILIES = {"paper": PAPER, "modern": MODERN, "gpt": GPT, "llama": LLAMA, "deepnorm": DEEP}


def model_of(config: ModelConfig) -> Transformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return build_model(config, V, V).double().eval()


@functools.cache
def walked(family: str, mode: Mode, source: int = S) -> Walk:
    """The walk of a fresh model."""
    return walk(model_of(FAMILIES[family]), mode, batch=B, source=source, target=T)


def named(found: Walk, *path: object) -> list[Operation]:
    """Operations of a stack, layer, part and name; fewer words find more."""
    return [op for op in found.operations if (op.stack, op.layer, op.part, op.name)[: len(path)] == path]


def plain_pass(model: Transformer, mode: Mode, source: int) -> None:
    """What a walk of the mode runs, without looking."""
    src, ids = torch.zeros(B, source, dtype=torch.long), torch.zeros(B, T, dtype=torch.long)
    valid = torch.ones_like(src, dtype=torch.bool)
    if mode is Mode.training:
        model(src, valid, ids)
    else:
        model.step(ids, model.start(src, valid))


@pytest.mark.parametrize(
    ("family", "mode"),
    [*((family, Mode.training) for family in FAMILIES), ("modern", Mode.prefill), ("llama", Mode.prefill)],
)
def test_multiply_adds_are_those_that_torch_counts(family, mode):
    model = model_of(FAMILIES[family])
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        plain_pass(model, mode, S)
    assert walked(family, mode).multiply_adds == counter.get_total_flops() / 2


@pytest.mark.parametrize("family", ["modern", "gpt"])
def test_multiply_adds_of_a_step_are_those_that_torch_counts(family):
    model = model_of(FAMILIES[family])
    ids, valid = torch.zeros(B, S, dtype=torch.long), torch.ones(B, S, dtype=torch.bool)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        _, state = model.step(ids[:, : T - 1], model.start(ids, valid))
        with FlopCounterMode(display=False) as counter:
            model.step(ids[:, :1], state)
    assert walked(family, Mode.step).multiply_adds == counter.get_total_flops() / 2


@pytest.mark.parametrize("source", [0, S])
@pytest.mark.parametrize("family", FAMILIES)
def test_training_uses_every_parameter_once_and_tied_ones_count_once(family, source):
    source = source if FAMILIES[family].architecture is Architecture.decoder_only else S
    assert walked(family, Mode.training, source).parameters == model_of(FAMILIES[family]).num_parameters()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_that_is_looked_at_gives_what_it_gives_otherwise(family):
    model = model_of(FAMILIES[family])
    src, tgt = torch.arange(1, 1 + B * S).view(B, S) % V, torch.arange(2, 2 + B * T).view(B, T) % V
    valid = torch.tensor([[True] * S, [True] * 3 + [False] * 2])
    row = "P+T" if FAMILIES[family].architecture is Architecture.decoder_only else "T"
    with listening(Recorder(model), Lengths(row, row)):
        looked_at = model(src, valid, tgt)
    with torch.no_grad():
        plain = model(src, valid, tgt)
    torch.testing.assert_close(looked_at, plain, rtol=0, atol=1e-12)


def test_a_model_is_left_as_it_was():
    model = model_of(PAPER).train()
    before = [list(module._forward_hooks) + list(module._forward_pre_hooks) for module in model.modules()]
    walk(model, Mode.step, batch=B, source=S, target=T)
    assert model.training
    assert all(module.training for module in model.modules())
    assert before == [list(module._forward_hooks) + list(module._forward_pre_hooks) for module in model.modules()]


def test_letters_are_bound_by_what_flows_and_the_two_feed_forward_widths_are_told_apart():
    found = walked("modern", Mode.training)
    expected = {"B": B, "S": S, "T": T, "D": 16, "H": 4, "G": 2, "K": 6, "V": V, "F (encoder)": 14, "F (decoder)": 12}
    assert found.letters == expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", list(Mode))
def test_every_symbol_is_the_size_that_flowed(family, mode):
    config = FAMILIES[family]
    found = walked(family, mode)
    attention = named(found, "decoder", 0, "self-attention", "scores")[-1]
    decoder_only = config.architecture is Architecture.decoder_only
    new, keys = {"training": "T", "prefill": "T", "step": "1"}[mode.name], "P+T" if decoder_only else "T"
    if decoder_only and mode is Mode.training:
        new = keys
    sizes = {"1": 1, "T": T, "P+T": S - 1 + T}
    assert attention.symbols == ("B", "H", new, keys)
    assert attention.shape == (B, config.num_heads, sizes[new], sizes[keys])


def test_a_size_that_is_not_what_its_symbol_says_is_an_error_of_the_program():
    fine = Operation("decoder", 0, "feed-forward", "inner", ("B", "T", "F"), (2, 3, 12))
    wrong = dataclasses.replace(fine, name="activation", shape=(2, 3, 13))
    with pytest.raises(AssertionError, match=r"decoder layer 0 feed-forward activation.*\[2, 3, 12\].*\[2, 3, 13\]"):
        Walk(Mode.training, (fine, wrong), {"B": 2, "T": 3})
    with pytest.raises(AssertionError, match="not equally long"):
        Walk(Mode.training, (dataclasses.replace(fine, shape=(2, 3)),), {"B": 2, "T": 3})


def test_a_letter_means_the_same_in_both_stacks():
    one = Operation("encoder", None, "embedding", "look-up", ("B", "S", "D"), (2, 5, 8))
    other = Operation("decoder", None, "embedding", "look-up", ("B", "T", "D"), (2, 3, 9))
    with pytest.raises(AssertionError, match="D is 8 and 9"):
        Walk(Mode.training, (one, other), {"B": 2, "S": 5, "T": 3})


def test_a_product_that_no_operation_stands_for_is_an_error_of_the_program():
    model = model_of(PAPER)
    with (
        pytest.raises(AssertionError, match="24 multiply-adds ran that no operation"),
        listening(Recorder(model), Lengths("T", "T")),
    ):
        torch.ones(2, 3) @ torch.ones(3, 4)


def test_layers_that_are_alike_are_folded_and_all_are_there_when_asked_for():
    found = walked("paper", Mode.training)
    titles = [section.title for section in found.sections()]
    assert titles == [
        "encoder embedding",
        "encoder layers 1 to 3, each (x 3 layers)",
        "decoder embedding",
        "decoder layers 1 to 2, each (x 2 layers)",
        "output",
    ]
    every = found.sections(all_layers=True)
    assert [section.title for section in every if section.stack == "encoder"] == [
        "encoder embedding",
        *(f"encoder layer {number}" for number in (1, 2, 3)),
    ]
    for sections in (found.sections(), every):
        counted = sum(op.multiply_adds * section.repeat for section in sections for op in section.operations)
        assert counted == found.multiply_adds


def test_a_layer_that_differs_is_not_folded():
    model = model_of(PAPER)
    odd = model.encoder.layers[1].feed_forward
    odd.inner.bias = None
    titles = [section.title for section in walk(model, Mode.training, batch=B, source=S, target=T).sections()]
    assert titles[1:4] == ["encoder layer 1", "encoder layer 2", "encoder layer 3"]


def test_a_step_reads_the_cache_and_makes_no_keys_of_the_source():
    found = walked("paper", Mode.step)
    cross = [op.name for op in named(found, "decoder", 0, "cross-attention")]
    assert "k, v projection" not in cross
    assert named(found, "decoder", 0, "cross-attention", "k in the cache")[0].symbols == ("B", "G", "S", "K")
    assert named(found, "decoder", 0, "self-attention", "k in the cache")[0].shape == (B, 2, T, 4)
    assert named(found, "decoder", 0, "self-attention", "mask") == []


def test_positions_are_added_once_or_turn_queries_and_keys_but_never_values():
    added = walked("gpt", Mode.training, 0)
    assert [op.name for op in named(added, "decoder", None, "embedding")] == ["ids", "look-up", "position"]
    assert named(added, "decoder", None, "embedding", "position")[0].parameters == 9 * 8
    turned = walked("llama", Mode.training, 0)
    assert [op.name for op in turned.operations if "turned" in op.name] == ["q turned", "k turned"] * 2
    assert named(turned, "decoder", None, "embedding", "angles")[0].symbols == ("1", "1", "T", "K")


def test_norms_stand_where_the_placement_says_and_only_pre_has_a_final_one():
    post = walked("paper", Mode.training)
    names = [op.name for op in named(post, "encoder", 0, "feed-forward")]
    assert names == ["inner", "activation", "output", "residual", "norm"]
    assert named(post, "encoder", None, "final norm") == []
    pre = walked("modern", Mode.training)
    names = [op.name for op in named(pre, "encoder", 0, "feed-forward")]
    assert names == ["norm", "inner", "gate", "value", "activation", "output", "residual"]
    assert [op.name for op in named(pre, "encoder", None, "final norm")] == ["norm"]


def test_a_pair_in_a_decoder_only_model_predicts_the_target_alone():
    found = walked("gpt", Mode.training)
    assert [op.name for op in named(found, "output")] == ["target positions", "logits"]
    assert named(found, "output")[-1].shape == (B, T, V)
    assert named(found, "decoder", None, "embedding", "ids")[0].shape == (B, S - 1 + T)


def test_a_source_of_one_piece_is_an_empty_prompt():
    for mode in Mode:
        found = walked("gpt", mode, 1)
        assert found.letters["P"] == 0
        assert named(found, "decoder", 0, "self-attention", "scores")[0].shape[-1] == T


@pytest.mark.parametrize(
    ("config", "sizes", "message"),
    [
        (PAPER, (0, S, T), "batch=0 is below 1"),
        (PAPER, (B, S, 0), "target=0 is below 1"),
        (PAPER, (B, -1, T), "source=-1 is below 0"),
        (PAPER, (B, 0, T), "source=0 is for decoder-only models"),
        (GPT, (B, 0, 10), "10 pieces was asked for, but this model has learned positions for 9"),
        (GPT, (B, S, 6), "10 pieces was asked for"),
    ],
)
def test_sizes_that_a_model_cannot_be_given_are_refused(config, sizes, message):
    batch, source, target = sizes
    with pytest.raises(ValueError, match=message):
        walk(model_of(config), Mode.training, batch=batch, source=source, target=target)


def test_the_most_that_learned_positions_allow_is_allowed():
    assert walk(model_of(GPT), Mode.training, batch=B, source=S, target=5).letters["T"] == 5


def test_the_meta_device_gives_the_same_walk_without_weights():
    with torch.device("meta"):
        empty = build_model(MODERN, V, V)
    for mode in Mode:
        assert walk(empty, mode, batch=B, source=S, target=T) == walked("modern", mode)
