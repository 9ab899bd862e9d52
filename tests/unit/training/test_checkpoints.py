"""Which checkpoints are kept."""

import dataclasses

import pytest
from pytorch_lightning import Callback

from seq2seq.config import Direction
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
