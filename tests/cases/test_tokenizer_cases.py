"""Cases V1, V3, V4 and V7 as far as no model is needed: special ids, symbols, normalisation, sampling."""

import io
import itertools
import random

import pytest
import sentencepiece

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.lines import read_lines, write_lines
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer_training import NORMALIZATION_RULES, train_tokenizer


def corpus() -> list[str]:
    draw = random.Random(4)
    words = ["".join(draw.choices("abdefghiklmnorstu", k=draw.randint(2, 6))) for _ in range(80)]
    return [" ".join(draw.choices(words, k=draw.randint(2, 8))) + f" {n}." for n in range(300)]


def trained_elsewhere(**ids: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, vocab_size=120, minloglevel=2, **ids
    )
    return model.getvalue()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_v1_any_order_of_the_four_ids_is_read_from_the_model(order):
    pad, bos, eos, unk = order
    tokenizer = SentencePieceTokenizer.from_bytes(trained_elsewhere(pad_id=pad, bos_id=bos, eos_id=eos, unk_id=unk))
    assert tokenizer.special == SpecialIds(pad=pad, bos=bos, eos=eos, unk=unk)
    line = corpus()[0]
    ids = tokenizer.encode(line)
    assert not {pad, bos, eos} & set(ids)
    assert tokenizer.decode([bos, *ids, eos, pad]) == line


def test_v1_a_model_trained_elsewhere_without_padding_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "theirs.model").write_bytes(trained_elsewhere())
    with pytest.raises(
        ValueError,
        match=r"theirs\.model: the vocabulary has no pad symbol \(got pad=-1, bos=1, .*--pad_id=0 --bos",
    ):
        SentencePieceTokenizer.load(tmp_path / "theirs.model")


@pytest.mark.parametrize("missing", ["bos", "eos"])
def test_v1_a_model_without_bos_or_eos_is_refused(missing):
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 2} | {f"{missing}_id": -1}
    with pytest.raises(ValueError, match=f"has no {missing} symbol"):
        SentencePieceTokenizer.from_bytes(trained_elsewhere(**ids))


def test_v1_our_own_training_always_gives_the_same_four_ids():
    for kind in TokenizerKind:
        tokenizer, _ = train_tokenizer(corpus(), TokenizerConfig(kind=kind, vocab_size=350))
        assert tokenizer.special == SpecialIds(pad=0, bos=1, eos=2, unk=3)


@pytest.mark.parametrize("kind", TokenizerKind)
def test_v3_symbols_are_one_id_each_and_leave_no_stray_space(kind):
    config = TokenizerConfig(kind=kind, vocab_size=350)
    tokenizer, _ = train_tokenizer(corpus(), config, symbols=["<2de>", "<sep>"])
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    tag, separator = pieces.index("<2de>"), pieces.index("<sep>")
    for line in ("<2de> abend rot", "<2de>abend rot<sep>tun", "abend <sep> rot", "<sep><2de>", "abend<sep>"):
        ids = tokenizer.encode(line)
        assert (ids.count(tag), ids.count(separator)) == (line.count("<2de>"), line.count("<sep>"))
        assert tokenizer.decode(ids) == line
    # what a model generates after the separator is decoded without the space that stands before it
    ids = tokenizer.encode("abend<sep>rot tun")
    assert tokenizer.decode(ids[ids.index(separator) + 1 :]) == "rot tun"


@pytest.mark.parametrize("kind", TokenizerKind)
def test_v3_symbols_stand_in_plain_text_that_keeps_its_spaces(kind):
    config = TokenizerConfig(kind=kind, vocab_size=330, normalization="identity", keep_whitespace=True)
    tokenizer, _ = train_tokenizer(corpus(), config, symbols=["<2de>", "<sep>"])
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    tag, separator = pieces.index("<2de>"), pieces.index("<sep>")
    for text in ("<2de> abend\n rot", "<2de>abend  rot<sep>\ntun\n", " <sep><2de> ", "\n<sep>\n\n"):
        ids = tokenizer.encode(text)
        assert (ids.count(tag), ids.count(separator)) == (text.count("<2de>"), text.count("<sep>"))
        assert tokenizer.decode_text(ids) == text


