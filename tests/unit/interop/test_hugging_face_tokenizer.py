"""seq2seq.interop.hugging_face_tokenizer and _json: tokenizers of older folders, special ids, SentencePiece as JSON."""

import io
import json
import sys

import pytest
import sentencepiece
import tokenizers

import seq2seq.interop.hugging_face_tokenizer_json as written
from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.interop.families import GPT2, LLAMA, MARIAN
from seq2seq.interop.hugging_face_tokenizer import read_tokenizers
from seq2seq.interop.hugging_face_tokenizer_json import byte_level_json, sentence_piece_json
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer_training import train_tokenizer

LINES = ["the quick brown fox jumps over the lazy dog and the fox", "pack my box with five liquor jugs"] * 3
TEXTS = [
    "the fox", "  two  spaces   ", "", " ", "Größe ﬁ ½ Ⅳ", "the\tfox\u00a0and\u3000dog", "我们看见猫。", "▁ the ▁",
    "👨‍👩‍👧‍👦", "jugs jugs jugs", "xxxxxxxxxxxxxxxxxxxxxxxx",
]  # fmt: skip


def trained(**options):
    return train_tokenizer(LINES, TokenizerConfig(**options))[0]


@pytest.fixture(scope="module")
def plain():
    return trained(vocab_size=41, byte_fallback=False)


@pytest.mark.parametrize("kind", TokenizerKind)
@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize("rule", ["nmt_nfkc", "identity"])
def test_a_sentence_piece_model_gives_the_same_ids_as_json(kind, byte_fallback, rule):
    tokenizer = trained(
        kind=kind, vocab_size=290 if byte_fallback else 41, byte_fallback=byte_fallback, normalization=rule
    )
    again = tokenizers.Tokenizer.from_str(sentence_piece_json(tokenizer.model).decode("utf-8"))
    for text in TEXTS:
        assert again.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)
    ids = tokenizer.encode("the quick fox and five jugs")
    assert again.decode(ids) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", TokenizerKind)
def test_a_model_that_keeps_every_space_and_line_feed_gives_the_same_text_as_json(kind):
    tokenizer = trained(kind=kind, vocab_size=290, normalization="identity", keep_whitespace=True)
    again = tokenizers.Tokenizer.from_str(sentence_piece_json(tokenizer.model).decode("utf-8"))
    for text in ("the fox\n\n  and the\tdog \n", "\n", " ", "  x  y\nz"):
        ids = again.encode(text, add_special_tokens=False).ids
        assert ids == tokenizer.encode(text)
        assert again.decode(ids) == text


def test_bos_is_put_in_front_where_that_is_asked_for(plain):
    again = tokenizers.Tokenizer.from_str(sentence_piece_json(plain.model, bos_in_front=True).decode("utf-8"))
    assert again.encode("the fox").ids == [1, *plain.encode("the fox")]
    assert again.encode("the fox", add_special_tokens=False).ids == plain.encode("the fox")


def test_a_result_that_does_not_do_the_same_is_refused(plain, monkeypatch):
    monkeypatch.setattr(written, "_normalizers", lambda facts: [])
    with pytest.raises(
        ValueError, match=r"mine\.model cannot be written as tokenizer\.json: SentencePiece cuts 'A line"
    ):
        sentence_piece_json(plain.model, name="mine.model")


def test_another_kind_of_model_is_refused():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, model_type="word", vocab_size=15, minloglevel=2
    )
    with pytest.raises(ValueError, match="mine is of kind word; expected unigram, bpe, char"):
        sentence_piece_json(model.getvalue(), name="mine")
    with pytest.raises(ValueError, match="mine is not a SentencePiece model"):
        sentence_piece_json(b"nonsense", name="mine")


def test_the_missing_package_is_named(plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"needs the package tokenizers; pip install 'seq2seq\[interop\]'"):
        sentence_piece_json(plain.model)


def test_two_files_of_gpt_2_are_one():
    table = {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "<|endoftext|>": 5}
    merges = b"#version: 0.2\na b\n\xc4\xa0 ab\n"
    again = tokenizers.Tokenizer.from_buffer(byte_level_json(json.dumps(table).encode(), merges, ["<|endoftext|>"]))
    assert again.encode("ab ab<|endoftext|>b").ids == [3, 4, 5, 1]
    for broken in ((b"[]", merges), (b"{", merges), (json.dumps(table).encode(), b"a b c\n"), (b"{}", b"\xff\xff")):
        with pytest.raises(ValueError, match=r"vocab\.json and merges\.txt are damaged .*; expected those of GPT-2"):
            byte_level_json(*broken, special=["<|endoftext|>"])


@pytest.fixture
def marian(plain, tmp_path):
    """A folder of two different models and one table, which begins where translations start."""
    other = trained(vocab_size=37, byte_fallback=False, kind=TokenizerKind.bpe)
    pieces = dict.fromkeys([*plain.pieces(range(3, 41)), *other.pieces(range(4, 37)), "</s>", "<pad>"])
    (tmp_path / "source.spm").write_bytes(plain.model)
    (tmp_path / "target.spm").write_bytes(other.model)
    (tmp_path / "vocab.json").write_text(json.dumps({piece: id_ for id_, piece in enumerate(pieces)}), encoding="utf-8")
    return tmp_path


