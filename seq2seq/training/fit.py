"""A whole training run: text in, bundle out."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import Logger

from seq2seq.bundle import Bundle, save_bundle
from seq2seq.config import Accelerator, FinalWeights, LongLines, Precision, TrainConfig
from seq2seq.models import Transformer, build_model
from seq2seq.training.averaging import latest_checkpoints
from seq2seq.training.checkpoints import (
    MonitorWatch,
    best_checkpoints,
    check_complete,
    check_monitor,
    check_same_model,
    early_stopping,
    last_checkpoint,
    recent_checkpoints,
)
from seq2seq.training.data_module import ParallelDataModule, Tokenizers
from seq2seq.training.limits import Limits
from seq2seq.training.module import TranslationModule
from seq2seq.training.progress import TrainingProgress
from seq2seq.training.provenance import provenance
from seq2seq.training.run_folder import bundle_from_checkpoints, check_same_tokenizers, check_unused, write_run
from seq2seq.training.text import RunText, prepare_tokenizers, read_text
from seq2seq.training.validation import ValidationBleu
from seq2seq.translator import Translator

log = logging.getLogger(__name__)

_LIGHTNING_PRECISION: dict[Precision, Literal["32-true", "bf16-mixed"]] = {
    Precision.fp32: "32-true",
    Precision.bf16_mixed: "bf16-mixed",
}


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


def fit(
    config: TrainConfig,
    run_dir: Path,
    loggers: Sequence[Logger] = (),
    callbacks: Sequence[Callback] = (),
) -> FitResult:
    """Train as the options say, and write the run's folder with the bundle in it.

    Args:
        config: Every option.
        run_dir: Where the run is written.
        loggers: Lightning loggers.
        callbacks: Further Lightning callbacks.

    Raises:
        FileNotFoundError: if a file of text, a tokenizer or the checkpoint to resume from is missing.
        ValueError: if text or options do not fit together.
    """
    with _quiet_lightning():
        return _fit(config, run_dir, loggers, callbacks)


def _fit(config: TrainConfig, run_dir: Path, loggers: Sequence[Logger], callbacks: Sequence[Callback]) -> FitResult:
    _check_start(config, run_dir)
    if not callbacks:
        check_monitor(config.trainer.monitor)
    if config.trainer.num_threads is not None:
        torch.set_num_threads(config.trainer.num_threads)
    text = read_text(config.data, config.seed)
    tokenizers = prepare_tokenizers(config.data, text.train, config.seed)
    _check_lengths(config, text.raw_valid.source, tokenizers)
    data = ParallelDataModule(
        text.train, text.valid, tokenizers, config.data, accumulate=config.trainer.accumulate, seed=config.seed
    )
    seed_everything(config.seed, workers=True, verbose=False)
    model = build_model(config.model, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    if config.resume is not None:
        check_same_model(config.resume, model.state_dict())
        check_same_tokenizers(Path(config.resume).absolute().parent.parent, tokenizers)
    write_run(run_dir, config, tokenizers, provenance(text.fingerprint, config.seed))
    log.info(
        "%s parameters, tied ones counted once; padding share of a training epoch %.1f%%",
        f"{model.num_parameters():,}",
        100 * data.padding_share(),
    )
    _warn_of_warmup(config, data)
    limits = Limits(config.trainer.max_steps, config.trainer.max_minutes, config.trainer.max_epochs)
    best = best_checkpoints(config.trainer, run_dir / "checkpoints")
    trainer = Trainer(
        logger=list(loggers) or False,
        callbacks=[
            limits,
            TrainingProgress(limits),
            _validation(config, run_dir, model, tokenizers, text),
            MonitorWatch(config.trainer.monitor),
            best,
            *([recent_checkpoints(config.trainer, run_dir / "checkpoints")] if config.trainer.average_last else []),
            last_checkpoint(run_dir / "checkpoints"),
            *early_stopping(config.trainer, config.optim.warmup_steps),
            *callbacks,
        ],
        max_epochs=config.trainer.max_epochs or -1,
        accelerator=config.trainer.accelerator.name,
        devices=1,
        precision=_LIGHTNING_PRECISION[config.trainer.precision],
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
    module = TranslationModule(model, config.optim, config.model.d_model, config.trainer.log_every)
    trainer.fit(module, datamodule=data, ckpt_path=config.resume, weights_only=True)
    return _finish(config, run_dir, trainer, best)


def _check_start(config: TrainConfig, run_dir: Path) -> None:
    """Refuse what can be refused before any work."""
    if config.resume is None:
        check_unused(run_dir)
    else:
        check_complete(config.resume)
    wanted = config.trainer.accelerator
    there = {
        Accelerator.gpu: torch.cuda.is_available() or torch.backends.mps.is_available(),
        Accelerator.mps: torch.backends.mps.is_available(),
    }
    if not there.get(wanted, True):
        raise ValueError(
            f"trainer.accelerator={wanted.name} is not there: torch {torch.__version__} finds no such device; choose "
            "trainer.accelerator=cpu or auto, and leave trainer=gpu out"
        )


def _check_lengths(config: TrainConfig, lines: Sequence[str], tokenizers: Tokenizers) -> None:
    """Refuse a validation line that the first validation would refuse, before the training that leads to it."""
    if config.decode.long_lines is not LongLines.error:
        return
    for number, ids in enumerate(tokenizers.source.encode_batch(lines), start=1):
        if len(ids) >= config.decode.max_source_length:
            raise ValueError(
                f"line {number} of the validation source has {len(ids) + 1} pieces, decode.max_source_length is "
                f"{config.decode.max_source_length}; shorten it, raise the limit, or choose decode.long_lines=truncate"
            )


def _warn_of_warmup(config: TrainConfig, data: ParallelDataModule) -> None:
    """Say so when most of the run would be warm-up, in which next to nothing is learned."""
    an_epoch = -(-len(data.epoch_batches(data.plain, epoch=0)) // config.trainer.accumulate)
    limits = [config.trainer.max_steps, an_epoch * config.trainer.max_epochs if config.trainer.max_epochs else None]
    steps = min((limit for limit in limits if limit is not None), default=None)
    if steps is not None and steps < 2 * config.optim.warmup_steps:
        log.warning(
            "this run takes at most %d steps (%d an epoch), of which optim.warmup_steps=%d are warm-up; choose a "
            "shorter one, for example optim.warmup_steps=%d, or more steps by a smaller data.batch_tokens",
            steps,
            an_epoch,
            config.optim.warmup_steps,
            max(1, steps // 10),
        )


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Leave out what Lightning says at every start; its warnings about the run itself stay."""
    logger = logging.getLogger("pytorch_lightning")
    level = logger.level
    logger.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        for message in (
            ".*LeafSpec.*",  # its own use of torch
            "Checkpoint directory .* exists and is not empty",  # as after a resume
            "You're resuming from a checkpoint that ended before the epoch ended",  # ParallelDataModule sees to it
            ".*does not have many workers",  # batches are made in microseconds
            "The number of training batches .* is smaller than the logging interval",  # steps go on over epochs
        ):
            warnings.filterwarnings("ignore", message=message)
        try:
            yield
        finally:
            logger.setLevel(level)


