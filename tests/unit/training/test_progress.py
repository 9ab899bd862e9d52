"""What a person sees of a run: a bar at a terminal, now and then a line in a log, always on stderr."""

import io
import logging
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from rich.console import Console

from seq2seq.training.limits import Limits
from seq2seq.training.progress import TrainingProgress

MODULE = Mock(spec=LightningModule)
METRICS = {
    "train/loss": torch.tensor(2.5),
    "train/target_tokens_per_second": torch.tensor(4321.0),
    "train/padding_share": torch.tensor(0.071),
    "valid/bleu": torch.tensor(12.34),
}


def trainer(step, metrics=METRICS):
    mock = Mock(spec=Trainer, global_step=step, current_epoch=1, num_training_batches=40, is_global_zero=True)
    mock.callback_metrics = metrics
    mock.fit_loop = Mock()
    mock.fit_loop.epoch_loop.batch_progress.current.completed = 10
    return mock


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("seq2seq.training.progress.time.monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_each_half_minute_with_speed_padding_and_time_left(clock, caplog):
    limits = Limits(max_steps=200)
    progress = TrainingProgress(limits)
    progress.console = Console(file=io.StringIO(), force_terminal=False)
    with caplog.at_level(logging.INFO):
        limits.on_train_start(trainer(0), MODULE)
        progress.on_train_start(trainer(0), MODULE)
        clock[0] += 29
        progress.on_train_batch_end(trainer(20))
        assert not caplog.records
        clock[0] += 91
        progress.on_train_batch_end(trainer(50))
        clock[0] += 1
        progress.on_train_batch_end(trainer(51))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "epoch 1 step 50 loss 2.500 4,321 target tokens/s padding 7.1% valid BLEU 12.3, 25% done, about 6 min left"
    )


def test_before_anything_was_measured_only_the_place_is_told(clock, caplog):
    limits = Limits(max_epochs=5)
    progress = TrainingProgress(limits)
    progress.console = Console(file=io.StringIO(), force_terminal=False)
    with caplog.at_level(logging.INFO):
        progress.on_train_start(trainer(0, {}), MODULE)
        clock[0] += 31
        progress.on_train_batch_end(trainer(0, {}))
    assert [record.getMessage() for record in caplog.records] == ["epoch 1 step 0, 25% done"]


def test_a_terminal_gets_a_bar_on_stderr_and_the_log_no_lines(clock, caplog):
    assert TrainingProgress(Limits(max_steps=1)).console.stderr
    screen = io.StringIO()
    limits = Limits(max_steps=200)
    progress = TrainingProgress(limits)
    progress.console = Console(file=screen, force_terminal=True, width=160)
    with caplog.at_level(logging.INFO):
        progress.on_train_start(trainer(0), MODULE)
        clock[0] += 100
        progress.on_train_batch_end(trainer(50))
        progress.progress.refresh()
        assert "4,321 target tokens/s padding 7.1%" in screen.getvalue()
        assert "25%" in screen.getvalue()
        progress.on_validation_start(trainer(50), MODULE)
        progress.progress.refresh()
        assert "step 50 validating" in screen.getvalue()
        progress.teardown(trainer(50), MODULE, "fit")
    assert progress.progress is None
    assert not caplog.records


def test_a_language_model_is_told_by_its_likelihood(clock, caplog):
    progress = TrainingProgress(Limits(max_steps=200))
    progress.console = Console(file=io.StringIO(), force_terminal=False)
    metrics = {"valid/nll": torch.tensor(1.2344)}
    with caplog.at_level(logging.INFO):
        clock[0] += 31
        progress.on_train_batch_end(trainer(50, metrics))
    assert caplog.records[0].getMessage().startswith("epoch 1 step 50 valid nll 1.234, ")
