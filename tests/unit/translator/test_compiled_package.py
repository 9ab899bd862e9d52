"""seq2seq.translator.compiled_package: a bundle with compiled code, what it gives, and when it is refused.

Nothing is compiled here: the libraries are files, and in their place the Python is called that would be in them.
"""

import dataclasses
import json
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._inductor
from typer.testing import CliRunner

from seq2seq.bundle import load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.cli.doctor import choose
from seq2seq.config import Compute, DecodeConfig
from seq2seq.corpus.shortlist import Shortlist
from seq2seq.models import build_model
from seq2seq.models.ahead import NATIVE, READER, STEP, SourceReader, TargetStep
from seq2seq.models.decoding import TurnedProjection
from seq2seq.models.native_function import NativeFunction
from seq2seq.models.packed import Products, operator
from seq2seq.search import step
from seq2seq.search.agreement import Outcome, examine
from seq2seq.translator import Request, Translator
from seq2seq.translator.compiled_package import is_compiled, save_compiled

LINES = ["ant bee cat läuft.", "", "owl", "dog elk fox gnu hen und der pig!", "\u200b", "17 ram yak die das 3?"]
SAID = "seq2seq.translator.compiled_package"
PANEL = 8


class Uncompiled(NativeFunction):
    """What the library at `path` would give, worked out by Python."""

    def __init__(self, path, num_outputs, at_once):
        assert path.is_file()
        assert at_once >= 1
        assert num_outputs == {STEP: 2, READER: 1}[path.name]
        model = load_bundle(path.parent.parent).model
        self.module = TargetStep(model, PANEL) if path.name == STEP else SourceReader(model, PANEL)

    def __call__(self, *tensors):
        found = self.module(*tensors)
        return list(found) if isinstance(found, tuple) else [found]


class PythonProducts(Products):
    """What products.cpp in the library at `path` would give."""

    def __init__(self, path):
        assert path.name == NATIVE
        assert path.is_file()
        self.panel = PANEL

    def __call__(self, x, panels, bias, width):
        return operator()(x, panels, bias, width)


class PythonRanking:
    """What ranking.cpp would give."""

    def __init__(self, path):
        assert path.name == NATIVE
        assert path.is_file()

    def norm(self, logits):
        return step._norm(logits)

    def top(self, logits, count):
        return step.top_pieces(logits, count)


def without_compiling(changes):
    """Bundles are compiled into files of a few bytes, in whose place Python is called."""
    changes.setattr(f"{SAID}.NativeFunction", Uncompiled)
    changes.setattr(f"{SAID}.Products", PythonProducts)
    changes.setattr(f"{SAID}.NativeRanking", PythonRanking)

    def compile_model(model):
        readers = {READER: b"a reader"} if hasattr(model, "encoder") else {}
        return {NATIVE: b"functions", STEP: b"a step"} | readers, True

    changes.setattr("seq2seq.models.compilation.compile_model", compile_model)


@pytest.fixture
def python(monkeypatch):
    """Nothing is compiled."""
    without_compiling(monkeypatch)


@pytest.fixture(scope="module")
def made(tiny_bundle_folder, tmp_path_factory):
    """The tiny bundle with such files; to be left as it is."""
    folder = tmp_path_factory.mktemp("made") / "package"
    with pytest.MonkeyPatch.context() as changes:
        without_compiling(changes)
        save_compiled(load_bundle(tiny_bundle_folder), folder)
    return folder


