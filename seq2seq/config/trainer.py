"""Options of the trainer: how long, on what, and what is kept."""

from dataclasses import dataclass

from seq2seq.config.checks import positive, require
from seq2seq.config.choices import Accelerator, BatchTokens, Direction, FinalWeights, Precision, Strategy

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
    strategy: Strategy = Strategy.auto
    """How several devices train one model."""
    devices: int = 1
    """Devices of each machine; on CPUs, processes."""
    num_nodes: int = 1
    """Machines."""
    compile: bool = False
    """Whether the network is compiled by torch; the first steps take minutes, then GPUs are faster."""
    activation_checkpointing: bool = False
    """Layers are computed a second time in the backward pass instead of being kept: less memory, a third more work."""
    padding_free: bool = False
    """On GPUs, attention over rows put end to end, in which no padding is computed."""
    batch_tokens: BatchTokens = BatchTokens.given
    """Whether the size of a batch is given, or the largest that fits is looked for."""
    num_threads: int | None = None
    """CPU threads; null leaves the choice to torch."""
    log_every: int = 20
    """Steps between logged training metrics."""
    report: bool = True
    """Whether report.html is written at the end of the run."""
    num_samples: int = 3
    """Validation sentences whose translations, or places of the text whose continuations, are logged at each
    validation."""

    def __post_init__(self) -> None:
        for name in ("max_epochs", "max_steps", "max_minutes", "validate_every", "patience", "num_threads"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        for name in ("accumulate", "log_every", "devices", "num_nodes"):
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
