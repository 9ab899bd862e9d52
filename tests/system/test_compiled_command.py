"""`seq2seq convert --to aoti` and `seq2seq translate --backend aoti` with code that torch has really compiled.

Compiling takes most of a minute, so these are no default tests; every change has to pass them all the same
(`make test-compiled`).
"""

import dataclasses
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._inductor
from typer.testing import CliRunner

from seq2seq.bundle import load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.config import Architecture, DecodeConfig, LongLines, ModelConfig, NormPlacement, PositionKind, Tying
from seq2seq.corpus.shortlist import Shortlist
from seq2seq.models import build_model
from seq2seq.models.ahead import NATIVE, READER, STEP, SourceReader, StepInputs, TargetStep, told_by_positions
from seq2seq.models.compilation import compile_model
from seq2seq.models.compiled import packed_source
from seq2seq.models.native_function import NativeFunction
from seq2seq.text.lines import read_lines, write_lines
from seq2seq.translator import Translator

pytestmark = pytest.mark.slow

LINES = [
    *["der ant läuft!", "", "die cat.", "owl", "der dog sieht das pig und die gnu.", "\u200b", "17 elk.", " "],
    *[f"die {animal} und der {animal}." for animal in ("bee", "fox", "hen", "owl", "pig", "ram")],
    "ant " * 40,
]
PAIR = ModelConfig(16, 2, 24, 1, 1, tying=Tying.none, vocab_multiple=8)
ALONE = dataclasses.replace(
    PAIR,
    num_encoder_layers=0,
    num_heads=4,
    num_kv_heads=2,
    architecture=Architecture.decoder_only,
    positions=PositionKind.rope,
    norm_placement=NormPlacement.pre,
)


def seq2seq(*arguments, **environment):
    """One command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "seq2seq", *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        check=False,
        timeout=500,
    )


def save_random(like, config, folder):
    """A random model with the tokenizer of a bundle, some of whose translations end early, and a shortlist."""
    tokenizer = like.target_tokenizer
    special, size = tokenizer.special, tokenizer.vocab_size
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        model = build_model(config, size, size).eval()
        model.output.mul_(2)
        model.output[special.eos].mul_(3)
        for weight in model.decoder.layers.parameters():
            if weight.dim() > 1:
                weight.mul_(1.5)
    shortlist = Shortlist(
        num_targets=size,
        candidates=np.array([[(7 * id_ + 3 * place) % size for place in range(3)] for id_ in range(size)], np.int32),
        same=np.full(size, -1, dtype=np.int32),
        frequent=np.array([], dtype=np.int32),
        always=np.array(sorted({special.pad, special.bos, special.eos, special.unk}), dtype=np.int32),
        sha256=(like.source_tokenizer.sha256, tokenizer.sha256),
    )
    save_bundle(dataclasses.replace(like, model=model, model_config=config, shortlist=shortlist), folder)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A bundle, and what the command has made of it."""

    plain: Path
    folder: Path
    stdout: str
    stderr: str

    def translator(self, **options):
        return Translator.load(self.folder, "cpu", compiled=True, **options)


