"""Every number of a formula is the number that is measured: on networks, real passes and real caches."""

import dataclasses
import math
from collections import Counter

import pytest
import torch
from torch import nn
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
from seq2seq.inspection import cost, formulas
from seq2seq.inspection.cost import Sizes
from seq2seq.inspection.shapes import walk
from seq2seq.inspection.walk import Mode
from seq2seq.models import build_model
from seq2seq.models.build import embedding_rows
from seq2seq.nn.attention import CrossAttention, SelfAttention
from seq2seq.nn.cache import BLOCK
from seq2seq.nn.feed_forward import FeedForward

B, S, T, V = 2, 5, 3, 11

PAPER = ModelConfig(8, 2, 12, 2, 3)
MODERN = ModelConfig(
    16,
    4,
    12,
    2,
    1,
    num_kv_heads=2,
    d_head=6,
    encoder_d_ff=14,
    norm=NormKind.rms_norm,
    norm_placement=NormPlacement.pre,
    positions=PositionKind.rope,
    attention_bias=AttentionBias.none,
    feed_forward_bias=False,
    activation=Activation.silu,
    gated=True,
    qk_norm=True,
    tying=Tying.none,
    output_bias=True,
    vocab_multiple=4,
)
LEARNED = dataclasses.replace(
    PAPER,
    positions=PositionKind.learned,
    max_positions=9,
    tying=Tying.two_way,
    norm_placement=NormPlacement.pre,
    num_kv_heads=1,
    gated=True,
)
GPT = dataclasses.replace(LEARNED, architecture=Architecture.decoder_only, num_encoder_layers=0, gated=False)
QWEN2 = dataclasses.replace(
    MODERN,
    architecture=Architecture.decoder_only,
    num_encoder_layers=0,
    encoder_d_ff=None,
    attention_bias=AttentionBias.qkv,
    tying=Tying.none,
    output_bias=False,
)
FAMILIES = {"paper": PAPER, "modern": MODERN, "learned": LEARNED, "gpt": GPT, "qwen2": QWEN2}


def sizes_of(family: str, batch: int = B, source: int = S, target: int = T) -> Sizes:
    config = FAMILIES[family]
    rows = embedding_rows(V, config.vocab_multiple)
    return Sizes(config, rows, rows, batch, source, target)


def by_group(parts: list[cost.Part]) -> dict[str, int]:
    """Numbers of the parts, biases included, by group."""
    counted: Counter[str] = Counter()
    for part in parts:
        counted[part.group] += part.total
    return dict(counted)


def measured_parameters(model: nn.Module) -> dict[str, int]:
    """Numbers in the network by group; each parameter in the group of the first module that has it."""
    counted: Counter[str] = Counter()
    seen: set[int] = set()
    kinds = (
        ("norms", lambda module, name: "norm" in name),
        ("embeddings", lambda module, name: isinstance(module, nn.Embedding)),
        ("attention", lambda module, name: isinstance(module, SelfAttention | CrossAttention)),
        ("feed-forward", lambda module, name: isinstance(module, FeedForward)),
        ("output", lambda module, name: name == ""),
    )
    for group, belongs in kinds:
        for name, module in model.named_modules():
            for weight in module.parameters() if belongs(module, name) else ():
                if id(weight) not in seen:
                    seen.add(id(weight))
                    counted[group] += weight.numel()
    return dict(counted)


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_by_part_are_those_of_the_network_with_tied_ones_once(family):
    model = build_model(FAMILIES[family], V, V)
    parts = cost.parameter_parts(sizes_of(family))
    assert by_group(parts) == measured_parameters(model)
    assert sum(part.total for part in parts) == model.num_parameters()


@pytest.mark.parametrize("tying", [Tying.two_way, Tying.none])
def test_two_vocabularies_of_different_size_have_tables_of_their_own(tying):
    config = dataclasses.replace(PAPER, tying=tying)
    parts = cost.parameter_parts(Sizes(config, 13, 17, 1, 1, 1))
    assert sum(part.total for part in parts) == build_model(config, 13, 17).num_parameters()


