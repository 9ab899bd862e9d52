"""Which checkpoints are kept."""

import dataclasses

import pytest
from pytorch_lightning import Callback

from seq2seq.config import Direction
from seq2seq.training.checkpoints import Monitor, monitored
from seq2seq.training.fit import fit


class Scripted(Callback):
    """Logs the given values, one at each validation."""

    def __init__(self, values):
        self.values = iter(values)

    def on_validation_epoch_end(self, trainer, pl_module):
        pl_module.log("valid/fake", next(self.values))


@pytest.mark.parametrize(("direction", "kept"), [(Direction.max, [3, 5]), (Direction.min, [1, 4])])
def test_the_best_k_validations_are_kept_whichever_way_the_metric_improves(train_config, tmp_path, direction, kept):
    trainer = dataclasses.replace(
        train_config.trainer,
        monitor="valid/fake",
        monitor_direction=direction,
        keep_best=2,
        validate_every=1,
        max_steps=5,
        average_last=3,
    )
    result = fit(
        dataclasses.replace(train_config, trainer=trainer),
        tmp_path / "run",
        callbacks=[Scripted([1.0, 3.0, 5.0, 2.0, 4.0])],
    )
    folder = tmp_path / "run" / "checkpoints"
    steps = sorted(int(path.name.split("_")[2]) for path in folder.glob("best_*"))
    assert steps == kept
    assert result.best_score == {Direction.max: 5.0, Direction.min: 1.0}[direction]
    recent = sorted(path.name for path in folder.glob("recent_*"))
    assert recent == [f"recent_step_{step:06d}.ckpt" for step in (3, 4, 5)]


def test_a_run_that_was_moved_still_knows_its_best_validation(train_config, tmp_path):
    def limited(steps, resume=None):
        trainer = dataclasses.replace(
            train_config.trainer,
            monitor="valid/fake",
            monitor_direction=Direction.max,
            keep_best=1,
            validate_every=1,
            max_steps=steps,
        )
        return dataclasses.replace(train_config, trainer=trainer, resume=resume)

    fit(limited(3), tmp_path / "run", callbacks=[Scripted([1.0, 5.0, 2.0])])
    (tmp_path / "run").rename(tmp_path / "moved")
    last = str(tmp_path / "moved" / "checkpoints" / "last.ckpt")
    result = fit(limited(4, last), tmp_path / "moved", callbacks=[Scripted([4.0])])
    assert result.best_score == 5.0
    assert [path.name for path in (tmp_path / "moved" / "checkpoints").glob("best_*")] == [
        "best_step_000002_fake_5.0000.ckpt"
    ]


def monitor(config, monitor, direction=None, own_metrics=False):
    trainer = dataclasses.replace(config.trainer, monitor=monitor, monitor_direction=direction)
    return monitored(dataclasses.replace(config, trainer=trainer), own_metrics=own_metrics)


def test_what_is_watched_depends_on_the_kind_of_data_unless_it_is_said(train_config, text_config):
    assert monitor(train_config, None) == Monitor("valid/bleu", Direction.max)
    assert monitor(text_config, None) == Monitor("valid/nll", Direction.min)
    assert monitor(text_config, "valid/bits_per_byte") == Monitor("valid/bits_per_byte", Direction.min)
    assert monitor(train_config, "valid/perplexity") == Monitor("valid/perplexity", Direction.min)
    assert monitor(train_config, "valid/teacher_forced_accuracy").direction is Direction.max
    assert monitor(train_config, "valid/bleu", Direction.min).direction is Direction.min


def test_a_metric_that_is_not_logged_or_of_unknown_direction_is_refused(train_config, text_config):
    with pytest.raises(ValueError, match=r"trainer\.monitor=valid/bleu is not a metric of .* with data\.kind=text"):
        monitor(text_config, "valid/bleu")
    with pytest.raises(
        ValueError, match=r"trainer\.monitor=valid/x is a metric of your own; say which way it improves"
    ):
        monitor(train_config, "valid/x", own_metrics=True)
    assert monitor(train_config, "valid/x", Direction.min, own_metrics=True) == Monitor("valid/x", Direction.min)
