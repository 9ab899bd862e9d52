"""seq2seq.nn.block: the sublayers of a block in order, for each placement of the norm, written out."""

import dataclasses

import pytest
import torch
from torch import nn

from seq2seq.config import Activation, AttentionBias, NormKind, NormPlacement
from seq2seq.nn import cpu_attention, cpu_linear, dropout
from seq2seq.nn.attention import Heads
from seq2seq.nn.block import Block, BlockOptions, CrossBlock
from seq2seq.nn.cache import Cache
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.nn.norm import RMSNorm

B, S, T, D, F = 2, 5, 3, 8, 12
SCALE = 1.75
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)


@pytest.fixture(params=list(NormPlacement), ids=lambda placement: placement.name)
def placement(request):
    return request.param


def build(kind, placement, **changes):
    torch.manual_seed(1)
    scale = SCALE if placement is NormPlacement.deepnorm else 1.0
    options = BlockOptions(Heads.plain(D, 2), F, norm_placement=placement, residual_scale=scale, **changes)
    block = kind(options).double().eval().requires_grad_(False)
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    return block


def added(placement, x, norm, sublayer):
    """Sublayer, residual and norm, as `NormPlacement` says them."""
    if placement is NormPlacement.pre:
        return x + sublayer(norm(x))
    return norm((SCALE if placement is NormPlacement.deepnorm else 1) * x + sublayer(x))


@pytest.fixture
def x():
    torch.manual_seed(2)
    return torch.randn(B, T, D, dtype=torch.float64)


@pytest.fixture
def memory():
    torch.manual_seed(3)
    return torch.randn(B, S, D, dtype=torch.float64)


def test_a_block_is_self_attention_then_feed_forward(placement, memory):
    block, mask = build(Block, placement), padding_mask(VALID)
    y = added(placement, memory, block.self_attention_norm, lambda h: block.self_attention(h, mask))
    y = added(placement, y, block.feed_forward_norm, block.feed_forward)
    torch.testing.assert_close(block(memory, mask), y, atol=1e-12, rtol=0)


def test_a_block_with_cross_attention_has_it_between_the_two(placement, x, memory):
    block, mask = build(CrossBlock, placement), padding_mask(VALID)
    source = block.cross_attention.keys_values(memory)
    y = added(placement, x, block.self_attention_norm, lambda h: block.self_attention(h, causal=True))
    y = added(placement, y, block.cross_attention_norm, lambda h: block.cross_attention(h, source, mask))
    y = added(placement, y, block.feed_forward_norm, block.feed_forward)
    torch.testing.assert_close(block(x, source, mask), y, atol=1e-12, rtol=0)


@pytest.mark.parametrize("sizes", [[1, 1, 1], [3], [1, 2]])
def test_the_steps_of_a_block_are_its_rows(placement, x, memory, sizes):
    own, cross = build(Block, placement), build(CrossBlock, placement)
    mask, source = padding_mask(VALID), cross.cross_attention.keys_values(memory)
    caches, outputs, length = [Cache(1, len(x)), Cache(1, len(x))], [], 0
    for size in sizes:
        new = x[:, length : length + size]
        own_mask = causal_mask(size, length)
        first, caches[0] = own.step(new, caches[0], 0, own_mask)
        second, caches[1] = cross.step(new, caches[1], 0, own_mask, source, mask)
        caches = [dataclasses.replace(cache, length=length + size) for cache in caches]
        outputs.append(torch.stack([first, second]))
        length += size
    whole = torch.stack([own(x, causal=True), cross(x, source, mask)])
    torch.testing.assert_close(torch.cat(outputs, dim=2), whole, atol=1e-12, rtol=0)


def test_parameters_stand_in_the_order_in_which_they_are_used():
    names = [name for name, _ in build(CrossBlock, NormPlacement.post).named_children()]
    assert names[:6] == [
        "self_attention",
        "self_attention_norm",
        "cross_attention",
        "cross_attention_norm",
        "feed_forward",
        "feed_forward_norm",
    ]
    assert "cross_attention" not in dict(build(Block, NormPlacement.post).named_children())


def test_the_printed_block_says_where_its_norms_stand():
    assert "Residual(pre, scale=1)" in str(build(Block, NormPlacement.pre))
    assert "Residual(post, scale=1.75)" in str(build(CrossBlock, NormPlacement.deepnorm))


