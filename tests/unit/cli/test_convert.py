"""`seq2seq convert`: what SOURCE is, is recognised; what TARGET becomes is said; and what cannot be is refused."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.cli.convert import Kind, kind_of
from seq2seq.config import Architecture, ModelConfig, NormPlacement, PositionKind, Task, Tying
from seq2seq.interop import export_hugging_face
from seq2seq.models import build_model

SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 24}
MARIAN = ModelConfig(
    **SIZES, num_encoder_layers=1, num_decoder_layers=2, positions=PositionKind.sinusoidal_halves, dropout=0.0
)
GPT2 = ModelConfig(
    **SIZES,
    num_encoder_layers=0,
    num_decoder_layers=2,
    architecture=Architecture.decoder_only,
    tying=Tying.two_way,
    norm_placement=NormPlacement.pre,
    positions=PositionKind.learned,
    max_positions=40,
    scale_embedding=False,
)
ENDS_WITHOUT_CONFIG = {".bin": "is a pickle", ".ckpt": "seq2seq average", ".npz": "Marian's own", ".txt": "the folder"}


def convert(*arguments):
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def with_model(bundle: Bundle, config: ModelConfig, **changes) -> Bundle:
    """The bundle with another network, of random weights, in float32."""
    size = bundle.source_tokenizer.vocab_size
    torch.manual_seed(3)
    return dataclasses.replace(bundle, model=build_model(config, size, size).eval(), model_config=config, **changes)


@pytest.fixture(scope="module")
def folders(tiny_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`marian` and `gpt2`, bundles that fit these families, and `opus`, the first as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("models")
    translator = with_model(tiny_bundle, MARIAN)
    save_bundle(translator, folder / "marian")
    save_bundle(with_model(tiny_bundle, GPT2, task=Task.language_model), folder / "gpt2")
    export_hugging_face(translator, folder / "opus")
    return folder


def test_a_hugging_face_folder_becomes_a_bundle_without_being_told(folders, tmp_path):
    target = tmp_path / "new"
    result = convert(folders / "opus", target)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{target}\n"
    assert "read     a Hugging Face folder (marian): encoder_decoder, translation de to en, " in result.stderr
    assert f"next     seq2seq translate {target} INPUT -o OUTPUT" in result.stderr
    mine, theirs = (load_bundle(folder).model.state_dict() for folder in (target, folders / "marian"))
    assert all(torch.equal(mine[name], theirs[name]) for name in (*mine, *theirs) if name != "output_bias")
    assert not mine["output_bias"].any()


@pytest.mark.parametrize(
    ("name", "to", "following"),
    [
        ("marian", "huggingface", "transformers.AutoModelForSeq2SeqLM.from_pretrained("),
        ("gpt2", "huggingface", "transformers.AutoModelForCausalLM.from_pretrained("),
        ("marian", "ctranslate2", "README.md has a program that uses it"),
        ("opus", "ctranslate2", "README.md has a program that uses it"),
    ],
)
def test_a_model_becomes_what_is_asked_for(folders, tmp_path, name, to, following):
    result = convert(folders / name, tmp_path / "new", "--to", to)
    assert result.exit_code == 0, result.output
    assert kind_of(tmp_path / "new") is Kind[to]
    assert following in result.stderr
    assert "weights in float32" in result.stderr.splitlines()[1]


def test_a_language_model_from_elsewhere_is_told_to_generate(folders, tmp_path):
    assert convert(folders / "gpt2", tmp_path / "theirs", "--to", "huggingface").exit_code == 0
    result = convert(tmp_path / "theirs", tmp_path / "mine")
    assert "(gpt2): decoder_only, language_model, " in result.stderr
    assert f"next     seq2seq generate {tmp_path / 'mine'} --prompt" in result.stderr


def test_the_quantization_is_the_one_that_is_asked_for(folders, tmp_path):
    sizes = []
    for kind in ("float32", "int8"):
        result = convert(folders / "marian", tmp_path / kind, "--to", "ctranslate2", "--quantization", kind)
        assert f"weights in {kind}" in result.stderr.splitlines()[1]
        sizes.append((tmp_path / kind / "model.bin").stat().st_size)
    assert sizes[1] < 0.9 * sizes[0]


def test_an_older_target_is_replaced_only_when_told_to_and_only_by_its_own_kind(folders, tmp_path):
    target = tmp_path / "new"
    convert(folders / "opus", target)
    again = convert(folders / "opus", target)
    assert again.exit_code == 1
    assert f"{target} exists; give --overwrite to replace it, or choose another place" in again.stderr
    assert convert(folders / "opus", target, "--overwrite").exit_code == 0
    other = convert(folders / "marian", target, "--to", "huggingface", "--overwrite")
    assert other.exit_code == 1
    assert f"{target} exists and is not a Hugging Face folder; choose another place or remove it first" in other.stderr
    assert kind_of(target) is Kind.bundle


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("marian",), 2, "marian is a bundle; say what it is to become: --to huggingface or --to ctranslate2"),
        (("marian", "--to", "bundle"), 2, "marian is a bundle already; --to bundle would change nothing"),
        (("opus", "--to", "huggingface"), 2, "opus is a Hugging Face folder already; --to huggingface would change"),
        (("opus", "--quantization", "int8"), 2, "--quantization is for --to ctranslate2, got --to bundle"),
        (("marian", "--to", "ctranslate2", "--quantization", "int7"), 1, "int7"),
        (("nothing",), 1, "nothing does not exist; expected a bundle or a Hugging Face folder"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(folders, tmp_path, arguments, code, message):
    source, *options = arguments
    result = convert(folders / source, tmp_path / "new", *options)
    assert result.exit_code == code
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_fits_no_family_is_refused_by_the_name_of_its_option(tiny_bundle, tmp_path):
    save_bundle(with_model(tiny_bundle, dataclasses.replace(MARIAN, num_kv_heads=1)), tmp_path / "bundle")
    result = convert(tmp_path / "bundle", tmp_path / "new", "--to", "huggingface")
    assert result.exit_code == 1
    assert "num_kv_heads" in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_name_on_a_hub_is_not_downloaded(tmp_path):
    result = convert("Helsinki-NLP/opus-mt-de-en", tmp_path / "new")
    assert result.exit_code == 1
    assert "(nothing is downloaded: a name on a model hub is not enough)" in result.stderr


@pytest.mark.parametrize(("ending", "message"), ENDS_WITHOUT_CONFIG.items())
def test_a_file_is_refused_with_what_to_give_instead(tmp_path, ending, message):
    file = tmp_path / f"model{ending}"
    file.write_bytes(b"")
    result = convert(file, tmp_path / "new")
    assert result.exit_code == 1
    assert f"{file} is a file; " in result.stderr
    assert message in result.stderr


def test_a_model_for_ctranslate2_cannot_be_read_back(folders, tmp_path):
    convert(folders / "marian", tmp_path / "fast", "--to", "ctranslate2")
    result = convert(tmp_path / "fast", tmp_path / "new")
    assert result.exit_code == 1
    assert "fast is a CTranslate2 model, which cannot be read back; convert the bundle" in result.stderr


def test_the_folder_of_a_run_is_told_its_bundle_and_another_folder_what_is_missing(folders, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "bundle").symlink_to(folders / "marian")
    result = convert(tmp_path / "run", tmp_path / "new")
    assert f"is the folder of a run; name its bundle, {tmp_path / 'run' / 'bundle'}" in result.stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"size": 3}), encoding="utf-8")
    result = convert(tmp_path / "other", tmp_path / "new")
    assert result.exit_code == 1
    assert "other is neither a bundle nor a Hugging Face folder: it has no config.json with a format_" in result.stderr
