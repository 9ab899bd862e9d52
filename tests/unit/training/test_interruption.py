"""A run that is stopped by a signal and gone on with is the run that was never stopped."""

import csv
import dataclasses
import os
import signal
import threading

import pytest
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import ModelCheckpoint

from seq2seq.training import interruption, module
from seq2seq.training.averaging import checkpoint_weights, read_checkpoint
from seq2seq.training.fit import fit
from seq2seq.training.interruption import Interrupted, cut_short
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.translator import Translator

pytestmark = pytest.mark.whole_runs

EPOCH = 7
"""Steps of an epoch of the small corpus."""


class Sends(Callback):
    """Sends this process a signal at some places of the run, one after the other."""

    def __init__(self, places: list[tuple[str, int]], signum: int = signal.SIGINT) -> None:
        self.places, self.signum = places, signum

    def _at(self, hook: str, trainer) -> None:
        if self.places and (hook, trainer.global_step) == self.places[0]:
            self.places.pop(0)
            os.kill(os.getpid(), self.signum)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self._at("before a step", trainer)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self._at("in a step", trainer)

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        self._at("in a validation", trainer)

    def on_validation_end(self, trainer, pl_module):
        self._at("after a validation", trainer)


@pytest.fixture
def changed(train_config):
    """Dropout on; some steps an epoch, validations in epochs and at their ends."""

    def change(**trainer):
        return dataclasses.replace(
            train_config,
            model=dataclasses.replace(train_config.model, dropout=0.2),
            data=dataclasses.replace(train_config.data, batch_tokens=300),
            decode=dataclasses.replace(train_config.decode, max_length=9),
            trainer=dataclasses.replace(train_config.trainer, max_steps=16, average_last=0, **trainer),
        )

    return change


def rows(run_dir):
    """What was logged, all but times."""
    with (run_dir / "metrics.csv").open(newline="") as stream:
        read = list(csv.DictReader(stream))
    return [{name: value for name, value in row.items() if "second" not in name} for row in read]


def assert_the_same(run, other):
    weights, expected = (checkpoint_weights(path / "checkpoints" / "last.ckpt") for path in (run, other))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert rows(run) == rows(other)


@pytest.mark.parametrize(
    ("validate_every", "places"),
    [
        (
            4,
            [
                ("before a step", 1),
                ("in a step", 3),  # so that the validation that is due is left to the resumed run
                ("in a step", EPOCH - 1),
                ("in a validation", 8),
                ("after a validation", 8),
                ("in a step", 15),  # the last one
            ],
        ),
        (
            None,
            [
                ("in a step", EPOCH - 1),
                ("after a validation", EPOCH),
                ("in a validation", 2 * EPOCH),
                ("in a validation", 16),
            ],
        ),
    ],
)
def test_a_run_that_was_stopped_anywhere_and_resumed_equals_one_that_was_not(changed, tmp_path, validate_every, places):
    config = changed(validate_every=validate_every)
    straight, run = tmp_path / "straight", tmp_path / "run"
    fit(config, straight, [MetricsCsv(str(straight))])
    last = run / "checkpoints" / "last.ckpt"
    sends, num_places = Sends(list(places)), len(places)
    for number in range(num_places):
        with pytest.raises(Interrupted) as stopped:
            fit(config, run, [MetricsCsv(str(run))], [sends])
        assert stopped.value.code == 130
        assert len(sends.places) == num_places - number - 1
        config = dataclasses.replace(config, resume=str(last))
    fit(config, run, [MetricsCsv(str(run))], [sends])
    assert_the_same(run, straight)


def test_r2_a_signal_among_the_batches_of_a_step_waits_for_the_last_of_them(changed, tmp_path, monkeypatch):
    config = changed(validate_every=None, accumulate=3)
    straight, run = tmp_path / "straight", tmp_path / "run"
    fit(config, straight, [MetricsCsv(str(straight))])
    computed, compute = [], module.batch_loss

    def sends(*inputs):
        computed.append(None)
        if len(computed) == 3 + 2:  # the second batch of the second step
            os.kill(os.getpid(), signal.SIGINT)
        return compute(*inputs)

    with monkeypatch.context() as changes:
        changes.setattr(module, "batch_loss", sends)
        with pytest.raises(Interrupted):
            fit(config, run, [MetricsCsv(str(run))])
    assert len(computed) == 2 * 3
    last = run / "checkpoints" / "last.ckpt"
    assert read_checkpoint(last)["global_step"] == 2
    fit(dataclasses.replace(config, resume=str(last)), run, [MetricsCsv(str(run))])
    assert_the_same(run, straight)


