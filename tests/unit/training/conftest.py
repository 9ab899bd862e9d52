"""A corpus of turned-round sentences, its tokenizer, and options of a model that learns in seconds."""

import dataclasses
import random

import pytest

from seq2seq.config import (
    Accelerator,
    DataConfig,
    DataKind,
    DecodeConfig,
    ModelConfig,
    OptimConfig,
    TokenizerConfig,
    TokenizerKind,
    TrainConfig,
    TrainerConfig,
)
from seq2seq.corpus.parallel import ParallelText, pair_up
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.data_module import Tokenizers

WORDS = ["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta"]


def reversed_pairs(count: int, seed: int = 1) -> tuple[list[str], list[str]]:
    draw = random.Random(seed)
    sources = [[draw.choice(WORDS) for _ in range(draw.randint(1, 8))] for _ in range(count)]
    return [" ".join(words) for words in sources], [" ".join(reversed(words)) for words in sources]


@pytest.fixture(scope="session")
def text() -> ParallelText:
    return pair_up(*reversed_pairs(200))


@pytest.fixture(scope="session")
def tokenizers(text) -> Tokenizers:
    tokenizer, _ = train_tokenizer(text.source + text.target, TokenizerConfig(vocab_size=280))
    return Tokenizers(tokenizer, tokenizer)


@pytest.fixture
def corpus_files(tmp_path):
    source, target = reversed_pairs(200)
    files = tmp_path / "c.src", tmp_path / "c.tgt"
    for file, lines in zip(files, (source, target), strict=True):
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return files


@pytest.fixture
def train_config(corpus_files) -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(d_model=16, num_heads=2, d_ff=24, num_encoder_layers=1, num_decoder_layers=1),
        data=DataConfig(
            train_source=str(corpus_files[0]),
            train_target=str(corpus_files[1]),
            valid_size=6,
            batch_tokens=150,
            max_length=64,
            tokenizer=TokenizerConfig(vocab_size=280),
        ),
        optim=OptimConfig(warmup_steps=20),
        decode=DecodeConfig(beam_size=1),
        trainer=TrainerConfig(
            max_steps=6, validate_every=3, log_every=2, accelerator=Accelerator.cpu, num_threads=1, report=False
        ),
    )


@pytest.fixture
def gpt_config(train_config, families) -> TrainConfig:
    """A decoder-only model on the same pairs."""
    data = dataclasses.replace(train_config.data, max_length=40)
    return dataclasses.replace(train_config, model=families("gpt2", dropout=0.1), data=data)


@pytest.fixture
def text_config(gpt_config, tmp_path) -> TrainConfig:
    """A language model on plain text, letter by letter."""
    (tmp_path / "t.txt").write_text("\n".join(reversed_pairs(60)[0]) + "\n", encoding="utf-8")
    how = TokenizerConfig(
        kind=TokenizerKind.char, vocab_size=60, byte_fallback=False, keep_whitespace=True, normalization="identity"
    )
    data = DataConfig(
        kind=DataKind.text, train_text=str(tmp_path / "t.txt"), block_length=32, batch_tokens=96, tokenizer=how
    )
    return dataclasses.replace(gpt_config, data=data)
