"""Our blocks and models equal torch's `TransformerEncoderLayer` and `TransformerDecoderLayer` with the same weights.

torch's layers are the slow twin: norm_first=False is Post-LN, norm_first=True Pre-LN. Their boolean masks mean the
opposite of ours, True = may NOT attend, so the masks are inverted here, at the boundary, on purpose. float64, tolerance
1e-12.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from seq2seq.config import Activation, Architecture, ModelConfig, NormPlacement, Tying
from seq2seq.models import build_model
from seq2seq.nn.attention import Heads
from seq2seq.nn.block import Block, BlockOptions, CrossBlock
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.nn.positions import Places

B, S, T, D, H, F, V = 2, 5, 3, 8, 2, 12, 11
TOLERANCE = {"atol": 1e-12, "rtol": 0}
ACTIVATIONS = {Activation.relu: nn.functional.relu, Activation.gelu: nn.functional.gelu}
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)


def scrambled(module, seed):
    """The module in float64, every weight random: also the norms' and biases, which start as 1 and 0."""
    torch.manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


def copy_linear(ours, theirs):
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def copy_self_attention(ours, theirs):
    theirs.in_proj_weight.copy_(ours.query_key_value.weight)
    theirs.in_proj_bias.copy_(ours.query_key_value.bias)
    copy_linear(ours.output, theirs.out_proj)


def copy_cross_attention(ours, theirs):
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
    copy_linear(ours.output, theirs.out_proj)


@dataclass(frozen=True)
class Order:
    """Where the norms stand, and the non-linearity that goes with it in these tests."""

    placement: NormPlacement
    activation: Activation

    def block(self, seed, of=Block):
        options = BlockOptions(Heads.plain(D, H), F, self.activation, norm_placement=self.placement, norm_eps=1e-4)
        return scrambled(of(options), seed)

    def twin_options(self):
        return {
            "dim_feedforward": F,
            "dropout": 0.0,
            "activation": ACTIVATIONS[self.activation],
            "layer_norm_eps": 1e-4,
            "batch_first": True,
            "norm_first": self.placement is NormPlacement.pre,
            "dtype": torch.float64,
        }

    @torch.no_grad()
    def encoder_twin(self, ours):
        theirs = nn.TransformerEncoderLayer(D, H, **self.twin_options())
        copy_self_attention(ours.self_attention, theirs.self_attn)
        copy_linear(ours.feed_forward.inner, theirs.linear1)
        copy_linear(ours.feed_forward.output, theirs.linear2)
        copy_linear(ours.self_attention_norm, theirs.norm1)
        copy_linear(ours.feed_forward_norm, theirs.norm2)
        return theirs

    @torch.no_grad()
    def decoder_twin(self, ours):
        theirs = nn.TransformerDecoderLayer(D, H, **self.twin_options())
        copy_self_attention(ours.self_attention, theirs.self_attn)
        copy_cross_attention(ours.cross_attention, theirs.multihead_attn)
        copy_linear(ours.feed_forward.inner, theirs.linear1)
        copy_linear(ours.feed_forward.output, theirs.linear2)
        copy_linear(ours.self_attention_norm, theirs.norm1)
        copy_linear(ours.cross_attention_norm, theirs.norm2)
        copy_linear(ours.feed_forward_norm, theirs.norm3)
        return theirs


@pytest.fixture(
    params=[Order(NormPlacement.post, Activation.relu), Order(NormPlacement.pre, Activation.gelu)],
    ids=lambda order: order.placement.name,
)
def order(request):
    return request.param


@pytest.fixture
def encoder_pair(order):
    """Ours and its twin."""
    ours = order.block(0)
    return ours, order.encoder_twin(ours)


@pytest.fixture
def decoder_pair(order):
    ours = order.block(10, CrossBlock)
    return ours, order.decoder_twin(ours)


@pytest.fixture
def src():
    torch.manual_seed(20)
    return torch.randn(B, S, D, dtype=torch.float64)


@pytest.fixture
def tgt():
    torch.manual_seed(21)
    return torch.randn(B, T, D, dtype=torch.float64)


def assert_every_weight_has_the_same_gradient(ours, theirs, names):
    theirs_by_name = dict(theirs.named_parameters())
    for our_name, their_name in names.items():
        gradient = dict(ours.named_parameters())[our_name].grad
        torch.testing.assert_close(gradient, theirs_by_name[their_name].grad, atol=1e-10, rtol=0)
        assert gradient.abs().max() > 1e-6, our_name


def test_an_encoder_layer_with_padding(encoder_pair, src):
    ours, theirs = encoder_pair
    expected = theirs(src, src_key_padding_mask=~VALID)
    torch.testing.assert_close(ours(src, padding_mask(VALID))[VALID], expected[VALID], **TOLERANCE)


