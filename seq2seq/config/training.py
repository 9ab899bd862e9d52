"""Options of a training run."""

from dataclasses import dataclass, field
from typing import Any

from seq2seq.config.checks import positive, probability, require
from seq2seq.config.choices import Accelerator, Architecture, DataKind, Direction, FinalWeights, Precision, Tying
from seq2seq.config.data import DataConfig
from seq2seq.config.decode import DecodeConfig
from seq2seq.config.model import ModelConfig


@dataclass(frozen=True)
class OptimConfig:
    """Loss, optimiser and learning-rate schedule (paper, sections 5.3 and 5.4)."""

    warmup_steps: int = 1000
    """Optimiser steps of linear warm-up, which Post-LN stacks need; the paper's own is 4000, for 100,000 steps."""
    lr_factor: float = 1.0
    """Multiplies d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)."""
    beta1: float = 0.9
    """Adam's decay of the first moment."""
    beta2: float = 0.98
    """Adam's decay of the second moment."""
    eps: float = 1e-9
    """Adam's denominator floor."""
    label_smoothing: float = 0.1
    """Probability mass spread evenly over the whole vocabulary (Szegedy et al. 2016, section 7)."""
    clip_norm: float | None = 1.0
    """Gradients are scaled down to this joint 2-norm; null is off."""
    loss_on_source: bool = False
    """Decoder-only translation: the pieces of the source are predicted, and counted in the loss, too."""

    def __post_init__(self) -> None:
        require(self.warmup_steps >= 1, f"warmup_steps={self.warmup_steps} must be at least 1; Post-LN needs warm-up")
        for name in ("lr_factor", "eps"):
            positive(name, getattr(self, name))
        for name in ("beta1", "beta2", "label_smoothing"):
            probability(name, getattr(self, name))
        if self.clip_norm is not None:
            positive("clip_norm", self.clip_norm)


MAX_THREADS = 1024
"""More threads than any machine has cores; with very many torch ends the process."""


@dataclass(frozen=True)
class TrainerConfig:
    """How long, on what, and what is kept. A step is an optimiser step."""

    max_epochs: int | None = None
    """Passes over the training text."""
    max_steps: int | None = None
    """Optimiser steps."""
    max_minutes: float | None = None
    """Wall-clock minutes of training, validation included."""
    accumulate: int = 1
    """Batches an optimiser step; the loss is normalised by all their target tokens together."""
    validate_every: int | None = None
    """Steps between validations; null validates at the end of each epoch."""
    monitor: str = "valid/bleu"
    """Metric that decides which checkpoints are best and when to stop."""
    monitor_direction: Direction = Direction.max
    """Which way `monitor` improves."""
    patience: int | None = None
    """Validations without improvement before training stops; null never does."""
    keep_best: int = 3
    """Best checkpoints kept, beside the last one."""
    average_last: int = 5
    """Checkpoints of the latest validations kept for averaging; 0 keeps none."""
    final_weights: FinalWeights = FinalWeights.best
    """What the bundle at the end holds."""
    precision: Precision = Precision.fp32
    """Arithmetic."""
    accelerator: Accelerator = Accelerator.auto
    """Kind of device."""
    num_threads: int | None = None
    """CPU threads; null leaves the choice to torch."""
    log_every: int = 20
    """Steps between logged training metrics."""
    num_samples: int = 3
    """Validation sentences whose translations are logged at each validation."""

    def __post_init__(self) -> None:
        for name in ("max_epochs", "max_steps", "max_minutes", "validate_every", "patience", "num_threads"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        for name in ("accumulate", "log_every"):
            positive(name, getattr(self, name))
        require(
            self.num_threads is None or self.num_threads <= MAX_THREADS,
            f"num_threads={self.num_threads} is more than {MAX_THREADS}; choose at most the number of CPU cores",
        )
        for name in ("keep_best", "average_last", "num_samples"):
            require(getattr(self, name) >= 0, f"{name}={getattr(self, name)} is negative")
        require(
            any(limit is not None for limit in (self.max_epochs, self.max_steps, self.max_minutes)),
            "training would never end; give trainer.max_epochs, trainer.max_steps or trainer.max_minutes",
        )
        require(
            self.final_weights is not FinalWeights.best or self.keep_best > 0,
            "trainer.final_weights=best needs trainer.keep_best > 0; or choose trainer.final_weights=last",
        )
        require(
            self.final_weights is not FinalWeights.average or self.average_last > 0,
            "trainer.final_weights=average needs trainer.average_last > 0",
        )


@dataclass(frozen=True)
class InitConfig:
    """Where the weights come from, if not drawn at random, and which of them are trained."""

    from_: str | None = None
    """A bundle to fine-tune: its weights, sizes and tokenizers are taken; only the dropouts of model.* count."""
    freeze_embeddings: bool = False
    """Embeddings, and what is tied to them, stay as they are."""
    freeze_encoder: bool = False
    """The encoder's layers stay as they are."""
    freeze_decoder: bool = False
    """The decoder's layers stay as they are."""

    def __post_init__(self) -> None:
        frozen = [name for name in ("embeddings", "encoder", "decoder") if getattr(self, f"freeze_{name}")]
        require(
            self.from_ is not None or not frozen,
            f"init.freeze_{frozen[0] if frozen else ''}=true keeps random weights for ever; give init.from=BUNDLE too",
        )


@dataclass(frozen=True)
class TrainConfig:
    """One training run: everything that `seq2seq train` takes."""

    model: ModelConfig
    """The network."""
    data: DataConfig
    """The text."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Loss and optimiser."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    """Search, in validation and as the bundle's default."""
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    """Limits, validation, devices."""
    init: InitConfig = field(default_factory=InitConfig)
    """First weights."""
    logger: dict[str, Any] = field(default_factory=dict)
    """Lightning loggers by name, each with its `_target_`."""
    callbacks: dict[str, Any] = field(default_factory=dict)
    """Further Lightning callbacks by name, each with its `_target_`."""
    name: str = "default"
    """Name of the experiment; runs go to outputs/<name>/<date>_<time>/."""
    seed: int = 1
    """Seed of every random choice."""
    resume: str | None = None
    """Checkpoint to go on from (a run's checkpoints/last.ckpt)."""

    def __post_init__(self) -> None:
        require(
            self.model.tying is not Tying.three_way or self.data.tokenizer.joint,
            "model.tying=three_way needs one vocabulary for both languages; set data.tokenizer.joint=true or "
            "model.tying=two_way",
        )
        self._check_decoder_only()
        require(0 <= self.seed < 2**32, f"seed={self.seed} is out of range; choose 0 <= seed < {2**32}")

    def _check_decoder_only(self) -> None:
        """Refuse what only one of the two architectures can do."""
        only = self.model.architecture is Architecture.decoder_only
        require(
            only or self.data.kind is DataKind.parallel,
            "data.kind=text trains a language model, which is decoder-only; choose model=gpt_small",
        )
        require(
            not only or self.data.tokenizer.joint,
            "architecture=decoder_only has one vocabulary for source and target; set data.tokenizer.joint=true",
        )
        if self.optim.loss_on_source:
            require(only, "optim.loss_on_source=true is for architecture=decoder_only; an encoder predicts nothing")
            require(
                not self.model.prefix_lm,
                "optim.loss_on_source=true with model.prefix_lm=true asks the source for pieces that it sees; choose "
                "one of them",
            )
