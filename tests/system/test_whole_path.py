"""The commands one after the other, as a newcomer types them: two text files in, a BLEU score out."""

import csv
import dataclasses
import json
import os
import random
import subprocess
import sys

import pytest

from seq2seq import load
from seq2seq.text.lines import read_lines, write_lines
from seq2seq.training.run_folder import read_run
from seq2seq.training.text import read_text

WORDS = ["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta"]
TRAIN = [
    "train", "model=transformer_tiny", "decode=greedy", "logger=csv", "name=small", "data.tokenizer.vocab_size=280",
    "data.batch_tokens=300", "data.max_length=60", "data.valid_size=10", "optim.warmup_steps=30",
    "trainer.accelerator=cpu", "trainer.max_epochs=null", "trainer.num_threads=1", "trainer.log_every=5",
]  # fmt: skip


def seq2seq(*arguments, cwd, **options):
    """One command in a process of its own, with a locale that knows no UTF-8."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    return subprocess.run(
        [sys.executable, "-m", "seq2seq", *arguments],
        cwd=cwd, env=environment, capture_output=True, check=False, timeout=300, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a copy corpus of words with umlauts, and a run in it."""
    folder = tmp_path_factory.mktemp("newcomer")
    draw = random.Random(1)
    lines = ["ä " + " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 7))) for _ in range(300)]
    for name in ("my.de", "my.en"):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (folder / "elsewhere").mkdir()
    return folder


@pytest.fixture(scope="module")
def run(folder):
    """A short run started from another folder, with relative paths."""
    done = seq2seq(
        *TRAIN, "data.train_source=../my.de", "data.train_target=../my.en",
        "trainer.max_steps=20", "hydra.run.dir=../run",
        cwd=folder / "elsewhere",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return folder / "run", done


def test_r7_training_writes_where_the_command_was_typed_and_nothing_to_stdout_but_the_bundle(run):
    path, done = run
    assert (path / "bundle" / "model.safetensors").is_file()
    assert done.stdout.decode().splitlines() == ["../run/bundle"]
    assert "next: seq2seq translate ../run/bundle" in done.stderr.decode()


def test_r5_the_bundle_works_from_another_place_without_any_configuration(run, folder):
    moved = folder / "elsewhere" / "moved"
    (run[0] / "bundle").rename(moved)
    try:
        (translation,) = load(str(moved)).translate(["ä alpha beta"])
    finally:
        moved.rename(run[0] / "bundle")
    assert translation.log_prob < 0


def test_score_gives_what_translate_has_reported(run, folder):
    lines = read_lines(folder / "my.de")[:9]
    text = ("\n".join([*lines, "", "ä"]) + "\n").encode("utf-8")
    done = seq2seq("translate", "run/bundle", "-o", "out.en", "--format", "jsonl", cwd=folder, input=text)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""
    records = [json.loads(line) for line in read_lines(folder / "out.en")]
    assert [record["source"] for record in records] == [*lines, "", "ä"]
    assert records[9]["translations"][0]["text"] == ""
    scored = seq2seq("score", "run/bundle", "--jsonl", "out.en", cwd=folder)
    assert scored.returncode == 0, scored.stderr.decode()
    reported = [record["translations"][0]["log_prob"] for record in records]
    for line, expected in zip(scored.stdout.decode().splitlines(), reported, strict=True):
        assert float(line.split("\t")[0]) == pytest.approx(expected, abs=1e-4)


def test_e4_evaluating_the_best_checkpoint_gives_the_scores_of_its_validation(run, folder):
    with (run[0] / "metrics.csv").open(newline="", encoding="utf-8") as stream:
        validations = [row for row in csv.DictReader(stream) if row["valid/chrf"]]
    best = max(validations, key=lambda row: float(row["valid/bleu"]))  # of equal ones the first, as in training
    config = read_run(run[0])[0]
    files = {"train_source": str(folder / "my.de"), "train_target": str(folder / "my.en")}
    raw = read_text(dataclasses.replace(config.data, **files), config.seed).raw_valid
    write_lines(folder / "valid.de", raw.source)
    write_lines(folder / "valid.en", raw.target)
    arguments = ["run/bundle", "--source", "valid.de", "--reference", "valid.en", "--format", "json"]
    done = seq2seq("evaluate", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["decode"]["beam_size"] == config.decode.beam_size == 1
    assert report["scores"]["bleu"]["score"] == pytest.approx(float(best["valid/bleu"]), abs=1e-3)
    assert report["scores"]["chrf"]["score"] == pytest.approx(float(best["valid/chrf"]), abs=1e-3)
    assert report["scores"]["chrf"]["score"] > 0
    assert report["scores"]["bleu"]["signature"] in (run[0] / "train.log").read_text(encoding="utf-8")


def test_resuming_goes_on_in_the_same_folder(run, folder):
    arguments = [*TRAIN, "data.train_source=my.de", "data.train_target=my.en", "resume=run/checkpoints/last.ckpt"]
    done = seq2seq(*arguments, "trainer.max_steps=25", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    steps = [line.split(",")[0] for line in read_lines(run[0] / "metrics.csv")[1:] if line]
    assert steps[-1] == "25"
    assert steps.index("5") < steps.index("25")
    assert not (folder / "outputs").exists()


def test_i5_unequal_files_are_refused_before_anything_is_written(folder):
    (folder / "short.en").write_text("a\nb\n", encoding="utf-8")
    arguments = [*TRAIN, "data.train_source=my.de", "data.train_target=short.en", "trainer.max_steps=1"]
    done = seq2seq(*arguments, "hydra.run.dir=refused", cwd=folder)
    assert done.returncode == 1
    error = done.stderr.decode()
    assert "my.de has 300 lines but short.en has 2" in error
    assert "Traceback" not in error
    assert not (folder / "refused" / "checkpoints").exists()
