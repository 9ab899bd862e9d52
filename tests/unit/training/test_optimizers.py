"""Optimisers against updates written out by hand, and what is in which of their groups."""

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn

from seq2seq.config import OptimConfig, OptimizerKind, ScheduleKind, Tying
from seq2seq.models import build_model
from seq2seq.training.averaging import read_checkpoint
from seq2seq.training.fit import fit
from seq2seq.training.objectives import TranslationModule
from seq2seq.training.optimizers import build_optimizer, check_same_optimizer, set_rate

KINDS = [kind.name for kind in OptimizerKind]
TOKENS = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]])


@pytest.fixture
def model(families):
    torch.manual_seed(3)
    return build_model(families("original", num_encoder_layers=1, num_decoder_layers=1), 19, 19).double()


def build(model, kind, **optim):
    return build_optimizer(model, OptimConfig(optimizer=OptimizerKind[kind], **optim), fused=True)


def learn(model, optimizer, steps=1, rate=0.01, seed=0):
    """Steps with random gradients; returns the gradients of each by the parameters' names."""
    draw = torch.Generator().manual_seed(seed)
    seen = []
    for _ in range(steps):
        gradients = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.grad = torch.randn(parameter.shape, generator=draw, dtype=torch.float64).to(parameter.dtype)
                gradients[name] = parameter.grad.clone()
        set_rate(optimizer.param_groups, rate)
        optimizer.step()
        seen.append(gradients)
    return seen


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def names_in(model, optimizer, name):
    """Names of the parameters in a group."""
    found = {id(one) for group in optimizer.param_groups if group.get("name") == name for one in group["params"]}
    return {name for name, parameter in model.named_parameters() if id(parameter) in found}


@pytest.mark.parametrize("kind", ["adam", "adamw", "muon"])
@pytest.mark.parametrize("fused", [True, False])
def test_one_kernel_does_a_whole_step_where_that_is_asked_for(model, kind, fused):
    optimizer = build_optimizer(model, OptimConfig(optimizer=OptimizerKind[kind]), fused=fused)
    asked = [group["fused"] for group in optimizer.param_groups if "fused" in group]
    assert asked
    assert set(asked) == {fused}


def test_training_on_a_cpu_asks_for_it(families):
    module = TranslationModule(build_model(families("original"), 19, 19), OptimConfig(), 8, 1)
    assert {group["fused"] for group in module.configure_optimizers().param_groups} == {True}


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adam_and_adamw_take_the_steps_of_their_papers(model, decay):
    before = weights(model)
    options = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-6} | ({"weight_decay": decay} if decay else {})
    gradients = learn(model, optimizer := build(model, "adamw" if decay else "adam", **options), steps=3)
    decayed = names_in(model, optimizer, "decayed")
    for name, value in before.items():
        first, second = torch.zeros_like(value), torch.zeros_like(value)
        for step, gradient in enumerate((one[name] for one in gradients), start=1):
            first = 0.8 * first + 0.2 * gradient
            second = 0.95 * second + 0.05 * gradient**2
            if name in decayed:
                value = value - 0.01 * decay * value
            value = value - 0.01 * (first / (1 - 0.8**step)) / ((second / (1 - 0.95**step)).sqrt() + 1e-6)
        torch.testing.assert_close(model.get_parameter(name).detach(), value, rtol=1e-12, atol=1e-12)
    assert bool(decayed) == bool(decay)


def test_adafactor_takes_the_steps_of_its_paper(model):
    before = weights(model)
    optimizer = build(model, "adafactor", weight_decay=0.2)
    decayed = names_in(model, optimizer, "decayed")
    gradients = learn(model, optimizer, steps=2)
    for name, value in before.items():
        rows = columns = whole = 0.0
        for step, gradient in enumerate((one[name] for one in gradients), start=1):
            beta = 1 - step**-0.8
            size = max(1e-3, value.square().mean().sqrt().item())
            if value.dim() > 1:
                rows = beta * rows + (1 - beta) * gradient.square().mean(1, keepdim=True)
                columns = beta * columns + (1 - beta) * gradient.square().mean(0, keepdim=True)
                second = rows @ columns / rows.mean()
            else:
                second = whole = beta * whole + (1 - beta) * gradient.square()
            update = gradient / second.sqrt()
            update = update / max(1.0, update.square().mean().sqrt().item())
            if name in decayed:
                value = value - 0.01 * 0.2 * value
            value = value - 0.01 * size * update
        torch.testing.assert_close(model.get_parameter(name).detach(), value, rtol=1e-9, atol=1e-12)


