"""Every option of the package: its name, unit, default and check, declared once.

Hydra composes the YAML files under ``conf/`` against these dataclasses, Python users build them directly, and a
bundle's ``config.json`` is read back through `from_dict`. A default stands here and nowhere else; an option that has
none (the sizes of a model, the files of a corpus) must be given. Choices are enums whose member names are the words
that users type.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


class Tying(Enum):
    """Which of the three [V, D] matrices are one: source embedding, target embedding, output projection."""

    three_way = "three_way"
    two_way = "two_way"
    none = "none"


class Activation(Enum):
    """Non-linearity between the two products of the feed-forward network."""

    relu = "relu"


class TokenizerKind(Enum):
    """SentencePiece's two algorithms: unigram language model (Kudo 2018) and byte-pair encoding (Sennrich 2016)."""

    unigram = "unigram"
    bpe = "bpe"


class PenaltyForm(Enum):
    """Divisor of a hypothesis' log-probability: ((5 + length) / 6)^p, length^p, or 1."""

    gnmt = "gnmt"
    power = "power"
    none = "none"


class LongLines(Enum):
    """What to do with an input line that has more pieces than `max_source_length`."""

    error = "error"
    truncate = "truncate"
    split = "split"


class Precision(Enum):
    """Number format of the training arithmetic; weights stay float32 in both."""

    fp32 = "fp32"
    bf16_mixed = "bf16_mixed"


class Accelerator(Enum):
    """Kind of device that training runs on."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"
    mps = "mps"


class Direction(Enum):
    """Whether a smaller or a larger value of the monitored metric is better."""

    min = "min"
    max = "max"


class FinalWeights(Enum):
    """Which weights the bundle at the end of a run holds."""

    best = "best"
    last = "last"
    average = "average"


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


def _probability(name: str, value: int | float) -> None:
    _require(0.0 <= value < 1.0, f"{name}={value} is not a probability below 1; choose 0 <= {name} < 1")


_TOO_LARGE = 2**31
"""Nothing here is meant to be this large; infinity and what would overflow a tensor's index are refused with it."""


def _positive(name: str, value: int | float) -> None:
    _require(value > 0, f"{name}={value} is not positive; choose {name} > 0")
    _require(value < _TOO_LARGE, f"{name}={value} is too large; choose {name} < {_TOO_LARGE}")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of the encoder-decoder Transformer (Vaswani et al. 2017, arXiv:1706.03762)."""

    d_model: int
    """Width D of the residual stream, a multiple of `num_heads`, even."""
    num_heads: int
    """Attention heads H; each has width D / H."""
    d_ff: int
    """Inner width F of the feed-forward networks."""
    num_encoder_layers: int
    """Blocks in the encoder."""
    num_decoder_layers: int
    """Blocks in the decoder."""
    dropout: float = 0.1
    """On the embeddings' sum and on each sublayer's output, before it is added (paper, section 5.4)."""
    attention_dropout: float = 0.0
    """On the attention weights. Not in the paper; takes attention off its fused kernel on CPUs."""
    activation_dropout: float = 0.0
    """After the feed-forward network's non-linearity. Not in the paper."""
    tying: Tying = Tying.three_way
    """Three-way (paper, section 3.4) needs a joint vocabulary; two-way ties target embedding and output."""
    activation: Activation = Activation.relu
    """Feed-forward non-linearity."""
    norm_eps: float = 1e-5
    """Added to the variance in LayerNorm."""
    vocab_multiple: int = 1
    """Embedding rows are rounded up to a multiple of this; rows beyond the tokenizer are never produced."""

    def __post_init__(self) -> None:
        for name in ("d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers", "vocab_multiple"):
            _positive(name, getattr(self, name))
        _require(
            self.d_model % self.num_heads == 0,
            f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}; "
            "choose d_model as a multiple of num_heads",
        )
        _require(self.d_model % 2 == 0, f"d_model={self.d_model} is odd; sinusoids come in pairs, choose an even width")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            _probability(name, getattr(self, name))
        _positive("norm_eps", self.norm_eps)


