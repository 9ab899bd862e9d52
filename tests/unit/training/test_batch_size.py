"""trainer.batch_tokens=auto: what is tried, what is found, and that the run afterwards does not know of it."""

import dataclasses
import logging
import mmap

import pytest
import torch
import yaml

from seq2seq.config import BatchTokens, ScheduledSamplingConfig, Strategy
from seq2seq.training import batch_size
from seq2seq.training.averaging import checkpoint_weights
from seq2seq.training.batch_size import Bounds, find_bounds, largest_that_fits, with_batch_tokens, worst_update
from seq2seq.training.fit import fit
from seq2seq.training.memory_use import forget_peak, memory_for_us, peak_bytes
from seq2seq.training.preparation import prepare
from seq2seq.training.trial import try_steps

pytestmark = pytest.mark.whole_runs


def change(config, **trainer):
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, **trainer))


@pytest.fixture
def auto_config(train_config):
    return change(train_config, batch_tokens=BatchTokens.auto)


@pytest.fixture
def run(auto_config, tmp_path):
    return prepare(auto_config, tmp_path, None)


class Memory:
    """A machine on which a batch takes 1,000 bytes and so many a token; keeps the sizes that were tried."""

    def __init__(self, a_token: int, gives_up: int | None = None) -> None:
        self.a_token, self.gives_up = a_token, gives_up
        self.tried: list[int] = []

    def __call__(self, tokens: int) -> int | None:
        self.tried.append(tokens)
        if self.gives_up is not None and tokens > self.gives_up:
            return None
        return 1000 + self.a_token * tokens


@pytest.mark.parametrize("allowed", [5_000, 40_000, 1_234_567])
def test_nearly_all_that_is_allowed_is_used_and_more_is_never_tried(allowed):
    memory = Memory(a_token=3)

    found = largest_that_fits(memory, Bounds(256, 10**9, 64, ""), allowed)

    assert found is not None
    assert 0.9 * allowed - 3 * 64 <= 1000 + 3 * found <= allowed
    assert max(1000 + 3 * tokens for tokens in memory.tried) <= allowed
    assert len(memory.tried) < 15
    assert found % 64 == 0


def test_where_memory_ends_earlier_than_it_seemed_the_middle_is_tried():
    memory = Memory(a_token=1, gives_up=5000)

    found = largest_that_fits(memory, Bounds(256, 10**9, 64, ""), allowed=10**6)

    assert found is not None
    assert 5000 / 1.06 <= found <= 5000


@pytest.mark.parametrize(("allowed", "expected"), [(100, None), (10**9, 1024)])
def test_the_bounds_are_not_left(allowed, expected):
    memory = Memory(a_token=3)

    assert largest_that_fits(memory, Bounds(256, 1024, 64, ""), allowed) == expected
    assert set(memory.tried) <= set(range(256, 1025))


def test_an_epoch_keeps_a_hundred_steps_of_all_devices_and_a_batch_its_longest_pair(run, auto_config):
    lengths = zip(run.data.plain.source_lengths, run.data.plain.target_lengths, strict=True)
    pieces = sum(max(pair) for pair in lengths)
    small = find_bounds(run.data, auto_config.trainer, on_cpu=False)
    assert (small.low, small.high) == (64, 64)
    assert pieces // 100 < 64

    run.data.plain.sources = [[5] * 49 for _ in run.data.plain.sources] * 80
    run.data.plain.targets = [[5] * 9 for _ in run.data.plain.targets] * 80
    pieces = 50 * len(run.data.plain.sources)
    one = find_bounds(run.data, auto_config.trainer, on_cpu=False)
    assert 0 <= pieces // 100 - one.high < 64
    assert one.why == "with more, an epoch would have fewer than 100 steps"
    two = find_bounds(run.data, change(auto_config, devices=2, accumulate=2).trainer, on_cpu=False)
    assert 0 <= pieces // 400 - two.high < 64


def test_on_a_cpu_larger_batches_than_are_of_use_are_not_looked_for(run, auto_config, monkeypatch):
    monkeypatch.setattr(batch_size, "LEAST_STEPS", 1)
    monkeypatch.setattr(batch_size, "MOST_ON_CPU", 512)

    bounds = find_bounds(run.data, auto_config.trainer, on_cpu=True)

    assert (bounds.high, bounds.why) == (512, "on a CPU more is not faster")


def test_no_batch_of_an_epoch_has_more_positions_or_longer_rows_than_the_worst(run):
    run.data.use_budget(333)
    (worst,) = worst_update(run.data, 333)
    data, batches = run.data.epoch(0)

    assert worst.src_valid.all()
    assert worst.tgt_valid.all()
    for batch in (data[indices] for indices in batches):
        assert batch.src.numel() <= worst.src.numel()
        assert batch.tgt_in.numel() <= worst.tgt_in.numel()
        assert batch.src.shape[0] * batch.src.shape[1] ** 2 <= worst.src.shape[0] * worst.src.shape[1] ** 2
    run.data.accumulate = 3
    assert len(worst_update(run.data, 333)) == 2


def test_the_worst_batch_of_plain_text_has_as_many_full_blocks_as_the_budget(text_config, tmp_path):
    data = prepare(text_config, tmp_path, None).data

    (worst,) = worst_update(data, 32 * 50)

    assert worst.ids.shape == (50, 32)
    bounds = find_bounds(data, text_config.trainer, on_cpu=True)
    assert (bounds.low, bounds.unit) == (32, 32)