@pytest.mark.parametrize(("config", "expected"), [((512, 8, 2048), 63_082_496), ((1024, 16, 4096), 214_245_376)])
def test_the_papers_models_have_about_63_and_213_million_parameters(config, expected):
    sizes = Sizes(ModelConfig(*config, 6, 6), 37_000, 37_000, 1, 1, 1)
    total = sum(part.total for part in cost.parameter_parts(sizes))
    assert total == expected
    assert total == pytest.approx({512: 63e6, 1024: 213e6}[config[0]], rel=0.01)


def test_the_feed_forward_network_has_two_thirds_of_the_standard_block():
    config = ModelConfig(64, 4, 4 * 64, 2, 2)
    parts = {part.name: part.figure.value for part in cost.parameter_parts(Sizes(config, 9, 9, 1, 1, 1))}
    inner, attention = parts["encoder feed-forward"], parts["encoder self-attention"]
    assert 3 * inner == 2 * (inner + attention)


def test_the_formulas_for_parameters_are_those_of_the_article():
    standard, grouped = sizes_of("paper").letters(), sizes_of("modern").letters()
    assert formulas.attention_parameters(standard).formula == "4 N D^2"
    assert formulas.attention_parameters(grouped).formula == "2 N D H K + 2 N D G K"
    assert formulas.attention_parameters(sizes_of("learned").letters()).value < 4 * 3 * 8**2
    assert formulas.feed_forward_parameters(standard, gated=False).formula == "2 N D F"
    assert formulas.feed_forward_parameters(standard, gated=True).formula == "3 N D F"
    assert formulas.table_parameters(standard).formula == "V D"


@pytest.mark.parametrize("source", [0, 1, S])
@pytest.mark.parametrize("family", FAMILIES)
def test_multiply_adds_of_a_pass_are_those_that_ran(family, source):
    if source < 2 and FAMILIES[family].architecture is not Architecture.decoder_only:
        source = 7
    sizes = sizes_of(family, source=source)
    found = walk(build_model(FAMILIES[family], V, V), Mode.training, batch=B, source=source, target=T)
    measured: Counter[tuple[str, str]] = Counter()
    for op in found.operations:
        if op.multiply_adds:
            kind = "attention" if op.name in ("scores", "context") else "rest"
            measured[(op.part if op.part != "cross-attention" else "cross", kind)] += op.multiply_adds
    counted: Counter[tuple[str, str]] = Counter()
    for part in cost.forward_parts(sizes):
        name = part.name.split(" ")[0]
        place = {"attention": "cross" if name.startswith("cross") else "self-attention"}.get(part.group, part.group)
        place = "logits" if place == "output" else place
        counted[(place, "attention" if part.grows else "rest")] += part.figure.value
    assert counted == measured


@pytest.mark.parametrize("family", FAMILIES)
def test_multiply_adds_of_a_step_are_those_that_ran(family):
    sizes = sizes_of(family)
    found = walk(build_model(FAMILIES[family], V, V), Mode.step, batch=B, source=S, target=T)
    assert sum(part.figure.value for part in cost.step_parts(sizes)) == found.multiply_adds


def test_for_each_token_attention_alone_grows_with_the_length_and_twice_the_length_has_four_times_the_scores():
    short, long = cost.per_token(sizes_of("paper"), [4, 8])
    assert (short.fixed, short.step_fixed) == (long.fixed, long.step_fixed)
    assert (2 * short.attention, 2 * short.step_attention) == (long.attention, long.step_attention)
    letters = sizes_of("paper", target=4).letters(), sizes_of("paper", target=8).letters()
    scores = [formulas.score_elements(own, "T") for own in letters]
    products = [formulas.attention_products(own, "T", "T") for own in letters]
    assert (scores[0].formula, products[0].formula) == ("B H T^2", "2 N B T^2 D")
    assert [figure.value for figure in scores] == [B * 2 * 16, 4 * B * 2 * 16]
    assert products[1].value == 4 * products[0].value


