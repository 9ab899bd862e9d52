"""seq2seq.models.stack: how blocks are computed in training changes neither numbers nor names, only cost."""

import copy
import dataclasses

import pytest
import torch

from seq2seq.models import stack as stack_module
from seq2seq.models.stack import Execution

B, S, T, D, V = 2, 5, 3, 24, 19
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
TWICE = Execution(checkpointed=True)


def pairs():
    torch.manual_seed(3)
    return torch.randint(4, V, (B, S)), VALID, torch.randint(4, V, (B, T)), torch.ones(B, T, dtype=torch.bool)


def gradients(model, passes=1, seed=5):
    """Of a loss over one or several passes over the target, the source read once."""
    src, src_valid, tgt_in, tgt_valid = pairs()
    torch.manual_seed(seed)
    memory = model.read_source(src, src_valid)
    loss = sum(model.decode(src, src_valid, tgt_in, tgt_valid, memory=memory).square().sum() for _ in range(passes))
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_bit_equal(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(params=["original", "modern", "gpt2", "llama", "prefix_lm"])
def dropped(request, families, scrambled):
    """Models in training, with dropout of every kind."""
    config = families(request.param, dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    return scrambled(config).requires_grad_(True).train()


def test_layers_computed_twice_give_bit_equal_gradients_with_dropout(dropped):
    other = copy.deepcopy(dropped)
    other.execute(TWICE)
    plain = gradients(dropped)
    assert_bit_equal(plain, gradients(other))
    another_mask = copy.deepcopy(dropped)
    another_mask.zero_grad()
    changed = gradients(another_mask, seed=6)
    assert any(not torch.equal(plain[name], changed[name]) for name in plain), "dropout is on"


def test_layers_computed_twice_leave_the_random_numbers_that_follow_as_they_are(dropped):
    other = copy.deepcopy(dropped)
    other.execute(TWICE)
    following = []
    for model in (dropped, other):
        gradients(model)
        following.append(torch.rand(4))
    assert torch.equal(*following)


def test_several_passes_over_a_target_are_computed_twice_each(dropped):
    other = copy.deepcopy(dropped)
    other.execute(TWICE)
    assert_bit_equal(gradients(dropped, passes=3), gradients(other, passes=3))


def saved_bytes(model):
    """What autograd keeps outside of layers computed twice, every storage counted once."""
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # the tensor is held, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model.decode(*pairs())
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert out.requires_grad
    return sum(size for address, (size, _) in kept.items() if address not in weights)


@pytest.mark.parametrize("name", ["original", "gpt2"])
def test_layers_computed_twice_keep_their_inputs_alone(families, scrambled, name):
    config = families(name, dropout=0.3, num_decoder_layers=4)
    model = scrambled(config).requires_grad_(True).train()
    plain = saved_bytes(model)
    model.execute(TWICE)
    length = T if name == "original" else S - 1 + T
    inputs = 4 * B * length * D * 8 + (B * S * D * 8 if name == "original" else 0)
    assert saved_bytes(model) + inputs < 0.3 * plain


def test_evaluation_and_passes_without_gradients_compute_once(families, scrambled, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("computed twice")

    monkeypatch.setattr(stack_module, "checkpoint", refuse)
    model = scrambled(families("original"))
    model.execute(TWICE)
    model.decode(*pairs())
    with torch.no_grad():
        model.train().decode(*pairs())
    with pytest.raises(AssertionError, match="computed twice"):
        model.requires_grad_(True).decode(*pairs())


@pytest.mark.parametrize("name", ["original", "gpt2"])
def test_blocks_alone_are_compiled_in_training_alone_and_no_name_changes(families, scrambled, monkeypatch, name):
    compiled, called = [], []

    def compile_(function, dynamic):
        assert dynamic
        compiled.append(function.__name__)

        def counted(block, *inputs):
            called.append(type(block).__name__)
            return function(block, *inputs)

        return counted

    monkeypatch.setattr(torch, "compile", compile_)
    stack_module._compiled.cache_clear()
    model = scrambled(families(name))
    names, plain = list(model.state_dict()), model.decode(*pairs())
    model.execute(Execution(compiled=True))
    assert torch.equal(model.decode(*pairs()), plain)
    assert not called
    torch.testing.assert_close(model.train().decode(*pairs()), plain, rtol=0, atol=1e-12)  # other kernels
    stack_module._compiled.cache_clear()
    assert called == (["Block", "CrossBlock", "CrossBlock"] if name == "original" else ["Block", "Block"])
    assert len(compiled) == len(set(called)), "once for all blocks of a kind"
    assert list(model.state_dict()) == names
    assert list(copy.deepcopy(model).state_dict()) == names


def test_a_copy_computes_as_its_original(families, scrambled):
    model = scrambled(families("original"))
    model.execute(TWICE)
    other = copy.deepcopy(model)
    assert other.execution == other.encoder.execution == other.decoder.execution == TWICE
    assert dataclasses.replace(TWICE, checkpointed=False) == Execution()


def test_a_prefix_language_model_cannot_do_without_padding(families, scrambled):
    model = scrambled(families("prefix_lm"))
    with pytest.raises(AssertionError, match="the source of a prefix language model is seen whole"):
        model.execute(Execution(padding_free=True))
