"""Reading plain text for a run, and its tokenizer."""

import dataclasses
import logging

import pytest

from seq2seq.config import DataConfig, DataKind, Documents, TokenizerConfig, TokenizerKind
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.plain_text import prepare_text_tokenizer, read_plain_text, warn_of_lost_text

KEEP = TokenizerConfig(
    kind=TokenizerKind.char, vocab_size=60, byte_fallback=False, keep_whitespace=True, normalization="identity"
)


@pytest.fixture
def data(tmp_path) -> DataConfig:
    (tmp_path / "a.txt").write_text("".join(f"line {i},  two spaces\n" for i in range(40)), encoding="utf-8")
    (tmp_path / "v.txt").write_text("of its own\n\nand more\n", encoding="utf-8")
    return DataConfig(kind=DataKind.text, train_text=str(tmp_path / "a.txt"), tokenizer=KEEP, valid_share=0.25)


def test_the_end_of_the_text_is_held_out_and_the_user_is_told(data, caplog):
    with caplog.at_level(logging.INFO):
        text = read_plain_text(data)
    ((train,), (valid,)) = text.train, text.valid
    assert train.endswith("line 29,  two spaces\n")
    assert valid.startswith("line 30,  two spaces\n")
    assert "no data.valid_text given: the last 25% of the text is for validation" in caplog.text
    assert [facts["lines"] for facts in text.fingerprint.values()] == [40]


def test_a_validation_text_of_its_own_is_read_as_the_training_text_is(data, tmp_path):
    own = dataclasses.replace(data, valid_text=str(tmp_path / "v.txt"), documents=Documents.paragraph)
    text = read_plain_text(own)
    assert len(text.train) == 1
    assert text.valid == ["of its own", "and more"]
    assert [facts["lines"] for facts in text.fingerprint.values()] == [40, 3]


def test_a_tokenizer_is_trained_on_whole_documents_or_a_given_one_is_taken(data, tmp_path, caplog):
    documents = read_plain_text(data).train
    with caplog.at_level(logging.INFO):
        tokenizer = prepare_text_tokenizer(data, documents, seed=1)
    assert tokenizer.decode_text(tokenizer.encode(documents[0])) == documents[0]
    assert "tokenizer with" in caplog.text
    (tmp_path / "t.model").write_bytes(tokenizer.files("source")["source.spm"])
    given = dataclasses.replace(data, tokenizer=TokenizerConfig(source_model=str(tmp_path / "t.model")))
    assert prepare_text_tokenizer(given, documents, seed=1).sha256 == tokenizer.sha256


def test_a_tokenizer_that_keeps_no_line_feeds_is_trained_on_lines(data):
    plain = dataclasses.replace(data, tokenizer=TokenizerConfig(vocab_size=285))
    tokenizer = prepare_text_tokenizer(plain, ["".join(f"word number {i} of many\n" for i in range(400))], seed=1)
    assert tokenizer.vocab_size == 285


def test_a_tokenizer_that_loses_white_space_is_warned_about(data, caplog):
    documents = read_plain_text(data).valid
    keeps = prepare_text_tokenizer(data, documents, seed=1)
    warn_of_lost_text(keeps, documents)
    assert not caplog.records
    loses, _ = train_tokenizer(documents[0].split("\n"), dataclasses.replace(KEEP, keep_whitespace=False))
    warn_of_lost_text(loses, documents)
    assert "the tokenizer does not keep the text as it is" in caplog.text
    assert "set data.tokenizer.keep_whitespace=true" in caplog.text
