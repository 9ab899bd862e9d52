import json
import runpy
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.cli.info import table
from seq2seq.config import ModelConfig, TokenizerConfig, TokenizerKind, TrainConfig, Tying, from_dict, to_dict
from seq2seq.models import build_model
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.data_module import Tokenizers
from seq2seq.training.run_folder import write_run

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 3, "num_decoder_layers": 2}


def tokenizer_of(words: str) -> SentencePieceTokenizer:
    lines = [" ".join(words.split()[row % 5 :]) for row in range(40)]
    config = TokenizerConfig(kind=TokenizerKind.bpe, vocab_size=30, byte_fallback=False)
    return train_tokenizer(lines, config)[0]


@pytest.fixture(scope="module")
def tokenizers() -> tuple[SentencePieceTokenizer, SentencePieceTokenizer]:
    return tokenizer_of("ein hund und eine katze laufen am strand"), tokenizer_of("one dog and one cat run on sand")


def run_folder(path: Path, tokenizer: SentencePieceTokenizer, weights: list[float]) -> Path:
    """A run of a tiny model with one recent checkpoint for each value, all weights of which are that value."""
    config = from_dict(
        TrainConfig,
        {
            "model": SIZES,
            "data": {"train_source": "a", "train_target": "b", "source_lang": "de", "target_lang": "en"},
            "trainer": {"max_steps": 3},
        },
    )
    write_run(path, config, Tokenizers(tokenizer, tokenizer), {"seed": 1})
    model = build_model(config.model, tokenizer.vocab_size, tokenizer.vocab_size)
    (path / "checkpoints").mkdir()
    for step, weight in enumerate(weights, start=1):
        state = {f"model.{name}": torch.full_like(value, weight) for name, value in model.state_dict().items()}
        torch.save({"state_dict": state}, path / "checkpoints" / f"recent_step_{step:06d}.ckpt")
    return path


@pytest.mark.parametrize("tying", list(Tying))
def test_info_counts_every_weight_once_and_tells_what_the_bundle_is(tmp_path: Path, tokenizers, tying):
    source, target = tokenizers[0], tokenizers[0] if tying is Tying.three_way else tokenizers[1]
    config = ModelConfig(**SIZES, tying=tying)
    model = build_model(config, source.vocab_size, target.vocab_size)
    save_bundle(Bundle(model, config, source, target, languages=("de", None), provenance={"steps": 7}), tmp_path / "b")

    result = CliRunner().invoke(app, ["info", str(tmp_path / "b"), "--format", "json"])

    facts = json.loads(result.stdout)
    matrices = {Tying.three_way: 1, Tying.two_way: 2, Tying.none: 3}[tying]
    attention, feed_forward, norm = 4 * 8 * 8 + 4 * 8, 2 * 8 * 12 + 12 + 8, 2 * 8
    assert facts["parameters"]["embeddings_and_output"] == matrices * 30 * 8
    assert facts["parameters"]["encoder_layers"] == 3 * (attention + feed_forward + 2 * norm)
    assert facts["parameters"]["decoder_layers"] == 2 * (2 * attention + feed_forward + 3 * norm)
    assert facts["parameters"]["total"] == sum(value.numel() for value in model.parameters())
    assert facts["model"] == to_dict(config)
    names = ["tokenizer"] if tying is Tying.three_way else ["source_tokenizer", "target_tokenizer"]
    assert [name for name in facts if name.endswith("tokenizer")] == names
    assert facts[names[0]]["normalization"] == "nmt_nfkc"
    assert facts[names[0]]["special_ids"] == {"pad": 0, "bos": 1, "eos": 2, "unk": 3}
    assert facts["joint_vocabulary"] is (tying is Tying.three_way)
    assert (facts["languages"], facts["provenance"]) == ({"source": "de", "target": None}, {"steps": 7})
    assert facts["format_version"] == 2


def test_the_table_has_a_line_a_fact_and_headings_for_groups():
    assert table({"model": {"d_model": 2048, "tied": True, "name": None}, "files": ["a", "b"], "empty": {}}) == [
        "model",
        "  d_model                    2,048",
        "  tied                       yes",
        "  name                       -",
        "files                        a, b",
        "empty: none",
    ]


def test_info_prints_a_table_unless_told_otherwise(tmp_path: Path, tokenizers):
    config = ModelConfig(**SIZES)
    save_bundle(Bundle(build_model(config, 30, 30), config, tokenizers[0], tokenizers[0]), tmp_path / "b")

    result = CliRunner().invoke(app, ["info", str(tmp_path / "b")])

    assert result.exit_code == 0
    assert "  normalization              nmt_nfkc\n" in result.stdout


