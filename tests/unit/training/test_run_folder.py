"""seq2seq.training.run_folder: tokenizers of any format are kept with a run, and no others are taken for them."""

import json

import pytest

from seq2seq.config import Task, TokenizerConfig, TrainConfig, from_dict
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.data_module import Tokenizers
from seq2seq.training.run_folder import check_same_tokenizers, check_unused, read_run, task_of, write_run

LINES = [f"the {size} dog sees {number} cats" for size in ("big", "small", "old") for number in range(40)]


@pytest.fixture(scope="module")
def joint() -> SentencePieceTokenizer:
    return train_tokenizer(LINES, TokenizerConfig(vocab_size=30, byte_fallback=False))[0]


@pytest.fixture(scope="module")
def other() -> SentencePieceTokenizer:
    return train_tokenizer(LINES, TokenizerConfig(vocab_size=31, byte_fallback=False))[0]


@pytest.fixture(scope="module")
def marian(joint: SentencePieceTokenizer) -> MarianTokenizer:
    table = {piece: id_ for id_, piece in enumerate(reversed(joint.pieces(range(30))))}
    return MarianTokenizer(joint.model, json.dumps(table).encode(), 29)


def config(**data: str) -> TrainConfig:
    sizes: dict[str, int | str] = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_decoder_layers": 2}
    if data:
        sizes |= {"architecture": "decoder_only", "num_encoder_layers": 0, "tying": "two_way"}
    else:
        sizes["num_encoder_layers"] = 3
    data = data or {"train_source": "a", "train_target": "b"}
    return from_dict(TrainConfig, {"model": sizes, "data": data, "trainer": {"max_steps": 3}})


def test_tokenizers_of_any_format_are_read_back(joint, other, marian, tmp_path):
    for number, (source, target) in enumerate([(joint, joint), (joint, other), (marian, joint), (marian, marian)]):
        write_run(tmp_path / str(number), config(), Tokenizers(source, target), {"seed": 1})
        _, tokenizers, facts = read_run(tmp_path / str(number))
        assert (tokenizers.source.sha256, tokenizers.target.sha256) == (source.sha256, target.sha256)
        assert (tokenizers.source is tokenizers.target) == (source is target)
        assert facts == {"seed": 1}


def test_a_run_of_an_older_version_is_read(joint, other, tmp_path):
    write_run(tmp_path, config(), Tokenizers(joint, other), {})
    (tmp_path / "tokenizer" / "described.json").unlink()
    _, tokenizers, _ = read_run(tmp_path)
    assert (tokenizers.source.sha256, tokenizers.target.sha256) == (joint.sha256, other.sha256)
    check_same_tokenizers(tmp_path, Tokenizers(joint, other))
    with pytest.raises(
        ValueError, match=r"has another tokenizer, .*target\.spm: give .*, or data\.tokenizer\.target_m"
    ):
        check_same_tokenizers(tmp_path, Tokenizers(joint, joint))


def test_what_else_is_in_the_folder_stays(joint, other, tmp_path):
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "mine.model").write_bytes(b"keep me")
    write_run(tmp_path, config(), Tokenizers(joint, other), {})
    write_run(tmp_path, config(), Tokenizers(joint, joint), {})
    assert read_run(tmp_path)[1].target.sha256 == joint.sha256
    assert (tmp_path / "tokenizer" / "mine.model").read_bytes() == b"keep me"


def test_going_on_with_a_tokenizer_of_another_format_is_refused(joint, marian, tmp_path):
    check_same_tokenizers(tmp_path / "nothing there", Tokenizers(joint, joint))
    write_run(tmp_path / "a", config(), Tokenizers(marian, marian), {})
    with pytest.raises(
        ValueError, match=r"the run to resume has another tokenizer, .*source\.spm: give it the text and"
    ):
        check_same_tokenizers(tmp_path / "a", Tokenizers(joint, joint))
    (tmp_path / "a" / "tokenizer" / "source.spm").unlink()
    with pytest.raises(ValueError, match=r"another tokenizer, .*tokenizer: .* options that it was started with$"):
        check_same_tokenizers(tmp_path / "a", Tokenizers(joint, joint))
    with pytest.raises(FileNotFoundError, match=r"source\.spm is missing; expected the tokenizer that the model was"):
        read_run(tmp_path / "a")


def test_the_kind_of_text_decides_the_task():
    assert task_of(config()) is Task.translation
    assert task_of(config(kind="text", train_text="a")) is Task.language_model


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            ["best_step_000002.ckpt", "last.ckpt", "before_last.ckpt"],
            r"go on with it: resume=.*/checkpoints/last\.ckpt$",
        ),
        (["before_last.ckpt"], r"go on with it: resume=.*/before_last\.ckpt$"),
        (["best_step_000002.ckpt"], r"another folder or remove it; it has no checkpoints/last\.ckpt to go on from"),
        (["bundle"], r"another folder or remove it; it has no checkpoints/last\.ckpt to go on from"),
    ],
)
def test_a_folder_that_holds_a_run_is_refused_and_only_what_is_there_is_offered(files, told, tmp_path):
    check_unused(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "train.log").touch()
    check_unused(tmp_path)
    for name in files:
        (tmp_path / name if name == "bundle" else tmp_path / "checkpoints" / name).touch()
    with pytest.raises(ValueError, match=f"already holds a run; .*{told}"):
        check_unused(tmp_path)