def test_each_option_reaches_its_part():
    heads = Heads(D, 4, 2, 6, AttentionBias.qkv, norm_eps=0.5, dropout=0.2)
    options = BlockOptions(
        heads,
        F,
        activation=Activation.silu,
        gated=True,
        feed_forward_bias=False,
        norm=NormKind.rms_norm,
        norm_eps=0.25,
        dropout=0.1,
        activation_dropout=0.3,
    )
    block = CrossBlock(options)
    assert block.self_attention.heads is block.cross_attention.heads is heads
    assert block.feed_forward.inner.weight.shape == (2 * F, D)
    assert block.feed_forward.inner.bias is None
    assert (block.dropout.p, block.feed_forward.dropout.p) == (0.1, 0.3)
    norms = [block.self_attention_norm, block.cross_attention_norm, block.feed_forward_norm]
    assert [(type(norm), norm.eps) for norm in norms] == [(RMSNorm, 0.25)] * 3
    assert len({id(norm) for norm in norms}) == 3
    assert block.self_attention.query_norm.eps == 0.5


def test_dropout_is_on_each_sublayers_output_before_it_is_added(placement, x, memory):
    block, mask = build(CrossBlock, placement, dropout=0.5), padding_mask(VALID)
    source = block.cross_attention.keys_values(memory)
    dropped = []
    block.dropout.register_forward_hook(lambda _, args, out: dropped.append(args[0]))
    block.train()(x, source, mask)
    assert len(dropped) == 3
    assert block.dropout.ahead(x) == 2.0, "the scale is in what is dropped out of"
    first = block.self_attention.eval()(block.residual.before(x, block.self_attention_norm), causal=True)
    torch.testing.assert_close(dropped[0], 2.0 * first, atol=1e-12, rtol=0)
    block.eval()
    assert torch.equal(block(x, source, mask), block(x, source, mask))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kind", [Block, CrossBlock])
def test_in_training_a_block_drops_and_scales_as_its_operations_one_after_the_other(
    monkeypatch, placement, x, memory, kind, gated
):
    activation = Activation.silu if gated else Activation.relu
    block = build(kind, placement, dropout=0.25, activation=activation, gated=gated).train().requires_grad_(True)

    def outputs():
        """And the gradients of a sum of their squares."""
        torch.manual_seed(7)
        if kind is Block:
            y = block(x, causal=True)
        else:
            y = block(x, block.cross_attention.keys_values(memory), padding_mask(VALID))
        return [y, *torch.autograd.grad(y.square().sum(), list(block.parameters()))]

    assert block.dropout.ahead(x) > 1.0
    found = outputs()
    for module in (cpu_attention, cpu_linear, dropout):
        monkeypatch.setattr(module, "writes_gradients", lambda x: False)
    assert block.dropout.ahead(x) == 1.0
    for own, other in zip(found, outputs(), strict=True):
        torch.testing.assert_close(own, other, atol=1e-10, rtol=1e-10)


def test_a_part_that_others_have_put_into_a_block_is_scaled_too(x):
    class Twice(nn.Linear):
        def forward(self, x):
            return 2.0 * super().forward(x)

    block = build(Block, NormPlacement.post, dropout=0.25).train()
    plain = block.self_attention.output
    doubled = Twice(D, D).double()
    doubled.load_state_dict(plain.state_dict())
    block.self_attention.output = doubled
    torch.manual_seed(7)
    found = block(x, causal=True)
    plain.weight.mul_(2.0)
    plain.bias.mul_(2.0)
    block.self_attention.output = plain
    torch.manual_seed(7)
    torch.testing.assert_close(found, block(x, causal=True), atol=1e-12, rtol=0)


def test_the_gradients_are_those_of_finite_differences(placement):
    torch.manual_seed(4)
    scale = SCALE if placement is NormPlacement.deepnorm else 1.0
    options = BlockOptions(
        Heads(4, 2, 1, 2),
        3,
        Activation.gelu,
        True,
        norm=NormKind.rms_norm,
        norm_placement=placement,
        residual_scale=scale,
    )
    own, cross = Block(options).double(), CrossBlock(options).double()
    mask = torch.tensor([[[[True, True, False]]]])
    x = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: own(x, mask), (x,))
    torch.autograd.gradcheck(lambda x, m: cross(x, cross.cross_attention.keys_values(m), mask), (x, memory))