def test_marians_two_models_and_one_table(marian, plain):
    count = len(json.loads((marian / "vocab.json").read_text(encoding="utf-8")))
    source, target, own = read_tokenizers(marian, MARIAN, {"decoder_start_token_id": count - 1}, {})
    assert own is None
    assert isinstance(source, MarianTokenizer)
    assert source.vocabulary_sha256 == target.vocabulary_sha256
    assert source.pieces(source.encode("the fox")) == plain.pieces(plain.encode("the fox"))
    assert target.special == SpecialIds(pad=count - 1, bos=count - 1, eos=count - 2, unk=0)


def test_a_table_with_the_models_own_ids_is_the_model(marian, plain):
    (marian / "target.spm").write_bytes(plain.model)
    table = {piece: id_ for id_, piece in enumerate(plain.pieces(range(41)))}
    (marian / "vocab.json").write_text(json.dumps(table), encoding="utf-8")
    source, target, _ = read_tokenizers(marian, MARIAN, {"decoder_start_token_id": 1, "pad_token_id": 0}, {})
    assert isinstance(source, SentencePieceTokenizer)
    assert source is target
    other, _, _ = read_tokenizers(marian, MARIAN, {"decoder_start_token_id": 0}, {})
    assert isinstance(other, MarianTokenizer)


def test_contradictions_in_a_marian_folder_are_refused(marian):
    with pytest.raises(
        ValueError, match=r"decoder_start_token_id=None; expected the id that a translation starts from"
    ):
        read_tokenizers(marian, MARIAN, {}, {})
    with pytest.raises(
        ValueError, match=r"config\.json has eos_token_id=0, but in .*vocab\.json that piece has the id"
    ):
        read_tokenizers(marian, MARIAN, {"decoder_start_token_id": 1, "eos_token_id": 0}, {})
    (marian / "target.spm").unlink()
    with pytest.raises(FileNotFoundError, match=r"target\.spm is missing; expected the folder of a Hugging Face model"):
        read_tokenizers(marian, MARIAN, {"decoder_start_token_id": 1}, {})


@pytest.fixture
def folder(plain, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(sentence_piece_json(plain.model, bos_in_front=True))
    return tmp_path


def special_of(folder, options, generation=None, **own):
    (folder / "tokenizer_config.json").write_text(json.dumps(own), encoding="utf-8")
    tokenizer, _, _ = read_tokenizers(folder, LLAMA, options, generation or {})
    return tokenizer


def test_special_ids_come_from_three_files(folder):
    found = special_of(folder, {"bos_token_id": 1, "eos_token_id": 2})
    assert found.special == SpecialIds(pad=2, bos=1, eos=2, unk=2)
    assert (found.adds_bos, found.stop) == (True, ())
    found = special_of(
        folder, {"eos_token_id": 2, "pad_token_id": -1}, unk_token="<unk>", pad_token={"content": "<pad>"}
    )
    assert found.special == SpecialIds(pad=0, bos=2, eos=2, unk=3)
    found = special_of(
        folder, {"bos_token_id": 1, "eos_token_id": [7, 2]}, {"eos_token_id": [2, 9]}, add_bos_token=False
    )
    assert (found.special.eos, found.stop, found.adds_bos) == (7, (2, 9), False)
    found = special_of(folder, {"eos_token_id": [7, 2]}, eos_token="</s>")
    assert (found.special.eos, found.stop) == (2, (7,))
    with pytest.raises(
        ValueError, match=r"neither config\.json nor tokenizer_config\.json says which piece ends a text"
    ):
        special_of(folder, {})


def test_a_damaged_or_missing_tokenizer_json_is_told(folder):
    (folder / "tokenizer.json").write_text('{"model": 3}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json is damaged .*expected a tokenizer\.json with a model"):
        read_tokenizers(folder, LLAMA, {"eos_token_id": 2}, {})
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json; make it .*AutoTokenizer\.from_pretrained"):
        read_tokenizers(folder, LLAMA, {"eos_token_id": 2}, {})


def test_llamas_tokenizer_model_and_gpt_2s_two_files_are_read(plain, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(plain.model)
    llama, _, _ = read_tokenizers(tmp_path, LLAMA, {"bos_token_id": 1, "eos_token_id": 2}, {})
    assert llama.prompt("the fox") == [1, *plain.encode("the fox")]
    (tmp_path / "tokenizer.model").unlink()
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}', encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n", encoding="utf-8")
    gpt2, _, _ = read_tokenizers(tmp_path, GPT2, {"bos_token_id": 3, "eos_token_id": 3}, {})
    assert gpt2.encode("abab") == [2, 2]
    assert gpt2.prompt("") == [3]
