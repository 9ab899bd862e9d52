"""`Transformer.cross_weights`: one layer's attention over the source, against the maps of a full pass."""

import pytest
import torch

from seq2seq.config import Architecture

B, S, T, H, V = 2, 5, 3, 4, 19
BOS, EOS = 1, 2
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
EXACT = {"atol": 1e-12, "rtol": 0}


@pytest.fixture
def src():
    src = torch.tensor([[5, 9, 4, 17, EOS], [8, 3, EOS, 0, 0]])
    assert src.shape == (B, S)
    return src


@pytest.fixture
def tgt_in():
    return torch.tensor([[BOS, 7, 11], [BOS, 4, 16]])


@pytest.mark.parametrize("layer", [0, 1])
def test_weights_of_a_layer_are_those_of_the_full_pass(family_model, family, src, tgt_in, layer):
    maps = family_model.attention_maps(src, VALID, tgt_in)
    if family.architecture is Architecture.decoder_only:
        part = maps.decoder[layer][:, :, S - 1 :, : S - 1]
        # the EOS of the source, which is no key of theirs, stands in the last column (first row) and the third
        part = torch.cat([part, torch.zeros(B, H, T, 1, dtype=torch.float64)], 3)
        expected = part / part.sum(-1, keepdim=True)
    else:
        expected = maps.cross[layer]
    assert expected.shape == (B, H, T, S)
    mean = family_model.cross_weights(src, VALID, tgt_in, layer=layer)
    torch.testing.assert_close(mean, expected.mean(1), **EXACT)
    torch.testing.assert_close(mean.sum(-1), torch.ones(B, T, dtype=torch.float64), **EXACT)
    assert not mean[1, :, 3:].any()
    for head in range(H):
        one = family_model.cross_weights(src, VALID, tgt_in, layer=layer, head=head)
        torch.testing.assert_close(one, expected[:, head], **EXACT)
    other = family_model.cross_weights(src, VALID, tgt_in, layer=1 - layer)
    assert not torch.allclose(mean, other, atol=1e-3)


def test_weights_do_not_depend_on_padding(family_model, src, tgt_in):
    both = family_model.cross_weights(src, VALID, tgt_in, layer=1)
    alone = family_model.cross_weights(src[1:, :3], VALID[1:, :3], tgt_in[1:, :2], layer=1)
    torch.testing.assert_close(both[1:, :2, :3], alone, **EXACT)


def test_a_decoder_only_model_gives_the_end_of_the_source_no_weight(families, scrambled, src, tgt_in):
    weights = scrambled(families("llama")).cross_weights(src, VALID, tgt_in, layer=0)
    assert not weights[0, :, 4].any()
    assert not weights[1, :, 2].any()
    assert (weights[1, :, :2] > 0).all()


def test_layers_behind_the_wanted_one_are_not_computed(families, scrambled, src, tgt_in):
    for name in ("original", "llama"):
        model = scrambled(families(name))
        model.decoder.layers[1].register_forward_hook(lambda *_: pytest.fail("the layer was computed"))
        model.decoder.layers[0].feed_forward.register_forward_hook(lambda *_: pytest.fail("so was its end"))
        assert model.cross_weights(src, VALID, tgt_in, layer=0).shape == (B, T, S)


def test_weights_see_no_dropout_keep_no_graph_and_leave_the_mode_as_it_was(families, scrambled, src, tgt_in):
    for name in ("original", "llama"):
        expected = scrambled(families(name)).cross_weights(src, VALID, tgt_in, layer=1)
        model = scrambled(families(name, dropout=0.5)).requires_grad_(True).train()
        weights = model.cross_weights(src, VALID, tgt_in, layer=1)
        assert not weights.requires_grad
        assert all(module.training for module in model.modules())
        torch.testing.assert_close(weights, expected, **EXACT)
