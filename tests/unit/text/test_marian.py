"""seq2seq.text.marian: the same ids and text as transformers' MarianTokenizer."""

import gzip
import io
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
import sentencepiece

from seq2seq.config import TokenizerConfig
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.special import SpecialIds

TEACHER = Path(__file__).parents[4] / "shared" / "models" / "multi30k_de_en_marian"
TEST_TEXT = Path(__file__).parents[4] / "shared" / "data" / "multi30k" / "test2016.de.gz"
BITING = [
    ">>fra<< haus baum",
    ">>fra<<",
    ">>xyz<< an unknown code",
    "haus >>fra<< baum",
    " >>fra<< haus",
    "haus » baum >> baum << haus",
]


def spm(lines: Sequence[str], vocab_size: int, **options: bool) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=vocab_size, minloglevel=2, **options
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(id_) for id_ in range(processor.vocab_size())]


@pytest.fixture(scope="module")
def source_model(corpus: list[str]) -> bytes:
    return spm(corpus, 120)


@pytest.fixture(scope="module")
def target_model(corpus: list[str]) -> bytes:
    return spm([line.upper() for line in corpus], 110)


@pytest.fixture(scope="module")
def vocabulary(source_model: bytes, target_model: bytes) -> bytes:
    """As OPUS-MT has it: </s> and <unk> first, padding last, ids in no order that SentencePiece knows."""
    both = sorted({*pieces_of(source_model), *pieces_of(target_model)} - {"</s>", "<unk>", "<s>"}, reverse=True)
    both.remove(both[50])  # pieces of the model that the table lacks are unknown
    table = ["</s>", "<unk>", ">>fra<<", ">>deu<<", *both, "<pad>"]
    return json.dumps({piece: id_ for id_, piece in enumerate(table)}, ensure_ascii=False).encode()


@pytest.fixture(scope="module")
def bos(vocabulary: bytes) -> int:
    return int(json.loads(vocabulary)["<pad>"])


@pytest.fixture(scope="module")
def tokenizer(source_model: bytes, vocabulary: bytes, bos: int) -> MarianTokenizer:
    return MarianTokenizer(source_model, vocabulary, bos)


def theirs(folder: Path) -> object:
    transformers = pytest.importorskip("transformers")
    with pytest.warns(UserWarning, match="sacremoses"):
        return transformers.MarianTokenizer.from_pretrained(str(folder))


def assert_equal_to_theirs(tokenizer: MarianTokenizer, reference: object, lines: Sequence[str]) -> None:
    for line in lines:
        # the option leaves names of special pieces in a line what they are, text
        ids = reference(line, split_special_tokens=True, add_special_tokens=False, verbose=False).input_ids
        assert tokenizer.encode(line) == ids, line
        assert tokenizer.decode_text(ids) == reference.decode(ids, skip_special_tokens=True), line
        assert tokenizer.pieces(ids) == reference.convert_ids_to_tokens(ids)


def test_ids_and_text_are_those_of_transformers(tokenizer, nasty_text, corpus, tmp_path):
    for name, content in tokenizer.files("source").items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "target.spm").write_bytes(tokenizer.model)
    (tmp_path / "config.json").write_text('{"model_type": "marian"}', encoding="utf-8")
    lines = [*nasty_text.lines, *BITING, *corpus[:30]]
    assert any(tokenizer.special.unk in tokenizer.encode(line) for line in corpus[:30])
    assert_equal_to_theirs(tokenizer, theirs(tmp_path), lines)


@pytest.mark.skipif(not TEACHER.is_dir(), reason="the trained Marian model is not here")
def test_the_real_model_gives_the_ids_of_transformers(nasty_text):
    vocabulary = (TEACHER / "vocab.json").read_bytes()
    tokenizer = MarianTokenizer((TEACHER / "source.spm").read_bytes(), vocabulary, 2)
    with gzip.open(TEST_TEXT, "rt", encoding="utf-8") as file:
        lines = [*file.read().splitlines()[:200], *nasty_text.lines, *BITING]
    assert_equal_to_theirs(tokenizer, theirs(TEACHER), lines)
    assert tokenizer.special == SpecialIds(pad=1, bos=2, eos=3, unk=0)


def test_special_ids_come_from_the_table_and_the_start_from_outside(tokenizer, vocabulary, bos):
    table = json.loads(vocabulary)
    assert tokenizer.vocab_size == len(table)
    assert tokenizer.special == SpecialIds(pad=bos, bos=bos, eos=0, unk=1)
    assert not {0, bos} & set(tokenizer.encode("haus </s> <pad> baum"))
    assert tokenizer.decode([bos, *tokenizer.encode("haus baum"), 0]) == "haus baum"


