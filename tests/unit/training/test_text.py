"""Reading, holding out, and the tokenizers of a run."""

import dataclasses
import logging
from unittest.mock import Mock

import pytest

from seq2seq.config import DataConfig, TokenizerConfig, TokenizerKind
from seq2seq.text.lines import read_lines
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.data_module import Tokenizers
from seq2seq.training.text import check_sampling, prepare_tokenizers, read_text


@pytest.fixture
def data(train_config) -> DataConfig:
    return train_config.data


def test_pairs_are_held_out_when_no_validation_files_are_given(data, caplog):
    with caplog.at_level(logging.INFO):
        text = read_text(data, seed=1)
    assert len(text.valid) == 6
    assert "6 random pairs are held out" in caplog.text
    assert not set(text.valid.source) & set(text.train.source)
    assert not set(text.valid.target) & set(text.train.target)
    assert text.raw_valid.source == text.valid.source
    assert read_text(data, seed=1).valid == text.valid
    assert read_text(data, seed=2).valid != text.valid


def test_line_numbers_of_the_parts_point_into_the_file(data):
    text = read_text(data, seed=1)
    lines = read_lines(data.train_source)
    for part in (text.train, text.valid):
        assert [lines[number - 1] for number in part.line_numbers] == part.source


def test_too_few_pairs_to_hold_out_are_refused(tmp_path, data):
    for name in ("s", "t"):
        (tmp_path / name).write_text("a\nb\nc\n")
    few = dataclasses.replace(data, train_source=str(tmp_path / "s"), train_target=str(tmp_path / "t"))
    with pytest.raises(ValueError, match="3 pairs are too few to hold out a validation set"):
        read_text(few, seed=1)


def test_copies_of_one_pair_leave_nothing_to_train_on(tmp_path, data):
    for name in ("s", "t"):
        (tmp_path / name).write_text("a\n" * 20)
    copies = dataclasses.replace(data, train_source=str(tmp_path / "s"), train_target=str(tmp_path / "t"))
    with pytest.raises(ValueError, match="nothing is left to train on"):
        read_text(copies, seed=1)


def test_v9_references_are_the_raw_lines_blank_ones_too(tmp_path, data, caplog):
    source, target = tmp_path / "v.s", tmp_path / "v.t"
    source.write_text("alpha  beta\n\ngamma \U0001f9d1\u200d\U0001f680\n", encoding="utf-8")
    target.write_text("beta  alpha\nx\n\U0001f9d1\u200d\U0001f680 gamma\n", encoding="utf-8")
    given = dataclasses.replace(data, valid_source=str(source), valid_target=str(target))
    with caplog.at_level(logging.WARNING):
        text = read_text(given, seed=1)
    assert text.raw_valid.target == ["beta  alpha", "x", "\U0001f9d1\u200d\U0001f680 gamma"]
    assert len(text.valid) == 2
    assert "line 2" in caplog.text
    assert len(text.fingerprint) == 4


def test_separate_vocabularies_are_trained_on_their_own_side(data):
    text = read_text(data, seed=1).train
    how = TokenizerConfig(vocab_size=275, joint=False)
    tokenizers = prepare_tokenizers(dataclasses.replace(data, tokenizer=how), text, seed=1)
    assert tokenizers.source is not tokenizers.target
    joint = prepare_tokenizers(data, text, seed=1)
    assert joint.source is joint.target


def test_a_trained_tokenizer_is_taken_as_it_is(tmp_path, data, text):
    tokenizer, _ = train_tokenizer(text.source, TokenizerConfig(vocab_size=275))
    (tmp_path / "t.model").write_bytes(tokenizer.model)
    how = TokenizerConfig(source_model=str(tmp_path / "t.model"))
    loaded = prepare_tokenizers(dataclasses.replace(data, tokenizer=how), text, seed=1)
    assert loaded.source.sha256 == loaded.target.sha256 == tokenizer.sha256


def test_sampling_that_a_given_model_cannot_do_is_refused(text):
    unigram, _ = train_tokenizer(text.source, TokenizerConfig(vocab_size=275))
    bpe, _ = train_tokenizer(text.source, TokenizerConfig(vocab_size=275, kind=TokenizerKind.bpe))
    dropout = TokenizerConfig(kind=TokenizerKind.bpe, bpe_dropout=0.1)
    with pytest.raises(ValueError, match=r"bpe_dropout=0\.1 needs a bpe model, got unigram"):
        check_sampling(Tokenizers(bpe, unigram), dropout)
    with pytest.raises(ValueError, match=r"sampling_alpha=0\.1 needs a unigram model, got bpe"):
        check_sampling(Tokenizers(bpe, bpe), TokenizerConfig(sampling_alpha=0.1))
    check_sampling(Tokenizers(bpe, bpe), dropout)
    check_sampling(Tokenizers(unigram, bpe), TokenizerConfig())


def test_sampling_needs_a_sentencepiece_model(tokenizers):
    other = Mock(spec=Tokenizer, format="huggingface")
    with pytest.raises(ValueError, match=r"sampling_alpha=0\.1 needs a unigram model, got huggingface"):
        check_sampling(Tokenizers(tokenizers.source, other), TokenizerConfig(sampling_alpha=0.1))
