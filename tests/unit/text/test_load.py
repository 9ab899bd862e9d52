"""seq2seq.text.load: every format is read back from its files, and nothing else is taken for it."""

import json
from pathlib import Path

import pytest

from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.load import load_tokenizer
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer import Tokenizer


@pytest.fixture(params=["sentencepiece", "marian", "huggingface"])
def tokenizer(request, unigram: SentencePieceTokenizer) -> Tokenizer:
    pieces = unigram.pieces(range(unigram.vocab_size))
    table = json.dumps({piece: id_ for id_, piece in enumerate(reversed(pieces))}).encode()
    if request.param == "marian":
        return MarianTokenizer(unigram.model, table, 7)
    if request.param == "huggingface":
        tokenizers = pytest.importorskip("tokenizers")
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"haus": 0, "baum": 1, "?": 2}, unk_token="?"))
        words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        return HuggingFaceTokenizer(words.to_str().encode(), Conventions(SpecialIds(2, 2, 2, 2), True, (1,)))
    return unigram


def written(tokenizer: Tokenizer, side: str, folder: Path) -> Path:
    for name, content in tokenizer.files(side).items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("side", ["source", "target"])
def test_what_was_written_is_read_back(tokenizer, side, tmp_path):
    described = json.loads(json.dumps(tokenizer.describe()))
    loaded = load_tokenizer(written(tokenizer, side, tmp_path), side, described)
    assert type(loaded) is type(tokenizer)
    assert loaded.describe() == tokenizer.describe()
    assert loaded.encode("haus baum") == tokenizer.encode("haus baum")
    assert loaded.prompt("haus") == tokenizer.prompt("haus")


def test_the_files_of_both_sides_stand_beside_each_other(tokenizer):
    assert not tokenizer.files("source").keys() & tokenizer.files("target").keys()


def test_every_file_is_needed(tokenizer, tmp_path):
    written(tokenizer, "target", tmp_path)
    for name, content in tokenizer.files("target").items():
        (tmp_path / name).unlink()
        with pytest.raises(FileNotFoundError, match=rf"{name} is missing; expected the tokenizer that the model was"):
            load_tokenizer(tmp_path, "target", tokenizer.describe())
        (tmp_path / name).write_bytes(content)


def test_another_tokenizer_is_refused_with_both_checksums(tokenizer, tmp_path):
    described = tokenizer.describe() | {"sha256": "f" * 64, "vocab_size": 5}
    first = next(iter(tokenizer.files("source")))
    match = (
        rf"{first}.* is not the tokenizer .* has {tokenizer.vocab_size} pieces and SHA-256 {tokenizer.sha256[:12]}, "
    )
    with pytest.raises(ValueError, match=match + "expected 5 pieces and ffffffffffff; put the original back"):
        load_tokenizer(written(tokenizer, "source", tmp_path), "source", described)


def test_what_older_bundles_said_is_enough(unigram, tmp_path):
    described = {"sha256": unigram.sha256, "vocab_size": unigram.vocab_size}
    assert load_tokenizer(written(unigram, "source", tmp_path), "source", described).sha256 == unigram.sha256


def test_an_unknown_format_is_refused(unigram, tmp_path):
    with pytest.raises(
        ValueError, match="has format 'tiktoken', this package reads sentencepiece, marian, huggingface"
    ):
        load_tokenizer(tmp_path, "source", unigram.describe() | {"format": "tiktoken"})


@pytest.mark.parametrize(
    ("format_", "missing"), [("marian", "special_ids"), ("huggingface", "special_ids"), ("huggingface", "stop_ids")]
)
def test_a_damaged_description_is_refused(format_, missing, tmp_path):
    for name in ("source.spm", "vocab.json", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"")
    described = {"format": format_, "special_ids": {"pad": 0}, "adds_bos": True, "stop_ids": [], "sha256": ""}
    with pytest.raises(ValueError, match=rf"said of the source tokenizer in .* is damaged \(KeyError\('{missing}'\)\)"):
        load_tokenizer(tmp_path, "source", {key: value for key, value in described.items() if key != missing})
