"""`seq2seq train --plan`: what is printed, to whom, and that nothing is written."""

import dataclasses
import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2seq.cli.app import app
from seq2seq.cli.train_plan import HEIGHT, duration, rate_picture
from seq2seq.config import OptimConfig, ScheduleKind
from seq2seq.training import plan
from seq2seq.training.schedule import learning_rate

TINY = (
    "model=transformer_tiny",
    "data.max_length=64",
    "data.batch_tokens=256",
    "data.valid_size=10",
    "data.tokenizer.vocab_size=280",
    "optim.warmup_steps=3",
    "trainer=cpu",
    "name=planned",
)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "WARM", 1)
    monkeypatch.setattr(plan, "TIMED", 1)
    monkeypatch.chdir(tmp_path)
    level = logging.getLogger("pytorch_lightning").level
    yield
    logging.getLogger("pytorch_lightning").setLevel(level)


@pytest.fixture
def typed(copy_corpus) -> list[str]:
    return ["train", "--plan", f"data.train_source={copy_corpus[0]}", f"data.train_target={copy_corpus[1]}", *TINY]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_plan_is_printed_to_the_width_of_the_terminal_without_colours_in_a_file(typed, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    before = sorted(Path().iterdir())

    result = CliRunner().invoke(app, [*typed, "trainer.max_epochs=2"])

    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in result.stdout
    for words in ("Plan of planned: nothing is trained", "embeddings = output", "optimiser (adam)", "last, and before"):
        assert words in result.stdout
    assert "trainer.max_epochs=2 ends it; earlier when 8" in " ".join(result.stdout.split())
    assert "measured on this machine just now" in " ".join(result.stdout.split())
    assert "pairs, " in result.stderr
    assert sorted(Path().iterdir()) == before


def test_the_plan_as_json_has_the_same_numbers(typed):
    result = CliRunner().invoke(app, [*typed, "--json", "trainer.max_steps=9"])

    found = json.loads(result.stdout)
    assert found["parameters"] == sum(found["parts"].values())
    assert (found["length"]["steps"], found["length"]["by"]) == (9, "max_steps")
    assert found["memory"]["together"] == sum(found["memory"]["parts"].values())
    assert found["disk"]["folder"].startswith("outputs/planned/")


def test_minutes_that_are_over_in_the_warmup_are_warned_about(typed):
    result = CliRunner().invoke(
        app, [*typed, "trainer.max_epochs=null", "trainer.max_minutes=1", "optim.warmup_steps=90000"]
    )

    assert "trainer.max_minutes=1.0 is enough for" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--multirun", "model.dropout=0.1,0.2"], 2, "--plan is for one run; leave --multirun out"),
        (["model.dmodel=1"], 2, "unknown option 'model.dmodel'; did you mean 'model.d_model'?"),
        (["model.tying=oneway"], 2, "Invalid value 'oneway'"),
        (["model.d_model=7"], 1, "d_model=7 is not divisible by num_heads=2"),
        (["trainer.accelerator=mps"], 1, "trainer.accelerator=mps is not there"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line_and_nothing_is_left(typed, arguments, code, message):
    before = sorted(Path().iterdir())

    result = CliRunner().invoke(app, [*typed, *arguments])

    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(Path().iterdir()) == before


def test_flags_that_print_something_else_are_hydras(typed):
    assert "warmup_steps: 3" in CliRunner().invoke(app, [*typed, "--cfg", "job", "-p", "optim"]).stdout


def test_a_users_own_folder_of_options_counts(typed, tmp_path):
    (tmp_path / "mine" / "optim").mkdir(parents=True)
    (tmp_path / "mine" / "optim" / "own.yaml").write_text("warmup_steps: 2\n", encoding="utf-8")

    typed = [word for word in typed if not word.startswith("optim.")]
    result = CliRunner().invoke(app, [*typed, "--config-dir", "mine", "optim=own", "trainer.max_steps=5", "--json"])

    rates = dict(json.loads(result.stdout)["rates"])
    assert max(rates, key=rates.__getitem__) == "2" or max(rates, key=rates.__getitem__) == 2


def test_a_duration_is_told_in_the_unit_that_reads_best():
    told = [duration(seconds) for seconds in (0.0123, 1.5, 90.0, 600.0, 9000.0, 400_000.0)]
    assert told == ["12 ms", "1.5 s", "90 s", "10 min", "2.5 h", "4.6 days"]


@pytest.mark.parametrize("schedule", [ScheduleKind.noam, ScheduleKind.linear, ScheduleKind.constant])
def test_the_picture_rises_with_the_warmup_to_the_top_line_and_falls_with_the_schedule(schedule):
    optim = dataclasses.replace(OptimConfig(), schedule=schedule, warmup_steps=100)
    rates = [(step, learning_rate(step, optim, 64, 1000)) for step in range(1, 1001, 3)]

    lines = rate_picture(rates, 64)

    rows = [line[11:].ljust(64) for line in lines[:HEIGHT]]
    heights = [sum(" ▁▂▃▄▅▆▇█".index(row[column]) for row in rows) for column in range(64)]
    highest = max(rate for _, rate in rates)
    for column, height in enumerate(heights):
        step = 1 + 999 * column / 63
        assert height == pytest.approx(8 * HEIGHT * learning_rate(round(step), optim, 64, 1000) / highest, abs=8.5)
    assert "█" in rows[0]
    assert "highest at step" in lines[-1]
    assert lines[-1].startswith(" " * 11 + "step 1")


def test_a_run_of_one_step_has_a_picture_too():
    assert len(rate_picture([(1, 1e-3)], 50)) >= HEIGHT + 2
