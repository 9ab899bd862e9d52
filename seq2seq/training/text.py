"""A run's text: read, checked, divided, and its tokenizers trained or loaded."""

import logging
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from seq2seq.config import DataConfig, TokenizerConfig, TokenizerKind
from seq2seq.corpus.parallel import ParallelText, fingerprint, pair_up, read_parallel
from seq2seq.text.lines import read_lines
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.data_module import Tokenizers
from seq2seq.training.validation import RawText

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunText:
    """What a run trains and validates on."""

    train: ParallelText
    """Training pairs."""
    valid: ParallelText
    """Validation pairs, those with a blank side left out: for the loss."""
    raw_valid: RawText
    """Validation lines, all of them: for translation and BLEU."""
    fingerprint: dict[str, Any]
    """SHA-256 and number of lines of each file."""


def read_text(config: DataConfig, seed: int) -> RunText:
    """Read the files; without validation files, hold out a random part of the training pairs.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the two sides of a set have unequal numbers of lines, or a file is not UTF-8.
    """
    assert config.train_source is not None
    assert config.train_target is not None
    train = read_parallel(config.train_source, config.train_target)
    _report(train, config.train_source, config.train_target)
    paths = [config.train_source, config.train_target]
    if config.valid_source is not None and config.valid_target is not None:
        valid = read_parallel(config.valid_source, config.valid_target)
        _report(valid, config.valid_source, config.valid_target)
        raw = RawText(read_lines(config.valid_source), read_lines(config.valid_target))
        paths += [config.valid_source, config.valid_target]
    else:
        train, valid = _hold_out(train, config.valid_size, seed)
        raw = RawText(valid.source, valid.target)
        log.info(
            "no validation files given: %d random pairs are held out of the training text for validation", len(valid)
        )
    return RunText(train, valid, raw, fingerprint(paths))


def prepare_tokenizers(config: DataConfig, text: ParallelText, seed: int) -> Tokenizers:
    """Load the tokenizers that the options name, or train them on the training text.

    Raises:
        FileNotFoundError: if a named model is missing.
        ValueError: if a model has no pad, bos, eos or unk symbol, or a vocabulary does not suit the text.
    """
    how = config.tokenizer
    if how.source_model is not None:
        source = SentencePieceTokenizer.load(how.source_model)
        if how.target_model is None:
            return Tokenizers(source, source)
        return Tokenizers(source, SentencePieceTokenizer.load(how.target_model))
    if how.joint:
        tokenizer, report = train_tokenizer(chain(text.source, text.target), how, seed=seed)
        log.info("joint %s", report.summary())
        return Tokenizers(tokenizer, tokenizer)
    sides = []
    for name, lines in (("source", text.source), ("target", text.target)):
        tokenizer, report = train_tokenizer(lines, how, seed=seed)
        log.info("%s %s", name, report.summary())
        sides.append(tokenizer)
    return Tokenizers(sides[0], sides[1])


def check_sampling(tokenizers: Tokenizers, how: TokenizerConfig) -> None:
    """Refuse a way of sampling that tokenizers of other origin than these options cannot do.

    Raises:
        ValueError: naming the kind that it takes.
    """
    wanted = {TokenizerKind.bpe: how.bpe_dropout > 0, TokenizerKind.unigram: how.sampling_alpha > 0}
    for tokenizer in (tokenizers.source, tokenizers.target):
        found = tokenizer.kind if isinstance(tokenizer, SentencePieceTokenizer) else None
        for kind, is_wanted in wanted.items():
            if is_wanted and found is not kind:
                option = "bpe_dropout" if kind is TokenizerKind.bpe else "sampling_alpha"
                raise ValueError(
                    f"data.tokenizer.{option}={getattr(how, option)} needs a {kind.name} model, got "
                    f"{found.name if found is not None else tokenizer.format}"
                )


def _report(text: ParallelText, source_path: str, target_path: str) -> None:
    log.info("%s, %s: %d pairs", source_path, target_path, len(text))
    notice = text.notice()
    if notice is not None:
        log.warning("%s, %s: %s", source_path, target_path, notice)


def _hold_out(text: ParallelText, size: int, seed: int) -> tuple[ParallelText, ParallelText]:
    """Divide the pairs at random; copies of a held-out source or target stay out of the training part."""
    size = min(size, len(text) // 10)
    if size == 0:
        raise ValueError(
            f"{len(text)} pairs are too few to hold out a validation set (a tenth of them); give data.valid_source and "
            "data.valid_target, or more text"
        )
    chosen = set(np.random.default_rng(seed).permutation(len(text))[:size].tolist())
    sources, targets = {text.source[i] for i in chosen}, {text.target[i] for i in chosen}
    held = sorted(chosen)
    rest = [
        i
        for i in range(len(text))
        if i not in chosen and text.source[i] not in sources and text.target[i] not in targets
    ]
    if not rest:
        raise ValueError("nothing is left to train on beside the held-out pairs: all pairs are copies of one another")
    return _part(text, rest), _part(text, held)


def _part(text: ParallelText, indices: list[int]) -> ParallelText:
    part = pair_up([text.source[i] for i in indices], [text.target[i] for i in indices])
    return ParallelText(
        part.source,
        part.target,
        [text.line_numbers[i] for i in indices],
        part.num_lines,
        part.one_sided,
        part.both_empty,
    )