def test_masks_that_are_not_inverted_give_something_else(encoder_pair, src):
    ours, theirs = encoder_pair
    wrong = theirs(src, src_key_padding_mask=VALID & (torch.arange(S) > 0))
    assert (ours(src, padding_mask(VALID)) - wrong)[VALID].abs().max() > 1e-3


def test_an_encoder_layers_gradients(encoder_pair, src):
    ours, theirs = encoder_pair
    ours(src, padding_mask(VALID))[VALID].pow(3).sum().backward()
    theirs(src, src_key_padding_mask=~VALID)[VALID].pow(3).sum().backward()
    names = {
        "self_attention.query_key_value.weight": "self_attn.in_proj_weight",
        "self_attention.output.bias": "self_attn.out_proj.bias",
        "self_attention_norm.weight": "norm1.weight",
        "feed_forward.inner.weight": "linear1.weight",
        "feed_forward_norm.bias": "norm2.bias",
    }
    assert_every_weight_has_the_same_gradient(ours, theirs, names)


def test_a_decoder_layer_with_causality_and_a_padded_source(decoder_pair, src, tgt):
    ours, theirs = decoder_pair
    expected = theirs(tgt, src, tgt_mask=~causal_mask(T)[0, 0], memory_key_padding_mask=~VALID)
    actual = ours(tgt, ours.cross_attention.keys_values(src), padding_mask(VALID))
    torch.testing.assert_close(actual, expected, **TOLERANCE)


def test_a_decoder_layers_gradients(decoder_pair, src, tgt):
    ours, theirs = decoder_pair
    our_src, their_src = src.clone().requires_grad_(), src.clone().requires_grad_()
    ours(tgt, ours.cross_attention.keys_values(our_src), padding_mask(VALID)).pow(3).sum().backward()
    theirs(tgt, their_src, tgt_mask=~causal_mask(T)[0, 0], memory_key_padding_mask=~VALID).pow(3).sum().backward()
    torch.testing.assert_close(our_src.grad, their_src.grad, atol=1e-10, rtol=0)
    names = {
        "self_attention.query_key_value.bias": "self_attn.in_proj_bias",
        "cross_attention.output.weight": "multihead_attn.out_proj.weight",
        "cross_attention_norm.weight": "norm2.weight",
        "feed_forward.output.weight": "linear2.weight",
        "feed_forward_norm.weight": "norm3.weight",
    }
    assert_every_weight_has_the_same_gradient(ours, theirs, names)


def model_of(order, **changes):
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "tying": Tying.two_way, "dropout": 0.0, "norm_eps": 1e-4}
    config = ModelConfig(D, H, F, **(sizes | changes), norm_placement=order.placement, activation=order.activation)
    return scrambled(build_model(config, V, V), 30)


def their_stack(stack, layers, of):
    """torch's stack of the given layers, with our norm after the last one where ours has one."""
    norm = stack.final_norm if isinstance(stack.final_norm, nn.LayerNorm) else None
    options = {"enable_nested_tensor": False} if of is nn.TransformerEncoder else {}
    theirs = of(layers[0], len(layers), norm=norm, **options)
    theirs.layers = nn.ModuleList(layers)
    return theirs


def test_a_whole_model_with_a_norm_after_the_last_layer_in_pre_ln_only(order):
    model = model_of(order)
    src, tgt_in = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))
    encoder = their_stack(model.encoder, [order.encoder_twin(b) for b in model.encoder.layers], nn.TransformerEncoder)
    decoder = their_stack(model.decoder, [order.decoder_twin(b) for b in model.decoder.layers], nn.TransformerDecoder)
    memory = encoder(model.encoder.embedding(src, Places.span(0, S)), src_key_padding_mask=~VALID)
    embedded = model.decoder.embedding(tgt_in, Places.span(0, T))
    expected = decoder(embedded, memory, tgt_mask=~causal_mask(T)[0, 0], memory_key_padding_mask=~VALID)
    torch.testing.assert_close(model.decode(src, VALID, tgt_in), expected, **TOLERANCE)
    assert isinstance(model.encoder.final_norm, nn.LayerNorm) is (order.placement is NormPlacement.pre)


def test_a_decoder_only_model_is_torchs_encoder_with_a_causal_mask(order):
    model = model_of(order, architecture=Architecture.decoder_only, num_encoder_layers=0)
    ids = torch.randint(4, V, (B, S))
    theirs = their_stack(model.decoder, [order.encoder_twin(b) for b in model.decoder.layers], nn.TransformerEncoder)
    embedded = model.decoder.embedding(ids, Places.span(0, S))
    expected = theirs(embedded, mask=~causal_mask(S)[0, 0], is_causal=False)
    torch.testing.assert_close(model.read(ids), expected, **TOLERANCE)
