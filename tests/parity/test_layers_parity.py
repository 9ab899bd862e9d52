"""Our layers and stacks equal torch's `TransformerEncoderLayer` and `TransformerDecoderLayer` with the same weights.

torch's layers are the slow twin, with norm_first=False: Post-LN. Their boolean masks mean the opposite of ours,
True = may NOT attend, so the masks are inverted here, at the boundary, on purpose. float64, tolerance 1e-12.
"""

import pytest
import torch
from torch import nn

from seq2seq.models.decoder import DecoderLayer
from seq2seq.models.encoder import EncoderLayer
from seq2seq.nn.masks import causal_mask, padding_mask

B, S, T, D, H, F, N = 2, 5, 3, 8, 2, 12, 3
TOLERANCE = {"atol": 1e-12, "rtol": 0}
SIZES = {"d_model": D, "num_heads": H, "d_ff": F, "norm_eps": 1e-4}
DROPOUTS = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
TWIN = {"dim_feedforward": F, "dropout": 0.0, "layer_norm_eps": 1e-4, "batch_first": True, "norm_first": False}
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


@torch.no_grad()
def encoder_twin(ours):
    theirs = nn.TransformerEncoderLayer(D, H, **TWIN).double()
    copy_self_attention(ours.self_attention, theirs.self_attn)
    copy_linear(ours.feed_forward.inner, theirs.linear1)
    copy_linear(ours.feed_forward.output, theirs.linear2)
    copy_linear(ours.self_attention_norm, theirs.norm1)
    copy_linear(ours.feed_forward_norm, theirs.norm2)
    return theirs


@torch.no_grad()
def decoder_twin(ours):
    theirs = nn.TransformerDecoderLayer(D, H, **TWIN).double()
    copy_self_attention(ours.self_attention, theirs.self_attn)
    copy_cross_attention(ours.cross_attention, theirs.multihead_attn)
    copy_linear(ours.feed_forward.inner, theirs.linear1)
    copy_linear(ours.feed_forward.output, theirs.linear2)
    copy_linear(ours.self_attention_norm, theirs.norm1)
    copy_linear(ours.cross_attention_norm, theirs.norm2)
    copy_linear(ours.feed_forward_norm, theirs.norm3)
    return theirs


@pytest.fixture
def encoder_layers():
    return [scrambled(EncoderLayer(**SIZES, **DROPOUTS), seed) for seed in range(N)]


@pytest.fixture
def decoder_layers():
    return [scrambled(DecoderLayer(**SIZES, **DROPOUTS), 10 + seed) for seed in range(N)]


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


def test_an_encoder_layer_with_padding(encoder_layers, src):
    ours, theirs = encoder_layers[0], encoder_twin(encoder_layers[0])
    expected = theirs(src, src_key_padding_mask=~VALID)
    torch.testing.assert_close(ours(src, padding_mask(VALID))[VALID], expected[VALID], **TOLERANCE)


def test_masks_that_are_not_inverted_give_something_else(encoder_layers, src):
    ours, theirs = encoder_layers[0], encoder_twin(encoder_layers[0])
    wrong = theirs(src, src_key_padding_mask=VALID & (torch.arange(S) > 0))
    assert (ours(src, padding_mask(VALID)) - wrong)[VALID].abs().max() > 1e-3


def test_an_encoder_layers_gradients(encoder_layers, src):
    ours, theirs = encoder_layers[0], encoder_twin(encoder_layers[0])
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


def test_a_decoder_layer_with_causality_and_a_padded_source(decoder_layers, src, tgt):
    ours, theirs = decoder_layers[0], decoder_twin(decoder_layers[0])
    expected = theirs(tgt, src, tgt_mask=~causal_mask(T)[0, 0], memory_key_padding_mask=~VALID)
    actual = ours(tgt, ours.cross_attention.keys_values(src), padding_mask(VALID))
    torch.testing.assert_close(actual, expected, **TOLERANCE)


def test_a_decoder_layers_gradients(decoder_layers, src, tgt):
    ours, theirs = decoder_layers[0], decoder_twin(decoder_layers[0])
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


def test_whole_stacks_without_a_norm_after_the_last_layer(encoder_layers, decoder_layers, src, tgt):
    encoder = nn.TransformerEncoder(encoder_twin(encoder_layers[0]), N, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_twin(decoder_layers[0]), N)
    encoder.layers = nn.ModuleList(encoder_twin(layer) for layer in encoder_layers)
    decoder.layers = nn.ModuleList(decoder_twin(layer) for layer in decoder_layers)
    their_memory = encoder(src, src_key_padding_mask=~VALID)
    expected = decoder(tgt, their_memory, tgt_mask=~causal_mask(T)[0, 0], memory_key_padding_mask=~VALID)

    memory, mask = src, padding_mask(VALID)
    for layer in encoder_layers:
        memory = layer(memory, mask)
    x = tgt
    for layer in decoder_layers:
        x = layer(x, layer.cross_attention.keys_values(memory), mask)
    torch.testing.assert_close(x, expected, **TOLERANCE)
