"""A run's plain text: read, divided into documents, its end held out, and its tokenizer trained or loaded."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from seq2seq.config import DataConfig
from seq2seq.corpus.documents import hold_out, read_documents
from seq2seq.corpus.parallel import fingerprint
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.tokenizer_training import train_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunDocuments:
    """What a language model trains and validates on."""

    train: list[str]
    """Documents to train on."""
    valid: list[str]
    """Documents to validate on."""
    fingerprint: dict[str, Any]
    """SHA-256 and number of lines of each file."""


def read_plain_text(config: DataConfig) -> RunDocuments:
    """Read the files; without a validation file, hold out the end of the training text.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is not UTF-8 or has no text, or the text cannot be divided.
    """
    assert config.train_text is not None
    train = read_documents(config.train_text, config.documents)
    paths = [config.train_text]
    if config.valid_text is not None:
        valid = read_documents(config.valid_text, config.documents)
        paths.append(config.valid_text)
    else:
        train, valid = hold_out(train, config.documents, config.valid_share)
        log.info("no data.valid_text given: the last %.3g%% of the text is for validation", 100 * config.valid_share)
    return RunDocuments(train, valid, fingerprint(paths))


def prepare_text_tokenizer(config: DataConfig, documents: Sequence[str], seed: int) -> Tokenizer:
    """Load the tokenizer that the options name, or train one on the documents.

    Raises:
        FileNotFoundError: if a named model is missing.
        ValueError: if the vocabulary does not suit the text.
    """
    how = config.tokenizer
    if how.source_model is not None:
        return SentencePieceTokenizer.load(how.source_model)
    lines = documents if how.keep_whitespace else chain.from_iterable(text.split("\n") for text in documents)
    tokenizer, report = train_tokenizer(lines, how, seed=seed)
    log.info("%s", report.summary())
    return tokenizer


def warn_of_lost_text(tokenizer: Tokenizer, documents: Sequence[str]) -> None:
    """Say so when the tokenizer gives back another text than it was given: figures per character are flattered then."""
    for document in documents:
        if tokenizer.decode_text(tokenizer.encode(document)) != document:
            log.warning(
                "the tokenizer does not keep the text as it is, white space perhaps: the model never learns what is "
                "lost, and its figures per character and byte cannot be compared with others'; for a tokenizer of your "
                "own set data.tokenizer.keep_whitespace=true and data.tokenizer.normalization=identity"
            )
            return
