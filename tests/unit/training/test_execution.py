"""seq2seq.training.execution: what is refused, that precisions learn, and that a run is the same computed otherwise."""

import csv
import dataclasses

import pytest
import torch

from seq2seq.bundle import load_bundle
from seq2seq.config import Accelerator, ModelConfig, Precision
from seq2seq.models.stack import Execution
from seq2seq.training import execution as execution_module
from seq2seq.training.averaging import checkpoint_weights
from seq2seq.training.devices import device_kind
from seq2seq.training.execution import check_execution, execution
from seq2seq.training.fit import fit
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.translator import Translator


def change(config, **trainer):
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, **trainer))


@pytest.fixture
def with_gpu(monkeypatch):
    """A machine that seems to have a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


@pytest.fixture
def gpu_config(train_config):
    """Options of a GPU, of a model whose heads the kernel takes."""
    model = ModelConfig(d_model=16, num_heads=2, d_ff=24, num_encoder_layers=1, num_decoder_layers=1)
    config = dataclasses.replace(train_config, model=model)
    return change(config, accelerator=Accelerator.gpu, precision=Precision.bf16_mixed, padding_free=True)


def test_the_options_choose_how_the_network_computes(train_config):
    assert execution(train_config.trainer) == Execution()
    chosen = change(train_config, compile=True, activation_checkpointing=True, padding_free=True).trainer
    assert execution(chosen) == Execution(compiled=True, checkpointed=True, padding_free=True)


def test_the_device_of_a_run_is_known_before_it(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [device_kind(kind) for kind in (Accelerator.auto, Accelerator.cpu)] == ["cpu", "cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kinds = (Accelerator.auto, Accelerator.gpu, Accelerator.cpu)
    assert [device_kind(kind) for kind in kinds] == ["cuda", "cuda", "cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert [device_kind(kind) for kind in (*kinds, Accelerator.mps)] == ["mps", "mps", "cpu", "mps"]


def test_fp16_on_a_cpu_is_refused_instead_of_changed_to_bf16(train_config):
    with pytest.raises(ValueError, match=r"fp16_mixed needs a GPU, .* choose trainer\.precision=bf16_mixed or fp32"):
        check_execution(change(train_config, precision=Precision.fp16_mixed))


def test_padding_free_on_a_cpu_is_refused(train_config, tmp_path):
    config = change(train_config, padding_free=True, precision=Precision.bf16_mixed)
    with pytest.raises(ValueError, match=r"needs a CUDA GPU, and this run is on cpu; choose trainer=gpu on a machine"):
        fit(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_padding_free_in_float32_is_refused(gpu_config, with_gpu):
    with pytest.raises(
        ValueError, match=r"half precision, got trainer\.precision=fp32; choose trainer\.precision=bf16"
    ):
        check_execution(change(gpu_config, precision=Precision.fp32))


def test_padding_free_with_attention_dropout_is_refused(gpu_config, with_gpu):
    model = dataclasses.replace(gpu_config.model, attention_dropout=0.1)
    with pytest.raises(ValueError, match=r"got model\.attention_dropout=0\.1; set it to 0"):
        check_execution(dataclasses.replace(gpu_config, model=model))


def test_padding_free_prefix_language_models_are_refused(gpu_config, with_gpu, families):
    config = dataclasses.replace(gpu_config, model=families("prefix_lm"))
    with pytest.raises(ValueError, match=r"padding_free=true cannot express model\.prefix_lm=true"):
        check_execution(config)


def test_padding_free_is_taken_where_the_kernel_is(gpu_config, with_gpu):
    check_execution(gpu_config)


def test_compiling_is_tried_before_the_training_alone_where_it_is_chosen(train_config, monkeypatch):
    tried = []
    monkeypatch.setattr(execution_module, "check_compiler", tried.append)
    check_execution(train_config)
    check_execution(change(train_config, compile=True))
    assert tried == ["cpu"]


def test_a_run_with_layers_computed_twice_is_bit_equal_to_one_without(train_config, tmp_path):
    config = change(train_config, max_steps=3, validate_every=3)
    weights = []
    for twice in (False, True):
        run_dir = tmp_path / str(twice)
        fit(change(config, activation_checkpointing=twice), run_dir)
        weights.append(checkpoint_weights(run_dir / "checkpoints" / "last.ckpt"))
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("precision", [Precision.bf16_mixed, Precision.bf16_true])
def test_half_precision_learns_and_its_bundle_holds_float32(train_config, tmp_path, precision):
    config = change(train_config, precision=precision, max_steps=20, validate_every=20, log_every=5)
    result = fit(config, tmp_path / "run", loggers=[MetricsCsv(str(tmp_path / "run"))])
    with (tmp_path / "run" / "metrics.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    losses = [float(row["train/loss"]) for row in rows if row.get("train/loss")]
    assert len(losses) >= 3
    assert torch.tensor(losses).isfinite().all()
    assert losses[-1] < losses[0] - 0.1
    kept = checkpoint_weights(tmp_path / "run" / "checkpoints" / "last.ckpt")
    trained_in = torch.bfloat16 if precision is Precision.bf16_true else torch.float32
    assert {weight.dtype for weight in kept.values()} == {trained_in}
    bundle = load_bundle(result.bundle)
    assert {weight.dtype for weight in bundle.model.state_dict().values()} == {torch.float32}
    assert len(Translator(bundle).translate(["alpha beta", ""])) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("how", ["plain", "padding_free", "compile", "activation_checkpointing"])
@pytest.mark.parametrize("precision", [Precision.bf16_mixed, Precision.fp16_mixed, Precision.bf16_true])
def test_a_gpu_learns_in_half_precision_in_every_way(gpu_config, tmp_path, precision, how):
    chosen = {} if how == "plain" else {how: True}
    config = change(
        gpu_config, **({"padding_free": False} | chosen), precision=precision, max_steps=40, validate_every=40
    )
    fit(config, tmp_path / "run", loggers=[MetricsCsv(str(tmp_path / "run"))])
    with (tmp_path / "run" / "metrics.csv").open(newline="") as stream:
        losses = [float(row["train/loss"]) for row in csv.DictReader(stream) if row.get("train/loss")]
    assert torch.tensor(losses).isfinite().all()
    assert losses[-1] < losses[0] - 0.1