@dataclass(frozen=True)
class TokenizerConfig:
    """How SentencePiece models are trained, or where trained ones are."""

    kind: TokenizerKind = TokenizerKind.unigram
    """Algorithm."""
    vocab_size: int = 8000
    """Pieces, the four special ones included; for each side if not joint."""
    joint: bool = True
    """One vocabulary for both languages (needed for three-way tying)."""
    byte_fallback: bool = True
    """Spell characters outside the vocabulary as UTF-8 bytes (256 pieces) instead of the unknown piece."""
    character_coverage: float = 1.0
    """Share of the characters that get pieces of their own; 0.9995 suits Chinese and Japanese."""
    normalization: str = "nmt_nfkc"
    """SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf or identity. Recorded in the bundle."""
    max_sentence_bytes: int = 4192
    """Longer lines are left out of the tokenizer's training, and counted."""
    source_model: str | None = None
    """A trained SentencePiece model to use instead of training one."""
    target_model: str | None = None
    """The same for the target side; none with a joint vocabulary."""
    sampling_alpha: float = 0.0
    """Subword sampling in training, unigram only: segmentations are drawn with probability ~ P^alpha; 0 is off."""
    sampling_nbest: int = 64
    """Segmentations that the draw chooses from."""
    bpe_dropout: float = 0.0
    """Probability that a merge is left out in training, BPE only (Provilkov et al. 2020); 0 is off."""

    def __post_init__(self) -> None:
        floor = 4 + 256 * self.byte_fallback
        _require(
            self.vocab_size > floor,
            f"data.tokenizer.vocab_size={self.vocab_size} leaves no room beside {floor} special and byte pieces; "
            f"choose more than {floor}" + (" or data.tokenizer.byte_fallback=false" if self.byte_fallback else ""),
        )
        _require(
            0.98 <= self.character_coverage <= 1.0,
            f"data.tokenizer.character_coverage={self.character_coverage} is not between 0.98 and 1, which "
            "SentencePiece can train with; 0.9995 suits Chinese and Japanese, 1.0 other languages",
        )
        _require(
            0 <= self.sampling_alpha < _TOO_LARGE,
            f"data.tokenizer.sampling_alpha={self.sampling_alpha} is negative or infinite; 0 is off, 0.2 is usual",
        )
        _positive("data.tokenizer.vocab_size", self.vocab_size)
        _require(self.sampling_nbest > 1, f"data.tokenizer.sampling_nbest={self.sampling_nbest} must be at least 2")
        _probability("data.tokenizer.bpe_dropout", self.bpe_dropout)
        _require(
            10 <= self.max_sentence_bytes <= 2**30,
            f"data.tokenizer.max_sentence_bytes={self.max_sentence_bytes} is not between 10 and 2^30, which "
            "SentencePiece can train with",
        )
        _require(
            self.kind is TokenizerKind.bpe or self.bpe_dropout == 0,
            f"data.tokenizer.bpe_dropout={self.bpe_dropout} needs data.tokenizer.kind=bpe, got {self.kind.name}; "
            "with unigram use data.tokenizer.sampling_alpha",
        )
        _require(
            self.kind is TokenizerKind.unigram or self.sampling_alpha == 0,
            f"data.tokenizer.sampling_alpha={self.sampling_alpha} needs data.tokenizer.kind=unigram, got "
            f"{self.kind.name}; with bpe use data.tokenizer.bpe_dropout",
        )
        _require(
            self.target_model is None or not self.joint,
            "data.tokenizer.target_model is for separate vocabularies; set data.tokenizer.joint=false or leave it out",
        )
        _require(
            self.joint or (self.source_model is None) == (self.target_model is None),
            "data.tokenizer.joint=false with a trained tokenizer needs both data.tokenizer.source_model and "
            "data.tokenizer.target_model",
        )


