"""Which checkpoints a run keeps."""

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from seq2seq.config import DataKind, Direction, OptimConfig, TrainConfig, nearest
from seq2seq.shapes import Tensor
from seq2seq.training.averaging import network_weights, read_checkpoint
from seq2seq.training.checkpoint_io import BEFORE_LAST, LAST, CheckpointNotWrittenError, damage, is_sound
from seq2seq.training.guard import BadStepsError
from seq2seq.training.interruption import Interrupted
from seq2seq.training.metrics_file import logs_go_on_from
from seq2seq.training.module import TrainingModule
from seq2seq.training.optimizers import check_same_optimizer
from seq2seq.training.whole_file import remove_leftovers

log = logging.getLogger(__name__)


_OF_BOTH = {
    "valid/loss": Direction.min,
    "valid/nll": Direction.min,
    "valid/perplexity": Direction.min,
    "valid/teacher_forced_accuracy": Direction.max,
    "valid/free_running_accuracy": Direction.max,
    "valid/exposure_gap": Direction.min,
}
VALIDATION_METRICS: dict[DataKind, dict[str, Direction]] = {
    DataKind.parallel: {"valid/bleu": Direction.max, "valid/chrf": Direction.max, **_OF_BOTH},
    DataKind.text: {"valid/nll_per_character": Direction.min, "valid/bits_per_byte": Direction.min, **_OF_BOTH},
}
"""What every run logs at each validation, and which way it improves; further callbacks may log more."""

_USUAL = {DataKind.parallel: "valid/bleu", DataKind.text: "valid/nll"}


@dataclass(frozen=True)
class Monitor:
    """The metric that decides which checkpoints are best, and when to stop."""

    metric: str
    """Its name."""
    direction: Direction
    """Which way it improves."""


def monitored(config: TrainConfig, *, own_metrics: bool) -> Monitor:
    """What the run watches.

    Args:
        config: Says it, or leaves it to the kind of data.
        own_metrics: Whether there are callbacks of the user's, which may log metrics of their own.

    Raises:
        ValueError: for a metric that no run logs, or one whose direction must be said.
    """
    known = VALIDATION_METRICS[config.data.kind]
    metric = config.trainer.monitor or _USUAL[config.data.kind]
    if metric not in known and not own_metrics:
        raise ValueError(
            f"trainer.monitor={metric} is not a metric of validation with data.kind={config.data.kind.name}"
            f"{nearest(metric, known)}"
        )
    direction = config.trainer.monitor_direction or known.get(metric)
    if direction is None:
        raise ValueError(
            f"trainer.monitor={metric} is a metric of your own; say which way it improves: "
            "trainer.monitor_direction=min or max"
        )
    return Monitor(metric, direction)


class KeptCheckpoints(ModelCheckpoint):
    """Lightning's callback, which after a resume knows the files that it has kept, also when the run has been moved,
    and also when it was killed between two of them."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint's state, its paths changed to where the files are now.

        A file that is not there any more was given up after the checkpoint was written.
        """
        now = Path(str(self.dirpath))

        def moved(path: str) -> str:
            return str(now / Path(path).name) if path else path

        kept = {moved(path): score for path, score in state_dict["best_k_models"].items()}
        there = {path: score for path, score in kept.items() if Path(path).is_file()}
        if there or not kept or state_dict["dirpath"] == self.dirpath:
            names = ("best_model_path", "kth_best_model_path", "last_model_path")
            paths = {name: moved(state_dict[name]) for name in names}
            state_dict = state_dict | paths | {"dirpath": self.dirpath, "best_k_models": there}
        if there.keys() != kept.keys() and kept and state_dict["best_k_models"] is there:
            best = (min if self.mode == "min" else max)(there, key=lambda path: float(there[path]), default="")
            state_dict |= {"best_model_path": best, "best_model_score": there.get(best)}
        if state_dict["dirpath"] == self.dirpath:  # else the run goes on in another folder, and begins anew there
            super().load_state_dict(state_dict)


class LastCheckpoint(KeptCheckpoints):
    """Keeps everything that a run needs to go on, from the latest validation, interrupt or error.

    At the start of a run it clears away what a killed process has left: half-written files, and the logged rows of
    steps that are going to be taken again.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove half-written files."""
        super().setup(trainer, pl_module, stage)
        if trainer.is_global_zero:
            for folder in (Path(str(self.dirpath)), Path(str(self.dirpath)).parent):
                remove_leftovers(folder)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget what came after the checkpoint that the run goes on from, or all where there is none yet."""
        super().on_train_start(trainer, pl_module)
        if not trainer.is_global_zero:
            return
        folder = Path(str(self.dirpath))
        logs_go_on_from(trainer.loggers, folder.parent / "samples.jsonl", trainer.global_step)
        for file in folder.glob("recent_step_*.ckpt"):
            if int(file.stem.split("_")[2].partition("-")[0]) > trainer.global_step:
                file.unlink()
        last = folder / LAST
        if Path(trainer.ckpt_path or "").name != LAST and last.is_file() and not is_sound(last):
            last.unlink()  # or it would soon take the place of the one before it

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write a checkpoint, unless that is what went wrong, no step can be taken from here any more, or the other
        processes know nothing of the error."""
        of_all = trainer.world_size == 1 or isinstance(exception, Interrupted)
        if of_all and not isinstance(exception, CheckpointNotWrittenError | BadStepsError):
            super().on_exception(trainer, pl_module, exception)

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        module = trainer.lightning_module
        if isinstance(module, TrainingModule) and module.guard.in_trouble and Path(filepath).is_file():
            return  # the one before is from a time when steps could be taken
        for logger in trainer.loggers:
            logger.save()  # a run that goes on from here has all rows up to here
        super()._save_checkpoint(trainer, filepath)


