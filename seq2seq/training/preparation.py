"""What differs between a run on pairs and one on plain text: its data, its loss, and how it is validated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pytorch_lightning import Callback, seed_everything

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, DataKind, LongLines, PositionKind, Task, TrainConfig
from seq2seq.generator import Generator
from seq2seq.models import DecoderOnly, Transformer, build_model
from seq2seq.training.continuation import ValidationContinuation
from seq2seq.training.data_module import EpochDataModule, ParallelDataModule, Tokenizers
from seq2seq.training.distribution import from_rank_zero, rank
from seq2seq.training.execution import check_execution, execution
from seq2seq.training.first_weights import FirstWeights, freeze
from seq2seq.training.module import TrainingModule
from seq2seq.training.objectives import LanguageModelModule, TranslationModule
from seq2seq.training.plain_text import prepare_text_tokenizer, read_plain_text, warn_of_lost_text
from seq2seq.training.text import check_sampling, prepare_tokenizers, read_text
from seq2seq.training.text_data_module import TextDataModule
from seq2seq.training.validation import ValidationBleu
from seq2seq.translator import Translator
from seq2seq.translator.long_lines import fit, longest_source

T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """All that a trainer needs of a run."""

    tokenizers: Tokenizers
    """Text to ids and back."""
    data: EpochDataModule
    """Batches."""
    module: TrainingModule
    """The network, its loss and its optimiser."""
    validation: Callback
    """What is done at a validation beside the loss."""
    fingerprint: dict[str, Any]
    """SHA-256 and number of lines of each file of text."""

    @property
    def model(self) -> Transformer:
        """The network."""
        return self.module.model


def prepare(config: TrainConfig, run_dir: Path, first: FirstWeights | None) -> Prepared:
    """The run that the options describe.

    Args:
        config: Every option.
        run_dir: Where samples are written.
        first: What it goes on from; None draws weights at random and makes tokenizers of its own.

    Raises:
        FileNotFoundError: if a file of text or a tokenizer is missing.
        ValueError: if text and options do not fit together, or this machine cannot compute as they say.
    """
    check_execution(config)
    if config.data.kind is DataKind.text:
        return _language_model(config, run_dir, first)
    return _translation(config, run_dir, first)


def _translation(config: TrainConfig, run_dir: Path, first: FirstWeights | None) -> Prepared:
    text = read_text(config.data, config.seed)
    if first is not None:
        tokenizers = first.tokenizers
    else:
        tokenizers = _made_by_rank_zero(lambda: prepare_tokenizers(config.data, text.train, config.seed))
    check_sampling(tokenizers, config.data.tokenizer)
    _check_source_lengths(config, text.raw_valid.source, tokenizers)
    data = ParallelDataModule(
        text.train, text.valid, tokenizers, config.data, config.trainer.accumulate, config.seed, _num_ranks(config)
    )
    _check_valid_lengths(config, data)
    model = _network(config, tokenizers, first)
    validation = ValidationBleu(
        Translator(Bundle(model, config.model, tokenizers.source, tokenizers.target, config.decode), details=False),
        text.raw_valid,
        config.decode,
        config.data.target_lang,
        config.trainer.num_samples,
        run_dir / "samples.jsonl",
    )
    module = TranslationModule(
        model,
        config.optim,
        config.model.d_model,
        config.trainer.log_every,
        sampling=config.scheduled_sampling,
        source_special=tokenizers.source.special,
        target_special=tokenizers.target.special,
    )
    return Prepared(tokenizers, data, module, validation, text.fingerprint)


def _language_model(config: TrainConfig, run_dir: Path, first: FirstWeights | None) -> Prepared:
    text = read_plain_text(config.data)
    if first is not None:
        tokenizers = first.tokenizers
    else:
        tokenizer = _made_by_rank_zero(lambda: prepare_text_tokenizer(config.data, text.train, config.seed))
        tokenizers = Tokenizers(tokenizer, tokenizer)
    warn_of_lost_text(tokenizers.source, text.valid)
    data = TextDataModule(
        text.train,
        text.valid,
        tokenizers.source,
        config.data,
        config.trainer.accumulate,
        config.seed,
        _num_ranks(config),
    )
    model = _network(config, tokenizers, first)
    assert isinstance(model, DecoderOnly)
    bundle = Bundle(model, config.model, tokenizers.source, tokenizers.target, task=Task.language_model)
    validation = ValidationContinuation(
        Generator(bundle),
        data.valid_text,
        config.data.block_length,
        config.trainer.num_samples,
        run_dir / "samples.jsonl",
    )
    module = LanguageModelModule(
        model,
        config.optim,
        config.model.d_model,
        config.trainer.log_every,
        data.valid_size,
        sampling=config.scheduled_sampling,
        special=tokenizers.target.special,
    )
    return Prepared(tokenizers, data, module, validation, text.fingerprint)


def _made_by_rank_zero(make: Callable[[], T]) -> T:
    """What one process makes, for it takes a while, and all have."""
    made = from_rank_zero(make() if rank() == 0 else None)
    assert made is not None
    return made


def _num_ranks(config: TrainConfig) -> int:
    """Processes that train together: one for each device."""
    return config.trainer.devices * config.trainer.num_nodes


def _network(config: TrainConfig, tokenizers: Tokenizers, first: FirstWeights | None) -> Transformer:
    """The network with its first weights, drawn with the run's seed or taken over."""
    seed_everything(config.seed, workers=True, verbose=False)
    model = build_model(config.model, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    if first is not None and first.weights is not None:
        model.load_state_dict(first.weights)
    freeze(model, config.init)
    model.execute(execution(config.trainer))
    return model


def _check_source_lengths(config: TrainConfig, lines: Sequence[str], tokenizers: Tokenizers) -> None:
    """Refuse a validation line that the first validation would refuse, before the training that leads to it."""
    if config.decode.long_lines is not LongLines.error:
        return
    longest = longest_source(config.model)
    for number, ids in enumerate(tokenizers.source.encode_batch(lines), start=1):
        try:
            fit(ids, tokenizers.source, config.decode, number, longest)
        except ValueError as problem:
            raise ValueError(f"the validation source cannot be translated: {problem}") from problem


def _check_valid_lengths(config: TrainConfig, data: ParallelDataModule) -> None:
    """Refuse a validation pair, none of which is left out, that learned positions are too few for."""
    if config.model.positions is not PositionKind.learned:
        return
    limit = config.model.max_positions
    assert limit is not None
    in_a_row = config.model.architecture is Architecture.decoder_only
    lengths = zip(data.valid.source_lengths, data.valid.target_lengths, strict=True)
    for number, (source, target) in enumerate(lengths, start=1):
        needed = source - 1 + target if in_a_row else max(source, target)
        if needed > limit:
            raise ValueError(
                f"pair {number} of the validation text takes {needed} positions, model.max_positions={limit} is as "
                "long as the learned positions are; shorten it or leave it out, or take a model with more positions"
            )
