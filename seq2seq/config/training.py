"""Options of a training run."""

from dataclasses import dataclass, field
from typing import Any

from seq2seq.config.checks import require
from seq2seq.config.choices import Architecture, DataKind, OptimizerKind, PositionKind, Strategy, Tying
from seq2seq.config.data import DataConfig
from seq2seq.config.decode import DecodeConfig
from seq2seq.config.model import ModelConfig
from seq2seq.config.optim import DECAYING, OptimConfig, ScheduledSamplingConfig
from seq2seq.config.trainer import TrainerConfig


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
    scheduled_sampling: ScheduledSamplingConfig = field(default_factory=ScheduledSamplingConfig)
    """The model's own predictions among what the decoder is given."""
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
        self._check_optim()
        if self.init.from_ is None:  # else the bundle decides what model and vocabulary are, and is checked when read
            self._check_vocabulary()
            self.check_model()
            return
        require(
            self.data.tokenizer.source_model is None,
            f"init.from={self.init.from_} keeps its own tokenizers, which its weights belong to, so "
            f"data.tokenizer.source_model={self.data.tokenizer.source_model} would be for nothing; leave it out",
        )

    def _check_optim(self) -> None:
        """Refuse a decay without an end, and what cannot be done on weights that are divided among devices."""
        ends = (self.optim.total_steps, self.trainer.max_steps, self.trainer.max_epochs)
        require(
            self.optim.schedule not in DECAYING or any(end is not None for end in ends),
            f"optim.schedule={self.optim.schedule.name} goes down towards a last step, which trainer.max_minutes alone "
            "does not tell; give optim.total_steps or trainer.max_steps",
        )
        whole = (OptimizerKind.adafactor, OptimizerKind.muon)
        divided = self.trainer.strategy is Strategy.fsdp
        require(
            not (divided and self.optim.optimizer in whole),
            f"optim.optimizer={self.optim.optimizer.name} looks at whole matrices, which trainer.strategy=fsdp "
            "divides; choose trainer.strategy=ddp or optim.optimizer=adamw",
        )
        require(
            not (divided and self.optim.ema_decay is not None),
            f"optim.ema_decay={self.optim.ema_decay} keeps whole weights, which trainer.strategy=fsdp divides; choose "
            "trainer.strategy=ddp, or average checkpoints by trainer.final_weights=average",
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
        require(
            self.optim.source_word_dropout == 0 or self.data.kind is DataKind.parallel,
            f"optim.source_word_dropout={self.optim.source_word_dropout} is for data.kind=parallel; plain text has no "
            "source: choose optim.target_word_dropout",
        )
        require(
            self.optim.r_drop == 0 or self.scheduled_sampling.rate == 0,
            f"optim.r_drop={self.optim.r_drop} compares two passes over one and the same text, and "
            f"scheduled_sampling.rate={self.scheduled_sampling.rate} changes it from pass to pass; choose one of them",
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
