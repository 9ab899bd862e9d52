"""`seq2seq convert`: what SOURCE is, is recognised; what TARGET becomes is said; and what cannot be is refused."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.config import DecodeConfig, ModelConfig, Task
from seq2seq.interop import export_hugging_face, import_hugging_face, is_hugging_face
from seq2seq.interop.ctranslate2 import is_ctranslate2
from seq2seq.models import build_model
from seq2seq.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `interop` is not installed")

LINES = ["der ant läuft!", "owl"]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def done(*arguments: object) -> list[str]:
    """Lines on standard error of a conversion that went well and printed its target, and nothing else."""
    result = call(*arguments)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{arguments[1]}\n"
    return result.stderr.splitlines()


def refused(code: int, said: str, *arguments: object) -> None:
    """A conversion that ends with this exit code and message, in one line, and leaves things as they were."""
    parent = Path(str(arguments[1])).parent
    before = sorted(parent.rglob("*"))
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert sorted(parent.rglob("*")) == before


def random_bundle(like: Bundle, config: ModelConfig, task: Task = Task.translation) -> Bundle:
    tokenizer = like.source_tokenizer
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
    return Bundle(model, config, tokenizer, tokenizer, DecodeConfig(beam_size=1), ("de", "en"), task=task)


@pytest.fixture(scope="module")
def marian(families: Callable[..., ModelConfig], tiny_bundle: Bundle) -> Bundle:
    return random_bundle(tiny_bundle, families("marian"))


@pytest.fixture(scope="module")
def bundle_folder(marian: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "bundle"
    save_bundle(marian, folder)
    return folder


@pytest.fixture(scope="module")
def hub_folder(marian: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of the same model."""
    folder = tmp_path_factory.mktemp("made") / "opus"
    export_hugging_face(marian, folder)
    return folder


def texts(bundle: Bundle) -> list[str]:
    return [answer.text for answer in Translator(bundle, "cpu").translate(LINES)]


def test_a_hugging_face_folder_becomes_a_bundle_without_being_told(hub_folder, marian, tmp_path):
    read, written, after = done(hub_folder, tmp_path / "new" / "bundle")
    bundle = load_bundle(tmp_path / "new" / "bundle")
    assert texts(bundle) == texts(marian)
    weights, expected = bundle.model.state_dict(), marian.model.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    assert read.startswith("read     a Hugging Face folder (marian): encoder_decoder, translation de to en, ")
    assert read.endswith(f", {marian.model.num_parameters():,} parameters, 61 pieces, weights in float32")
    assert written.startswith("written  a bundle: 0.")
    assert written.endswith(" MB, weights in float32")
    assert after == f"next     seq2seq translate {tmp_path / 'new' / 'bundle'} INPUT -o OUTPUT"


def test_a_bundle_becomes_a_hugging_face_folder(bundle_folder, marian, tmp_path):
    read, written, after = done(bundle_folder, tmp_path / "out", "--to", "huggingface")
    assert texts(import_hugging_face(tmp_path / "out")) == texts(marian)
    assert read.startswith("read     a bundle: encoder_decoder, translation de to en, ")
    assert written.startswith("written  a Hugging Face folder: ")
    assert after == f'next     transformers.AutoModelForSeq2SeqLM.from_pretrained("{tmp_path / "out"}")'


@pytest.mark.parametrize("source", ["bundle", "hub"])
def test_both_become_a_ctranslate2_model_in_one_go(bundle_folder, hub_folder, marian, tmp_path, source):
    folder = bundle_folder if source == "bundle" else hub_folder
    options = ["--to", "ctranslate2", "--quantization", "int8"]
    _, written, after = done(folder, tmp_path / "out", *options)
    assert written.startswith("written  a CTranslate2 model: 0.")
    assert written.endswith(" MB, weights in int8")
    assert after == f"next     {tmp_path / 'out' / 'README.md'} has a program that uses it"
    tokenizer = marian.source_tokenizer
    translator = ctranslate2.Translator(str(tmp_path / "out"), intra_threads=1)
    (found,) = translator.translate_batch([tokenizer.pieces(tokenizer.encode("owl"))], max_decoding_length=5)
    assert found.hypotheses[0]


def test_without_a_quantization_the_weights_are_float32(bundle_folder, tmp_path):
    sizes = []
    for kind, options in (("float32", []), ("int8", ["--quantization", "int8"])):
        written = done(bundle_folder, tmp_path / kind, "--to", "ctranslate2", *options)[1]
        assert written.endswith(f" MB, weights in {kind}")
        sizes.append((tmp_path / kind / "model.bin").stat().st_size)
    assert sizes[1] < 0.9 * sizes[0]


