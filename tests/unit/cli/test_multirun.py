"""The table of a sweep, and what a sweeper optimises."""

import csv
import json
import logging
import sys
import types
from pathlib import Path

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from typer.testing import CliRunner

from seq2seq.cli import UsageError, multirun
from seq2seq.cli.app import app
from seq2seq.cli.inspect_tables import show
from seq2seq.cli.multirun import Job, check_plugins, grid, ranked
from seq2seq.config import Task

FILES = ("data.train_source=a.de", "data.train_target=a.en", "logger=none")


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Stands in for training: the score is ten times the dropout, and one of 0.3 is refused."""
    monkeypatch.chdir(tmp_path)

    def fit(config, run_dir, loggers=(), callbacks=()):
        if config.model.dropout == 0.3:
            raise ValueError("0.3 is unlucky")
        score = 10 * config.model.dropout
        return types.SimpleNamespace(bundle=run_dir / "bundle", task=Task.translation, steps=1234, best_score=score)

    module = types.ModuleType("seq2seq.training.fit")
    module.fit = fit
    monkeypatch.setitem(sys.modules, "seq2seq.training.fit", module)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("pytorch_lightning").setLevel(logging.NOTSET)


@pytest.fixture
def returned(monkeypatch) -> list[float | None]:
    """What the sweeper is given for each job."""
    seen: list[float | None] = []
    make = Plugins.instance().instantiate_sweeper

    def watched(**arguments):
        sweeper: Sweeper = make(**arguments)
        sweep = sweeper.sweep

        def kept(arguments):
            batches = sweep(arguments)
            seen.extend(job.return_value for batch in batches for job in batch)
            return batches

        sweeper.sweep = kept
        return sweeper

    monkeypatch.setattr(Plugins.instance(), "instantiate_sweeper", watched)
    return seen


def test_a_sweep_ends_with_a_table_best_first_and_the_sweeper_gets_the_best_values(trained, returned, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    typed = ["train", "--multirun", *FILES, "hydra.sweep.dir=sweep", "model.dropout=0.1,0.3,0.2"]

    result = CliRunner().invoke(app, typed)

    assert result.exit_code == 1
    assert "error: 1 of the jobs failed, as said above" in result.stderr
    table = result.stdout[result.stdout.index("sweep: 3 jobs, best first") :].splitlines()
    assert table[1].split() == ["job", "options", "valid/bleu", "steps", "bundle"]
    assert [line.split() for line in table[2:5]] == [
        ["2", "model.dropout=0.2", "2.0000", "1,234", "sweep/2/bundle"],
        ["0", "model.dropout=0.1", "1.0000", "1,234", "sweep/0/bundle"],
        ["1", "model.dropout=0.3", "failed:", "0.3", "is", "unlucky"],
    ]
    with Path("sweep/results.csv").open(newline="", encoding="utf-8") as stream:
        assert [row["number"] for row in csv.DictReader(stream)] == ["2", "0", "1"]
    found = json.loads(Path("sweep/results.json").read_text(encoding="utf-8"))
    assert (found[0]["score"], found[0]["steps"], found[2]["failure"]) == (2.0, 1234, "0.3 is unlucky")
    assert not Path("sweep/.jobs").exists()
    assert returned == [1.0, None, 2.0]


def test_a_single_run_prints_no_table(trained):
    result = CliRunner().invoke(app, ["train", *FILES, "hydra.run.dir=here"])

    assert result.stdout == "here/bundle\n"
    assert {path.name for path in Path().iterdir()} == {"here"}


def test_a_sweep_that_never_began_prints_no_table(trained):
    result = CliRunner().invoke(app, ["train", "--multirun", *FILES, "model.d_model=a,b"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert multirun.print_results() == 0


def test_where_less_is_better_the_least_is_first():
    jobs = [
        Job(i, [], "valid/nll", larger_is_better=False, score=score) for i, score in enumerate((3.0, 1.0, None, 2.0))
    ]
    assert [job.number for job in ranked(jobs)] == [1, 3, 0, 2]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    jobs = [
        Job(number, [f"model.dropout=0.{number}", f"optim.warmup_steps={100 * number}", "experiment=demo"])
        for number in range(3)
    ]
    jobs += [Job(3, ["experiment=demo"], failure="d_model=7 is not divisible by num_heads=4; choose another " * 3)]

    show([grid(jobs, "a sweep")])

    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= columns
    assert "all with experiment=demo" in printed
    assert "as given" in printed


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "hydra/sweeper=optuna",
            r"hydra/sweeper=optuna needs the package hydra-optuna-sweeper; pip install 'seq2seq\[sweep\]'",
        ),
        ("hydra/launcher=submitit_slurm", r"needs the package hydra-submitit-launcher; pip install 'seq2seq\[slurm\]'"),
    ],
)
def test_a_plug_in_that_is_not_installed_is_named_with_what_to_install(override, message, monkeypatch):
    monkeypatch.setattr(multirun, "_is_there", lambda module: False)
    with pytest.raises(UsageError, match=message):
        check_plugins([override])
    monkeypatch.setattr(multirun, "_is_there", lambda module: True)
    check_plugins([override, "model.dropout=0.1"])


def test_a_module_in_a_package_that_is_not_there_is_not_there():
    assert not multirun._is_there("no_such_package.no_such_module")
    assert multirun._is_there("seq2seq.cli")
