"""What `logger=` chooses from, and how the options are told to loggers."""

import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.loggers import Logger, TensorBoardLogger
from pytorch_lightning.utilities import rank_zero_only
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seq2seq.cli.options import check_overrides, hint
from seq2seq.cli.train import _instantiate, conf_dir
from seq2seq.training.logged_options import LoggedOptions, flat_options
from seq2seq.training.metrics_file import MetricsCsv


@pytest.mark.parametrize(
    ("name", "target"),
    [("wandb", "pytorch_lightning.loggers.WandbLogger"), ("mlflow", "pytorch_lightning.loggers.MLFlowLogger")],
)
def test_a_service_comes_beside_metrics_csv_and_writes_into_the_run(composed, tmp_path, name, target):
    logger = composed("data=phrasebook", f"logger={name}", "name=mine").logger

    assert set(logger) == {"csv", name}
    assert logger[name]["_target_"] == target
    assert str(tmp_path) in " ".join(str(value) for value in logger[name].values())
    assert "mine" in logger[name].values()


@pytest.mark.parametrize(("name", "package"), [("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_service_whose_package_is_missing_is_named_with_what_to_install(composed, name, package, monkeypatch):
    monkeypatch.setattr("seq2seq.cli.train.find_spec", lambda module: None)
    monkeypatch.delitem(sys.modules, package, raising=False)
    wanted = composed("data=phrasebook", f"logger={name}").logger
    message = rf"logger={name} needs the package {package}; pip install 'seq2seq\[{package}\]'"
    with pytest.raises(ValueError, match=message):
        _instantiate("logger", wanted)


def test_a_service_whose_package_is_there_is_built(composed, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    made = []

    class WandbLogger(MetricsCsv):
        def __init__(self, **options):
            made.append(options)

    monkeypatch.setattr("pytorch_lightning.loggers.WandbLogger", WandbLogger)
    wanted = composed("data=phrasebook", "logger=wandb", "logger.wandb.offline=true").logger

    assert len(_instantiate("logger", wanted)) == 2
    assert (made[0]["offline"], made[0]["project"]) == (True, "seq2seq")


def test_options_are_told_flat_and_plain(composed):
    told = flat_options(composed("data=phrasebook", "model.tying=two_way"))

    assert (told["model.tying"], told["data.tokenizer.vocab_size"], told["resume"]) == ("two_way", 2000, "null")
    assert not any(name.startswith(("logger", "callbacks")) for name in told)
    assert all(isinstance(value, (str, int, float, bool)) for value in told.values())


class Kept(Logger):
    """Keeps the hyper-parameters that it is told."""

    name, version = "kept", 0

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict] = []

    def log_hyperparams(self, params, *_, **__):
        self.told.append(params)

    def log_metrics(self, metrics, step=None):
        pass


def test_every_logger_is_told_the_options_once_and_metrics_csv_has_config_yaml_beside_it(composed, tmp_path):
    config = composed("data=phrasebook")
    kept, board = Kept(), TensorBoardLogger(str(tmp_path), name="", version="board")
    csv = MetricsCsv(str(tmp_path / "csv"))
    trainer = Trainer(
        logger=[kept, board, csv],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )

    LoggedOptions(config, "valid/bleu").on_train_start(trainer, LightningModule())
    board.finalize("success")

    assert kept.told == [flat_options(config)]
    assert not (tmp_path / "csv" / "hparams.yaml").exists()
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert "_hparams_/session_start_info" in events.summary_metadata
    assert events.Tags()["scalars"] == []  # no value of the metric before there is one


def test_another_rank_than_the_first_tells_tensorboard_nothing(composed, tmp_path, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    board = TensorBoardLogger(str(tmp_path), name="", version="board")
    trainer = MagicMock(spec=Trainer, global_step=0, loggers=[board])
    LoggedOptions(composed("data=phrasebook"), "valid/bleu").on_train_start(trainer, LightningModule())
    assert not list(tmp_path.rglob("*tfevents*"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "logger.foo=1",
            r"logger.foo has no _target_: .* for one of your own give the class, \+logger.foo._target_=",
        ),
        ("logger.tensorbord.name=x", r"there is no such logger; did you mean 'logger.tensorboard'\?"),
        (
            "callbacks.mine.patience=3",
            r"callbacks.mine has no _target_: there is no such callback; for one of your own",
        ),
        ("optim.ema=0.9", r"did you mean 'optim.ema_decay'\?"),
        ("scheduled_sampling.rat=0.5", r"did you mean 'scheduled_sampling.rate'\?"),
        ("scheduled_samplin.rate=0.5", r"did you mean 'scheduled_sampling.rate'\?"),
        ("trainer.batch_token=auto", r"did you mean 'trainer.batch_tokens'\?"),
    ],
)
def test_a_misspelt_name_of_the_newer_groups_is_answered_with_the_right_one(override, message):
    with pytest.raises(ValueError, match=message):
        check_overrides([override], [conf_dir()])


def test_loggers_of_ones_own_and_options_of_ours_are_let_through():
    check_overrides(
        ["+logger.foo._target_=x.Y", "++callbacks.a.b=1", "logger.csv.save_dir=x", "~logger.csv"], [conf_dir()]
    )


@pytest.mark.parametrize(
    ("key", "said", "expected"),
    [
        ("optim.schedule", "Invalid value 'cosin', expected one of [noam, cosine]", "; did you mean 'cosine'?"),
        ("optim.schedule", "Invalid value 'zzz', expected one of [noam, cosine]", ""),
        ("trainer.strateg", "Key 'strateg' not in 'TrainerConfig'", "; did you mean 'trainer.strategy'?"),
        ("logger.csv.save_dri", "Key 'save_dri' is not in struct", ""),
        ("model.d_model", "Value 'abc' could not be converted to Integer", ""),
    ],
)
def test_what_is_wrong_in_a_file_is_answered_with_what_was_meant(key, said, expected):
    assert hint(key, said) == expected


def test_a_misspelt_name_in_an_experiment_of_ones_own_is_answered_with_the_right_one(tmp_path: Path, monkeypatch):
    from seq2seq.cli.train import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    file = tmp_path / "mine" / "experiment" / "own.yaml"
    for content, message in (
        (
            "scheduled_sampling:\n  rat: 0.1\n",
            "In 'experiment/own': option 'scheduled_sampling.rat': .*did you mean 'sch",
        ),
        ("optim:\n  schedule: cosin\n", r"In 'experiment/own': option 'optim.schedule': .* did you mean 'cosine'\?"),
    ):
        file.write_text(f"# @package _global_\n{content}", encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            run(
                ["--config-dir", "mine", "experiment=own", "data.train_source=a", "data.train_target=b", "--cfg", "job"]
            )
