"""A stopped and resumed run against one that was never stopped, and that a difference is found and named."""

import dataclasses
import json
import random
import shutil
from contextlib import suppress

import pytest
import torch

from seq2seq.config import ScheduledSamplingConfig, StopKind, TokenizerConfig, from_dict, to_dict
from seq2seq.training import module
from seq2seq.training.fit import fit
from seq2seq.training.interruption import Interrupted
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.training.step_record import StepRecord
from seq2seq.training.verify_resume import compare, verify_resume

pytestmark = pytest.mark.whole_runs


@pytest.fixture(autouse=True)
def _quiet_python(monkeypatch):
    """The checks of annotations draw from Python's generator, however often they are made."""
    state = random.Random(5).getstate()
    monkeypatch.setattr(random, "getstate", lambda: state)


def in_process(config):
    """Trains in this process, as the command does in processes of its own."""

    def train(run_dir, changes):
        values = to_dict(config)
        record = {}
        for name, value in changes.items():
            group, _, option = name.rpartition(".")
            if group == "callbacks.record":
                record[option] = value
            elif group:
                values[group][option] = value
            else:
                values[name] = value
        record.pop("_target_")
        changed = from_dict(type(config), values)
        with suppress(Interrupted):
            fit(changed, run_dir, [MetricsCsv(str(run_dir))], [StepRecord(**record)])

    return train


def everything_random(config, num_workers=0, **trainer):
    tokenizer = TokenizerConfig(vocab_size=280, sampling_alpha=0.3)
    data = dataclasses.replace(config.data, tokenizer=tokenizer, num_workers=num_workers)
    sampling = ScheduledSamplingConfig(rate=0.5, end_step=9)
    changes = {"accumulate": 2, "log_every": 3, "validate_every": None, "num_samples": 0, **trainer}
    of_trainer = dataclasses.replace(config.trainer, **changes)
    return dataclasses.replace(config, data=data, scheduled_sampling=sampling, trainer=of_trainer)


@pytest.mark.parametrize(
    ("stop", "num_workers", "steps"),
    [(StopKind.steps, 0, 5), (StopKind.signal, 2, 4), (StopKind.validation, 0, 4)],
)
def test_r1_a_resumed_run_is_the_straight_one_bit_for_bit(train_config, tmp_path, stop, num_workers, steps):
    config = everything_random(train_config, num_workers)
    comparison = verify_resume(in_process(config), tmp_path, steps, stop)
    assert comparison.first is None
    assert (comparison.stopped_after, comparison.num_steps, comparison.num_ranks) == (steps, 2 * steps, 1)
    assert comparison.counts["parameters"] == 2 * steps
    assert comparison.counts["logged metrics"] > 10


@pytest.fixture
def runs(train_config, tmp_path):
    """A straight run of 4 steps and a second one with a stop after 2."""
    verify_resume(in_process(everything_random(train_config)), tmp_path, 2, StopKind.signal)
    return tmp_path / "straight", tmp_path / "resumed"


def test_a_generator_that_is_not_restored_is_found_and_named(train_config, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "restore_of_rank", lambda *_: True)
    first = verify_resume(in_process(everything_random(train_config)), tmp_path, 2, StopKind.signal).first
    assert first is not None
    assert (first.what, first.step) == ("torch's random numbers", 3)
    assert str(first).startswith("at step 3, torch's random numbers: ")


def test_whatever_differs_is_found_and_the_cause_is_named_before_what_follows(runs, tmp_path):
    straight, resumed = runs
    assert compare(straight, resumed, 2).equal

    def first_after(change):
        shutil.rmtree(tmp_path / "changed", ignore_errors=True)
        shutil.copytree(resumed, tmp_path / "changed")
        change(tmp_path / "changed")
        first = compare(straight, tmp_path / "changed", 2).first
        assert first is not None
        return str(first)

    def of_step(**changes):
        def change(folder):
            file = folder / "steps.0.jsonl"
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            rows[2] |= changes
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))

        return change

    def of_checkpoint(name, *path):
        def change(folder):
            file = folder / "checkpoints" / "last.ckpt"
            content = torch.load(file, weights_only=True)
            place = content[name]
            for part in path:
                place = place[part]
            place.view(-1)[1] += 1
            torch.save(content, file)

        return change

    def of_metrics(folder):
        file = folder / "metrics.csv"
        file.write_text(file.read_text().replace("0.0", "0.1"))

    assert first_after(of_step(batches="x", parameters="y")).startswith("at step 3, batch ids: ")
    assert first_after(of_step(parameters="y")).endswith("in the straight run, y in the resumed one")
    assert "logged train/lr: 0.0" in first_after(of_metrics)
    weight = of_checkpoint("state_dict", "model.decoder.layers.0.feed_forward.inner.weight")
    assert first_after(weight).startswith("at the end, state_dict.model.decoder.layers.0.feed_forward.inner.weight: ")
    assert "(element 1) in the straight run" in first_after(weight)
    moment = of_checkpoint("optimizer_states", 0, "state", 3, "exp_avg")
    assert first_after(moment).startswith("at the end, optimizer_states.0.state.3.exp_avg: ")


def test_a_step_that_only_one_run_has_taken_is_found(runs):
    straight, resumed = runs
    file = resumed / "steps.0.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    first = compare(straight, resumed, 2).first
    assert str(first) == "at step 4, the step: taken in the straight run, not taken in the resumed one"
    (resumed / "steps.1.jsonl").write_text(file.read_text())
    assert "number of processes: 1 in the straight run, 2" in str(compare(straight, resumed, 2).first)


def test_runs_that_end_before_the_stop_cannot_be_compared(runs):
    with pytest.raises(ValueError, match=r"the straight run has taken 4 steps, not 5; choose fewer --steps"):
        compare(*runs, 5)


def test_a_run_that_leaves_no_checkpoint_cannot_be_gone_on_with(tmp_path):
    with pytest.raises(ValueError, match=r"stopped after step 3 has left no .*last\.ckpt; choose fewer --steps"):
        verify_resume(lambda run_dir, changes: None, tmp_path, 3)