@dataclass(frozen=True)
class DataConfig:
    """Files of parallel text and how they become batches. A path without its .gz is found as well."""

    train_source: str
    """Training text, source side: one segment a line, UTF-8, plain or .gz."""
    train_target: str
    """Training text, target side: line n translates line n of the source."""
    valid_source: str | None = None
    """Validation text; when absent, `valid_size` pairs are held out of the training text."""
    valid_target: str | None = None
    """The same, target side."""
    dir: str = "."
    """Folder that a data group's file names stand in."""
    source_lang: str | None = None
    """Language code of the source; in the folder layout also the ending of its files."""
    target_lang: str | None = None
    """Language code of the target."""
    valid_size: int = 500
    """Pairs held out when no validation files are given (at most a tenth of the corpus)."""
    max_length: int = 256
    """Pairs with more pieces than this on either side are left out of training, and counted."""
    batch_tokens: int = 4096
    """Budget of a batch: sentences times the longest of them, the larger of both sides, in pieces."""
    num_workers: int = 0
    """Processes that put batches together; 0 does it in the training process."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """Vocabulary."""

    def __post_init__(self) -> None:
        for name in ("valid_size", "max_length", "batch_tokens"):
            _positive(name, getattr(self, name))
        _require(self.num_workers >= 0, f"num_workers={self.num_workers} is negative")
        _require(
            self.max_length <= self.batch_tokens,
            f"max_length={self.max_length} is more than batch_tokens={self.batch_tokens}; "
            "a batch must hold at least one pair of the longest kind",
        )
        _require(
            (self.valid_source is None) == (self.valid_target is None),
            "give both valid_source and valid_target, or neither",
        )


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

    def __post_init__(self) -> None:
        _require(self.warmup_steps >= 1, f"warmup_steps={self.warmup_steps} must be at least 1; Post-LN needs warm-up")
        for name in ("lr_factor", "eps"):
            _positive(name, getattr(self, name))
        for name in ("beta1", "beta2", "label_smoothing"):
            _probability(name, getattr(self, name))
        if self.clip_norm is not None:
            _positive("clip_norm", self.clip_norm)


@dataclass(frozen=True)
class DecodeConfig:
    """How translations are searched for. Lengths are in target pieces and count the closing EOS."""

    beam_size: int = 4
    """Hypotheses kept for each sentence; 1 is greedy search."""
    n_best: int = 1
    """Translations returned for each sentence, at most `beam_size`."""
    penalty_form: PenaltyForm = PenaltyForm.gnmt
    """Which divisor normalises for length."""
    length_penalty: float = 0.6
    """Exponent p of the divisor: larger favours longer translations, negative shorter ones, 0 neither."""
    min_length: int = 1
    """EOS is not allowed before this many pieces."""
    max_length: int | None = None
    """No translation is longer than this, whatever the source."""
    max_length_factor: float = 2.0
    """The limit is factor * source length + offset, ..."""
    max_length_offset: int = 10
    """... and the source length counts its EOS too."""
    min_length_factor: float = 0.0
    """EOS is not allowed before factor * source length pieces either."""
    max_source_length: int = 1024
    """Source lines with more pieces than this are treated as `long_lines` says."""
    long_lines: LongLines = LongLines.error
    """What becomes of longer source lines."""
    batch_tokens: int = 4096
    """Source pieces translated at once, padding and beams not counted."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "max_length_factor", "max_source_length", "batch_tokens", "min_length"):
            _positive(name, getattr(self, name))
        _require(
            self.n_best <= self.beam_size,
            f"n_best={self.n_best} is more than beam_size={self.beam_size}; choose a beam at least as large",
        )
        _require(self.min_length_factor >= 0, f"min_length_factor={self.min_length_factor} is negative")
        _require(
            abs(self.length_penalty) <= 20,
            f"length_penalty={self.length_penalty} is not between -20 and 20; 0.6 to 1 is usual, 0 is off",
        )
        _require(
            1 <= self.max_length_offset < _TOO_LARGE, f"max_length_offset={self.max_length_offset} must be at least 1"
        )
        _require(
            self.min_length_factor <= self.max_length_factor,
            f"min_length_factor={self.min_length_factor} is more than max_length_factor={self.max_length_factor}",
        )
        if self.max_length is not None:
            _require(
                self.max_length >= self.min_length,
                f"max_length={self.max_length} is less than min_length={self.min_length}",
            )


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
                _positive(name, getattr(self, name))
        for name in ("accumulate", "log_every"):
            _positive(name, getattr(self, name))
        _require(
            self.num_threads is None or self.num_threads <= MAX_THREADS,
            f"num_threads={self.num_threads} is more than {MAX_THREADS}; choose at most the number of CPU cores",
        )
        for name in ("keep_best", "average_last", "num_samples"):
            _require(getattr(self, name) >= 0, f"{name}={getattr(self, name)} is negative")
        _require(
            any(limit is not None for limit in (self.max_epochs, self.max_steps, self.max_minutes)),
            "training would never end; give trainer.max_epochs, trainer.max_steps or trainer.max_minutes",
        )
        _require(
            self.final_weights is not FinalWeights.best or self.keep_best > 0,
            "trainer.final_weights=best needs trainer.keep_best > 0; or choose trainer.final_weights=last",
        )
        _require(
            self.final_weights is not FinalWeights.average or self.average_last > 0,
            "trainer.final_weights=average needs trainer.average_last > 0",
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
        _require(
            self.model.tying is not Tying.three_way or self.data.tokenizer.joint,
            "model.tying=three_way needs one vocabulary for both languages; set data.tokenizer.joint=true or "
            "model.tying=two_way",
        )
        _require(0 <= self.seed < 2**32, f"seed={self.seed} is out of range; choose 0 <= seed < {2**32}")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: ``; did you mean 'dropout'?``, or the known words if none is near."""
    words = list(known)
    close = difflib.get_close_matches(name, words, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; expected one of {', '.join(words)}"


def from_dict(cls: type[T], values: dict[str, Any], *, where: str = "") -> T:
    """Build the dataclass `cls` from plain values, refusing what it does not declare.

    Args:
        cls: One of this module's dataclasses.
        values: Plain builtins as YAML or JSON give them; enums by member name.
        where: Dotted prefix of the option names in messages.

    Raises:
        ValueError: for an unknown or missing option, a value of the wrong type, or a failed check.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for name in values:
        if name not in fields:
            raise ValueError(f"unknown option '{where}{name}'{nearest(name, fields)}")
    for name, declared in fields.items():
        required = declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING
        if required and values.get(name) in (None, "???"):
            raise ValueError(f"option '{where}{name}' is missing; give {where}{name}=...")
    return cls(**{name: _convert(hints[name], value, where + name) for name, value in values.items()})


def _convert(hint: Any, value: Any, name: str) -> Any:
    """`value` as the type `hint`, for the few types that options have."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ValueError(f"option '{name}' is a group of options, got {value!r}")
        return from_dict(hint, value, where=name + ".")  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, Enum):
        word = value.name if isinstance(value, Enum) else value
        if word not in hint.__members__:
            raise ValueError(f"option '{name}' got {word!r}{nearest(str(word), hint.__members__)}")
        return hint[word]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    kind = typing.get_origin(hint) or hint
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"option '{name}' got {value!r}, expected {kind.__name__}")
    return value


def to_dict(config: Any) -> dict[str, Any]:
    """The options as plain builtins, enums by member name: what goes into YAML, JSON and checkpoints."""

    def plain(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value

    return {name: plain(value) for name, value in dataclasses.asdict(config).items()}
