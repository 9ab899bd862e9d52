import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.config import Task
from seq2seq.inspection.heads import measure_heads
from seq2seq.models import build_model
from seq2seq.translator import Translator

SOURCES = ["der ant läuft!", "", "die cat.", "owl"]
TARGETS = ["die bee.", "", "das 3 hen", "gnu"]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["inspect", "heads", *map(str, arguments)])


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "s.txt", SOURCES)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write(tmp_path / "t.txt", TARGETS)


def test_the_numbers_are_of_the_given_targets_and_blank_lines_are_left_out(tiny_bundle_folder, source, target):
    result = call(tiny_bundle_folder, "--src", source, "--tgt", target, "--format", "json")
    assert result.exit_code == 0, result.output
    assert "left out 1 of 4 lines that are blank" in result.stderr
    data = json.loads(result.stdout)
    bundle = load_bundle(tiny_bundle_folder)
    encode, eos = bundle.source_tokenizer.encode, bundle.source_tokenizer.special.eos
    pairs = [([*encode(SOURCES[at]), eos], [*encode(TARGETS[at]), eos]) for at in (0, 2, 3)]
    expected = measure_heads(bundle, pairs)
    assert data["sentences"] == 3
    assert [one["entropy"] for one in data["heads"]] == [one.measures["entropy"] for one in expected.profiles]


def test_without_targets_the_models_own_greedy_output_is_measured(tiny_bundle_folder, source):
    result = call(tiny_bundle_folder, "--src", source, "--format", "json", "--lines", 3)
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    bundle = load_bundle(tiny_bundle_folder)
    answers = Translator(bundle).translate(SOURCES[:3], dataclasses.replace(bundle.decode, beam_size=1))
    assert data["sentences"] == 2
    assert data["queries"]["cross"] == sum(len(answer.candidates[0].ids) for answer in answers)


def test_the_table_has_a_row_for_every_head_and_the_picture_is_written_too(
    tiny_bundle_folder, source, target, tmp_path
):
    output = tmp_path / "a.svg"
    result = call(tiny_bundle_folder, "--src", source, "--tgt", target, "-o", output)
    assert result.exit_code == 0, result.output
    assert "attention" in result.stdout.split("\n")[1]
    rows = [line.split()[:2] for line in result.stdout.split("\n")]
    for kind in ("encoder", "decoder", "cross"):
        assert [row[1] for row in rows if row[:1] == [kind] and "self" not in row[1]] == ["uniform", "1", "1", "2", "2"]
    assert "means over 3 sentences" in result.stdout
    assert output.read_bytes().startswith(b"<?xml")
    assert f"wrote {output}, " in result.stderr


def test_markdown_ends_with_the_suspects_or_that_there_are_none(tiny_bundle_folder, source, target):
    result = call(tiny_bundle_folder, "--src", source, "--tgt", target, "--format", "markdown")
    lines = result.stdout.rstrip().split("\n")
    assert lines[0].startswith("Means over 3 sentences")
    assert sum(line.startswith("| ") for line in lines) == 2 + 3 * 5
    assert lines[-1].startswith("- ")


def test_a_language_model_is_measured_on_its_text_alone(tiny_bundle: Bundle, families, source, target, tmp_path):
    config, size = families("gpt2"), tiny_bundle.source_tokenizer.vocab_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = build_model(config, size, size)
    folder = tmp_path / "bundle"
    save_bundle(dataclasses.replace(tiny_bundle, model=model, model_config=config, task=Task.language_model), folder)
    result = call(folder, "--src", source, "--format", "json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert list(data["queries"]) == ["decoder"]
    prompt = tiny_bundle.source_tokenizer.prompt
    assert data["queries"]["decoder"] == sum(len(prompt(SOURCES[at])) - 1 for at in (0, 2, 3))
    refused = call(folder, "--src", source, "--tgt", target)
    assert refused.exit_code == 2
    assert "--tgt is for a model that translates" in refused.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--src", "s.txt", "--lines", 0], 2, "--lines 0 is not positive"),
        (["--src", "s.txt", "--dpi", -1], 2, "--dpi -1 is not positive"),
        (["--src", "s.txt", "-o", "a.gif"], 1, "a picture's name ends in .png, .svg or .pdf"),
        (
            ["--src", "s.txt", "--tgt", "short.txt"],
            1,
            "s.txt has 4 lines but short.txt has 1; expected the same number",
        ),
        (["--src", "blank.txt", "-o", "a.png"], 1, "there is no sentence to measure heads on"),
        (["--src", "no.txt"], 1, "no such file: no.txt"),
    ],
)
def test_what_cannot_be_measured_is_refused(tiny_bundle_folder, source, monkeypatch, options, code, message):
    monkeypatch.chdir(source.parent)
    write(source.parent / "short.txt", ["x"])
    write(source.parent / "blank.txt", ["", " "])
    result = call(tiny_bundle_folder, *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert not list(source.parent.glob("a.*"))


def test_a_sentence_beyond_the_learned_positions_is_refused_by_its_number(tiny_bundle, families, tmp_path):
    config = families("gpt2", max_positions=30)
    model = build_model(config, 61, 61)
    bundle = dataclasses.replace(tiny_bundle, model=model, model_config=config, task=Task.language_model)
    save_bundle(bundle, tmp_path / "bundle")
    text = write(tmp_path / "long.txt", ["owl", "", "x" * 40])
    result = call(tmp_path / "bundle", "--src", text)
    assert result.exit_code == 1
    assert re.search(
        r"error: sentence 2, blank ones not counted, takes 4\d positions, but the model has", result.stderr
    )


def test_pairs_that_fit_their_learned_positions_are_measured_beside_longer_sources_and_targets(tiny_bundle, families):
    config = families("gpt2", max_positions=12)
    bundle = dataclasses.replace(tiny_bundle, model=build_model(config, 61, 61), model_config=config)
    assert measure_heads(bundle, [([5] * 9, [6] * 3), ([7] * 3, [8] * 10)]).num_sentences == 2
