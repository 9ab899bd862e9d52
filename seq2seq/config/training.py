"""Options of a training run."""

from dataclasses import dataclass, field
from typing import Any

from seq2seq.config.checks import positive, probability, require
from seq2seq.config.choices import (
    Accelerator,
    Architecture,
    DataKind,
    Direction,
    FinalWeights,
    PositionKind,
    Precision,
    Tying,
)
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
    label_smoothing: float | None = None
    """Probability mass spread evenly over the whole vocabulary (Szegedy et al. 2016, section 7); null is the paper's
    0.1 for translation and 0 for a language model."""
    clip_norm: float | None = 1.0
    """Gradients are scaled down to this joint 2-norm; null is off."""
    loss_on_source: bool = False
    """Decoder-only translation: the pieces of the source are predicted, and counted in the loss, too."""

    def __post_init__(self) -> None:
        require(self.warmup_steps >= 1, f"warmup_steps={self.warmup_steps} must be at least 1; Post-LN needs warm-up")
        for name in ("lr_factor", "eps"):
            positive(name, getattr(self, name))
        for name in ("beta1", "beta2"):
            probability(name, getattr(self, name))
        if self.label_smoothing is not None:
            probability("label_smoothing", self.label_smoothing)
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
    monitor: str | None = None
    """Metric that decides which checkpoints are best and when to stop; null is valid/bleu for translation and valid/nll
    for a language model."""
    monitor_direction: Direction | None = None
    """Which way `monitor` improves, for a metric of your own; null knows it of ours."""
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
    """Validation sentences whose translations, or places of the text whose continuations, are logged at each
    validation."""

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
    """Where the weights come from, if not drawn at random, and which of them are trained.

    Dropout stays on in frozen parts: it is noise on what the trained parts read, and keeps them from over-fitting too.
    """

    from_: str | None = None
    """A bundle to fine-tune: its weights, sizes and tokenizers are taken; only the dropouts of model.* count."""
    freeze_embeddings: bool = False
    """Embeddings, learned positions among them, and what is tied to them stay as they are."""
    freeze_encoder: bool = False
    """The encoder's layers stay as they are; its dropout stays on."""
    freeze_decoder: bool = False
    """The decoder's layers stay as they are; its dropout stays on."""

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
        require(0 <= self.seed < 2**32, f"seed={self.seed} is out of range; choose 0 <= seed < {2**32}")
        if self.init.from_ is None:  # else the bundle decides what model and vocabulary are, and is checked when read
            self._check_vocabulary()
            self.check_model()
            return
        require(
            self.data.tokenizer.source_model is None,
            f"init.from={self.init.from_} keeps its own tokenizers, which its weights belong to, so "
            f"data.tokenizer.source_model={self.data.tokenizer.source_model} would be for nothing; leave it out",
        )

    def _check_vocabulary(self) -> None:
        """Refuse two vocabularies where the network has one table."""
        require(
            self.model.tying is not Tying.three_way or self.data.tokenizer.joint,
            "model.tying=three_way needs one vocabulary for both languages; set data.tokenizer.joint=true or "
            "model.tying=two_way",
        )
        only = self.model.architecture is Architecture.decoder_only
        require(
            not only or self.data.tokenizer.joint,
            "architecture=decoder_only has one vocabulary for source and target; set data.tokenizer.joint=true",
        )

    def check_model(self) -> None:
        """Refuse a network that cannot do what the data and the loss ask of it.

        Raises:
            ValueError: saying what to choose.
        """
        only = self.model.architecture is Architecture.decoder_only
        if self.data.kind is DataKind.text:
            require(only, "data.kind=text trains a language model, which is decoder-only; choose model=gpt_small")
            require(
                not self.model.prefix_lm,
                "model.prefix_lm=true is for pairs, whose source is seen whole; with data.kind=text set it to false",
            )
        if self.optim.loss_on_source:
            require(
                only and self.data.kind is DataKind.parallel,
                "optim.loss_on_source=true is for architecture=decoder_only and data.kind=parallel; leave it out",
            )
            require(
                not self.model.prefix_lm,
                "optim.loss_on_source=true with model.prefix_lm=true asks the source for pieces that it sees; choose "
                "one of them",
            )
        if self.model.positions is PositionKind.learned:
            self._check_positions(only)

    def _check_positions(self, only: bool) -> None:
        """Refuse training text that is longer than the table of learned positions."""
        assert self.model.max_positions is not None
        name, value, needed = "data.max_length", self.data.max_length, self.data.max_length
        what = f"pairs of up to {value} pieces a side"
        if self.data.kind is DataKind.text:
            name, value, needed = "data.block_length", self.data.block_length, self.data.block_length
            what = f"blocks of {value} pieces"
        elif only:
            needed = 2 * value - 1  # the source without its EOS, the separator and the target
            what += f", {needed} in a row,"
        remedy = f"choose model.max_positions={needed} or more"
        if self.init.from_ is not None:
            remedy = f"fine-tune a model with {needed} positions or more"
        require(
            needed <= self.model.max_positions,
            f"{name}={value} lets {what} into training, but model.max_positions={self.model.max_positions} is as long "
            f"as the learned positions are; lower {name}, or {remedy}",
        )
