"""The command `seq2seq verify-resume`: what it has trained, what it says, its exit codes."""

import json
import subprocess

import pytest
from typer.testing import CliRunner

from seq2seq.cli import verify_resume as command
from seq2seq.cli.app import app

STEP = {"epoch": 0, "batches": "b", "ids": "i", "lr": 0.5, "torch": "t", "loss": 2.5, "parameters": "p"}


class Trained:
    """Stands in for the processes that train: writes the steps that they would have taken."""

    def __init__(self, monkeypatch, write_checkpoint):
        self.commands = []
        self.write_checkpoint = write_checkpoint
        self.changed = {}
        self.code, self.stderr = 0, ""
        monkeypatch.setattr(subprocess, "run", self)

    def __call__(self, typed, **_):
        options = dict(word.split("=", 1) for word in typed[4:])
        self.commands.append(options)
        run = command.Path(options["hydra.run.dir"].strip("'"))
        going_on, limit = "resume" in options, int(options["trainer.max_steps"])
        stop = int(options.get("+callbacks.record.stop_at", limit))
        with (run / "steps.0.jsonl").open("a") as stream:
            for step in range(stop // 2 + 1 if going_on else 1, stop + 1):
                row = STEP | {"step": step, "step_of_epoch": step} | (self.changed if going_on else {})
                stream.write(json.dumps(row) + "\n")
        self.write_checkpoint(run)
        return subprocess.CompletedProcess(typed, self.code or (143 if stop < limit else 0), "", self.stderr)


@pytest.fixture
def trained(monkeypatch, tmp_path):
    import torch

    def write(run):
        (run / "checkpoints").mkdir(exist_ok=True)
        content = {"state_dict": {"model.x": torch.ones(2)}, "optimizer_states": [], "callbacks": {}}
        torch.save(content, run / "checkpoints" / "last.ckpt")

    monkeypatch.chdir(tmp_path)
    return Trained(monkeypatch, write)


def invoke(*arguments):
    return CliRunner().invoke(app, ["verify-resume", *arguments])


def test_equal_runs_end_with_0_and_say_what_was_compared(trained):
    result = invoke("--steps", "3", "data.num_workers=2")
    assert result.exit_code == 0, result.stderr
    first, *between, last = result.stdout.splitlines()
    assert first.startswith("6 steps straight, and 3 with a stop (by SIGTERM, 3 steps into epoch 0)")
    assert any(line.split() == ["batch", "ids", "6", "compared"] for line in between)
    assert last == "equal, bit for bit"
    straight, stopped, resumed = trained.commands
    assert {options["data.num_workers"] for options in trained.commands} == {"2"}
    assert {options["experiment"] for options in trained.commands} == {"smoke"}
    assert "+callbacks.record.stop_at" not in straight
    assert stopped["+callbacks.record.stop_at"] == "3"
    assert resumed["resume"].endswith("resumed/checkpoints/last.ckpt'")
    assert straight["data.train_source"].endswith("train.en'")


def test_the_first_difference_ends_with_1_and_is_told(trained):
    trained.changed = {"torch": "x", "parameters": "y"}
    result = invoke("--steps", "3", "--stop", "steps", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["equal"], told["stop"], told["stopped_after"], told["num_ranks"]) == (False, "steps", 3, 1)
    assert told["first"] == {
        "what": "torch's random numbers",
        "step": 4,
        "rank": None,
        "straight": "t",
        "resumed": "x",
    }
    result = invoke("--steps", "3", "--stop", "validation")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("not equal: at step 4, torch's random numbers: t in the straight")
    assert trained.commands[-1]["trainer.validate_every"] == "3"


def test_an_experiment_of_the_users_is_taken_as_it_is_and_processes_are_asked_for(trained):
    assert invoke("--steps", "2", "--devices", "2", "experiment=demo").exit_code == 0
    options = trained.commands[0]
    assert (options["experiment"], options["trainer"], options["trainer.devices"]) == ("demo", "ddp_cpu", "2")
    assert "data.train_source" not in options
    assert invoke("--steps", "2", "data=text", "data.train_text=x.txt").exit_code == 0
    assert trained.commands[-1]["experiment"] == "smoke"
    assert "data.train_source" not in trained.commands[-1]


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (2, 2)])
def test_a_training_that_fails_is_told(trained, code, expected):
    trained.code, trained.stderr = code, "lots\nerror: that is wrong\n"
    result = invoke("--steps", "2")
    assert result.exit_code == expected
    assert f"the training (straight) ended with exit code {code}: " in result.stderr
    assert "error: that is wrong" in result.stderr


def test_a_misspelt_option_and_a_folder_that_exists_are_refused_before_any_training(trained, tmp_path):
    result = invoke("data.num_wokers=2")
    assert (result.exit_code, trained.commands) == (2, [])
    assert "num_workers" in result.stderr
    result = invoke("--keep", str(tmp_path))
    assert (result.exit_code, trained.commands) == (1, [])
    assert "it exists; choose a new folder" in result.stderr


def test_the_runs_may_be_kept(trained, tmp_path):
    assert invoke("--steps", "2", "--keep", "kept").exit_code == 0
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"straight", "resumed", "train.en", "train.de", "valid.en", "valid.de"} == names


def test_where_there_is_no_phrasebook_text_is_asked_for(trained, monkeypatch, tmp_path):
    monkeypatch.setattr(command.seq2seq, "__file__", str(tmp_path / "site" / "seq2seq" / "__init__.py"))
    result = invoke("--steps", "2")
    assert result.exit_code == 1
    assert "is not there; give text of your own: data.train_source=FILE data.train_target=FILE" in result.stderr
