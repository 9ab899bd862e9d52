"""Cases R1, R2, R4 and R5: a run that is stopped goes on as if it had not been, and its checkpoints serve anywhere."""

import dataclasses
import itertools
import os
import random
from contextlib import suppress

import pytest
import torch
from pytorch_lightning import Callback
from typer.testing import CliRunner

from seq2seq.bundle import load_bundle
from seq2seq.cli.app import app
from seq2seq.training.averaging import checkpoint_weights, read_checkpoint
from seq2seq.training.fit import fit
from seq2seq.training.interruption import Interrupted
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.training.run_folder import bundle_from_file
from seq2seq.training.step_record import StepRecord
from seq2seq.training.verify_resume import RECORD, compare
from seq2seq.translator import Translator


@pytest.fixture(autouse=True)
def _quiet_python(monkeypatch):
    """The checks of annotations draw from Python's generator, however often they are made."""
    state = random.Random(5).getstate()
    monkeypatch.setattr(random, "getstate", lambda: state)


@pytest.fixture
def config(small_run):
    """180 pairs, two batches a step, about 10 steps an epoch."""
    return small_run(
        data={"batch_tokens": 90},
        scheduled_sampling={"rate": 0.5, "end_step": 30},
        trainer={"max_steps": None, "max_epochs": 1, "accumulate": 2, "average_last": 0},
    )