def test_decoding_is_given_up_at_once_and_the_validation_done_by_the_resumed_run(changed, tmp_path, monkeypatch):
    config = changed(validate_every=4)
    calls = []

    def interrupted(self, lines, decode, **_):
        calls.append(len(lines))
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("decoding went on")

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", interrupted)
        with pytest.raises(Interrupted) as stopped:
            fit(config, tmp_path / "run", [MetricsCsv(str(tmp_path / "run"))])
    assert stopped.value.code == 143
    assert calls == [6]
    assert "valid/bleu" not in rows(tmp_path / "run")[0]
    steps = []
    monkeypatch.setattr(
        ModelCheckpoint, "on_validation_end", lambda self, trainer, _: steps.append(trainer.global_step)
    )
    resumed = dataclasses.replace(config, resume=str(tmp_path / "run" / "checkpoints" / "last.ckpt"))
    fit(resumed, tmp_path / "run")
    assert sorted(set(steps)) == [4, 8, 12, 16]


def test_the_second_signal_ends_the_process_at_once(monkeypatch, capfd):
    ended = []
    monkeypatch.setattr(interruption, "_asked", None)
    monkeypatch.setattr(os, "_exit", ended.append)
    interruption._take_note(signal.SIGTERM, None)
    assert ended == []
    assert "SIGTERM: stopping after this step" in capfd.readouterr().err
    interruption._take_note(signal.SIGINT, None)
    assert ended == [130]


def test_a_closed_terminal_leaves_a_checkpoint_and_one_that_nohup_takes_care_of_does_not_stop(changed, tmp_path):
    config = changed(validate_every=None)
    # the tests themselves may have been started by nohup
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with pytest.raises(Interrupted) as stopped:
            fit(config, tmp_path / "closed", callbacks=[Sends([("before a step", 3)], signal.SIGHUP)])
        assert stopped.value.code == 128 + signal.SIGHUP
        assert torch.load(tmp_path / "closed" / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 4
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        short = dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, max_steps=4))
        assert fit(short, tmp_path / "nohup", callbacks=[Sends([("before a step", 3)], signal.SIGHUP)]).steps == 4
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_is_said_to_a_terminal_that_was_closed_goes_nowhere_from_then_on():
    kept, (reader, writer) = os.dup(2), os.pipe()
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        os.dup2(writer, 2)
        os.close(reader)
        interruption._say("stopping\n")
        assert os.write(2, b"the bar\n") == 8
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, writer):
            os.close(descriptor)
        signal.signal(signal.SIGPIPE, before)


def test_work_that_is_cut_short_is_not_even_begun_after_a_signal(monkeypatch):
    monkeypatch.setattr(interruption, "_asked", int(signal.SIGINT))
    begun = []
    with pytest.raises(Interrupted), cut_short():
        begun.append(1)
    assert begun == []


def test_work_that_no_signal_came_to_is_finished(monkeypatch):
    monkeypatch.setattr(interruption, "_asked", None)
    begun = []
    with cut_short():
        begun.append(1)
    assert begun == [1]


def test_a_cluster_announces_the_end_by_a_signal_of_its_own(monkeypatch):
    assert signal.SIGUSR1 not in interruption._signals()
    for name, value in {"NTASKS": "2", "PROCID": "1", "NTASKS_PER_NODE": "2"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setattr(interruption, "_asked", int(signal.SIGUSR1))
    with pytest.raises(Interrupted) as stopped:
        interruption.stop_if_asked()
    assert stopped.value.code == 128 + signal.SIGUSR1


def test_outside_of_the_main_thread_a_run_does_without_signals(changed, tmp_path):
    config, result = changed(validate_every=16), []
    thread = threading.Thread(target=lambda: result.append(fit(config, tmp_path / "run")))
    thread.start()
    thread.join(timeout=120)
    assert result[0].steps == 16