@pytest.mark.parametrize("family", ["paper", "modern"])
def test_training_takes_about_three_times_the_products_of_a_pass(family):
    model = build_model(FAMILIES[family], V, V)
    src, tgt = torch.zeros(B, S, dtype=torch.long), torch.zeros(B, T, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(src, torch.ones_like(src, dtype=torch.bool), tgt).sum().backward()
    forward = sum(part.figure.value for part in cost.forward_parts(sizes_of(family)))
    assert counter.get_total_flops() / 2 / forward == pytest.approx(3, rel=0.02)


def test_numbers_of_the_scores_are_those_that_flow():
    found = walk(build_model(PAPER, V, V), Mode.training, batch=B, source=S, target=T)
    sizes = [
        math.prod(op.shape) for op in found.operations if (op.stack, op.layer, op.name) == ("decoder", 0, "scores")
    ]
    letters = sizes_of("paper").letters()
    assert sizes == [formulas.score_elements(letters, keys).value for keys in ("T", "S")]


@pytest.mark.parametrize("family", ["paper", "gpt"])
def test_numbers_for_each_token_are_those_of_a_whole_pass_over_the_length(family):
    (row,) = cost.per_token(sizes_of(family), [T])
    source = 0 if FAMILIES[family].architecture is Architecture.decoder_only else T
    found = walk(build_model(FAMILIES[family], V, V), Mode.training, batch=1, source=source, target=T)
    assert T * (row.fixed + row.attention) == found.multiply_adds


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_of_the_cache_are_those_of_the_buffers(family, precision, dtype):
    model = build_model(FAMILIES[family], V, V).to(dtype).eval()
    ids, valid = torch.zeros(B, S, dtype=torch.long), torch.ones(B, S, dtype=torch.bool)
    with torch.no_grad():
        _, state = model.step(ids[:, :T], model.start(ids, valid))
    found = cost.cache(sizes_of(family), precision)
    assert found.allocated_bytes == state.num_bytes()
    cache = state.history.cache
    own = [cache.seen(layer, cache.length) for layer in range(cache.num_layers)]
    source = getattr(state, "source", torch.empty(0)).to(dtype)
    parts = [source, *(part for layer in own for part in (layer.key, layer.value))]
    used = sum(part.numel() * part.element_size() for part in parts)
    assert found.used_bytes == used < found.allocated_bytes


def test_a_cache_has_room_for_whole_blocks_only():
    room = [cost.cache(sizes_of("gpt", source=0, target=length)).allocated for length in (1, BLOCK, BLOCK + 1)]
    assert room == [room[0], room[0], 2 * room[0]]
    found = cost.cache(sizes_of("gpt", source=0, target=BLOCK))
    assert found.allocated_bytes == found.used_bytes
    assert (found.own.formula, found.cross) == ("2 N B G T K", None)


def test_a_smaller_format_takes_as_much_less():
    found = {name: cost.cache(sizes_of("paper"), name).used_bytes for name in cost.BYTES}
    assert (found["fp32"], found["fp32"], found["fp32"]) == (2 * found["bf16"], 2 * found["fp16"], 4 * found["int8"])
    assert cost.cache(sizes_of("paper")).cross.formula == "2 N B G S K"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch": 0}, "batch=0 is below 1"),
        ({"target": 0}, "target=0 is below 1"),
        ({"source": 0}, "source=0 is too few; give at least 1"),
        ({"source_rows": 0}, "source_rows=0 is below 1"),
    ],
)
def test_sizes_below_one_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(sizes_of("paper"), **wrong)


def test_a_negative_source_is_refused_without_an_encoder_too():
    with pytest.raises(ValueError, match="source=-1 is too few; give at least 0"):
        sizes_of("gpt", source=-1)
