import re

import pytest

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text import tokenizer_training
from seq2seq.text.tokenizer_training import train_tokenizer


@pytest.mark.parametrize("kind", TokenizerKind)
def test_the_same_text_gives_the_same_bytes(corpus, kind):
    config = TokenizerConfig(kind=kind, vocab_size=350)
    assert train_tokenizer(corpus, config)[0].model == train_tokenizer(iter(corpus), config)[0].model


def test_what_was_left_out_is_counted(corpus):
    lines = [*corpus, "", "\u3000", "z" * 201, "ü" * 101, "\u2585 x", "ü" * 100]
    tokenizer, report = train_tokenizer(lines, TokenizerConfig(vocab_size=350, max_sentence_bytes=200))
    assert (report.num_lines, report.num_blank, report.num_skipped_long, report.num_skipped_reserved) == (406, 2, 2, 1)
    assert report.num_used == 401
    assert report.num_sampled_out == 0
    assert report.vocab_size == tokenizer.vocab_size == 350
    assert "350 pieces trained on 401 of 406 lines (left out: 2 blank, 2 too long, 1 with" in report.summary()


def test_a_summary_without_losses_is_short(corpus):
    _, report = train_tokenizer(corpus, TokenizerConfig(vocab_size=350))
    assert report.summary() == "tokenizer with 350 pieces trained on 400 of 400 lines"


def test_a_sample_stands_for_a_corpus_that_is_too_large(corpus, monkeypatch):
    monkeypatch.setattr(tokenizer_training, "MAX_TRAINING_LINES", 100)
    config = TokenizerConfig(vocab_size=350)
    first, report = train_tokenizer(corpus, config, seed=1)
    assert (report.num_used, report.num_sampled_out) == (100, 300)
    assert train_tokenizer(corpus, config, seed=1)[0].sha256 == first.sha256
    assert train_tokenizer(corpus, config, seed=2)[0].sha256 != first.sha256


def test_the_sample_is_spread_over_the_whole_corpus(corpus, monkeypatch):
    monkeypatch.setattr(tokenizer_training, "MAX_TRAINING_LINES", 200)
    kept, _ = tokenizer_training._select(corpus, 10_000, seed=3)
    late = sum(corpus.index(line) >= 200 for line in kept)
    assert len(set(kept)) == 200
    assert 70 < late < 130


@pytest.mark.parametrize("kind", [TokenizerKind.unigram, TokenizerKind.bpe])
def test_a_vocabulary_that_is_too_large_is_told_the_largest_possible(corpus, kind):
    with pytest.raises(
        ValueError, match="vocab_size=90000 is more than 400 lines of text can fill; the largest"
    ) as told:
        train_tokenizer(corpus, TokenizerConfig(kind=kind, vocab_size=90_000))
    largest = int(re.search(r"set data\.tokenizer\.vocab_size=(\d+)", str(told.value))[1])
    assert train_tokenizer(corpus, TokenizerConfig(kind=kind, vocab_size=largest))[0].vocab_size == largest
    with pytest.raises(ValueError, match="is more than"):
        train_tokenizer(corpus, TokenizerConfig(kind=kind, vocab_size=largest + 1))


@pytest.mark.parametrize("kind", [TokenizerKind.unigram, TokenizerKind.bpe])
def test_a_vocabulary_that_is_too_small_is_told_the_smallest_possible(corpus, kind):
    with pytest.raises(ValueError, match="vocab_size=262 has no room for the characters") as told:
        train_tokenizer(corpus, TokenizerConfig(kind=kind, vocab_size=262))
    smallest = int(re.search(r"set it to (\d+) or more", str(told.value))[1])
    assert train_tokenizer(corpus, TokenizerConfig(kind=kind, vocab_size=smallest))[0].vocab_size == smallest


def test_text_without_lines_is_refused():
    with pytest.raises(ValueError, match="training text has no lines; give files with text"):
        train_tokenizer([], TokenizerConfig())


def test_text_without_a_usable_line_is_refused():
    with pytest.raises(ValueError, match=r"of 3 lines 1 are blank, 1 have more than .*max_sentence_bytes=20 .* and 1"):
        train_tokenizer(["", "a" * 21, "\u2585"], TokenizerConfig(max_sentence_bytes=20))


def test_an_unknown_normalisation_is_refused(corpus):
    with pytest.raises(
        ValueError, match="normalization=nfc is not a rule of SentencePiece; choose one of nmt_nfkc, nfkc"
    ):
        train_tokenizer(corpus, TokenizerConfig(normalization="nfc"))


@pytest.mark.parametrize("rule", tokenizer_training.NORMALIZATION_RULES)
def test_every_named_normalisation_is_known_to_the_library(corpus, rule):
    assert train_tokenizer(corpus, TokenizerConfig(vocab_size=350, normalization=rule))[0].normalization == rule


def test_any_other_abort_is_passed_on_with_what_was_asked_for(corpus):
    with pytest.raises(
        ValueError, match=r"SentencePiece could not train a unigram tokenizer of 350 pieces on 400 lines"
    ):
        train_tokenizer(corpus, TokenizerConfig(vocab_size=350), symbols=["<x>", "<x>"])


def test_nothing_is_printed_while_training(corpus, capfd):
    train_tokenizer(corpus, TokenizerConfig(vocab_size=350))
    assert capfd.readouterr() == ("", "")


def test_given_symbols_are_single_pieces(corpus):
    tokenizer, _ = train_tokenizer(corpus, TokenizerConfig(vocab_size=350), symbols=["<2de>"])
    assert [piece for piece in tokenizer.pieces(tokenizer.encode("haus<2de>baum")) if "<" in piece] == ["<2de>"]
