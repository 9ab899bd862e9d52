"""Cases V1, V3, V4, V7 and V8 as far as no model is needed: special ids, symbols, normalisation, sampling, identity."""

import io
import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import sentencepiece

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.lines import read_lines, write_lines
from seq2seq.text.load import load_tokenizer
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer import Tokenizer
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


def marian(table: Sequence[str], bos: str = "<pad>") -> MarianTokenizer:
    ids = {piece: id_ for id_, piece in enumerate(table)}
    return MarianTokenizer(trained_elsewhere(), json.dumps(ids).encode(), ids[bos])


def pieces_elsewhere() -> list[str]:
    return [*SentencePieceTokenizer.from_bytes(trained_elsewhere(pad_id=3)).pieces(range(120)), ">>deu<<"]


def tokenizer_json(*special: str, extra: str = "abc") -> bytes:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(special),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*corpus()[:50], extra * 9], trainer)
    return str(tokenizer.to_str()).encode()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::2])
def test_v1_the_ids_of_an_imported_translator_are_those_of_its_table(order):
    rest = [piece for piece in pieces_elsewhere() if piece not in ("<pad>", "</s>", "<unk>")]
    tokenizer = marian([*(("<pad>", "</s>", "<unk>")[place] for place in order), *rest])
    pad, eos, unk = (order.index(place) for place in range(3))
    assert tokenizer.special == SpecialIds(pad=pad, bos=pad, eos=eos, unk=unk)
    line = corpus()[0]
    ids = tokenizer.encode(line)
    assert not {pad, eos} & set(ids)
    assert tokenizer.decode([pad, *ids, eos, pad]) == line


@pytest.mark.parametrize("ids", [(0, 0, 0, 0), (2, 0, 1, 1), (1, 2, 1, 0)])
def test_v1_one_piece_may_have_all_tasks_in_a_tokenizer_json(ids):
    special = SpecialIds(*ids)
    tokenizer = HuggingFaceTokenizer(tokenizer_json("<a>", "<b>", "<c>"), Conventions(special))
    ids_of_line = tokenizer.encode(corpus()[0])
    assert not set(ids) & set(ids_of_line)
    assert tokenizer.decode([special.bos, *ids_of_line, special.eos, special.pad]) == corpus()[0]


def test_v1_ids_that_an_imported_vocabulary_does_not_have_are_refused():
    data = tokenizer_json("<a>")
    for ids in ((0, 0, 0, -1), (300, 0, 0, 0)):
        with pytest.raises(ValueError, match=r"special ids must be from 0 to 299, .* belong to one model"):
            HuggingFaceTokenizer(data, Conventions(SpecialIds(*ids)))
    with pytest.raises(ValueError, match="the vocabulary has no <pad> and no </s>; expected all three"):
        marian([piece for piece in pieces_elsewhere() if piece not in ("<pad>", "</s>")], bos="<unk>")


def test_v3_a_language_code_is_one_id_and_leaves_no_stray_space():
    tokenizer = marian(pieces_elsewhere())
    code = tokenizer.pieces(range(121)).index(">>deu<<")
    for line in (">>deu<< abend rot", ">>deu<<abend rot"):
        ids = tokenizer.encode(line)
        assert ids[0] == code
        assert tokenizer.decode(ids[1:]) == "abend rot"
        assert ids[1:] == tokenizer.encode("abend rot")


def test_v3_a_special_piece_is_one_id_in_a_prompt_and_no_id_in_a_line():
    tokenizer = HuggingFaceTokenizer(tokenizer_json("<end>", "<sep>"), Conventions(SpecialIds(0, 0, 0, 0)))
    for text in ("abend <sep> rot", "<sep>abend<sep>", "abend\n<sep>\n rot"):
        assert tokenizer.prompt(text).count(1) == text.count("<sep>")
        assert tokenizer.decode_text(tokenizer.prompt(text)) == text.replace("<sep>", "")
        assert 1 not in tokenizer.encode(text)
        assert tokenizer.decode_text(tokenizer.encode(text)) == text


def written(tokenizer: Tokenizer, folder: Path) -> None:
    for name, content in tokenizer.files("source").items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("format_", ["marian", "huggingface"])
def test_v8_another_tokenizer_is_refused_with_sizes_and_checksums(format_, tmp_path):
    if format_ == "marian":
        right = marian(pieces_elsewhere())
        others = [marian([*pieces_elsewhere(), "one more"]), marian(pieces_elsewhere()[::-1])]
    else:
        conventions = Conventions(SpecialIds(0, 0, 0, 0))
        right = HuggingFaceTokenizer(tokenizer_json("<a>"), conventions)
        one_more = json.loads(right.data)
        one_more["model"]["vocab"]["one more"] = 300
        others = [HuggingFaceTokenizer(json.dumps(one_more).encode(), conventions)]
        others.append(HuggingFaceTokenizer(tokenizer_json("<a>", extra="xyz"), conventions))
    size = right.vocab_size
    assert [other.vocab_size for other in others] == [size + 1, size]
    for other in others:
        assert other.vocabulary_sha256 != right.vocabulary_sha256
        written(other, tmp_path)
        with pytest.raises(
            ValueError,
            match=rf"it has {other.vocab_size} pieces and SHA-256 [0-9a-f]{{12}}, expected {size} pieces and "
            rf"{right.sha256[:12]}; put the original back",
        ):
            load_tokenizer(tmp_path, "source", right.describe())
    written(right, tmp_path)
    assert load_tokenizer(tmp_path, "source", right.describe()).sha256 == right.sha256


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
