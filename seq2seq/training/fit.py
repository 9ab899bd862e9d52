"""A whole training run: text in, bundle out."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import Logger

from seq2seq.bundle import save_bundle
from seq2seq.config import FinalWeights, Task, TrainConfig
from seq2seq.nn.host_memory import keep_freed_memory
from seq2seq.training.advice import advise, advise_on_vocabulary
from seq2seq.training.averaging import latest_checkpoints
from seq2seq.training.batch_size import with_batch_tokens
from seq2seq.training.broken_weights import BrokenWeights
from seq2seq.training.changed_run import tell_changes
from seq2seq.training.checkpoint_io import WholeCheckpoints
from seq2seq.training.checkpoints import (
    Monitor,
    MonitorWatch,
    best_checkpoints,
    check_complete,
    check_same_model,
    early_stopping,
    last_checkpoint,
    monitored,
    recent_checkpoints,
)
from seq2seq.training.devices import check_devices, share_threads
from seq2seq.training.distribution import barrier, from_rank_zero, rank
from seq2seq.training.first_weights import fine_tuned, read_first_weights
from seq2seq.training.interruption import Interruption
from seq2seq.training.launch import check_started, cluster_environment, meet
from seq2seq.training.limits import Limits
from seq2seq.training.logged_options import LoggedOptions
from seq2seq.training.preparation import Prepared, prepare
from seq2seq.training.progress import TrainingProgress
from seq2seq.training.provenance import provenance
from seq2seq.training.quiet import quiet_lightning, told_by_rank_zero
from seq2seq.training.report import REPORT_FILE, write_report
from seq2seq.training.run_folder import bundle_from_checkpoints, check_same_tokenizers, check_unused, task_of, write_run
from seq2seq.training.schedule import last_step
from seq2seq.training.strategy import LIGHTNING_PRECISION, WholeWeights, build_strategy, half_weights

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitResult:
    """What a run ended with."""

    run_dir: Path
    """Its folder."""
    bundle: Path
    """The model to use."""
    steps: int
    """Optimiser steps taken."""
    best_score: float | None
    """Best value of the monitored metric; None if it never had one."""
    task: Task
    """What the model is for."""


def fit(
    config: TrainConfig,
    run_dir: Path,
    loggers: Sequence[Logger] = (),
    callbacks: Sequence[Callback] = (),
) -> FitResult:
    """Train as the options say, and write the run's folder with the bundle in it.

    On several devices, each of the processes that torchrun has started calls it; all return when the bundle is written.

    Args:
        config: Every option.
        run_dir: Where the run is written; of several processes, what rank 0 says counts.
        loggers: Lightning loggers.
        callbacks: Further Lightning callbacks.

    Raises:
        FileNotFoundError: if a file of text, a tokenizer, a bundle or the checkpoint to resume from is missing.
        ValueError: if text, options, devices or a bundle to fine-tune do not fit together.
        Interrupted: if the process was sent a signal; there is a checkpoint to go on from then.
    """
    check_started(config.trainer)
    check_devices(config.trainer)
    meet(config.trainer.accelerator)
    with quiet_lightning():
        return _fit(config, Path(from_rank_zero(str(run_dir))), loggers, callbacks)


def _fit(config: TrainConfig, run_dir: Path, loggers: Sequence[Logger], callbacks: Sequence[Callback]) -> FitResult:
    _check_start(config, run_dir)
    monitor = monitored(config, own_metrics=bool(callbacks))
    share_threads(config.trainer)
    keep_freed_memory()
    with told_by_rank_zero():
        config, run = _prepared(config, run_dir)
    folder = run_dir / "checkpoints"
    best = best_checkpoints(monitor, config.trainer.keep_best, folder)
    limits = Limits(config.trainer.max_steps, config.trainer.max_minutes, config.trainer.max_epochs)
    own = [
        Interruption(),
        limits,
        TrainingProgress(limits),
        LoggedOptions(config, monitor.metric),
        BrokenWeights(),
        run.validation,
        WholeWeights(),
        MonitorWatch(monitor.metric),
        best,
        *([recent_checkpoints(config.trainer.average_last, folder)] if config.trainer.average_last else []),
        last_checkpoint(folder),
        *early_stopping(monitor, config.trainer.patience, config.optim.warmup_steps),
    ]
    trainer = _trainer(config, run_dir, loggers, [*own, *callbacks])
    trainer.fit(run.module, datamodule=run.data, ckpt_path=config.resume, weights_only=True)
    return _finish(config, run_dir, trainer, best, monitor)


def _prepared(config: TrainConfig, run_dir: Path) -> tuple[TrainConfig, Prepared]:
    """Text, tokenizers, network and the options as they are in the end; the folder begun by rank 0."""
    first = read_first_weights(config)
    if first is not None:
        config = fine_tuned(config, first)
    run = prepare(config, run_dir, first)
    if config.resume is not None:
        num_trained = sum(parameter.requires_grad for parameter in run.model.parameters())
        check_same_model(config.resume, run.model.state_dict(), num_trained, config.optim)
        check_same_tokenizers(Path(config.resume).absolute().parent.parent, run.tokenizers)
    config = with_batch_tokens(config, run.data, run.module)
    if config.resume is not None:
        tell_changes(config, run.fingerprint)
    if rank() == 0:
        facts = provenance(run.fingerprint, config.seed)
        write_run(run_dir, config, run.tokenizers, facts | ({"init": first.facts} if first is not None else {}))
    log.info(
        "%s parameters, tied ones counted once; padding share of a training epoch %.1f%%",
        f"{run.model.num_parameters():,}",
        100 * run.data.padding_share(),
    )
    steps_an_epoch = run.data.steps_an_epoch()
    run.module.total_steps = last_step(config, steps_an_epoch)
    advise(config, steps_an_epoch)
    advise_on_vocabulary(config, run.tokenizers, run.data)
    return config, run


def _trainer(config: TrainConfig, run_dir: Path, loggers: Sequence[Logger], callbacks: Sequence[Callback]) -> Trainer:
    return Trainer(
        logger=list(loggers) or False,
        callbacks=list(callbacks),
        max_epochs=config.trainer.max_epochs or -1,
        accelerator=config.trainer.accelerator.name,
        devices=config.trainer.devices,
        num_nodes=config.trainer.num_nodes,
        strategy=build_strategy(config.trainer),
        plugins=[WholeCheckpoints(), cluster_environment(), *half_weights(config.trainer)],
        precision=LIGHTNING_PRECISION.get(config.trainer.precision),
        val_check_interval=config.trainer.validate_every,
        check_val_every_n_epoch=None if config.trainer.validate_every else 1,
        log_every_n_steps=config.trainer.log_every,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=run_dir,
    )


def _check_start(config: TrainConfig, run_dir: Path) -> None:
    """Refuse what can be refused before any work."""
    if config.resume is not None:
        check_complete(config.resume)
    elif rank() == 0:
        check_unused(run_dir)


def _finish(config: TrainConfig, run_dir: Path, trainer: Trainer, best: ModelCheckpoint, monitor: Monitor) -> FitResult:
    """Write the bundle; the other ranks wait for rank 0, which does."""
    score = _best_score(best)
    path = run_dir / "bundle"
    if rank() == 0:
        _write_bundle(config, run_dir, trainer, best, monitor)
    barrier()
    return FitResult(run_dir, path, trainer.global_step, score, task_of(config))


def _write_bundle(
    config: TrainConfig, run_dir: Path, trainer: Trainer, best: ModelCheckpoint, monitor: Monitor
) -> None:
    if not (run_dir / "checkpoints" / "last.ckpt").exists():
        why = f"resume={config.resume} has reached the limits already" if config.resume else "time was up before one"
        raise ValueError(f"no step was taken: {why}; raise trainer.max_steps, max_epochs or max_minutes")
    if any(isinstance(back, EarlyStopping) and back.wait_count >= back.patience for back in _callbacks(trainer)):
        log.info(
            "ended at step %d: %s has not improved in %s validations (trainer.patience)",
            trainer.global_step,
            monitor.metric,
            config.trainer.patience,
        )
    checkpoints, score = _final_checkpoints(config, run_dir, best, monitor), _best_score(best)
    results = {"steps": trainer.global_step, "monitor": monitor.metric, "best_score": score}
    save_bundle(bundle_from_checkpoints(run_dir, checkpoints, results), run_dir / "bundle")
    log.info(
        "bundle written from %s (%s of the run; best %s %s)",
        ", ".join(file.name for file in checkpoints),
        config.trainer.final_weights.name,
        monitor.metric,
        f"{score:.4f}" if score is not None else "none",
    )
    if config.trainer.report:
        _write_report(run_dir)


def _write_report(run_dir: Path) -> None:
    """Write the page of the run. The run is done by then, and nothing that goes wrong here undoes it."""
    file = run_dir / REPORT_FILE
    try:
        write_report([run_dir], file)
    except (ValueError, OSError) as problem:
        log.warning("%s could not be written: %s; `seq2seq report %s` tries again", file, problem, run_dir)
    else:
        log.info("curves, sample translations, options and versions are in %s", file)


def _callbacks(trainer: Trainer) -> list[Callback]:
    """The run's callbacks."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # Lightning sets it elsewhere
    return callbacks


def _best_score(best: ModelCheckpoint) -> float | None:
    """The best value of the monitored metric; None if no validation had one that is a finite number."""
    score = best.best_model_score
    return float(score) if score is not None and torch.isfinite(score) else None


def _final_checkpoints(config: TrainConfig, run_dir: Path, best: ModelCheckpoint, monitor: Monitor) -> list[Path]:
    """The checkpoint files whose weights, or mean of weights, the bundle holds."""
    folder = run_dir / "checkpoints"
    if config.trainer.final_weights is FinalWeights.average:
        available = len(list(folder.glob("recent_step_*.ckpt")))
        return latest_checkpoints(run_dir, min(config.trainer.average_last, available))
    if config.trainer.final_weights is FinalWeights.best and _best_score(best) is not None:
        return [Path(best.best_model_path)]
    if config.trainer.final_weights is FinalWeights.best:
        log.warning("no validation had a usable %s; the bundle holds the last weights", monitor.metric)
    return [folder / "last.ckpt"]