def test_a_language_model_is_followed_by_generate(families, tiny_bundle, tmp_path):
    made = random_bundle(tiny_bundle, families("llama"), Task.language_model)
    export_hugging_face(made, tmp_path / "llama")
    read, _, after = done(tmp_path / "llama", tmp_path / "bundle")
    assert "(llama): decoder_only, language_model" in read
    assert after == f'next     seq2seq generate {tmp_path / "bundle"} --prompt "Once upon a time"'
    assert done(tmp_path / "bundle", tmp_path / "again", "--to", "huggingface")[2] == (
        f'next     transformers.AutoModelForCausalLM.from_pretrained("{tmp_path / "again"}")'
    )


def test_half_precision_is_said_to_have_become_single(hub_folder, tmp_path):
    shutil.copytree(hub_folder, tmp_path / "half")
    weights = {name: weight.bfloat16() for name, weight in load_file(hub_folder / "model.safetensors").items()}
    save_file(weights, tmp_path / "half" / "model.safetensors")
    read, written, _ = done(tmp_path / "half", tmp_path / "bundle")
    assert read.endswith(", weights in bfloat16")
    assert written.endswith(", weights in float32")


def test_an_older_target_of_the_same_kind_is_replaced_only_when_told(bundle_folder, hub_folder, marian, tmp_path):
    for source, kind, is_there in (
        (hub_folder, "bundle", lambda folder: texts(load_bundle(folder)) == texts(marian)),
        (bundle_folder, "huggingface", is_hugging_face),
        (bundle_folder, "ctranslate2", is_ctranslate2),
    ):
        target = tmp_path / kind
        done(source, target, "--to", kind)
        first = (target / "config.json").stat().st_ino
        refused(
            1, f"{target} exists; give --overwrite to replace it, or choose another place", source, target, "--to", kind
        )
        done(source, target, "--to", kind, "--overwrite")
        assert is_there(target)
        assert (target / "config.json").stat().st_ino != first


