"""metrics.csv: one row for each time that metrics were logged."""

import csv
import warnings
from pathlib import Path
from typing import cast

from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter


class MetricsCsv(CSVLogger):
    """Lightning's CSV logger, which deletes the file of an earlier start; this one goes on with it.

    Args:
        save_dir: The run's folder; the file stands directly in it.
    """

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir, name="", version="")

    @property
    def experiment(self) -> ExperimentWriter:
        """The writer, which knows the rows and columns of a run that is resumed."""
        if self._experiment is None:
            self._experiment = self._continued()
        return cast(ExperimentWriter, self._experiment)

    def _continued(self) -> ExperimentWriter:
        """A writer that adds to the file that is there."""
        file = Path(self.log_dir) / ExperimentWriter.NAME_METRICS_FILE
        before = file.read_bytes() if file.exists() else b""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Experiment logs directory")
            writer = ExperimentWriter(log_dir=self.log_dir)
        if before:
            file.write_bytes(before)
            writer.metrics_keys = next(csv.reader(before.decode("utf-8").splitlines()))
        return writer
