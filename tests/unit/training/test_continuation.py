"""Sample continuations at a validation of a language model."""

import json
import logging
from unittest.mock import MagicMock

import pytest
import pytorch_lightning
import torch
from pytorch_lightning.loggers import TensorBoardLogger

from seq2seq.bundle import Bundle
from seq2seq.config import Task, TokenizerConfig, TokenizerKind
from seq2seq.corpus.text_blocks import EncodedText
from seq2seq.generator import Generator
from seq2seq.models import build_model
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.continuation import ValidationContinuation

DOCUMENTS = ["now is the winter of our discontent\nmade glorious summer", "by this sun of york"]


@pytest.fixture(scope="module")
def generator(families) -> Generator:
    how = TokenizerConfig(
        kind=TokenizerKind.char, vocab_size=60, byte_fallback=False, keep_whitespace=True, normalization="identity"
    )
    tokenizer, _ = train_tokenizer(DOCUMENTS, how)
    torch.manual_seed(1)
    config = families("gpt2", max_positions=20)
    model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size)
    return Generator(Bundle(model, config, tokenizer, tokenizer, task=Task.language_model))


@pytest.fixture
def text(generator) -> EncodedText:
    tokenizer = generator.tokenizer
    return EncodedText([tokenizer.encode(document) for document in DOCUMENTS], tokenizer.special)


@pytest.mark.parametrize("num_samples", [3, 0])
def test_continuations_go_to_a_file_to_the_log_and_to_tensorboard(generator, text, tmp_path, caplog, num_samples):
    file = tmp_path / "samples.jsonl"
    callback = ValidationContinuation(generator, text, 20, num_samples, file)
    board = MagicMock(spec=TensorBoardLogger)
    trainer = MagicMock(spec=pytorch_lightning.Trainer, loggers=[board], global_step=7)
    generator.model.train()
    before = torch.get_rng_state()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            callback.on_validation_end(trainer, MagicMock(spec=pytorch_lightning.LightningModule))
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]
    assert len(rows) == 2 * num_samples
    assert rows[:num_samples] == rows[num_samples:]  # the same draws each time
    assert all(row["prompt"] in "".join(DOCUMENTS) and row["step"] == 7 for row in rows)
    assert all(row["ended"] or len(row["continuation"]) == 10 for row in rows)
    assert all(repr(row["continuation"]) in caplog.text for row in rows)
    assert board.experiment.add_text.call_count == 2 * bool(num_samples)
    assert generator.model.training
    assert torch.equal(torch.get_rng_state(), before)


def test_prompt_and_continuation_together_are_as_long_as_a_block(generator, text, tmp_path):
    callback = ValidationContinuation(generator, text, 13, 4, tmp_path / "s")
    assert max(map(len, callback.prompts)) == 6
    assert callback.config.max_new_pieces == 7
    long = ValidationContinuation(generator, text, 5000, 4, tmp_path / "s")
    assert (max(map(len, long.prompts)), long.config.max_new_pieces) == (len(DOCUMENTS[0]) + 1, 200)