def test_what_is_not_an_older_target_of_the_same_kind_is_never_replaced(bundle_folder, hub_folder, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    to_engine = ["--to", "ctranslate2", "--overwrite"]
    for name in ("notes", "file"):
        target = tmp_path / name
        refused(1, f"{target} exists and is not a CTranslate2 model; choose", bundle_folder, target, *to_engine)
        refused(1, f"{target} exists and is not a bundle; choose", hub_folder, target, "--overwrite")
    refused(1, f"{hub_folder} exists and is not a bundle", hub_folder, hub_folder, "--overwrite")
    refused(1, "exists and is not a Hugging Face folder", bundle_folder, bundle_folder, "--to", "huggingface")


def test_a_bundle_must_be_told_what_it_is_to_become(bundle_folder, tmp_path):
    said = f"{bundle_folder} is a bundle; say what it is to become: --to huggingface, ctranslate2 or aoti"
    refused(2, said, bundle_folder, tmp_path / "out")


def test_a_conversion_that_would_change_nothing_is_refused(bundle_folder, hub_folder, tmp_path):
    said = "is a bundle already; --to bundle would change nothing"
    refused(2, said, bundle_folder, tmp_path / "out", "--to", "bundle")
    said = "is a Hugging Face folder already; --to huggingface would change nothing"
    refused(2, said, hub_folder, tmp_path / "out", "--to", "huggingface")


def test_a_quantization_is_for_ctranslate2_and_one_that_it_has(bundle_folder, hub_folder, tmp_path):
    said = "--quantization is for --to ctranslate2, got --to bundle"
    refused(2, said, hub_folder, tmp_path / "out", "--quantization", "int8")
    said = "quantization 'int3' is not one that CTranslate2 has; give int8, "
    refused(1, said, bundle_folder, tmp_path / "out", "--to", "ctranslate2", "--quantization", "int3")


def test_a_source_that_is_not_there_is_told_apart_from_a_name_on_a_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(1, "nowhere does not exist; expected a bundle or a Hugging Face folder\n", "nowhere", tmp_path / "out")
    said = "(nothing is downloaded: a name on a model hub is not enough)"
    refused(1, said, "Helsinki-NLP/opus-mt-de-en", tmp_path / "out")


FILES = {
    "pytorch_model.bin": "such a file is a pickle and could run code when it is loaded, so it is not read; give the",
    "model.pt": "such a file is a pickle",
    "model.pth": "such a file is a pickle",
    "last.ckpt": "make a bundle of a run's checkpoints with `seq2seq average`, and give that",
    "model.npz": "Marian's own files are not read; give the Hugging Face folder of the model",
    "model.safetensors": "give the folder that it is in, with its config.json and tokenizer",
    "config.json": "give the folder that it is in",
    "model.gguf": "give the folder of the model",
}


@pytest.mark.parametrize(("name", "said"), FILES.items())
def test_a_file_is_refused_with_what_to_give_instead(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"x")
    refused(1, f"{name} is a file; {said}", tmp_path / name, tmp_path / "out")


def test_folders_that_cannot_be_converted_are_refused_with_what_to_do(bundle_folder, tmp_path):
    done(bundle_folder, tmp_path / "engine", "--to", "ctranslate2")
    said = (
        "engine is a CTranslate2 model, which cannot be read back; convert the bundle or the Hugging Face folder that"
    )
    refused(1, said, tmp_path / "engine", tmp_path / "out")
    shutil.copytree(bundle_folder, tmp_path / "run" / "bundle")
    said = f"{tmp_path / 'run'} is the folder of a run; name its bundle, {tmp_path / 'run' / 'bundle'}"
    refused(1, said, tmp_path / "run", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    refused(1, "is neither a bundle nor a Hugging Face folder", tmp_path / "empty", tmp_path / "out")
    neither = "is neither a bundle nor a Hugging Face folder"
    for content, said in ((b"{}", neither), (b"[]", neither), (b'{"a": ', "is damaged"), (b"\xff{", "is damaged")):
        (tmp_path / "empty" / "config.json").write_bytes(content)
        refused(1, said, tmp_path / "empty", tmp_path / "out")


def test_what_does_not_fit_is_refused_by_its_option(families, tiny_bundle, hub_folder, tmp_path):
    made = random_bundle(tiny_bundle, families("gpt2", prefix_lm=True))
    save_bundle(made, tmp_path / "prefix")
    refused(1, "prefix_lm=true cannot be written", tmp_path / "prefix", tmp_path / "out", "--to", "ctranslate2")
    refused(1, "prefix_lm", tmp_path / "prefix", tmp_path / "out", "--to", "huggingface")
    grouped = random_bundle(tiny_bundle, families("marian", num_kv_heads=1))
    save_bundle(grouped, tmp_path / "grouped")
    refused(1, "num_kv_heads", tmp_path / "grouped", tmp_path / "out", "--to", "huggingface")
    shutil.copytree(hub_folder, tmp_path / "bert")
    config = json.loads((tmp_path / "bert" / "config.json").read_text(encoding="utf-8")) | {"model_type": "bert"}
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    refused(1, "model_type='bert'; this package reads marian", tmp_path / "bert", tmp_path / "out")


def test_the_other_commands_say_what_to_do_with_a_folder_of_another_program(bundle_folder, hub_folder, tmp_path):
    result = CliRunner().invoke(app, ["translate", str(hub_folder)], input="owl\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{hub_folder} is a Hugging Face folder, not a bundle; convert it first: seq2seq convert {hub_folder} " in (
        result.stderr
    )
    done(bundle_folder, tmp_path / "engine", "--to", "ctranslate2")
    result = CliRunner().invoke(app, ["translate", str(tmp_path / "engine")], input="owl\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "engine is a CTranslate2 model, not a bundle; use it as its README.md says" in result.stderr


def test_the_bundle_that_comes_out_translates_with_the_languages_that_went_in(hub_folder, tmp_path):
    done(hub_folder, tmp_path / "bundle")
    result = CliRunner().invoke(app, ["translate", str(tmp_path / "bundle"), "--beam-size", "1"], input="owl\n\n")
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 2


def test_the_help_says_what_can_be_converted_into_what():
    result = CliRunner().invoke(app, ["convert", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    for words in ("MarianMT/OPUS-MT", "GPT-2", "LLaMA 2 or 3", "Qwen 2", "CTranslate2", "int8_float32", "downloaded"):
        assert words in result.stdout


def test_a_search_that_was_not_greedy_is_kept(marian, tmp_path):
    save_bundle(dataclasses.replace(marian, decode=DecodeConfig(beam_size=7)), tmp_path / "bundle")
    done(tmp_path / "bundle", tmp_path / "engine", "--to", "ctranslate2")
    assert "beam_size=7" in (tmp_path / "engine" / "README.md").read_text(encoding="utf-8")
