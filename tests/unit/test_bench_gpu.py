"""scripts/bench_gpu.py: that it counts what it says, and that it says so where there is no GPU."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seq2seq.config import ModelConfig
from seq2seq.corpus.batching import make_batch
from seq2seq.models import build_model
from seq2seq.text.special import SpecialIds

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
V = 43
SIZES = ModelConfig(d_model=24, num_heads=4, d_ff=40, num_encoder_layers=2, num_decoder_layers=3, dropout=0.0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return __import__("bench_gpu")


def test_operations_are_those_that_torch_counts_but_for_the_half_that_causality_spares(bench: ModuleType) -> None:
    batch = make_batch([[5, 6, 7, 8]] * 3, [[5, 6, 7, 8, 9, 10]] * 3, SpecialIds(), SpecialIds())
    model = build_model(SIZES, V, V).eval()  # in training, CPUs take products of ours instead of torch's kernel
    rows = model.output.shape[0]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid)
    source, target = batch.src.shape[1], batch.tgt_in.shape[1]
    assert (source, target) == (4, 6)
    scores = 2 * 3 * 24 * (2 * source**2 + 3 * target**2 + 3 * source * target)
    counted = sum(
        count for operation, count in counter.get_flop_counts()["Global"].items() if "attention" not in str(operation)
    )
    causal = 2 * 3 * 24 * (2 * source**2 + 3 * target * (target + 1) // 2 + 3 * source * target)
    assert bench.forward_products(SIZES, rows, batch) == counted // 2 + causal
    assert causal < scores


def test_padding_is_no_work(bench: ModuleType) -> None:
    one = make_batch([[5, 6, 7, 8]], [[5, 6]], SpecialIds(), SpecialIds())
    other = make_batch([[5]], [[5, 6, 7]], SpecialIds(), SpecialIds())
    both = make_batch([[5, 6, 7, 8], [5]], [[5, 6], [5, 6, 7]], SpecialIds(), SpecialIds())
    together = bench.forward_products(SIZES, V, both)
    assert together == bench.forward_products(SIZES, V, one) + bench.forward_products(SIZES, V, other)


def test_batches_are_as_many_as_updates_and_the_same_each_time(bench: ModuleType) -> None:
    work = bench.Work(SIZES, V, 512, 3, 2, None)
    first, again = bench.batches(work), bench.batches(work)
    assert len(first) == 5
    assert all(torch.equal(one.src, other.src) for one, other in zip(first, again, strict=True))
    assert all(batch.src.numel() <= 512 for batch in first)


def test_a_model_whose_operations_are_not_counted_is_refused(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    gated = ModelConfig(24, 4, 40, 2, 3, gated=True)
    with pytest.raises(ValueError, match=r"that of the original model; choose --model transformer_base"):
        bench.check_gpu(gated)


def test_without_a_gpu_it_says_so_and_ends_with_an_error(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py"])
    with pytest.raises(SystemExit, match=r"error: there is no GPU: torch .* finds no CUDA device; this benchmark"):
        bench.main()
    assert capsys.readouterr().out == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_all_four_settings_are_measured_and_learn_alike(tmp_path: Path) -> None:
    sizes = ["--model", "transformer_small", "--vocab-size", "500", "--batch-tokens", "2048", "--updates", "5"]
    done = subprocess.run(
        [sys.executable, SCRIPTS / "bench_gpu.py", *sizes, "--warmup", "3", "--rounds", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    settings = json.loads(done.stdout)["settings"]
    assert settings.keys() == {"plain", "compile", "padding_free", "compile_padding_free"}
    losses = [found["last_loss"]["median"] for found in settings.values()]
    assert max(losses) - min(losses) < 0.05