def parts_of(name, value):
    """The matrices that lie together in one, as views."""
    if name.endswith("query_key_value.weight"):
        return value.split([value.shape[1]] * 3)
    return value.chunk(2) if name.endswith("key_value.weight") else [value]


def test_muon_orthogonalises_the_step_of_every_matrix_by_itself_at_its_own_rate(model):
    before = weights(model)
    optimizer = build(model, "muon", warmup_steps=100, muon_lr=0.05)
    peak = 24**-0.5 * 100**-0.5
    gradients = learn(model, optimizer, steps=1, rate=peak / 4)
    matrices = names_in(model, optimizer, "matrices")
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    assert rates == pytest.approx({"matrices": 0.05 / 4, "spared": peak / 4})
    for name in matrices:
        change = (before[name] - model.get_parameter(name).detach()) / (0.05 / 4)
        for part, gradient in zip(parts_of(name, change), parts_of(name, gradients[0][name]), strict=True):
            scaled = part / math.sqrt(max(1, part.shape[0] / part.shape[1]))
            sizes = torch.linalg.svdvals(scaled)
            assert 0.4 < sizes.min() <= sizes.max() < 1.3  # five iterations in bfloat16 come that near to 1
            left, _, right = torch.linalg.svd(gradient, full_matrices=False)
            cosine = torch.nn.functional.cosine_similarity(scaled.flatten(), (left @ right).flatten(), dim=0)
            assert cosine > 0.97
    assert len(matrices) == 2 + 2 + 2 + 3 + 2  # of the encoder layer's two parts and the decoder layer's three


def test_muon_is_torchs_where_nothing_is_stacked_and_adamw_elsewhere(model):
    muon, adamw = copy.deepcopy(model), copy.deepcopy(model)
    both, alone = build(muon, "muon", weight_decay=0.1, muon_momentum=0.9), build(adamw, "adamw", weight_decay=0.1)
    plain = {name: nn.Parameter(value) for name, value in weights(model).items() if name.endswith("output.weight")}
    theirs = torch.optim.Muon([*plain.values()], weight_decay=0.1, momentum=0.9)
    gradients = learn(muon, both, steps=3)
    learn(adamw, alone, steps=3)
    theirs.param_groups[0]["lr"] = next(group["lr"] for group in both.param_groups if group["name"] == "matrices")
    for one in gradients:
        for name, parameter in plain.items():
            parameter.grad = one[name]
        theirs.step()
    for name, parameter in plain.items():
        assert torch.equal(muon.get_parameter(name), parameter)
    matrices = names_in(muon, both, "matrices")
    for name, parameter in adamw.named_parameters():
        assert torch.equal(muon.get_parameter(name), parameter) == (name not in matrices)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tying", Tying)
def test_t9_every_trained_parameter_is_in_the_optimiser_once_and_tied_ones_stay_one(families, kind, tying):
    torch.manual_seed(0)
    model = build_model(families("modern", tying=tying), 19, 19).double()
    optimizer = build(model, kind)
    listed = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert len(listed) == len({id(parameter) for parameter in listed})
    assert sum(parameter.numel() for parameter in listed) == model.num_parameters()
    learn(model, optimizer)
    state = model.state_dict(keep_vars=True)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        assert state[name] is parameter
    tied = tying is not Tying.none
    assert (model.output is model.decoder.embedding.rows.weight) == tied
    assert (model.encoder.embedding.rows.weight is model.output) == (tying is Tying.three_way)
    assert len(optimizer.state) == len(listed)


@pytest.mark.parametrize("kind", ["adamw", "adafactor", "muon"])
def test_weight_decay_spares_norms_biases_embeddings_and_what_is_tied_to_them(families, kind):
    for family in ("original", "gpt2", "modern", "qwen3", "marian", "multi_query"):
        model = build_model(families(family), 19, 19)
        optimizer = build(model, kind, weight_decay=0.1)
        decays = {id(one): group["weight_decay"] for group in optimizer.param_groups for one in group["params"]}
        tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
        for name, parameter in model.named_parameters():
            spared = parameter.dim() < 2 or id(parameter) in tables
            assert decays[id(parameter)] == (0.0 if spared else 0.1), name


