"""Rows of metrics.csv."""

import csv
import dataclasses

import pytest
from lightning_fabric.utilities.rank_zero import rank_zero_only

from seq2seq.training.fit import fit
from seq2seq.training.metrics_file import MetricsCsv, logs_go_on_from


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_last_row_is_not_written_again_when_a_run_ends(train_config, tmp_path):
    options = dataclasses.replace(train_config.trainer, max_steps=5, log_every=3, validate_every=4)
    fit(dataclasses.replace(train_config, trainer=options), tmp_path, [MetricsCsv(str(tmp_path))])
    assert [row["step"] for row in rows(tmp_path)] == ["3", "4", "5"]
    assert [bool(row["train/loss"]) for row in rows(tmp_path)] == [True, False, False]


def test_other_values_of_the_same_step_are_written(tmp_path):
    logger = MetricsCsv(str(tmp_path))
    for metrics in ({"a": 1.0, "epoch": 0}, {"a": 1.0, "epoch": 1}, {"a": 2.0, "epoch": 1}, {"a": 1.0, "epoch": 1}):
        logger.log_metrics(metrics, 3)
    logger.log_metrics({"a": 1.0, "epoch": 1}, 4)
    logger.save()
    assert [(row["step"], row["a"]) for row in rows(tmp_path)] == [
        ("3", "1.0"),
        ("3", "2.0"),
        ("3", "1.0"),
        ("4", "1.0"),
    ]


def test_ranks_but_the_first_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = MetricsCsv(str(tmp_path / "run"))
    logger.log_metrics({"a": 1.0}, 3)
    logger.experiment.log_metrics({"a": 1.0}, 3)
    logger.save()
    assert not (tmp_path / "run").exists()


def test_damaged_files_of_a_run_that_goes_on_are_told_by_their_names(tmp_path):
    samples = tmp_path / "samples.jsonl"
    samples.write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"samples\.jsonl is damaged: expected samples with a step"):
        logs_go_on_from([], samples, 3)
    (tmp_path / "metrics.csv").write_text("foo,bar\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"metrics\.csv is damaged: expected rows with a step"):
        logs_go_on_from([MetricsCsv(str(tmp_path))], samples, 3)