def test_steps_on_trial_change_nothing_and_write_nothing(run, auto_config, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    weights = {name: value.clone() for name, value in run.module.state_dict().items()}
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    told = []

    found = try_steps(auto_config.trainer, run.module, [worst_update(run.data, 150)] * 3, lambda: told.append(1))

    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, weights[name]) for name, value in run.module.state_dict().items())
    assert run.module.train_sums == type(run.module.train_sums)()
    assert list((tmp_path / "empty").iterdir()) == []
    assert (len(found.seconds), len(told), found.device) == (3, 3, "cpu")
    trained = sum(weight.numel() for weight in run.model.parameters())
    assert 2 * 4 * trained <= found.optimizer_bytes < 2 * 4 * trained + 4000  # Adam's moments, and counts of steps


def test_steps_on_trial_have_the_scheduled_sampling_of_later_steps(auto_config, run, monkeypatch):
    shares = []
    honest = type(run.module)._sampled_loss

    def noted(module, batch, given, share):
        shares.append(share)
        return honest(module, batch, given, share)

    monkeypatch.setattr(type(run.module), "_sampled_loss", noted)
    run.module.sampling = ScheduledSamplingConfig(rate=0.4, start_step=500, end_step=900)
    try_steps(auto_config.trainer, run.module, [worst_update(run.data, 150)])
    assert shares == [0.4]
    assert run.module.sampling.start_step == 500


def test_the_peak_of_this_process_is_measured_anew():
    device = torch.device("cpu")
    if not forget_peak(device):
        pytest.skip("this system does not tell the peak of a process' memory")
    before = peak_bytes(device)
    size = 80_000_000
    with mmap.mmap(-1, size) as taken:  # pages of its own: the allocator may have some to spare from an earlier run
        for _ in range(size // 1_000_000):  # nothing large from the allocator, which may keep it
            taken.write(bytes(1_000_000))
        assert peak_bytes(device) - before > 70e6
        assert memory_for_us(device) > size
    forget_peak(device)
    assert peak_bytes(device) < before + 40e6


def test_the_run_with_the_size_that_was_found_is_the_run_with_that_size_given(
    auto_config, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(batch_size, "LEAST_STEPS", 14)
    auto_config = change(auto_config, max_steps=2, validate_every=2)
    with caplog.at_level(logging.INFO):
        fit(auto_config, tmp_path / "auto")
    written = yaml.safe_load((tmp_path / "auto" / "config.yaml").read_text(encoding="utf-8"))
    tokens = written["data"]["batch_tokens"]
    assert tokens != auto_config.data.batch_tokens
    assert f"data.batch_tokens={tokens}: with more, an epoch would have fewer than 14 steps" in caplog.text

    given = dataclasses.replace(
        train := change(auto_config, batch_tokens=BatchTokens.given),
        data=dataclasses.replace(train.data, batch_tokens=tokens),
    )
    fit(given, tmp_path / "given")

    ours, theirs = (checkpoint_weights(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("auto", "given"))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())

    def never(*_):
        raise AssertionError

    monkeypatch.setattr(batch_size, "_search", never)
    last = tmp_path / "auto" / "checkpoints" / "last.ckpt"
    longer = dataclasses.replace(change(auto_config, max_steps=4), resume=str(last))
    fit(longer, tmp_path / "auto")
    again = yaml.safe_load((tmp_path / "auto" / "config.yaml").read_text(encoding="utf-8"))
    assert again["data"]["batch_tokens"] == tokens


def test_a_given_size_is_left_as_it_is(train_config, run):
    assert with_batch_tokens(train_config, run.data, run.module) is train_config


def test_a_size_that_does_not_fit_is_refused_with_what_to_lower(auto_config, run, monkeypatch):
    monkeypatch.setattr(batch_size, "memory_for_us", lambda device: 1000)
    with pytest.raises(
        ValueError, match=r"not even one pair or block fits: a batch of 64 tokens takes more than the 0.00"
    ):
        with_batch_tokens(auto_config, run.data, run.module)


def test_running_out_of_memory_is_an_answer_and_another_error_is_not(auto_config, run, monkeypatch):
    def out_of_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(batch_size, "try_steps", out_of_memory)
    with pytest.raises(ValueError, match="not even one pair or block fits"):
        with_batch_tokens(auto_config, run.data, run.module)

    def wrong(*_):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(batch_size, "try_steps", wrong)
    with pytest.raises(RuntimeError, match="shapes differ"):
        with_batch_tokens(auto_config, run.data, run.module)


def test_what_cannot_be_measured_is_refused(auto_config, run, monkeypatch):
    with pytest.raises(ValueError, match=r"tries a whole model on one device, which trainer.strategy=fsdp divides"):
        with_batch_tokens(change(auto_config, strategy=Strategy.fsdp), run.data, run.module)
    monkeypatch.setattr(batch_size, "SPARE", {})
    with pytest.raises(ValueError, match=r"measures memory on CUDA, and on the CPU of Linux, but this is cpu"):
        with_batch_tokens(auto_config, run.data, run.module)


def test_a_resumed_run_without_its_options_is_refused(auto_config, run, tmp_path):
    alone = dataclasses.replace(auto_config, resume=str(tmp_path / "checkpoints" / "last.ckpt"))
    with pytest.raises(
        ValueError, match=r"goes on with the size of a batch that the run began with, but .*config.yaml"
    ):
        with_batch_tokens(alone, run.data, run.module)


def test_what_a_rank_does_alone_waits_for_no_other(run, auto_config, monkeypatch):
    # a group of one process, in which every call that others would have to answer fails
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        for name in ("all_reduce", "all_gather_object", "broadcast_object_list", "barrier"):
            monkeypatch.setattr(torch.distributed, name, lambda *_, **__: pytest.fail("waits for others"))
        assert len(try_steps(auto_config.trainer, run.module, [worst_update(run.data, 150)]).seconds) == 1
    finally:
        torch.distributed.destroy_process_group()
