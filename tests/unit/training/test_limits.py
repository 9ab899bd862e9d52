"""When a run ends."""

from unittest.mock import Mock

import pytest
from pytorch_lightning import LightningModule, Trainer

from seq2seq.training.limits import Limits

MODULE = Mock(spec=LightningModule)


def trainer(step=0, epoch=0, batches=10):
    return Mock(spec=Trainer, global_step=step, current_epoch=epoch, num_training_batches=batches, should_stop=False)


def after_batch(limits, trainer, batch_idx=0):
    limits.on_train_batch_end(trainer, MODULE, None, None, batch_idx)
    return trainer.should_stop


def test_a_run_stops_at_its_number_of_steps():
    assert not after_batch(Limits(max_steps=3), trainer(step=2))
    assert after_batch(Limits(max_steps=3), trainer(step=3))


def test_a_run_stops_at_the_last_batch_of_its_last_epoch():
    limits = Limits(max_epochs=2)
    assert not after_batch(limits, trainer(epoch=0), batch_idx=9)
    assert not after_batch(limits, trainer(epoch=1), batch_idx=8)
    assert after_batch(limits, trainer(epoch=1), batch_idx=9)


def test_minutes_go_on_counting_after_a_resume(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("seq2seq.training.limits.time.monotonic", lambda: now[0])
    limits = Limits(max_minutes=2.0)
    limits.on_train_start(trainer(), MODULE)
    now[0] += 90
    assert not after_batch(limits, trainer())
    resumed = Limits(max_minutes=2.0)
    resumed.load_state_dict(limits.state_dict())
    resumed.on_train_start(trainer(), MODULE)
    now[0] += 20
    assert not after_batch(resumed, trainer())
    now[0] += 10
    assert after_batch(resumed, trainer())


def test_a_run_that_is_resumed_at_its_limit_takes_no_further_step():
    at_limit = trainer(step=5)
    Limits(max_steps=5).on_train_start(at_limit, MODULE)
    assert at_limit.should_stop


def test_the_share_done_is_that_of_the_nearest_limit():
    limits = Limits(max_steps=100, max_epochs=4)
    assert limits.share_done(25, 0.5) == pytest.approx(0.25)
    assert limits.share_done(25, 3.0) == pytest.approx(0.75)
    assert limits.share_done(500, 3.0) == 1.0
