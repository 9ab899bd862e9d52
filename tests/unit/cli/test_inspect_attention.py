import dataclasses
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.config import Task
from seq2seq.models import build_model
from seq2seq.translator import Translator

TEXT = "der ant läuft!"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["inspect", "attention", *map(str, arguments)])


def weights(result: Result) -> dict[str, dict]:
    assert result.exit_code == 0, result.output
    return {one["kind"]: one for one in json.loads(result.stdout)["attention"]}


@pytest.fixture(scope="module")
def decoder_only(tiny_bundle: Bundle, families, tmp_path_factory) -> dict[Task, Path]:
    """A bundle for each task, of models that have no encoder."""
    config, size = families("llama"), tiny_bundle.source_tokenizer.vocab_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = build_model(config, size, size)
    folders = {}
    for task in Task:
        folders[task] = tmp_path_factory.mktemp("alone") / task.name
        save_bundle(dataclasses.replace(tiny_bundle, model=model, model_config=config, task=task), folders[task])
    return folders


def test_a_picture_of_the_greedy_translation_is_written_and_nothing_goes_to_standard_output(
    tiny_bundle_folder, tmp_path
):
    output = tmp_path / "a.png"
    result = call(tiny_bundle_folder, "--src", TEXT, "-o", output, "--layer", 2, "--head", 1, "--dpi", 60)
    assert result.exit_code == 0, result.output
    assert output.read_bytes().startswith(b"\x89PNG")
    bundle = load_bundle(tiny_bundle_folder)
    decode = dataclasses.replace(bundle.decode, beam_size=1)
    assert f"greedy: {Translator(bundle).translate([TEXT], decode)[0].text}" in result.stderr
    assert f"wrote {output}, " in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(("beam", "how"), [(1, "greedy"), (3, "beam 3")])
def test_the_weights_are_of_what_the_search_finds(tiny_bundle_folder, beam, how):
    result = call(tiny_bundle_folder, "--src", TEXT, "--beam", beam, "--format", "json")
    assert json.loads(result.stdout)["output"] == how
    found = weights(result)
    bundle = load_bundle(tiny_bundle_folder)
    answer = Translator(bundle).translate([TEXT], dataclasses.replace(bundle.decode, beam_size=beam))[0]
    assert found["cross"]["queries"] == list(answer.tokens)
    assert found["cross"]["keys"] == bundle.source_tokenizer.pieces(answer.source_ids[0])
    assert list(found) == ["encoder", "decoder", "cross"]
    for one in found.values():
        for heat in one["maps"]:
            assert [sum(row) for row in heat["weights"]] == pytest.approx([1.0] * len(one["queries"]), abs=1e-4)


def test_a_given_target_is_forced_and_the_file_gets_the_data(tiny_bundle_folder, tmp_path):
    output = tmp_path / "a.json"
    options = ["--tgt", "die bee.", "--format", "json", "-o", output, "--kind", "cross", "--average"]
    result = call(tiny_bundle_folder, "--src", TEXT, *options)
    assert (result.exit_code, result.stdout) == (0, "")
    data = json.loads(output.read_text(encoding="utf-8"))
    tokenizer = load_bundle(tiny_bundle_folder).target_tokenizer
    assert data["output"] == "given"
    assert data["attention"][0]["queries"] == [*tokenizer.pieces(tokenizer.encode("die bee.")), "</s>"]
    assert [heat["head"] for heat in data["attention"][0]["maps"]] == [None, None, None]


def test_a_decoder_only_model_shows_its_row_and_the_alignment_in_it(decoder_only):
    found = weights(call(decoder_only[Task.translation], "--src", TEXT, "--tgt", "die bee.", "--format", "json"))
    assert list(found) == ["decoder", "cross"]
    source = found["cross"]["keys"]
    assert found["decoder"]["keys"][: len(source) + 1] == [*source, "<s>"]
    assert found["cross"]["rows_sum_to_one"] is False


def test_a_language_model_reads_its_text_with_what_it_adds_or_what_is_given(decoder_only):
    model = decoder_only[Task.language_model]
    tokenizer = load_bundle(model).target_tokenizer
    result = call(model, "--src", "der", "--max-new", 4, "--format", "json")
    found = weights(result)
    prompt = tokenizer.pieces(tokenizer.prompt("der"))
    assert found["decoder"]["keys"][: len(prompt)] == prompt
    assert len(prompt) < len(found["decoder"]["keys"]) <= len(prompt) + 4
    assert "greedy" in result.stderr
    found = weights(call(model, "--src", "der", "--tgt", " dog!", "--format", "json"))
    assert found["decoder"]["keys"] == tokenizer.pieces(tokenizer.prompt("der dog!"))


def test_characters_without_a_font_are_named_on_standard_error(tiny_bundle_folder, tmp_path, monkeypatch):
    from matplotlib import font_manager

    latin = [entry for entry in font_manager.fontManager.ttflist if entry.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", latin)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    options = ["--tgt", "ant", "--kind", "encoder", "--layer", 1, "--head", 1, "-o", tmp_path / "a.png"]
    result = call(tiny_bundle_folder, "--src", "我们看见猫。", *options)
    assert result.exit_code == 0, result.output
    assert "note: no installed font has 。 (U+3002)" in result.stderr
    assert "Warning" not in result.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--src", TEXT], 2, "give the picture's name, -o attention.png"),
        (["--src", " ", "--format", "json"], 2, "--src has nothing in it to look at"),
        (["--src", TEXT, "--tgt", "", "--format", "json"], 2, "--tgt has nothing in it to look at"),
        (["--src", TEXT, "--tgt", "ant", "--beam", 2, "--format", "json"], 2, "--beam 2 is for finding a target"),
        (["--src", TEXT, "--beam", 0, "--format", "json"], 2, "--beam 0 is not positive"),
        (["--src", TEXT, "--dpi", 0, "--format", "json"], 2, "--dpi 0 is not positive"),
        (["--src", TEXT, "--max-new", 0, "--format", "json"], 2, "--max-new 0 is not positive"),
        (["--src", TEXT, "--layer", 3, "--format", "json"], 1, "layer 3: the model's encoder self-attention has 2"),
        (["--src", TEXT, "-o", "a.jpg"], 1, "a.jpg: a picture's name ends in .png, .svg or .pdf"),
        (["--src", TEXT, "-o", "a.png", "--font", "no.ttf", "--tgt", "ant"], 1, "no font file at no.ttf"),
        (["--src", "ant " * 130, "-o", "a.png", "--tgt", "ant"], 1, "a picture has room for 120"),
        (["--src", TEXT, "-o", "missing/a.png"], 1, "there is no folder"),
        (["--src", "▁", "-o", "a.png"], 1, "the tokenizer leaves nothing of --src; give text that it knows"),
    ],
)
def test_what_makes_no_picture_is_refused_and_nothing_is_written(
    tiny_bundle_folder, tmp_path, monkeypatch, options, code, message
):
    monkeypatch.chdir(tmp_path)
    result = call(tiny_bundle_folder, *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []
