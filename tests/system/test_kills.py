"""A run that is killed at random moments, again and again, ends as the run that never was.

In the default run the processes are forked from this one, which has everything imported, and the kills are few; the
slow test kills `seq2seq train` itself 20 times.
"""

import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

from seq2seq.config import (
    TokenizerConfig,
    TrainConfig,
    to_dict,
)
from seq2seq.training.checkpoint_io import is_sound
from seq2seq.training.fit import fit
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.training.run_folder import check_unused
from seq2seq.training.step_record import StepRecord
from seq2seq.training.verify_resume import RECORD, STEP_RECORD, compare

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")


@pytest.fixture(autouse=True)
def _quiet_python(monkeypatch):
    """The checks of annotations draw from Python's generator, however often they are made."""
    state = random.Random(5).getstate()
    monkeypatch.setattr(random, "getstate", lambda: state)


@pytest.fixture
def config(small_run):
    """A tiny model with dropout, sampled segmentations, scheduled sampling, and a checkpoint every other step."""
    return small_run(
        data={"batch_tokens": 160, "tokenizer": TokenizerConfig(vocab_size=280, sampling_alpha=0.3)},
        scheduled_sampling={"rate": 0.5, "end_step": 30},
        trainer={"max_steps": 60, "validate_every": 2, "keep_best": 2, "average_last": 2, "num_samples": 1},
    )


class Forked:
    """A copy of this process that trains."""

    def __init__(self, config, run_dir, resume):
        values = to_dict(config) | {"resume": resume}
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                from seq2seq.config import from_dict

                fit(from_dict(TrainConfig, values), run_dir, [MetricsCsv(str(run_dir))], [record(run_dir)])
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

        self.code = None

    def poll(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Command:
    """The command `seq2seq train`."""

    def __init__(self, config, run_dir, resume):
        values = to_dict(config)
        data, trainer = values["data"], values["trainer"]
        options = [
            *(f"data.{name}={data[name]}" for name in ("train_source", "train_target", "valid_size", "batch_tokens")),
            *(f"trainer.{name}={trainer[name]}" for name in ("max_steps", "validate_every", "log_every", "keep_best")),
            *(
                "model=transformer_tiny",
                "data.max_length=64",
                "data.tokenizer.vocab_size=280",
                "trainer.max_epochs=null",
            ),
            *("data.tokenizer.sampling_alpha=0.3", "scheduled_sampling.rate=0.5", "scheduled_sampling.end_step=30"),
            *("trainer.num_threads=1", "trainer=cpu", "trainer.report=false", "logger=csv", "decode=greedy"),
            f"+callbacks.record._target_={STEP_RECORD}",
            f"+callbacks.record.file={run_dir / RECORD}",
            f"hydra.run.dir={run_dir}",
            *([f"resume={resume}"] if resume is not None else []),
        ]
        command = [sys.executable, "-m", "seq2seq", "train", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def poll(self):
        return self.process.poll()

    def kill(self):
        self.process.kill()
        return self.process.wait()


def record(run_dir):
    return StepRecord(str(run_dir / RECORD))


def num_steps(run_dir):
    """Lines in the file of steps, those taken twice counted twice; none if the run began anew."""
    file = run_dir / f"{RECORD}.0.jsonl"
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def to_go_on_from(run_dir: Path) -> str | None:
    """What a person would give as `resume`; None begins anew, in an empty folder."""
    files = [run_dir / "checkpoints" / name for name in ("last.ckpt", "before_last.ckpt")]
    there = [file for file in files if is_sound(file)]
    if not there and list(run_dir.rglob("*.ckpt")):  # killed between the first checkpoint and the first last one
        with pytest.raises(ValueError, match="choose another folder or remove it; it has no checkpoints/last"):
            check_unused(run_dir)
        assert not [file for file in files if file.exists()], "a checkpoint that is not whole has got its name"
        shutil.rmtree(run_dir)
    return str(there[0]) if there else None


def train_with_kills(start, config, run_dir, kills, seed, start_seconds):
    """Train to the end, killed so many times on the way.

    Every third kill comes at a random moment of the start; the others a random moment after a random number of steps,
    few enough that the run does not end before the last kill.

    Returns:
        What each start went on from.
    """
    draw = random.Random(seed)
    resumed = []
    for number in range(kills + 1):
        resumed.append(to_go_on_from(run_dir))
        process = start(config, run_dir, resumed[-1])
        wanted, began = num_steps(run_dir) + draw.randint(2, 4), time.monotonic()
        moment = draw.uniform(0, start_seconds) if number % 3 == 2 else 600.0
        while process.poll() is None:
            passed = time.monotonic() - began
            assert passed < 300, "the process hangs"
            if number < kills and (num_steps(run_dir) >= wanted or passed > moment):
                time.sleep(draw.uniform(0, 0.03))
                assert process.kill() in (-signal.SIGKILL, 0)
                break
            time.sleep(0.002)
        else:
            assert process.poll() == 0, "the run failed; it says why on the standard error"
            break
    assert num_steps(run_dir) >= config.trainer.max_steps
    return resumed


def kept(run_dir):
    """The names of all checkpoints, without the scores, which logs compare."""
    names = {path.name for path in (run_dir / "checkpoints").iterdir()}
    return sorted(re.sub("_bleu_.*", "", name) for name in names)


@pytest.mark.parametrize(("kills", "steps"), [(4, 14), pytest.param(20, 60, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_at_random_moments_ends_as_one_that_is_not(config, tmp_path, kills, steps):
    config = dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, max_steps=steps))
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    process = Forked(config, straight, None)
    while process.poll() is None:
        time.sleep(0.01)
    resumed = train_with_kills(Forked, config, killed, kills, 1, start_seconds=0.4)
    assert len(resumed) == kills + 1
    assert len(set(resumed)) > 1
    assert compare(straight, killed, steps // 2).first is None
    assert kept(straight) == kept(killed)
    assert not list(killed.rglob("*.part"))


@pytest.mark.slow
def test_the_command_killed_20_times_ends_as_one_that_is_not(config, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    process = Command(config, straight, None)
    assert process.process.wait(timeout=300) == 0
    resumed = train_with_kills(Command, config, killed, 20, 7, start_seconds=6.0)
    assert len(resumed) == 21
    assert compare(straight, killed, 30).first is None
    assert kept(straight) == kept(killed)