def test_average_takes_the_latest_of_a_run_and_prints_where_the_bundle_is(tmp_path: Path, tokenizers):
    run = run_folder(tmp_path / "run", tokenizers[0], [1.0, 2.0, 6.0])

    result = CliRunner().invoke(app, ["average", str(run), "-o", str(tmp_path / "mean"), "--last", "2"])

    assert result.stdout == f"{tmp_path / 'mean'}\n"
    assert "averaged recent_step_000002.ckpt, recent_step_000003.ckpt" in result.stderr
    assert {
        value.item() for weight in load_bundle(tmp_path / "mean").model.parameters() for value in weight.ravel()
    } == {4}


def test_average_takes_named_checkpoints_of_runs_with_one_tokenizer(tmp_path: Path, tokenizers):
    runs = [run_folder(tmp_path / name, tokenizers[0], [weight]) for name, weight in (("first", 1.0), ("resumed", 5.0))]
    files = [str(run / "checkpoints" / "recent_step_000001.ckpt") for run in runs]

    CliRunner().invoke(app, ["average", *files, "-o", str(tmp_path / "mean")])

    assert load_bundle(tmp_path / "mean").model.output[0, 0] == 3


def test_average_takes_a_checkpoint_of_the_folder_it_is_typed_in(tmp_path: Path, tokenizers, monkeypatch):
    monkeypatch.chdir(run_folder(tmp_path / "run", tokenizers[0], [3.0]) / "checkpoints")

    result = CliRunner().invoke(app, ["average", "recent_step_000001.ckpt", "-o", "mean"])

    assert result.exit_code == 0, result.stderr
    assert load_bundle("mean").model.output[0, 0] == 3


def test_average_refuses_runs_with_different_tokenizers(tmp_path: Path, tokenizers):
    runs = [run_folder(tmp_path / f"run{side}", tokenizers[side], [1.0]) for side in (0, 1)]
    files = [str(run / "checkpoints" / "recent_step_000001.ckpt") for run in runs]

    result = CliRunner().invoke(app, ["average", *files, "-o", str(tmp_path / "mean")])

    assert result.exit_code == 1
    assert "run1 and " in result.stderr
    assert "have different tokenizers" in result.stderr
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "run"], 2, "error: got 2 places; give one run's folder, or checkpoint files only\n"),
        (["run/checkpoints/recent_step_000001.ckpt", "--last", "2"], 2, "error: --last is for the folder of a run; "),
        (["run", "--last", "5"], 1, "has 1 recent checkpoints, 5 were asked for; choose --last 1"),
        (["nowhere/checkpoints/last.ckpt"], 1, "error: nowhere/checkpoints/last.ckpt does not exist; expected the fol"),
        (
            ["run/checkpoints/nothing.ckpt"],
            1,
            "error: run/checkpoints/nothing.ckpt does not exist; expected the folder",
        ),
        (["run/run.json"], 1, "error: run/run.json is not a readable training checkpoint"),
        (["run/run.json", "run/run.json"], 1, "error: run/run.json is not in the checkpoints/ folder of a run"),
        (["run/checkpoints/wide.ckpt"], 1, "wide.ckpt is not of the model that "),
    ],
)
def test_average_says_what_it_can_take(tmp_path: Path, tokenizers, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    run = run_folder(tmp_path / "run", tokenizers[0], [1.0])
    torch.save({"state_dict": {"model.output": torch.zeros(31, 8)}}, run / "checkpoints" / "wide.ckpt")

    result = CliRunner().invoke(app, ["average", *arguments, "-o", "mean"])

    assert result.exit_code == code
    assert message in result.stderr


def test_the_script_is_the_command_average(tmp_path: Path, tokenizers, monkeypatch, capsys):
    run = run_folder(tmp_path / "run", tokenizers[0], [1.0, 3.0])
    script = Path(__file__).parents[3] / "scripts" / "average_checkpoints.py"
    monkeypatch.setattr("sys.argv", [str(script), str(run), "-o", str(tmp_path / "mean"), "--last", "2"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert not ended.value.code
    assert capsys.readouterr().out == f"{tmp_path / 'mean'}\n"
    assert load_bundle(tmp_path / "mean").model.output[0, 0] == 2