def compiled(folder, like, config, **environment):
    """What the command makes of a random model; the tests that run at the same time share it."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "stderr").exists():
            save_random(like, config, folder / "plain")
            done = seq2seq("convert", folder / "plain", folder / "new", "--to", "aoti", **environment)
            assert done.returncode == 0, done.stderr.decode()
            (folder / "stdout").write_bytes(done.stdout)
            (folder / "stderr").write_bytes(done.stderr)
        said = [(folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
        return Compiled(folder / "plain", folder / "new", *said)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder that is the same one in all processes of a run of the tests."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="module")
def pair(place, tiny_bundle):
    """An encoder-decoder. Torch is told that the compiler knows this processor, and need not try it: 12 seconds."""
    return compiled(place / "compiled-pair", tiny_bundle, PAIR, TORCHINDUCTOR_VEC_ISA_OK="1")


def assert_same(found, wanted):
    """The same pieces, and scores up to rounding."""
    assert [[one.ids for one in answer.candidates] for answer in found] == [
        [one.ids for one in answer.candidates] for answer in wanted
    ]
    for one, other in zip(found, wanted, strict=True):
        for candidate, expected in zip(one.candidates, other.candidates, strict=True):
            assert candidate.score == pytest.approx(expected.score, rel=1e-5, abs=1e-5)
            assert candidate.token_log_probs == pytest.approx(expected.token_log_probs, rel=1e-5, abs=1e-5)


DECODES = {
    "greedy": DecodeConfig(beam_size=1, max_length=40),
    "beam of 5": DecodeConfig(beam_size=5, max_length=40),
    "n best": DecodeConfig(beam_size=4, n_best=4, max_length=9),
    "samples": DecodeConfig(beam_size=1, temperature=1.0, n_best=3, seed=7, max_length=9),
    "shortlist": DecodeConfig(beam_size=3, n_best=2, shortlist=True, max_length=9),
}


def test_the_command_writes_a_bundle_with_libraries_and_says_how_to_use_it(pair):
    assert pair.stdout == f"{pair.folder}\n"
    written, after = pair.stderr.splitlines()[-2:]
    assert written.startswith("written  a bundle with compiled code: ")
    assert after == f"next     seq2seq translate {pair.folder} INPUT -o OUTPUT --backend aoti"
    files = sorted(file.name for file in (pair.folder / "compiled").iterdir())
    assert files == ["compiled.json", NATIVE, READER, STEP]
    wanted = load_bundle(pair.plain).model.state_dict()
    assert all(
        torch.equal(weight, wanted[name]) for name, weight in load_bundle(pair.folder).model.state_dict().items()
    )


@pytest.mark.parametrize("name", DECODES)
def test_batches_are_translated_as_by_the_modules(pair, name):
    decode = dataclasses.replace(DECODES[name], batch_tokens=100)
    assert_same(pair.translator().translate(LINES, decode), Translator.load(pair.plain, "cpu").translate(LINES, decode))


@pytest.mark.parametrize("name", ["greedy", "beam of 5"])
def test_lines_alone_are_translated_as_in_a_batch(pair, name):
    translator, decode = pair.translator(), dataclasses.replace(DECODES[name], max_length=9)
    alone = dataclasses.replace(decode, batch_tokens=1)
    assert_same(translator.translate(LINES, alone), translator.translate(LINES, decode))


def test_two_processes_need_no_compiler_and_write_what_one_with_the_modules_writes(pair, tmp_path):
    write_lines(tmp_path / "in", LINES)
    options = ["--device", "cpu", "--batch-tokens", "20", "--beam-size", "3", "--max-length", "9"]
    done = seq2seq(
        *("translate", pair.folder, tmp_path / "in", "-o", tmp_path / "out", "--backend", "aoti", *options),
        *("--devices", "2", "--threads", "2"),
        CXX="/nowhere/g++",
        PATH="/nowhere",
    )
    assert (done.returncode, done.stdout) == (0, b""), done.stderr.decode()
    wanted = CliRunner().invoke(app, ["translate", str(pair.plain), str(tmp_path / "in"), *options])
    assert wanted.exit_code == 0, wanted.output
    assert (tmp_path / "out").read_bytes() == wanted.stdout_bytes
    assert len(read_lines(tmp_path / "out")) == len(LINES)


def test_nasty_lines_are_as_many_as_before(pair, nasty_text):
    decode = DecodeConfig(beam_size=1, max_length=3, max_source_length=50, long_lines=LongLines.truncate)
    found = pair.translator().translate(nasty_text.lines, decode)
    assert_same(found, Translator.load(pair.plain, "cpu").translate(nasty_text.lines, decode))
    assert len(found) == len(nasty_text.lines)


def test_two_threads_at_once_get_what_each_gets_alone(pair):
    torch.set_num_threads(2)
    try:
        translator = pair.translator()
    finally:
        torch.set_num_threads(1)
    decode = DecodeConfig(beam_size=3, batch_tokens=30, max_length=9)
    alone, found = translator.translate(LINES, decode), {}

    def translate(number):
        found[number] = [translator.translate(LINES, decode) for _ in range(2)]

    threads = [threading.Thread(target=translate, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1]
    assert all(answers == alone for own in found.values() for answers in own)


def step_inputs(model, rows, entries, room, sentences, length):
    """Random inputs of a step, of these sizes."""
    draw = torch.Generator().manual_seed(rows + entries)
    heads = next(iter(model.decoder.blocks())).self_attention.heads
    kept = (heads.num_kv_heads, heads.d_head)
    layers = len(model.decoder.layers)
    valid = torch.ones(sentences, length, dtype=torch.bool)
    valid[-1, 1:] = False
    return StepInputs(
        tokens=torch.randint(3, 61, (rows,), generator=draw),
        positions=told_by_positions(model.decoder, entries + 1)[entries : entries + 1],
        pool=torch.randn(layers, 2, room, *kept, generator=draw),
        entries=torch.randint(0, max(room, 1), (rows, entries), generator=draw),
        seen=torch.empty(0, dtype=torch.bool),
        sentence_at=torch.randint(0, sentences, (rows,), generator=draw),
        source=torch.randn(layers, 2, sentences, length, *kept, generator=draw),
        source_valid=valid,
    )


SIZES = [
    (1, 0, 32, 1, 1),
    (1, 1, 32, 1, 2),
    (2, 1, 64, 2, 2),
    (7, 7, 7, 7, 7),
    (5, 33, 700, 3, 70),
    (300, 3, 999, 9, 4),
]


@pytest.mark.parametrize("sizes", SIZES)
def test_compiled_code_takes_any_sizes(pair, sizes):
    model = load_bundle(pair.plain).model
    given = step_inputs(model, *sizes)
    found = NativeFunction(pair.folder / "compiled" / STEP, num_outputs=2, at_once=1)(*given)
    torch.testing.assert_close(found, list(TargetStep(model)(*given)), rtol=1e-5, atol=1e-5)
    _, _, _, sentences, length = sizes
    packed = packed_source(model, torch.randint(3, 61, (sentences, length)), given.source_valid)
    (source,) = NativeFunction(pair.folder / "compiled" / READER, num_outputs=1, at_once=1)(*packed)
    torch.testing.assert_close(source, SourceReader(model)(*packed), rtol=1e-5, atol=1e-5)


def test_matrices_in_panels_and_as_torch_has_them_give_the_same(pair, tmp_path):
    packed = json.loads((pair.folder / "compiled" / "compiled.json").read_text(encoding="utf-8"))["packed"]
    model = load_bundle(pair.plain).model
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
        libraries, now_packed = compile_model(model, own_products=not packed)
    assert now_packed is not packed  # what is faster on this machine is what the command has taken
    for name in (STEP, READER):
        (tmp_path / name).write_bytes(libraries[name])
    for sizes in SIZES:
        given = step_inputs(model, *sizes)
        found = NativeFunction(tmp_path / STEP, num_outputs=2, at_once=1)(*given)
        torch.testing.assert_close(found, list(TargetStep(model)(*given)), rtol=1e-5, atol=1e-5)
    padded = packed_source(model, torch.randint(3, 61, given.source_valid.shape), given.source_valid)
    (source,) = NativeFunction(tmp_path / READER, num_outputs=1, at_once=1)(*padded)
    torch.testing.assert_close(source, SourceReader(model)(*padded), rtol=1e-5, atol=1e-5)


def resident():
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_calls(pair):
    given = step_inputs(load_bundle(pair.plain).model, 500, 5, 3000, 9, 4)
    step = NativeFunction(pair.folder / "compiled" / STEP, num_outputs=2, at_once=1)

    def call(times):
        for _ in range(times):
            # new tensors each time: 384 KB go in, and 94 KB come out
            hidden, added = step(*[tensor.clone() for tensor in given])
            assert hidden.shape[0] == added.shape[2] == 500

    call(30)
    before = resident()
    call(300)
    assert resident() - before < 10_000_000


def test_other_code_for_the_same_model_is_refused_by_the_command(pair, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(pair.folder, damaged)
    (damaged / "compiled" / STEP).write_bytes((pair.folder / "compiled" / READER).read_bytes())
    result = CliRunner().invoke(app, ["translate", str(damaged), "--backend", "aoti"], input="owl\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "compiled/step.so is not the file that was compiled" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_compiler_that_fails_leaves_nothing(tiny_bundle_folder, tmp_path):
    compiler, temporary = tmp_path / "compiler", tmp_path / "temporary"
    compiler.write_text('#!/bin/sh\ntest "$1" = --version && exec g++ "$@"\necho "no such header" >&2\nexit 1\n')
    compiler.chmod(0o755)
    temporary.mkdir()
    done = seq2seq(
        *("convert", tiny_bundle_folder, tmp_path / "new", "--to", "aoti"), CXX=str(compiler), TMPDIR=str(temporary)
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith("error: the model could not be compiled: no such header; install a C++ ")
    assert done.stderr.count(b"\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["compiler", "temporary"]


@pytest.fixture(scope="module", params=["decoder-only", "rotary"])
def another(request, place, tiny_bundle):
    """A decoder-only model, and an encoder-decoder with rotary positions, compiled as they are for users."""
    config = ALONE
    if request.param == "rotary":
        config = dataclasses.replace(PAIR, num_heads=4, num_kv_heads=2, positions=PositionKind.rope, qk_norm=True)
    return compiled(place / f"compiled-{request.param}", tiny_bundle, config)


@pytest.mark.parametrize("name", DECODES)
def test_other_architectures_are_translated_as_by_their_modules(another, name):
    for batch in (1, 30, 3000):
        decode = dataclasses.replace(DECODES[name], batch_tokens=batch)
        assert_same(
            another.translator().translate(LINES, decode),
            Translator.load(another.plain, "cpu").translate(LINES, decode),
        )