@pytest.fixture
def package(python, made, tmp_path):
    """A copy of it, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "package"))


def index_of(package):
    return json.loads((package / "compiled" / "compiled.json").read_text(encoding="utf-8"))


def with_index(package, **changes):
    changed = json.dumps(index_of(package) | changes)
    (package / "compiled" / "compiled.json").write_text(changed, encoding="utf-8")


def answers(path, decode, *, compiled, lines=LINES):
    return Translator.load(path, "cpu", compiled=compiled).translate(lines, decode)


def assert_same(found, wanted):
    """The same pieces, and scores up to rounding."""
    assert [[one.ids for one in answer.candidates] for answer in found] == [
        [one.ids for one in answer.candidates] for answer in wanted
    ]
    for one, other in zip(found, wanted, strict=True):
        for candidate, expected in zip(one.candidates, other.candidates, strict=True):
            assert candidate.score == pytest.approx(expected.score, rel=1e-5, abs=1e-5)
            assert candidate.token_log_probs == pytest.approx(expected.token_log_probs, rel=1e-5, abs=1e-5)


def test_the_folder_is_a_bundle_that_says_what_it_was_compiled_for(package, tiny_bundle_folder):
    assert is_compiled(package)
    assert not is_compiled(tiny_bundle_folder)
    index = index_of(package)
    assert (index["torch"], index["machine"]) == (torch.__version__, platform.machine())
    assert index["files"].keys() == {NATIVE, STEP, READER}
    assert {file.name for file in (package / "compiled").iterdir()} == {NATIVE, STEP, READER, "compiled.json"}
    wanted = load_bundle(tiny_bundle_folder).model.state_dict()
    found = load_bundle(package).model
    assert all(torch.equal(weight, wanted[name]) for name, weight in found.state_dict().items())
    assert found.compiled is None


DECODES = {
    "greedy": DecodeConfig(beam_size=1, max_length=9),
    "beam": DecodeConfig(beam_size=5, n_best=3),
    "samples": DecodeConfig(beam_size=1, temperature=1.0, n_best=3, seed=7, max_length=9),
    "rules": DecodeConfig(beam_size=3, no_repeat_ngram=2, repetition_penalty=1.2, min_length=3, max_length=12),
    "patience": DecodeConfig(beam_size=4, patience=1.0, alignments=True),
}


@pytest.mark.parametrize(("name", "batch"), [(name, 25) for name in DECODES] + [("beam", 1)])
def test_it_gives_what_the_modules_give(package, name, batch):
    decode = dataclasses.replace(DECODES[name], batch_tokens=batch)
    assert_same(answers(package, decode, compiled=True), answers(package, decode, compiled=False))


def test_compiled_code_is_what_decodes(package, monkeypatch):
    translator = Translator.load(package, "cpu", compiled=True)
    monkeypatch.setattr("seq2seq.models.decoder.Decoder.step", None)
    monkeypatch.setattr("seq2seq.models.encoder.Encoder.forward", None)
    translator.model.lean = None
    assert len(translator.translate(LINES, DECODES["beam"])) == len(LINES)


def test_prefixes_and_phrases_are_those_of_the_modules(package):
    requests = [
        Request("ant bee cat", prefix="owl"),
        Request("dog elk", phrases=("pig",)),
        Request("owl", target="die"),
    ]
    decode = DecodeConfig(beam_size=3, n_best=2, max_length=10)
    assert_same(
        answers(package, decode, compiled=True, lines=requests),
        answers(package, decode, compiled=False, lines=requests),
    )


def test_matrices_in_panels_and_the_ranking_are_what_decodes(package, monkeypatch):
    translator = Translator.load(package, "cpu", compiled=True)
    monkeypatch.setattr("seq2seq.models.decoding.TurnedProjection.__call__", None)
    monkeypatch.setattr("seq2seq.search.step._topk", None)
    translator.model.ranking.top = lambda logits, count: logits.topk(count).indices.numpy()
    assert len(translator.translate(LINES, DECODES["beam"])) == len(LINES)


def test_where_torch_multiplies_the_projection_is_torchs(package):
    with_index(package, packed=False)
    model = Translator.load(package, "cpu", compiled=True).model
    assert isinstance(model.projection, TurnedProjection)
    assert isinstance(model.ranking, PythonRanking)


def test_an_ensemble_decodes_by_the_code_of_each(package):
    found, wanted = (Translator.load([package, package], "cpu", compiled=how) for how in (True, False))
    assert all(member.compiled is not None for member in found.model.members)
    decode = DECODES["beam"]
    assert_same(found.translate(LINES, decode), wanted.translate(LINES, decode))


def test_every_member_of_an_ensemble_must_have_code(package, tiny_bundle_folder):
    with pytest.raises(ValueError, match="has no compiled code"):
        Translator.load([package, tiny_bundle_folder], "cpu", compiled=True)


def test_a_shortlist_narrows_what_compiled_code_chooses_from(python, tiny_bundle_folder, tmp_path):
    bundle = load_bundle(tiny_bundle_folder)
    tokenizer = bundle.target_tokenizer
    special, size = tokenizer.special, tokenizer.vocab_size
    shortlist = Shortlist(
        num_targets=size,
        candidates=np.array([[(7 * id_ + 3 * place) % size for place in range(3)] for id_ in range(size)], np.int32),
        same=np.full(size, -1, dtype=np.int32),
        frequent=np.array([], dtype=np.int32),
        always=np.array(sorted({special.pad, special.bos, special.eos, special.unk}), dtype=np.int32),
        sha256=(tokenizer.sha256, tokenizer.sha256),
    )
    save_compiled(dataclasses.replace(bundle, shortlist=shortlist), tmp_path / "short")
    decode = DecodeConfig(beam_size=3, n_best=2, shortlist=True)
    found = answers(tmp_path / "short", decode, compiled=True)
    assert_same(found, answers(tmp_path / "short", decode, compiled=False))
    assert [one.ids for one in found] != [
        one.ids for one in answers(tmp_path / "short", DECODES["beam"], compiled=True)
    ]


def test_a_decoder_only_model_has_no_reader(python, families, scrambled, tiny_bundle, tmp_path):
    config = families("llama")
    tokenizer = tiny_bundle.source_tokenizer
    torch.manual_seed(4)
    model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
    bundle = dataclasses.replace(tiny_bundle, model=model, model_config=config)
    save_compiled(bundle, tmp_path / "alone")
    assert index_of(tmp_path / "alone")["files"].keys() == {NATIVE, STEP}
    for decode in (DECODES["greedy"], DECODES["beam"]):
        assert_same(
            answers(tmp_path / "alone", decode, compiled=True), answers(tmp_path / "alone", decode, compiled=False)
        )


def refused(path, match, **options):
    with pytest.raises(ValueError, match=match):
        Translator.load(path, **({"device": "cpu", "compiled": True} | options))


def test_a_bundle_without_compiled_code_is_refused(tiny_bundle_folder):
    refused(
        tiny_bundle_folder,
        r"bundle has no compiled code.*make it with `seq2seq convert \S+ NEW_FOLDER --to aoti`, and ",
    )


@pytest.mark.parametrize("name", [NATIVE, STEP, READER])
def test_a_file_that_has_changed_is_refused_before_it_is_loaded(package, name):
    with (package / "compiled" / name).open("ab") as file:
        file.write(b"x")
    refused(package, rf"compiled/{name} is not the file that was compiled; make it with .* --to aoti` anew")


@pytest.mark.parametrize("name", [NATIVE, STEP, READER])
def test_a_file_that_is_not_there_or_not_told_of_is_refused(package, name):
    files = index_of(package)["files"]
    with_index(package, files={other: checksum for other, checksum in files.items() if other != name})
    refused(package, rf"compiled/{name} is not the file that was compiled")
    with_index(package, files=files)
    (package / "compiled" / name).unlink()
    refused(package, r"compiled is damaged \(FileNotFoundError.*make it with .* --to aoti` anew")


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "{}", '{"torch": "2"}', '{"files": 3}'])
def test_an_index_that_is_none_is_refused(package, content):
    (package / "compiled" / "compiled.json").write_text(content, encoding="utf-8")
    refused(package, r"compiled is damaged \(.*make it with .* --to aoti` anew")


def test_code_for_another_version_of_torch_is_refused(package):
    with_index(package, torch="1.13.0")
    refused(package, r"was compiled for torch 1\.13\.0, this is torch .*; make it with .* --to aoti` anew")


@pytest.mark.parametrize("number", [1, 2, None, "3"])
def test_code_of_another_version_of_this_package_is_refused(package, number):
    index = {**index_of(package), "interface": number}
    if number is None:  # as the first version wrote it
        del index["interface"]
    (package / "compiled" / "compiled.json").write_text(json.dumps(index), encoding="utf-8")
    refused(package, r"was compiled by another version of seq2seq; make it with .* --to aoti` anew")


def test_code_for_another_kind_of_processor_is_refused(package):
    with_index(package, machine="vax")
    refused(package, r"was compiled for another kind of CPU \(vax; \w+\); make it with .* --to aoti` here")


def test_code_for_a_processor_that_can_do_more_is_refused_and_for_one_that_can_do_less_is_not(package):
    cpu = index_of(package)["cpu"]
    with_index(package, cpu=[*cpu, "telepathy", "teleport"])
    refused(package, r"another kind of CPU \(\w+; this \w+ CPU lacks telepathy, teleport\); make it with")
    with_index(package, cpu=cpu[1:])
    assert Translator.load(package, "cpu", compiled=True).bundle.model.compiled is not None


def test_code_for_other_weights_is_refused(package, tiny_bundle, tmp_path):
    torch.manual_seed(1)
    model = load_bundle(package).model
    with torch.no_grad():
        model.output.add_(1.0)
    save_bundle(dataclasses.replace(tiny_bundle, model=model), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.safetensors", package / "model.safetensors")
    refused(package, r"was compiled for other weights than model\.safetensors beside it has; make it with .* anew")


def test_a_library_that_cannot_be_loaded_is_refused(package, monkeypatch):
    monkeypatch.setattr(f"{SAID}.NativeFunction", NativeFunction)
    refused(package, r"compiled/step\.so is not a library that torch .* loads \(.*\); compile the model anew")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compute": Compute.int8}, "compute=int8, but the backend aoti computes in float32; leave one of both out"),
        ({"compute": Compute.bfloat16}, "compute=bfloat16, but the backend aoti computes in float32"),
        ({"device": "cuda"}, "device=cuda, but the backend aoti is for CPUs; leave one of both out"),
        ({"device": torch.device("cuda", 1)}, "device=cuda:1, but the backend aoti is for CPUs"),
        (
            {"decode": DecodeConfig(coverage_penalty=0.3)},
            "coverage_penalty watches the attention, which the backend aoti does not show; leave one of both out",
        ),
    ],
)
def test_what_compiled_code_does_not_do_is_refused_before_anything_is_read(options, said, tmp_path):
    refused(tmp_path / "not there", said, **options)


def test_a_coverage_penalty_that_comes_later_is_refused_too(package):
    translator = Translator.load(package, "cpu", compiled=True)
    with pytest.raises(ValueError, match="compiled code does not show the attention that a coverage penalty goes by"):
        translator.translate(["owl"], DecodeConfig(coverage_penalty=0.3))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--compute", "int8"], "compute=int8, but the backend aoti computes in float32"),
        (["--compute", "float16"], "--compute float16 is for --backend ctranslate2"),
        (["--device", "cuda"], "device=cuda, but the backend aoti is for CPUs"),
        (["--coverage-penalty", "0.2"], "coverage_penalty watches the attention"),
        ([], "has no compiled code"),
    ],
)
def test_the_command_refuses_in_one_line(tiny_bundle_folder, options, said):
    result = CliRunner().invoke(
        app, ["translate", str(tiny_bundle_folder), "--backend", "aoti", *options], input="owl\n"
    )
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


def convert(*arguments):
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def test_the_command_converts_and_another_translates(python, tiny_bundle_folder, tmp_path):
    target = tmp_path / "new"
    result = convert(tiny_bundle_folder, target, "--to", "aoti")
    assert (result.exit_code, result.stdout) == (0, f"{target}\n"), result.stderr
    read, written, after = result.stderr.splitlines()
    assert read.startswith("read     a bundle: encoder_decoder, translation de to en")
    assert written.startswith("written  a bundle with compiled code: ")
    assert written.endswith(", weights in float32")
    assert after == f"next     seq2seq translate {target} INPUT -o OUTPUT --backend aoti"
    texts = [
        CliRunner().invoke(app, ["translate", str(target), "--backend", backend], input="\n".join(LINES)).stdout
        for backend in ("aoti", "torch")
    ]
    assert texts[0] == texts[1]
    assert texts[0].count("\n") == len(LINES)


def test_an_older_bundle_is_replaced_only_when_told_to(python, tiny_bundle_folder, tmp_path):
    target = tmp_path / "new"
    save_bundle(load_bundle(tiny_bundle_folder), target)
    result = convert(tiny_bundle_folder, target, "--to", "aoti")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{target} exists; give --overwrite to replace it, or choose another place" in result.stderr
    assert not is_compiled(target)
    assert convert(tiny_bundle_folder, target, "--to", "aoti", "--overwrite").exit_code == 0
    assert is_compiled(target)
    # in its own place, too
    first = (target / "compiled" / STEP).stat().st_ino
    assert convert(target, target, "--to", "aoti", "--overwrite").exit_code == 0
    assert (target / "compiled" / STEP).stat().st_ino != first
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


def test_what_is_not_a_bundle_is_never_replaced(python, tiny_bundle_folder, tmp_path):
    (tmp_path / "notes").mkdir()
    result = convert(tiny_bundle_folder, tmp_path / "notes", "--to", "aoti", "--overwrite")
    assert result.exit_code == 1
    assert "notes exists and is not a bundle with compiled code; choose another place" in result.stderr
    with pytest.raises(ValueError, match="notes exists and is not a bundle; choose another place or remove it first"):
        save_compiled(load_bundle(tiny_bundle_folder), tmp_path / "notes")
    assert list((tmp_path / "notes").iterdir()) == []


def test_after_a_compilation_that_failed_nothing_is_there_and_what_was_there_still_is(package, monkeypatch, tmp_path):
    def fail(model):
        raise ValueError("the model could not be compiled: no compiler")

    monkeypatch.setattr("seq2seq.models.compilation.compile_model", fail)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for target in (package, tmp_path / "new"):
        result = convert(package, target, "--to", "aoti", "--overwrite")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "error: the model could not be compiled: no compiler\n"
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert [file.name for file in tmp_path.iterdir()] == ["package"]


def test_without_a_compiler_nothing_is_written(tiny_bundle_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    # torch has read the variable when it was imported
    with torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/g++")}):
        result = convert(tiny_bundle_folder, tmp_path / "new", "--to", "aoti")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: the model could not be compiled: /nowhere/g++ is not a C++ compiler that")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_language_model_is_refused(python, tiny_writer_folder, tmp_path):
    result = convert(tiny_writer_folder, tmp_path / "new", "--to", "aoti")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--to aoti is for models that translate, this one is a language model; `seq2seq generate`" in result.stderr
    with pytest.raises(ValueError, match="--to aoti is for models that translate, this one is a language model"):
        save_compiled(load_bundle(tiny_writer_folder), tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_quantization_is_not_for_compiled_code(tiny_bundle_folder, tmp_path):
    result = convert(tiny_bundle_folder, tmp_path / "new", "--to", "aoti", "--quantization", "int8")
    assert result.exit_code == 2
    assert "--quantization is for --to ctranslate2, got --to aoti" in result.stderr


def examined(path):
    """What the doctor finds about the compiled code alone."""
    checks = choose(load_bundle(path), str(path), LINES, 2, compiled=True)
    own = [check for check in checks if "compiled" in check.name]
    assert [check.sides for check in own] == [("modules", "compiled")] * 2
    assert all(check.must_agree for check in own)
    return [examine(check).outcome for check in own]


def test_the_doctor_finds_compiled_code_that_gives_what_the_modules_give(package):
    assert examined(package) == [Outcome.equal] * 2


def test_the_doctor_finds_compiled_code_that_gives_something_else(package, monkeypatch):
    right = Uncompiled.__call__
    monkeypatch.setattr(Uncompiled, "__call__", lambda self, *tensors: [2 * one for one in right(self, *tensors)])
    assert examined(package) == [Outcome.differs] * 2


def test_with_a_coverage_penalty_the_doctor_does_not_ask_compiled_code(python, tiny_bundle_folder, tmp_path):
    bundle = load_bundle(tiny_bundle_folder)
    save_compiled(dataclasses.replace(bundle, decode=DecodeConfig(coverage_penalty=0.2)), tmp_path / "covered")
    assert examined(tmp_path / "covered") == [Outcome.not_applicable] * 2


def test_the_doctor_refuses_a_bundle_without_compiled_code(tiny_bundle_folder):
    result = CliRunner().invoke(app, ["doctor", str(tiny_bundle_folder), "--aoti", "--lines", "1"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "bundle has no compiled code; make it with `seq2seq convert " in result.stderr
    assert result.stderr.count("\n") == 1
