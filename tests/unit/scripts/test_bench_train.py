"""scripts/bench_train.py and what it shares with others: that it runs, what it prints, that it counts what it says."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seq2seq.config import ModelConfig
from seq2seq.corpus.batching import Batch, make_batch
from seq2seq.models import build_model
from seq2seq.text.special import SpecialIds

SPREAD = {"median", "min", "max"}


def test_training_speed_is_printed_as_one_json_object(
    run_script: Callable[..., dict[str, Any]],
    copy_corpus: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    files = ["--source", copy_corpus[0], "--target", copy_corpus[1], "--vocab-size", 280]
    sizes = ["--model", "transformer_tiny", "--batch-tokens", 64, "--updates", 2, "--warmup", 1]
    found = run_script("bench_train", *files, *sizes)
    figures = {
        name: values["median"] for name, values in found.items() if isinstance(values, dict) and values.keys() >= SPREAD
    }
    assert figures.keys() == {
        "target_tokens_per_second",
        "target_tokens_per_cpu_second",
        "updates_per_second",
        "padding_share",
        "real_tokens_per_update",
        "matmul_share",
        "attention_share",
        "peak_rss_mb",
        "ratio_to_plain_loop",
        "ratio_to_plain_loop_per_cpu_second",
        "memory_ratio_to_plain_loop",
    }
    assert found.keys() - figures.keys() == {
        "benchmark",
        "plain_loop",
        "other_shares",
        "settings",
        "machine",
        "versions",
    }
    plain = {name: values["median"] for name, values in found["plain_loop"].items()}
    assert plain["real_tokens_per_update"] == figures["real_tokens_per_update"], "the same batches"
    for ratio, name in (
        ("ratio_to_plain_loop", "target_tokens_per_second"),
        ("ratio_to_plain_loop_per_cpu_second", "target_tokens_per_cpu_second"),
        ("memory_ratio_to_plain_loop", "peak_rss_mb"),
    ):
        assert figures[ratio] == pytest.approx(figures[name] / plain[name], rel=1e-3)
    shares = list(found["other_shares"].values())
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1 - figures["matmul_share"] - figures["attention_share"] + 1e-3
    assert 0 < figures["real_tokens_per_update"] <= 64
    assert figures["target_tokens_per_second"] == pytest.approx(
        figures["updates_per_second"] * figures["real_tokens_per_update"], rel=1e-3
    )
    assert 0 <= figures["padding_share"] < 1
    assert 0 < figures["matmul_share"] < 1 - figures["attention_share"] <= 1  # a CPU needs no kernel
    assert figures["peak_rss_mb"] > 50
    assert found["settings"]["vocab_size"] == 280
    assert not list(cwd.iterdir()), "a benchmark leaves no run behind"


def batch_of(target_lengths: list[int]) -> Batch:
    """A batch with targets of these lengths, and sources of length 1."""
    targets = [[7] * length for length in target_lengths]
    return make_batch([[7]] * len(targets), targets, SpecialIds(), SpecialIds())


def test_the_meter_counts_real_tokens_of_the_timed_updates_alone(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = script("update_meter").UpdateMeter(warmup=2, timed=2, profiled=1)
    clocks = iter([(10.0, 100.0), (14.0, 105.0), (99.0, 999.0)])
    monkeypatch.setattr(meter, "_clocks", lambda device: next(clocks))
    updates = [[50], [60], [5, 3], [4], [70], [80]]
    module: Any = SimpleNamespace(device=torch.device("cpu"))
    trainer: Any = None
    for lengths in updates:
        torch.ones(64, 64) @ torch.ones(64, 64)
        parts = (batch_of(lengths), batch_of([2])) if lengths == [4] else (batch_of(lengths),)
        meter.on_train_batch_end(trainer, module, None, parts, 0)
    figures = meter.figures
    assert figures["target_tokens_per_second"] == (5 + 3 + 4 + 2) / 4
    assert figures["target_tokens_per_cpu_second"] == (5 + 3 + 4 + 2) / 5
    assert figures["updates_per_second"] == 2 / 4
    assert figures["real_tokens_per_update"] == 14 / 2
    assert figures["padding_share"] == 2 / (12 + 5 + 3)
    assert 0 < figures["matmul_share"] < 1
    assert figures["attention_share"] == 0


@pytest.mark.parametrize(
    ("name", "product", "attention"),
    [
        ("aten::mm", True, False),
        ("aten::addmm", True, False),
        ("aten::bmm", True, False),
        ("mkldnn::_linear_pointwise", True, False),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", False, True),
        ("aten::_efficient_attention_forward", False, True),
        ("aten::mul", False, False),
        ("AddmmBackward0", False, False),
    ],
)
def test_operators_are_told_apart_by_name(script: Any, name: str, product: bool, attention: bool) -> None:
    names = script("operator_names")
    assert (names.is_product(name), names.is_attention(name)) == (product, attention)


def test_the_plain_loop_has_the_loss_of_our_model_with_the_same_weights(script: Any) -> None:
    sizes = ModelConfig(d_model=8, num_heads=2, d_ff=12, num_encoder_layers=2, num_decoder_layers=1, dropout=0.0)
    torch.manual_seed(1)
    ours = build_model(sizes, 11, 11).double().eval()
    plain = script("plain_loop").PlainTransformer(sizes, 11, 6).double()
    named = dict(ours.state_dict())
    renamed = {}
    for name, value in plain.state_dict().items():
        if name == "positions":
            renamed[name] = torch.as_tensor(value)
            continue
        theirs = name.replace("rows.weight", "encoder.embedding.rows.weight")
        side = name.split(".")[0]
        pairs = {
            "self_attn.in_proj_": "self_attention.query_key_value.",
            "self_attn.out_proj.": "self_attention.output.",
            "multihead_attn.out_proj.": "cross_attention.output.",
            "linear1.": "feed_forward.inner.",
            "linear2.": "feed_forward.output.",
            "norm1.": "self_attention_norm.",
            "norm3.": "feed_forward_norm.",
            "norm2.": "feed_forward_norm." if side == "encoder" else "cross_attention_norm.",
        }
        for old, new in pairs.items():
            theirs = theirs.replace(old, new)
        if "multihead_attn.in_proj_" in name:
            part = theirs.replace("multihead_attn.in_proj_", "cross_attention.{}.")
            renamed[name] = torch.cat([named[part.format("query")], named[part.format("key_value")]])
        else:
            renamed[name] = named[theirs]
    plain.load_state_dict(renamed)
    batch = make_batch([[7, 8, 9, 3], [7, 3]], [[5, 6, 3], [8, 3]], SpecialIds(), SpecialIds())
    found = plain(batch)[batch.tgt_valid]
    expected = ours(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid)[batch.tgt_valid]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # its sinusoids are in float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"activation_dropout": 0.2},
            r"has activation_dropout=0.1, the model has 0.2; choose another --model, or --no-",
        ),
        ({"num_kv_heads": 1}, "has num_kv_heads=None, the model has 1"),
    ],
)
def test_a_model_that_the_plain_loop_cannot_be_is_refused(script: Any, changes: dict[str, Any], message: str) -> None:
    usual = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 1, "num_decoder_layers": 1}
    check = script("plain_loop").check_plain
    check(ModelConfig(**sizes, **usual))
    with pytest.raises(ValueError, match=message):
        check(ModelConfig(**sizes, **(usual | changes)))


def test_dropout_and_rows_of_the_table_can_be_given(script: Any) -> None:
    found = script("bench_train").model_config("transformer_tiny", 0.3, 500)
    assert (found.dropout, found.attention_dropout, found.activation_dropout) == (0.3, 0.3, 0.3)
    assert found.vocab_multiple == 500


def test_the_spread_is_median_min_and_max(script: Any) -> None:
    rounds = [{"rate": 5.0, "memory": 7.0}, {"rate": 1.0, "memory": 7.0}, {"rate": 2.123456, "memory": 8.0}]
    assert script("measuring").spreads(rounds) == {
        "rate": {"median": 2.1235, "min": 1.0, "max": 5.0},
        "memory": {"median": 7.0, "min": 7.0, "max": 8.0},
    }


def test_the_peak_memory_of_a_round_is_not_that_of_the_process_that_starts_it(script: Any) -> None:
    measuring = script("measuring")
    ballast = bytearray(200 << 20)
    ballast[:: 1 << 12] = b"1" * (len(ballast) >> 12)
    assert 1 < measuring.in_fresh_process(measuring.peak_rss_mb) < measuring.peak_rss_mb() - 150


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many"])
def test_counts_below_one_are_refused(script: Any, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script("bench_train").options().parse_args(["--updates", value])
    assert "is not a whole number of at least 1" in capsys.readouterr().err


def test_a_misspelt_model_is_named_with_the_nearest_one(script: Any) -> None:
    with pytest.raises(ValueError, match=r"--model transformer_tinny .*did you mean 'transformer_tiny'"):
        script("bench_train").model_config("transformer_tinny")


def test_a_missing_file_ends_with_one_line_and_no_json(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_train.py", "--source", "no such file", "--target", "nor this"])
    with pytest.raises(SystemExit, match=r"^error: .*no such file"):
        script("bench_train").main()
    assert capsys.readouterr().out == ""