@pytest.mark.parametrize("kind", [TokenizerKind.unigram, TokenizerKind.bpe])
def test_v3_symbols_stay_one_id_under_sampling(kind):
    off = {"sampling_alpha": 0.0, "bpe_dropout": 0.0}
    rate = {"sampling_alpha": 0.2} if kind is TokenizerKind.unigram else {"bpe_dropout": 0.5}
    config = TokenizerConfig(kind=kind, vocab_size=350, **(off | rate))
    tokenizer, _ = train_tokenizer(corpus(), config, symbols=["<sep>"])
    separator = tokenizer.pieces(range(350)).index("<sep>")
    for epoch in range(30):
        assert tokenizer.sample("abend<sep>rot <sep> tun", config=config, key=(1, epoch, 0)).count(separator) == 2


NASTY = ["１２３ ﬁne", "two  spaces", " edges ", "½ Ⅷ ǆ", "e\u0301", "zero\u200bwidth", "no\xa0break"]


def test_v4_the_rule_is_recorded_in_the_model_and_says_what_happens():
    for rule in NORMALIZATION_RULES:
        tokenizer, _ = train_tokenizer(corpus(), TokenizerConfig(vocab_size=350, normalization=rule))
        assert SentencePieceTokenizer.from_bytes(tokenizer.model).normalization == rule
    nfkc, _ = train_tokenizer([*corpus(), *NASTY], TokenizerConfig(vocab_size=380))
    decoded = [nfkc.decode(nfkc.encode(line)) for line in NASTY]
    assert decoded == ["123 fine", "two spaces", "edges", "1⁄2 VIII dž", "é", "zero width", "no break"]
    identity, _ = train_tokenizer([*corpus(), *NASTY], TokenizerConfig(vocab_size=380, normalization="identity"))
    kept = [line for line in NASTY if line not in ("two  spaces", " edges ")]
    assert [identity.decode(identity.encode(line)) for line in kept] == kept


def test_v4_lines_read_as_references_are_the_raw_ones(tmp_path):
    write_lines(tmp_path / "reference", NASTY)
    assert read_lines(tmp_path / "reference") == NASTY


@pytest.mark.parametrize(
    "config",
    [
        TokenizerConfig(vocab_size=350, sampling_alpha=0.2),
        TokenizerConfig(vocab_size=350, kind=TokenizerKind.bpe, bpe_dropout=0.3),
    ],
)
def test_v7_encoding_never_samples_and_sampling_differs_by_epoch(config):
    tokenizer, _ = train_tokenizer(corpus(), config)
    lines = corpus()[:40]

    def epoch(number: int) -> list[list[int]]:
        return [tokenizer.sample(line, config=config, key=(1, number, i)) for i, line in enumerate(lines)]

    plain = tokenizer.encode_batch(lines)
    first, second = epoch(0), epoch(1)
    assert tokenizer.encode_batch(lines) == plain == [tokenizer.encode(line) for line in lines]
    assert first == epoch(0)
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 20
    assert [tokenizer.decode(ids) for ids in first] == lines


def test_v7_a_larger_alpha_stays_closer_to_the_best_segmentation():
    tokenizer, _ = train_tokenizer(corpus(), TokenizerConfig(vocab_size=350))
    lines = corpus()[:40]

    def changed(alpha: float) -> int:
        config = TokenizerConfig(sampling_alpha=alpha)
        drawn = [tokenizer.sample(line, config=config, key=(1, 0, i)) for i, line in enumerate(lines)]
        return sum(ids != tokenizer.encode(line) for ids, line in zip(drawn, lines, strict=True))

    assert changed(0.1) > changed(1.0) > changed(20.0)
    assert changed(20.0) <= 2  # equally good segmentations remain a matter of chance