class Pairs(Callback):
    """Notes the pairs of every step."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen += itertools.chain.from_iterable(part.indices for part in batch)


def train(config, run_dir, pairs, stop_at=None, **changes):
    run_dir.mkdir(exist_ok=True)
    resume = changes.pop("resume", None)
    of_trainer = dataclasses.replace(config.trainer, **changes)
    config = dataclasses.replace(config, trainer=of_trainer, resume=None if resume is None else str(resume))
    with suppress(Interrupted):
        fit(config, run_dir, [MetricsCsv(str(run_dir))], [StepRecord(str(run_dir / RECORD), stop_at), pairs])
    return run_dir / "checkpoints" / "last.ckpt"


@pytest.mark.parametrize(
    ("epochs", "validated", "stop"),
    [
        pytest.param(1, {}, {"stop_at": 2}, id="after 20 % of the epoch"),
        pytest.param(1, {"validate_every": 3}, {"max_steps": 3}, id="right after a validation"),
        pytest.param(2, {}, {"max_epochs": 1}, id="at the end of the epoch"),
    ],
)
def test_r2_a_run_stopped_in_mid_epoch_goes_on_with_the_next_unseen_batch(config, tmp_path, epochs, validated, stop):
    straight, stopped = Pairs(), Pairs()
    whole = {"max_epochs": epochs, **validated}
    train(config, tmp_path / "straight", straight, **whole)
    assert len(straight.seen) == epochs * len(set(straight.seen)) == epochs * 180
    last = train(config, tmp_path / "stopped", stopped, **(whole | stop))
    assert 0 < len(stopped.seen) <= 0.5 * len(straight.seen)
    train(config, tmp_path / "stopped", stopped, resume=last, **whole)
    assert stopped.seen == straight.seen
    assert compare(tmp_path / "straight", tmp_path / "stopped", 3).first is None


def test_r2_more_steps_may_be_asked_for_and_the_run_may_have_been_moved(config, tmp_path):
    straight, stopped = Pairs(), Pairs()
    train(config, tmp_path / "straight", straight, max_epochs=None, max_steps=6, validate_every=2)
    train(config, tmp_path / "stopped", stopped, max_epochs=None, max_steps=4, validate_every=2)
    (tmp_path / "stopped").rename(tmp_path / "moved")
    last = tmp_path / "moved" / "checkpoints" / "last.ckpt"
    train(config, tmp_path / "moved", stopped, max_epochs=None, max_steps=6, validate_every=2, resume=last)
    assert stopped.seen == straight.seen
    assert compare(tmp_path / "straight", tmp_path / "moved", 4).first is None


PLAIN = {bool, int, float, str, type(None)}


def test_r4_a_checkpoint_holds_plain_types_and_tensors_alone(config, tmp_path):
    last = train(config, tmp_path / "run", Pairs(), max_steps=2)
    files = sorted(last.parent.iterdir())
    assert len(files) == 2

    def walk(value):
        if isinstance(value, dict):
            assert type(value).__name__ in ("dict", "OrderedDict")
            for name, part in value.items():
                assert type(name) in PLAIN
                walk(part)
        elif isinstance(value, list | tuple):
            assert type(value) in (list, tuple)
            for part in value:
                walk(part)
        else:
            assert type(value) in {*PLAIN, torch.Tensor}, value

    for file in files:
        content = torch.load(file, weights_only=True)
        walk(content)
        assert "hyper_parameters" not in content


def test_r5_a_checkpoint_is_a_translator_from_its_file_alone_after_a_move(config, tmp_path, monkeypatch):
    last = train(config, tmp_path / "run", Pairs(), max_steps=2)
    (tmp_path / "elsewhere").mkdir()
    expected = Translator.load(tmp_path / "run" / "bundle", device="cpu").translate(["ant bee cat"])
    by_modules = Translator(load_bundle(tmp_path / "run" / "bundle")).translate(["ant bee cat"])
    alone = last.rename(tmp_path / "elsewhere" / "mine.ckpt")
    bundle = (tmp_path / "run" / "bundle").rename(tmp_path / "elsewhere" / "bundle")
    os.rename(tmp_path / "run", tmp_path / "gone")
    for file in ("copy.src", "copy.tgt"):
        (tmp_path / file).unlink()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Translator.load(bundle, device="cpu").translate(["ant bee cat"]) == expected
    found = Translator(bundle_from_file("mine.ckpt")).translate(["ant bee cat"])
    assert found == by_modules
    assert found[0].ids == expected[0].ids  # whose products are others, and so the last bits of its scores
    assert found[0].score == pytest.approx(expected[0].score, rel=1e-5)
    result = CliRunner().invoke(app, ["average", "mine.ckpt", "-o", "made"])
    assert result.exit_code == 0, result.stderr
    weights = checkpoint_weights(alone)
    assert all(torch.equal(value, weights[name]) for name, value in load_bundle("made").model.state_dict().items())


def test_r5_a_checkpoint_given_in_the_place_of_a_bundle_is_told_how_to_make_one(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(config, tmp_path / "run", Pairs(), max_steps=1)
    for place in ("run/checkpoints/last.ckpt", "run"):
        if place == "run":
            (tmp_path / "run" / "bundle").rename(tmp_path / "away")
        result = CliRunner().invoke(app, ["translate", place], input="x\n")
        assert result.exit_code == 1
        assert f"{place} is not a bundle" in result.stderr
        assert f"`seq2seq average {place} -o BUNDLE` makes one" in result.stderr


def test_r5_a_checkpoint_without_its_run_or_with_foreign_files_is_refused(config, tmp_path):
    last = train(config, tmp_path / "run", Pairs(), max_steps=1)
    content = read_checkpoint(last)
    files = content.pop("run_files")
    assert files.keys() == {"config.yaml", "run.json", "tokenizer/described.json", "tokenizer/source.spm"}
    torch.save(content, tmp_path / "old.ckpt")
    with pytest.raises(ValueError, match=r"old\.ckpt holds weights without the options and tokenizers of its run"):
        bundle_from_file(tmp_path / "old.ckpt")
    torch.save(content | {"run_files": {"../x": torch.zeros(3, dtype=torch.uint8)}}, tmp_path / "bad.ckpt")
    with pytest.raises(ValueError, match=r"bad\.ckpt is not a checkpoint of this package: it has a file called \.\./x"):
        bundle_from_file(tmp_path / "bad.ckpt")
