import dataclasses
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seq2seq.cli import UsageError
from seq2seq.cli.data import app
from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.sentence_piece import SentencePieceTokenizer


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    draw = random.Random(2)
    words = ["".join(draw.choices("abcdefgäß", k=5)) for _ in range(200)]
    sides = tmp_path / "train.de", tmp_path / "train.en"
    for side in sides:
        lines = [" ".join(draw.choices(words, k=6)) for _ in range(120)]
        side.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sides


def test_a_tokenizer_is_trained_on_several_files(files, tmp_path):
    result = run("tokenizer", *files, "-o", tmp_path / "joint", "--vocab-size", "400")
    assert result.exit_code == 0
    assert result.stdout.strip() == str(tmp_path / "joint.model")
    assert "400 pieces trained on 240 of 240 lines" in result.stderr
    trained = SentencePieceTokenizer.load(tmp_path / "joint.model")
    assert (trained.vocab_size, trained.kind, trained.byte_fallback) == (400, TokenizerKind.unigram, True)


def test_every_option_reaches_the_training(files, tmp_path):
    options = ["--kind", "bpe", "--no-byte-fallback", "--normalization", "identity", "--vocab-size", "99"]
    options += ["--max-sentence-bytes", "45", "--character-coverage", "0.999", "--seed", "3"]
    result = run("tokenizer", *files, "-o", tmp_path / "t.model", *options, "--vocab")
    assert result.exit_code == 0
    assert "too long" in result.stderr
    trained = SentencePieceTokenizer.load(tmp_path / "t.model")
    assert (trained.vocab_size, trained.kind, trained.byte_fallback) == (99, TokenizerKind.bpe, False)
    assert trained.normalization == "identity"
    assert len((tmp_path / "t.vocab.txt").read_text(encoding="utf-8").splitlines()) == 99


def test_defaults_are_those_of_the_options_class(files, tmp_path):
    text = run("tokenizer", "--help").stdout
    defaults = {field.name: field.default for field in dataclasses.fields(TokenizerConfig)}
    for name in ("vocab_size", "character_coverage", "normalization", "max_sentence_bytes"):
        assert f"[default: {defaults[name]}]" in " ".join(text.replace("│", " ").split())


def test_mistakes_are_errors_and_nothing_is_written(files, tmp_path):
    result = run("tokenizer", *files, "-o", tmp_path / "t", "--vocab-size", "90000")
    assert isinstance(result.exception, ValueError)
    assert "the largest possible for them is" in str(result.exception)
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert isinstance(run("tokenizer", tmp_path / "none", "-o", tmp_path / "t").exception, FileNotFoundError)
    assert run("tokenizer", *files).exit_code == 2


@pytest.mark.parametrize(("place", "said"), [("", "name .* is empty"), ("nowhere/t", "there is no folder .*nowhere")])
def test_a_place_that_cannot_be_written_is_refused_before_the_training(files, monkeypatch, place, said):
    monkeypatch.chdir(files[0].parent)
    result = run("tokenizer", files[0], "-o", place, "--vocab-size", "90000")  # which training would refuse
    assert re.search(said, str(result.exception))


def test_a_check_prints_a_table_and_its_findings(files):
    source, target = files
    lines = target.read_text(encoding="utf-8").split("\n")
    target.write_text("\n".join(["", *lines[1:]]), encoding="utf-8")
    result = run("check", source, target)
    assert result.exit_code == 0
    assert "pairs with text on both sides: 119" in result.stdout
    assert "pairs blank on one side, left out of training: 1 (line 1)" in result.stdout
    assert "longest lines" in result.stdout


def test_a_check_as_json_holds_the_whole_report(files, tmp_path):
    run("tokenizer", *files, "-o", tmp_path / "t", "--vocab-size", "400")
    result = run("check", *files, "--tokenizer", tmp_path / "t.model", "--against", *files, "--format", "json")
    report = json.loads(result.stdout)
    assert report["pairs"] == 120
    assert report["source"]["piece_use"]["unknown"] == 0
    assert len(report["overlap"]["shared_pairs"]) == 120
    table = run("check", *files, "--tokenizer", tmp_path / "t.model", "--against", *files).stdout
    assert "unknown pieces" in table
    assert "of their 120 pairs this text has 120 (lines 1, 2, 3" in table


def test_two_tokenizers_are_for_source_and_target(files, tmp_path):
    for name, side in zip("st", files, strict=True):
        run("tokenizer", side, "-o", tmp_path / name, "--vocab-size", "400")
    models = ["--tokenizer", tmp_path / "s.model", "--tokenizer", tmp_path / "t.model"]
    report = json.loads(run("check", *files, *models, "--format", "json").stdout)
    for name, side, key in zip("st", files, ("source", "target"), strict=True):
        trained = SentencePieceTokenizer.load(tmp_path / f"{name}.model")
        lines = side.read_text(encoding="utf-8").splitlines()
        assert report[key]["piece_use"]["pieces"] == sum(map(len, trained.encode_batch(lines)))
    result = run("check", *files, *models, "--tokenizer", tmp_path / "s.model")
    assert isinstance(result.exception, UsageError)
    assert "--tokenizer was given 3 times; expected once, or twice" in str(result.exception)


def test_a_tokenizer_that_keeps_every_space_can_be_trained(files, tmp_path):
    options = ["--keep-whitespace", "--normalization", "identity", "--kind", "char", "--vocab-size", "400"]
    run("tokenizer", *files, "-o", tmp_path / "t.model", *options)
    trained = SentencePieceTokenizer.load(tmp_path / "t.model")
    assert trained.decode_text(trained.encode("  two  spaces\n ")) == "  two  spaces\n "


def test_the_tokenizers_of_a_bundle_can_be_used(files, tmp_path):
    run("tokenizer", *files, "-o", tmp_path / "source", "--vocab-size", "400")
    run("tokenizer", *files, "-o", tmp_path / "target", "--vocab-size", "500")
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (tmp_path / "source.model").rename(bundle / "source.spm")
    (tmp_path / "target.model").rename(bundle / "target.spm")
    sides = {f"{side}_tokenizer": SentencePieceTokenizer.load(bundle / f"{side}.spm") for side in ("source", "target")}
    described = {name: {"sha256": side.sha256, "vocab_size": side.vocab_size} for name, side in sides.items()}
    rest = {"source_lang": None, "target_lang": None, "model": {}, "decode": {}, "provenance": {}}
    config = {"format_version": 1, "architecture": "encoder_decoder", "joint": False, **described, **rest}
    (bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")
    result = run("check", *files, "--tokenizer", bundle, "--format", "json")
    assert result.exit_code == 0, result.exception
    report = json.loads(result.stdout)
    lines = files[1].read_text(encoding="utf-8").splitlines()
    trained = SentencePieceTokenizer.load(bundle / "target.spm")
    assert report["target"]["piece_use"]["pieces"] == sum(map(len, trained.encode_batch(lines)))


def test_unequal_files_and_bytes_that_are_not_utf8_are_errors(files):
    source, target = files
    target.write_bytes(target.read_bytes() + b"one more\n")
    result = run("check", source, target)
    assert isinstance(result.exception, ValueError)
    assert "has 120 lines but" in str(result.exception)
    target.write_bytes(b"\xff\n")
    assert "not UTF-8" in str(run("check", source, target).exception)


@pytest.mark.parametrize("wrong", [b"one\n", b"\xff\n"])
def test_a_wrong_file_ends_the_command_with_code_1_and_one_line_on_stderr(files, wrong):
    files[1].write_bytes(wrong)
    command = [sys.executable, "-m", "seq2seq", "data", "check", *files]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 1