def best_checkpoints(monitor: Monitor, keep: int, folder: Path) -> KeptCheckpoints:
    """Keeps the weights of the best validations."""
    metric = monitor.metric.rpartition("/")[2]
    return KeptCheckpoints(
        dirpath=folder,
        filename=f"best_step_{{step:06d}}_{metric}_{{{monitor.metric}:.4f}}",
        monitor=monitor.metric,
        mode=monitor.direction.name,
        save_top_k=keep,
        save_weights_only=True,
        enable_version_counter=False,  # a step that is taken again after a resume writes the same file again
        save_on_train_epoch_end=False,  # after the validation, as in mid-epoch
        auto_insert_metric_name=False,  # it would put "=" into names, which Hydra's overrides cannot take
    )


def recent_checkpoints(keep: int, folder: Path) -> KeptCheckpoints:
    """Keeps the weights of the latest validations, for averaging."""
    return KeptCheckpoints(
        dirpath=folder,
        filename="recent_step_{step:06d}",
        monitor="step",
        mode="max",
        save_top_k=keep,
        save_weights_only=True,
        save_on_train_epoch_end=False,
        enable_version_counter=False,  # a step that is taken again after a resume writes the same file again
        auto_insert_metric_name=False,
    )


def last_checkpoint(folder: Path) -> LastCheckpoint:
    """Keeps everything that a run needs to go on."""
    return LastCheckpoint(
        dirpath=folder,
        filename=Path(LAST).stem,
        save_top_k=1,
        save_on_exception=True,
        # at the end of an epoch Lightning takes the epoch for done, also where training stops in its middle
        save_on_train_epoch_end=False,
        enable_version_counter=False,
        auto_insert_metric_name=False,
    )


def check_complete(path: str | Path) -> None:
    """Refuse what a run could not go on from, before any work.

    Args:
        path: What the user gave as `resume`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, no checkpoint, or one of weights alone.
    """
    path = Path(path)
    wanted = "expected a run's checkpoints/last.ckpt"
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"resume={path} {what}; {_before(path) or wanted}")
    problem = damage(path)
    if problem is not None and _before(path):
        raise ValueError(f"resume={path} is damaged ({problem}); {_before(path)}")
    match read_checkpoint(path).get("optimizer_states"):
        case [{"param_groups": [{"params": _}, *_]}, *_]:
            pass
        case _:
            raise ValueError(f"resume={path} holds weights alone, without the optimiser's state; {wanted}")
    if problem is not None:
        raise ValueError(f"resume={path} is damaged ({problem}), and there is no {BEFORE_LAST} beside it; begin anew")


def _before(path: Path) -> str:
    """What to go on from in the place of a checkpoint; empty if there is nothing."""
    before = path.with_name(BEFORE_LAST)
    return f"go on from resume={before}" if before != path and is_sound(before) else ""


def check_same_model(path: str | Path, weights: dict[str, Tensor], num_trained: int, optim: OptimConfig) -> None:
    """Refuse to go on with another model or another optimiser, before anything of the run is written over.

    Args:
        path: The checkpoint.
        weights: The network as the options describe it, by the names of its `state_dict`.
        num_trained: How many of its parameters are not frozen.
        optim: The optimiser that the options ask for.

    Raises:
        ValueError: naming the first matrix that differs, or the other optimiser.
    """
    content = read_checkpoint(path)
    found = network_weights(content)
    for name in [*weights, *found]:
        ours, theirs = (list(side[name].shape) if name in side else "missing" for side in (weights, found))
        if ours != theirs:
            raise ValueError(
                f"resume={path} is not of the model that the options and the tokenizer make: {name} is {theirs}, "
                f"expected {ours}; give the options that the run was started with"
            )
    trained = sum(len(group["params"]) for group in content["optimizer_states"][0]["param_groups"])
    if trained != num_trained:
        raise ValueError(
            f"resume={path} has trained {trained} matrices and vectors of the model, the options train {num_trained}; "
            "give the init.freeze_* options that the run was started with"
        )
    check_same_optimizer(content["optimizer_states"][0], optim, str(path))


class Patience(EarlyStopping):
    """Lightning's early stopping, which looks away until the warm-up is over: before that, nothing is learned yet.

    Args:
        warmup_steps: Optimiser steps.
        monitor: Name of the metric.
        mode: "min" or "max".
        patience: Validations without improvement.
    """

    def __init__(self, warmup_steps: int, monitor: str, mode: str, patience: int) -> None:
        # A NaN counts as no improvement, and MonitorWatch says so.
        super().__init__(monitor=monitor, mode=mode, patience=patience, check_finite=False)
        self.warmup_steps = warmup_steps

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count a validation, if it comes after the warm-up."""
        if trainer.global_step >= self.warmup_steps:
            super().on_validation_end(trainer, pl_module)


def early_stopping(monitor: Monitor, patience: int | None, warmup_steps: int) -> list[Callback]:
    """Stops after `patience` validations without improvement; none when there is no patience set."""
    if patience is None:
        return []
    return [Patience(warmup_steps, monitor=monitor.metric, mode=monitor.direction.name, patience=patience)]


class MonitorWatch(Callback):
    """Warns when the monitored metric is NaN: such a checkpoint is never the best one.

    Args:
        monitor: Name of the metric.
    """

    def __init__(self, monitor: str) -> None:
        self.monitor = monitor

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the metric.

        Raises:
            ValueError: if there is no such metric.
        """
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            known = ", ".join(sorted(name for name in metrics if name.startswith("valid/")))
            raise ValueError(f"trainer.monitor={self.monitor} is not a logged metric; expected one of {known}")
        if math.isnan(float(metrics[self.monitor])):
            log.warning("%s is NaN at step %d; it does not count as an improvement", self.monitor, trainer.global_step)