def test_a_language_code_in_front_is_one_id(tokenizer):
    code, *rest = tokenizer.encode(">>deu<< haus")
    assert tokenizer.pieces([code]) == [">>deu<<"]
    assert rest == tokenizer.encode("haus")
    assert tokenizer.encode(">> two words << haus") == tokenizer.encode("  >> two words << haus")
    lines = (">>deu<< haus", ">>fra<<", "haus >>deu<<", "haus", "")
    assert [tokenizer.front(tokenizer.encode(line)) for line in lines] == [1, 1, 0, 0, 0]


def test_a_batch_is_its_lines(tokenizer, corpus):
    assert tokenizer.encode_batch(corpus[:5]) == [tokenizer.encode(line) for line in corpus[:5]]
    assert tokenizer.encode_batch([]) == []


def test_both_sides_have_one_table_and_are_not_the_same(tokenizer, target_model, vocabulary, bos):
    target = MarianTokenizer(target_model, vocabulary, bos)
    assert target.vocabulary_sha256 == tokenizer.vocabulary_sha256
    assert target.sha256 != tokenizer.sha256
    assert MarianTokenizer(tokenizer.model, vocabulary, 0).sha256 != tokenizer.sha256
    other = json.dumps({piece: id_ for id_, piece in enumerate(reversed(json.loads(vocabulary)))}).encode()
    assert MarianTokenizer(target_model, other, bos).vocabulary_sha256 != tokenizer.vocabulary_sha256
    assert [*tokenizer.files("source"), *target.files("target")] == [
        "source.spm", "vocab.json", "target.spm", "target_vocab.json"
    ]  # fmt: skip


def test_it_can_be_pickled(tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert (copy.sha256, copy.special) == (tokenizer.sha256, tokenizer.special)
    assert copy.encode("haus baum") == tokenizer.encode("haus baum")


def test_pieces_that_spell_bytes_are_known(corpus, tokenizer):
    model = spm(corpus, 400, byte_fallback=True)
    table = [*pieces_of(model)[::-1], "<pad>"]
    with_bytes = MarianTokenizer(model, json.dumps({p: i for i, p in enumerate(table)}).encode(), len(table) - 1)
    assert len(with_bytes.byte_ids) == 256
    assert with_bytes.pieces([max(with_bytes.byte_ids)]) == ["<0x00>"]
    assert with_bytes.decode_text(with_bytes.encode("haus 🎉")) == "haus 🎉"
    assert tokenizer.byte_ids == frozenset()


def test_sampling_is_refused(tokenizer):
    assert tokenizer.sample("haus", config=TokenizerConfig(), key=(1, 2, 3)) == tokenizer.encode("haus")
    with pytest.raises(ValueError, match=r"sampling_alpha=0.1 and .* need a SentencePiece model, got .* format marian"):
        tokenizer.sample("haus", config=TokenizerConfig(sampling_alpha=0.1), key=(1, 2, 3))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"no json", "t: the vocabulary is not a JSON object that gives each id from 0 on to one piece: Expecting"),
        (b"[1, 2]", "to one piece; got list of 6 bytes"),
        (b"{}", "to one piece; got dict of 2 bytes"),
        (b'{"a": 0, "b": 0}', "to one piece; got 2 pieces with 1 different ids"),
        (b'{"a": 0, "b": 2}', "to one piece; got 2 pieces with 2 different ids"),
        (b'{"a": 0, "</s>": 1}', "t: the vocabulary has no <pad> and no <unk>; expected all three"),
    ],
)
def test_a_table_that_is_none_is_refused(source_model, table, message):
    with pytest.raises(ValueError, match=message):
        MarianTokenizer(source_model, table, 0, "t")


def test_a_start_outside_the_vocabulary_and_half_a_surrogate_pair_are_refused(source_model, vocabulary, tokenizer):
    size = tokenizer.vocab_size
    with pytest.raises(
        ValueError, match=rf"special ids must be from 0 to {size - 1}, .* got pad=.*, bos={size}, eos=0"
    ):
        MarianTokenizer(source_model, vocabulary, size)
    with pytest.raises(ValueError, match="expected text without half a surrogate pair"):
        tokenizer.encode("\ud800")
    for method in (tokenizer.decode_text, tokenizer.pieces):
        with pytest.raises(ValueError, match=f"id {size} is outside the vocabulary of {size} pieces"):
            method([size])
    with pytest.raises(ValueError, match="t is not a SentencePiece model"):
        MarianTokenizer(b"no model", vocabulary, 0, "t")


def test_a_table_of_another_model_is_refused(source_model, target_model, bos):
    table = ["</s>", "<unk>", *sorted({*pieces_of(target_model)} - {"</s>", "<unk>", "<s>"}), "<pad>"]
    vocabulary = json.dumps({piece: id_ for id_, piece in enumerate(table)}, ensure_ascii=False).encode()
    MarianTokenizer(target_model, vocabulary, len(table) - 1)
    message = (
        r"tokenizer v.json: of the 117 pieces of its SentencePiece model the vocabulary lacks \d+, .* for example; "
    )
    with pytest.raises(ValueError, match=message + "expected files of one model"):
        MarianTokenizer(source_model, vocabulary, len(table) - 1, "v.json")
