import dataclasses
import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.cli import inspect_model
from seq2seq.cli.app import app
from seq2seq.config import Architecture, ModelConfig, PositionKind, Task, TrainConfig, Tying, from_dict
from seq2seq.models import build_model
from seq2seq.training.data_module import Tokenizers
from seq2seq.training.run_folder import write_run

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 3, "num_decoder_layers": 2}


def inspect(*arguments: object, width: int = 80):
    return CliRunner().invoke(app, ["inspect", *map(str, arguments)], env={"COLUMNS": str(width)})


def read(*arguments: object) -> dict:
    """What a command says in JSON."""
    result = inspect(*arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def flowed(walk: dict, part: str, name: str) -> list[dict]:
    operations = [op for section in walk["sections"] for op in section["operations"]]
    return [op for op in operations if (op["part"], op["name"]) == (part, name)]


@pytest.fixture(scope="module")
def gpt_folder(tiny_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with 7 learned positions."""
    config = ModelConfig(
        8,
        2,
        12,
        0,
        2,
        architecture=Architecture.decoder_only,
        tying=Tying.two_way,
        positions=PositionKind.learned,
        max_positions=7,
    )
    pieces = tiny_bundle.source_tokenizer.vocab_size
    folder = tmp_path_factory.mktemp("gpt") / "bundle"
    model = build_model(config, pieces, pieces)
    save_bundle(
        dataclasses.replace(
            tiny_bundle,
            model=model,
            model_config=config,
            target_tokenizer=tiny_bundle.source_tokenizer,
            task=Task.language_model,
        ),
        folder,
    )
    return folder


def test_shapes_of_a_bundle_are_those_of_its_own_model(tiny_bundle_folder):
    found = read("shapes", tiny_bundle_folder, "--mode", "all", "--batch", 3, "--src", 5, "--tgt", 4)
    assert [walk["mode"] for walk in found["passes"]] == ["training", "prefill", "step"]
    training, _, step = found["passes"]
    assert training["parameters"] == load_bundle(tiny_bundle_folder).model.num_parameters()
    assert training["letters"] == {"B": 3, "S": 5, "T": 4, "D": 16, "H": 2, "G": 2, "K": 8, "F": 24, "V": 64}
    (scores,) = flowed(training, "cross-attention", "scores")
    assert (scores["symbols"], scores["shape"]) == (["B", "H", "T", "S"], [3, 2, 4, 5])
    assert flowed(step, "self-attention", "scores")[0]["shape"] == [3, 2, 1, 4]
    assert flowed(step, "logits", "logits")[0]["shape"] == [3, 64]


def test_a_configuration_is_found_by_its_name_with_what_it_builds_on():
    found = read("shapes", "gpt_tiny", "--vocab-size", 50, "--mode", "training", "--src", 0, "--tgt", 6)
    (walk,) = found["passes"]
    assert (walk["letters"]["V"], walk["letters"]["T"]) == (50, 6)
    assert flowed(walk, "embedding", "position")[0]["parameters"] == 512 * 32
    assert read("cost", "gpt_mini")["letters"]["decoder"]["M"] == 1024  # written in the file that gpt_mini builds on


def test_a_configuration_has_32000_pieces_unless_told_otherwise():
    assert read("cost", "transformer_tiny")["letters"]["decoder"]["V"] == 32_000


def test_every_configuration_of_the_package_can_be_counted_and_a_path_to_its_file_too():
    names = sorted(file.stem for file in (inspect_model.conf_dir() / "model").glob("*.yaml"))
    assert "transformer_big" in names
    found = {name: inspect_model.find_model(name, None).config for name in names}
    assert (found["transformer_big"].d_model, found["qwen3_small"].d_head) == (1024, 48)
    file = inspect_model.conf_dir() / "model" / "gpt_mini.yaml"
    assert inspect_model.find_model(str(file), None).config == found["gpt_mini"]


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_a_file_of_model_options_or_of_all_options_is_read(tmp_path: Path, suffix):
    for name, values in (("model", SIZES), ("all", {"model": SIZES, "optim": {}})):
        file = (tmp_path / name).with_suffix(suffix)
        file.write_text(json.dumps(values) if suffix == ".json" else yaml.safe_dump(values), encoding="utf-8")
        found = read("cost", file, "--vocab-size", 11)
        assert found["parameters"]["total"] == build_model(ModelConfig(**SIZES), 11, 11).num_parameters()


def test_a_file_may_build_on_another_one_beside_it_or_on_one_of_ours(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("defaults: [llama_small, _self_]\nd_model: 64\nnum_decoder_layers: 1\n")
    (tmp_path / "next.yaml").write_text("defaults: [mine, _self_]\nd_ff: 20\n")
    subject = inspect_model.find_model(str(tmp_path / "next.yaml"), 9)
    assert (subject.config.d_model, subject.config.d_ff, subject.config.num_kv_heads) == (64, 20, 2)


def test_a_run_is_its_bundle_or_without_one_its_options_and_tokenizer(tmp_path: Path, tiny_bundle, tiny_bundle_folder):
    run, data = tmp_path / "run", {"train_source": "a", "train_target": "b"}
    config = from_dict(TrainConfig, {"model": SIZES, "data": data, "trainer": {"max_steps": 3}})
    write_run(run, config, Tokenizers(tiny_bundle.source_tokenizer, tiny_bundle.source_tokenizer), {"seed": 1})
    for place in (run, run / "config.yaml"):
        assert (
            read("cost", place)["letters"]["decoder"] | {"V": 61, "D": 8} == read("cost", place)["letters"]["decoder"]
        )
    (run / "bundle").symlink_to(tiny_bundle_folder)
    assert read("cost", run)["letters"]["decoder"]["D"] == 16
    assert read("cost", tiny_bundle_folder / "config.json")["letters"]["decoder"]["V"] == 64


def test_a_language_model_reads_plain_text_unless_a_source_is_given(gpt_folder):
    (text,) = read("shapes", gpt_folder, "--mode", "training")["passes"]
    assert flowed(text, "embedding", "ids")[0]["symbols"] == ["B", "T"]
    (pair,) = read("shapes", gpt_folder, "--mode", "training", "--src", 3)["passes"]
    assert flowed(pair, "embedding", "ids")[0]["symbols"] == ["B", "P+T"]


def test_a_very_large_configuration_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    huge = tmp_path / "huge.json"
    options = {"d_model": 16384, "num_heads": 128, "d_ff": 65536, "num_encoder_layers": 60, "num_decoder_layers": 60}
    huge.write_text(json.dumps(options))
    assert read("cost", huge)["parameters"]["total"] > 4e11

    small = read("shapes", "transformer_tiny", "--vocab-size", 50, "--mode", "step")
    monkeypatch.setattr(inspect_model, "LARGE", 1)
    subject = inspect_model.find_model("transformer_tiny", 50)
    assert inspect_model.build(subject).output.device.type == "meta"
    assert read("shapes", "transformer_tiny", "--vocab-size", 50, "--mode", "step") == small


def test_layers_are_folded_unless_all_are_asked_for():
    arguments = ("shapes", "transformer_tiny", "--vocab-size", 50, "--mode", "training")
    folded, every = inspect(*arguments).stdout, inspect(*arguments, "--all-layers").stdout
    assert "encoder layers 1 to 2, each (x 2 layers)" in folded
    assert "encoder layer 1\n" not in folded
    assert "encoder layer 1\n" in every
    assert "encoder layer 2\n" in every
    assert [line for line in folded.splitlines() if "in total" in line] == [
        line for line in every.splitlines() if "in total" in line
    ]


@pytest.mark.parametrize("command", [("shapes", "transformer_tiny", "--mode", "step"), ("cost", "transformer_modern")])
@pytest.mark.parametrize("width", [80, 120])
def test_tables_keep_to_the_width_of_the_terminal(command, width):
    shown = inspect(*command, width=width).stdout
    assert max(len(line) for line in shown.splitlines()) <= width
    if command[0] == "shapes":
        assert ("each row sums to 1" in shown) is (width == 120)


def test_the_table_has_symbol_beside_size_and_tells_the_letters():
    shown = inspect("shapes", "transformer_tiny", "--src", 5, "--tgt", 4, "--mode", "training").stdout
    assert "T=4 target pieces" in shown
    assert "T=4 positions" in inspect("shapes", "gpt_tiny", "--src", 0, "--mode", "step").stdout
    assert ["scores", "[B,H,T,S]", "[2,2,4,5]", "1,280"] in [line.split() for line in shown.splitlines()]


def test_markdown_has_a_table_for_each_section():
    shown = inspect("shapes", "transformer_tiny", "--mode", "step", "--format", "markdown").stdout
    assert "## decode step: one new piece, those before it in the cache" in shown
    assert "### decoder layers 1 to 2, each (x 2 layers)\n\n| operation | shape | actual |" in shown
    assert "|   scores | [B,H,1,T] | [2,2,1,4] |  | 256 | q k^T / sqrt(K): rows are queries, columns keys |" in shown
    assert "## parameters\n\n| part | formula |" in inspect("cost", "gpt_tiny", "--format", "markdown").stdout


def test_costs_are_told_with_their_formulas():
    found = read("cost", "transformer_base", "--vocab-size", 37000, "--batch", 2, "--src", 5, "--tgt", 40)
    assert found["parameters"]["total"] == 63_082_496
    own = {"formula": "2 N B G T K", "value": 2 * 6 * 2 * 8 * 40 * 64}
    assert (found["cache"]["self"], found["cache"]["cross"]["value"]) == (own, own["value"] // 8)
    assert found["cache"]["used_bytes"] == 4 * (own["value"] + own["value"] // 8)
    assert found["cache"]["allocated_bytes"] == 4 * (own["value"] * 64 // 40 + own["value"] // 8)
    parts = {part["name"]: part for part in found["multiply_adds"]["forward"]["parts"]}
    assert parts["decoder attention"] == {
        "group": "attention",
        "name": "decoder attention",
        "formula": "2 N B T^2 D",
        "value": 2 * 6 * 2 * 40**2 * 512,
    }
    assert [row["length"] for row in found["multiply_adds_per_target_token"]] == [10, 20, 40, 80, 160]
    assert found["training_memory"]["total_bytes"] == sum(part["bytes"] for part in found["training_memory"]["parts"])


def test_the_precision_of_the_cache_changes_its_bytes():
    full, half = (read("cost", "gpt_tiny", "--precision", name)["cache"]["used_bytes"] for name in ("fp32", "bf16"))
    assert full == 2 * half


def test_lengths_beyond_learned_positions_are_left_out(gpt_folder):
    found = read("cost", gpt_folder, "--length", 4)
    assert [row["length"] for row in found["multiply_adds_per_target_token"]] == [1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["transformer_bse"], 1, "there is no 'transformer_bse'.*did you mean 'transformer_base'"),
        (["nothing_like_it_at_all"], 1, "expected one of gpt_base, "),
        (["transformer_tiny", "--src", "0"], 2, "this one has an encoder"),
        (["gpt_tiny", "--tgt", "600"], 1, r"60\d pieces was asked for, but this model has learned positions for 512"),
    ],
)
@pytest.mark.parametrize("command", ["shapes", "cost"])
def test_what_cannot_be_is_told_in_one_line(command, arguments, code, message):
    result = inspect(command, *arguments)
    assert result.exit_code == code
    assert result.stdout == ""
    assert re.search(message, result.stderr)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "d_model: [", "a.yaml cannot be read: "),
        ("a.json", "{", "a.json cannot be read: "),
        ("a.yaml", "- 1", "a.yaml holds list, expected model options by name"),
        ("a.yaml", "d_modl: 8", "a.yaml: unknown option 'd_modl'; did you mean 'd_model'?"),
        ("a.yaml", "defaults: [gone]", "gone"),
        ("a.txt", "d_model: 8", "a.txt is not a configuration; expected a file that ends in"),
    ],
)
def test_a_file_that_is_no_configuration_is_told(tmp_path: Path, name, text, message):
    file = tmp_path / name
    file.write_text(text)
    result = inspect("cost", file)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_of_something_else_is_told(tmp_path: Path):
    result = inspect("cost", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        "is neither a bundle (it has no config.json) nor the folder of a run (it has no config.yaml)" in result.stderr
    )


def test_a_vocabulary_size_for_a_bundle_is_refused(tiny_bundle_folder):
    result = inspect("shapes", tiny_bundle_folder, "--vocab-size", 9)
    assert result.exit_code == 2
    assert "has a vocabulary of its own" in result.stderr


def test_a_length_and_its_two_sides_together_are_refused():
    result = inspect("cost", "gpt_tiny", "--length", 9, "--tgt", 3)
    assert result.exit_code == 2
    assert "--length sets source and target" in result.stderr
