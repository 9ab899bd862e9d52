"""Which checkpoints a run knows after it was killed or moved, and what it does when one cannot be written."""

import csv
import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest
import torch
from pytorch_lightning import Callback

from seq2seq.config import Direction, FinalWeights
from seq2seq.training import checkpoint_io
from seq2seq.training.averaging import read_checkpoint
from seq2seq.training.checkpoint_io import CheckpointNotWrittenError, is_sound
from seq2seq.training.checkpoints import Monitor, best_checkpoints
from seq2seq.training.fit import fit
from seq2seq.training.metrics_file import MetricsCsv


def short(config, **trainer):
    changes = {"validate_every": 2, "num_samples": 1, "report": False, **trainer}
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, **changes))


def kept_state(folder, scores):
    """The state of a callback that has kept files with these scores."""
    kept = {str(folder / f"best_step_{step:06d}_x_{score:.4f}.ckpt"): torch.tensor(score) for step, score in scores}
    best = max(kept, key=kept.get)
    worst = min(kept, key=kept.get)
    return {
        "monitor": "valid/x",
        "best_model_score": kept[best],
        "best_model_path": best,
        "current_score": kept[best],
        "dirpath": str(folder),
        "best_k_models": kept,
        "kth_best_model_path": worst,
        "kth_value": kept[worst],
        "last_model_path": "",
    }


def test_a_file_that_was_given_up_after_the_checkpoint_is_not_counted_on(tmp_path):
    state = kept_state(tmp_path, [(2, 5.0), (4, 3.0)])
    there = [path for path in state["best_k_models"] if "000004" in path]
    for path in there:
        Path(path).touch()
    callback = best_checkpoints(Monitor("valid/x", Direction.max), 2, tmp_path)
    callback.load_state_dict(state)
    assert list(callback.best_k_models) == there
    assert (callback.best_model_path, float(callback.best_model_score)) == (there[0], 3.0)


def test_a_run_whose_best_files_are_all_gone_has_no_best(tmp_path):
    callback = best_checkpoints(Monitor("valid/x", Direction.max), 2, tmp_path)
    callback.load_state_dict(kept_state(tmp_path, [(2, 5.0)]))
    assert (callback.best_k_models, callback.best_model_path, callback.best_model_score) == ({}, "", None)


def test_recent_checkpoints_and_logged_rows_of_steps_that_are_taken_again_are_forgotten(train_config, tmp_path):
    run = tmp_path / "run"
    config = short(train_config, average_last=5, max_steps=6)
    fit(config, run, [MetricsCsv(str(run))])
    rows = (run / "metrics.csv").read_text()
    samples = (run / "samples.jsonl").read_text(encoding="utf-8")
    weights = read_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]
    (run / "checkpoints" / "last.ckpt").unlink()
    (run / ".config.yaml.part").write_text("half")
    with (run / "metrics.csv").open("a") as stream:
        stream.write("0.1,half a ro")
    before = run / "checkpoints" / "before_last.ckpt"
    assert read_checkpoint(before)["global_step"] == 4
    fit(dataclasses.replace(config, resume=str(before)), run, [MetricsCsv(str(run))])
    read = [
        [{name: value for name, value in row.items() if "second" not in name} for row in csv.DictReader(text)]
        for text in (rows.splitlines(), (run / "metrics.csv").read_text().splitlines())
    ]
    assert read[0] == read[1]
    assert (run / "samples.jsonl").read_text(encoding="utf-8") == samples
    assert [json.loads(line)["step"] for line in samples.splitlines()] == [2, 4, 6]
    names = sorted(path.name for path in (run / "checkpoints").glob("recent*"))
    assert names == [f"recent_step_{step:06d}.ckpt" for step in (2, 4, 6)]
    again = read_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]
    assert all(torch.equal(value, weights[name]) for name, value in again.items())
    assert not list(run.rglob("*.part"))


def test_a_damaged_last_checkpoint_does_not_take_the_place_of_the_one_that_is_gone_on_from(train_config, tmp_path):
    run = tmp_path / "run"
    config = short(train_config, average_last=0, max_steps=4)
    fit(config, run)
    last, before = (run / "checkpoints" / name for name in ("last.ckpt", "before_last.ckpt"))
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    last.write_bytes(data)
    with pytest.raises(ValueError, match="stop here"):
        fit(dataclasses.replace(config, resume=str(before)), run, callbacks=[Stop()])
    # the error has left a new last one; had the damaged one been there still, it would be the one before now
    assert is_sound(last)
    assert is_sound(before)
    assert [read_checkpoint(file)["global_step"] for file in (last, before)] == [2, 2]


class Stop(Callback):
    """An error before the first step."""

    def on_train_start(self, trainer, pl_module):
        # after the other callbacks of this moment
        trainer.fit_loop.epoch_loop.advance = self.stop

    def stop(self, *_):
        raise ValueError("stop here")


def full_after(monkeypatch, number):
    """No room on the disk from some checkpoint on."""
    write = checkpoint_io._Sink.write
    written = []

    def limited(self, content):
        if self not in written:
            written.append(self)
        if len(written) > number:
            self.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, content)

    monkeypatch.setattr(checkpoint_io._Sink, "write", limited)
    return written


def test_a_full_disk_ends_a_run_once_and_it_goes_on_when_there_is_room_again(train_config, tmp_path, monkeypatch):
    straight, run = tmp_path / "straight", tmp_path / "run"
    config = short(train_config, average_last=0, keep_best=0, final_weights=FinalWeights.last, max_steps=6)
    fit(config, straight)
    with monkeypatch.context() as patch:
        tried = full_after(patch, 1)
        told = r"could not be written to .*last\.ckpt: no space left on device; .* the last good one is .*/last"
        with pytest.raises(CheckpointNotWrittenError, match=told):
            fit(config, run)
        assert len(tried) == 2  # not once more for the error
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["last.ckpt"]
    last = run / "checkpoints" / "last.ckpt"
    assert read_checkpoint(last)["global_step"] == 2
    fit(dataclasses.replace(config, resume=str(last)), run)
    one, two = (read_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"] for folder in (straight, run))
    assert all(torch.equal(value, two[name]) for name, value in one.items())
