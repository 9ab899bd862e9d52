"""One run by several processes: which of them does what."""

import dataclasses
import json
import logging
import logging.config
import os
import sys
from pathlib import Path

import pytest

from seq2seq.cli import processes, ranks
from seq2seq.cli.ranks import Job, Outcome
from seq2seq.config import DataConfig, ModelConfig, Task, TrainConfig, TrainerConfig, to_dict
from seq2seq.training import distribution, launch

OUTCOME = Outcome(Path("run/bundle"), 7, 1.5, Task.translation)


def config(devices=1, num_nodes=1):
    return TrainConfig(
        model=ModelConfig(d_model=8, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=1),
        data=DataConfig(train_source="a.de", train_target="a.en"),
        trainer=TrainerConfig(max_steps=1, devices=devices, num_nodes=num_nodes),
        logger={"csv": {"_target_": "some.Logger"}},
    )


class Here:
    """Stands in for training in this process."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[TrainConfig, Path]] = []
        self.error = error

    def __call__(self, options: TrainConfig, run_dir: Path) -> Outcome:
        self.calls.append((options, run_dir))
        if self.error is not None:
            raise self.error
        return OUTCOME


@pytest.fixture
def place(monkeypatch):
    """Pretends that this process is one of several; what they tell one another is a list."""
    told: list = []
    monkeypatch.setattr(launch, "meet", lambda: None)
    monkeypatch.setattr(distribution, "from_rank_zero", lambda job: told.append(job) or job)

    def pretend(rank, num_ranks=2):
        monkeypatch.setattr(launch, "place", lambda: launch.Place(rank, num_ranks, "torchrun"))
        return told

    return pretend


@pytest.fixture(autouse=True)
def _logging_as_it_is(monkeypatch):
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.setattr(logging.config, "dictConfig", lambda _: None)


def test_one_device_is_this_process():
    here = Here()
    assert ranks.train(config(), Path("run"), None, here) == OUTCOME
    assert here.calls == [(config(), Path("run"))]


def test_several_devices_are_as_many_processes_which_do_the_job_and_say_how_it_ended(monkeypatch):
    started = []

    def run_together(command, number, environment):
        started.append((command, number))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**environment, "RANK": "0"}.items():
                patch.setenv(name, value)
            assert ranks.is_worker()
            ranks.work(here)

    here = Here()
    monkeypatch.setattr(processes, "run_together", run_together)
    monkeypatch.setattr(sys, "argv", ["/bin/seq2seq", "train", "name=x"])
    how = {"version": 1, "root": {"level": "INFO"}}
    assert ranks.train(config(devices=2), Path("run"), how, here) == OUTCOME
    assert started == [([sys.executable, "-m", "seq2seq", "train", "name=x"], 2)]
    assert here.calls == [(config(devices=2), Path("run"))]
    assert not ranks.is_worker()


def test_a_signal_that_the_processes_ended_by_is_the_exit_code(monkeypatch):
    monkeypatch.setattr(processes, "run_together", lambda *_: 15)
    with pytest.raises(SystemExit) as ended:
        ranks.train(config(devices=2), Path("run"), None, Here())
    assert ended.value.code == 143


def test_several_machines_are_for_torchrun():
    here = Here()
    with pytest.raises(ValueError, match=r"asks for 4 processes.* --nnodes=2"):
        ranks.train(config(devices=2, num_nodes=2), Path("run"), None, here)
    assert here.calls == []


def test_rank_0_of_processes_that_were_started_together_tells_the_others_and_lets_them_go(place):
    told, here = place(rank=0), Here()
    with ranks.leading(ranks.is_one_of_several()):
        ranks.train(config(devices=2), Path("run"), None, here)
    assert told == [Job(to_dict(config(devices=2)), "run"), None]
    assert here.calls == [(config(devices=2), Path("run"))]


@pytest.mark.parametrize(("error", "last"), [(ValueError("misspelt"), [None]), (SystemExit(1), [])])
def test_others_are_let_go_when_there_is_no_job_and_not_after_one_that_failed(place, error, last):
    told = place(rank=0)
    with pytest.raises(type(error)), ranks.leading(True):
        raise error
    assert told == last


def test_another_rank_does_what_it_is_told_until_there_is_nothing_left(place, monkeypatch):
    place(rank=1)
    jobs = iter([Job(to_dict(config(devices=2)), "first"), Job(to_dict(config(devices=2)), "second"), None])
    monkeypatch.setattr(ranks, "share", lambda _: next(jobs))
    here = Here()
    assert ranks.follows()
    ranks.follow(here)
    assert [run_dir for _, run_dir in here.calls] == [Path("first"), Path("second")]


def test_an_error_of_another_rank_is_told_with_its_number(place, monkeypatch, capsys):
    place(rank=1)
    monkeypatch.setattr(ranks, "share", lambda _: Job(to_dict(config(devices=2)), "run"))
    with pytest.raises(SystemExit) as ended:
        ranks.follow(Here(FileNotFoundError("no file a.de")))
    assert ended.value.code == 1
    assert capsys.readouterr().err == "rank 1: error: no file a.de\n"


def test_rank_0_logs_as_the_options_say_and_others_tell_warnings_with_their_number(monkeypatch):
    asked = []
    monkeypatch.setattr(logging.config, "dictConfig", asked.append)
    monkeypatch.setattr(logging, "basicConfig", lambda **how: asked.append((how["level"], how["format"])))
    ranks.log_as(0, {"version": 1})
    ranks.log_as(0, None)
    ranks.log_as(1, {"version": 1})
    assert asked == [{"version": 1}, (logging.INFO, "%(message)s"), (logging.WARNING, "rank 1: %(message)s")]


def test_a_job_is_plain_json():
    job = Job(to_dict(config(devices=2)), "run", None)
    read = Job(**json.loads(json.dumps(dataclasses.asdict(job))))
    assert read.config == config(devices=2)
    assert os.fspath(read.run_dir) == "run"