def test_muon_trains_all_matrices_of_the_layers_and_no_others(families):
    for family in ("original", "gpt2", "modern", "qwen3", "multi_query"):
        model = build_model(families(family), 19, 19)
        matrices = names_in(model, build(model, "muon"), "matrices")
        assert matrices == {name for name, value in model.named_parameters() if value.dim() == 2 and ".layers." in name}


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_parameters_are_left_out(model, kind):
    model.encoder.layers.requires_grad_(False)
    frozen = {id(parameter) for parameter in model.encoder.layers.parameters()}
    optimizer = build(model, kind)
    assert not frozen & {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    before = weights(model)
    learn(model, optimizer)
    same = [name for name, value in weights(model).items() if torch.equal(value, before[name])]
    assert same == [name for name in before if name.startswith("encoder.layers.")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_is_saved_and_loaded_goes_on_bit_for_bit(model, kind, tmp_path):
    options = {"weight_decay": 0.1} if kind != "adam" else {}
    optimizer = build(model, kind, **options)
    learn(model, optimizer, steps=2)
    other = copy.deepcopy(model)
    torch.save(optimizer.state_dict(), tmp_path / "state")
    resumed = build(other, kind, **options)
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    for one, two in ((model, optimizer), (other, resumed)):
        learn(one, two, steps=2, seed=5)
    for name, value in weights(other).items():
        assert torch.equal(value, model.get_parameter(name)), name
    assert str(optimizer.state_dict()) == str(resumed.state_dict())


def test_a_resumed_run_has_the_constants_that_its_options_say(model):
    before = build(model, "adamw", weight_decay=0.1, beta1=0.8)
    resumed = build(model, "adamw", weight_decay=0.3, beta1=0.7)
    resumed.load_state_dict(before.state_dict())
    assert [group["weight_decay"] for group in resumed.param_groups] == [0.3, 0.0]
    assert {group["betas"] for group in resumed.param_groups} == {(0.7, 0.98)}


def test_another_optimiser_than_that_of_the_checkpoint_is_refused(model):
    state = build(model, "adamw").state_dict()
    check_same_optimizer(state, OptimConfig(optimizer=OptimizerKind.adamw), "last.ckpt")
    with pytest.raises(
        ValueError, match=r"resume=last.ckpt was trained with optim.optimizer=adamw, .* give optim.optimizer=adamw"
    ):
        check_same_optimizer(state, OptimConfig(optimizer=OptimizerKind.muon), "last.ckpt")
    old = {"param_groups": [{"lr": 0.1}]}
    check_same_optimizer(old, OptimConfig(), "last.ckpt")


def test_a_torch_without_muon_and_a_network_without_trained_matrices_are_told_so(model, monkeypatch):
    frozen = copy.deepcopy(model)
    for stack in (frozen.encoder, frozen.decoder):
        stack.layers.requires_grad_(False)
    with pytest.raises(ValueError, match=r"optim.optimizer=muon trains the matrices of the layers, and init.freeze_"):
        build(frozen, "muon")
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ValueError, match=r"optim.optimizer=muon needs torch 2.9 or later, this is torch .*=adamw"):
        build(model, "muon")


@pytest.mark.parametrize("kind", ["adafactor", "muon"])
def test_a_whole_run_that_is_resumed_takes_the_same_path_bit_for_bit(train_config, tmp_path, kind):
    decays = {"schedule": ScheduleKind.cosine, "lr": 0.01, "warmup_steps": 2, "total_steps": 9, "weight_decay": 0.1}
    optim = dataclasses.replace(train_config.optim, optimizer=OptimizerKind[kind], **decays)
    trainer = dataclasses.replace(train_config.trainer, max_steps=6, validate_every=4, num_samples=0)
    config = dataclasses.replace(train_config, optim=optim, trainer=trainer)
    assert fit(config, tmp_path / "a").steps == 6  # one a step, though there are two optimisers in one
    fit(dataclasses.replace(config, trainer=dataclasses.replace(trainer, max_steps=3)), tmp_path / "b")
    last = tmp_path / "b" / "checkpoints" / "last.ckpt"
    fit(dataclasses.replace(config, resume=str(last)), tmp_path / "b")
    one, two = (read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt") for name in "ab")
    assert all(torch.equal(value, two["state_dict"][name]) for name, value in one["state_dict"].items())
    assert str(one["optimizer_states"]) == str(two["optimizer_states"])
