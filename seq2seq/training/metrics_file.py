"""metrics.csv: one row for each time that metrics were logged; and how it, and samples.jsonl, go on after a resume."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from lightning_fabric.loggers.logger import rank_zero_experiment
from lightning_fabric.utilities.rank_zero import rank_zero_only
from pytorch_lightning.loggers import CSVLogger, Logger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from seq2seq.training.whole_file import write_whole


class MetricsCsv(CSVLogger):
    """Lightning's CSV logger, which deletes the file of an earlier start; this one goes on with it.

    Args:
        save_dir: The run's folder; the file stands directly in it.
    """

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir, name="", version="")
        self._row_before: tuple[int | None, dict[str, Any]] = None, {}

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """The writer, which knows the rows and columns of a run that is resumed."""
        if self._experiment is None:
            self._experiment = _Writer(log_dir=self.log_dir)
        return cast(ExperimentWriter, self._experiment)

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Add a row, if it is not the one before again: Lightning says the last values once more when a run ends."""
        row = {name: value for name, value in metrics.items() if name != "epoch"}
        if (step, row) != self._row_before:
            self._row_before = step, row
            super().log_metrics(metrics, step)

    def go_on_from(self, step: int) -> None:
        """Forget the rows of later steps, which are going to be taken again.

        Raises:
            ValueError: if the file is damaged.
        """
        file = Path(self.log_dir) / ExperimentWriter.NAME_METRICS_FILE
        if not file.is_file():
            return
        rows = csv.DictReader(io.StringIO(_whole_lines(file), newline=""))
        try:
            kept = [row for row in rows if int(row["step"]) <= step]
        except (KeyError, TypeError, ValueError, csv.Error) as problem:
            raise ValueError(f"{file} is damaged: expected rows with a step; mend it or move it away") from problem
        write_whole(file, _as_csv(rows.fieldnames or [], kept))


class _Writer(ExperimentWriter):
    """Lightning's writer, which neither deletes a file nor writes one over before the new one is complete."""

    def _check_log_dir_exists(self) -> None:
        file = Path(self.metrics_file_path)
        if file.is_file():
            self.metrics_keys = next(csv.reader(file.read_text(encoding="utf-8").splitlines()), [])

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        file = Path(self.metrics_file_path)
        rows = csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"), newline=""))
        write_whole(file, _as_csv(fieldnames, list(rows)))


def _as_csv(names: Sequence[str], rows: list[dict[str, str]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fieldnames=names)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def logs_go_on_from(loggers: Sequence[Logger], samples: Path, step: int) -> None:
    """Forget, in metrics.csv and samples.jsonl, what was written of steps that are going to be taken again.

    Args:
        loggers: The run's; one `MetricsCsv` among them or none.
        samples: A file of JSON lines, each with its step.
        step: The last one that counts.

    Raises:
        ValueError: if one of the files is damaged.
    """
    for logger in loggers:
        if isinstance(logger, MetricsCsv):
            logger.go_on_from(step)
    if samples.is_file():
        lines = _whole_lines(samples).split("\n")[:-1]
        try:
            kept = [line for line in lines if json.loads(line)["step"] <= step]
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(
                f"{samples} is damaged: expected samples with a step; mend it or move it away"
            ) from problem
        write_whole(samples, "".join(line + "\n" for line in kept))


def _whole_lines(file: Path) -> str:
    """A file's text without a last line that a killed process has not finished."""
    content = file.read_bytes()
    return content[: content.rfind(b"\n") + 1].decode("utf-8")