def _validation(
    config: TrainConfig, run_dir: Path, model: Transformer, tokenizers: Tokenizers, text: RunText
) -> ValidationBleu:
    """The callback that translates the validation set with the model under training."""
    bundle = Bundle(model, config.model, tokenizers.source, tokenizers.target, config.decode)
    return ValidationBleu(
        Translator(bundle),
        text.raw_valid,
        config.decode,
        config.data.target_lang,
        config.trainer.num_samples,
        run_dir / "samples.jsonl",
    )


def _finish(config: TrainConfig, run_dir: Path, trainer: Trainer, best: ModelCheckpoint) -> FitResult:
    """Write the bundle."""
    if not (run_dir / "checkpoints" / "last.ckpt").exists():
        raise ValueError(
            f"no step was taken: resume={config.resume} has reached the limits already; raise trainer.max_steps, "
            "max_epochs or max_minutes"
        )
    checkpoints = _final_checkpoints(config, run_dir, best)
    score = _best_score(best)
    steps = trainer.global_step
    if any(isinstance(back, EarlyStopping) and back.wait_count >= back.patience for back in _callbacks(trainer)):
        log.info(
            "ended at step %d: %s has not improved in %s validations (trainer.patience)",
            steps,
            config.trainer.monitor,
            config.trainer.patience,
        )
    results = {"steps": steps, "monitor": config.trainer.monitor, "best_score": score}
    path = run_dir / "bundle"
    save_bundle(bundle_from_checkpoints(run_dir, checkpoints, results), path)
    log.info(
        "bundle written from %s (%s of the run; best %s %s)",
        ", ".join(file.name for file in checkpoints),
        config.trainer.final_weights.name,
        config.trainer.monitor,
        f"{score:.4f}" if score is not None else "none",
    )
    return FitResult(run_dir, path, steps, score)


def _callbacks(trainer: Trainer) -> list[Callback]:
    """The run's callbacks."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # Lightning sets it elsewhere
    return callbacks


def _best_score(best: ModelCheckpoint) -> float | None:
    """The best value of the monitored metric; None if no validation had one that is a finite number."""
    score = best.best_model_score
    return float(score) if score is not None and torch.isfinite(score) else None


def _final_checkpoints(config: TrainConfig, run_dir: Path, best: ModelCheckpoint) -> list[Path]:
    """The checkpoint files whose weights, or mean of weights, the bundle holds."""
    folder = run_dir / "checkpoints"
    if config.trainer.final_weights is FinalWeights.average:
        available = len(list(folder.glob("recent_step_*.ckpt")))
        return latest_checkpoints(run_dir, min(config.trainer.average_last, available))
    if config.trainer.final_weights is FinalWeights.best and _best_score(best) is not None:
        return [Path(best.best_model_path)]
    if config.trainer.final_weights is FinalWeights.best:
        log.warning("no validation had a usable %s; the bundle holds the last weights", config.trainer.monitor)
    return [folder / "last.ckpt"]
