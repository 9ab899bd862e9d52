import random

import pytest

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    draw = random.Random(7)
    syllables = ["haus", "baum", "stra", "ße", "fluß", "grün", "schn", "ell", "lauf", "spi", "was", "ser", "gar", "kö"]
    stems = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(150)]
    endings = ["", "e", "en", "er", "ung", "lich", "keit"]
    return [
        " ".join(draw.choice(stems) + draw.choice(endings) for _ in range(draw.randint(3, 9))) + f" {n}."
        for n in range(400)
    ]


def trained(corpus: list[str], kind: TokenizerKind, byte_fallback: bool) -> SentencePieceTokenizer:
    config = TokenizerConfig(kind=kind, vocab_size=400 if byte_fallback else 150, byte_fallback=byte_fallback)
    return train_tokenizer(corpus, config)[0]


@pytest.fixture(scope="session")
def unigram(corpus: list[str]) -> SentencePieceTokenizer:
    return trained(corpus, TokenizerKind.unigram, True)


@pytest.fixture(scope="session")
def bpe(corpus: list[str]) -> SentencePieceTokenizer:
    return trained(corpus, TokenizerKind.bpe, True)


@pytest.fixture(scope="session")
def bpe_without_bytes(corpus: list[str]) -> SentencePieceTokenizer:
    return trained(corpus, TokenizerKind.bpe, False)
