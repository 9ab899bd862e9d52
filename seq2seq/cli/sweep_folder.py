"""Hydra's callback by which `seq2seq train --multirun` knows the folder of its sweep, whatever starts the jobs."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback

from seq2seq.cli import multirun


class SweepFolder(Callback):
    """Named in conf/train.yaml; Hydra calls it in the process that the command was typed in."""

    def on_multirun_start(  # type: ignore[override]  # Hydra's own has **kwargs
        self, config: Any, config_name: str | None
    ) -> None:
        """Note where the sweep is."""
        multirun.begin(Path(config.hydra.sweep.dir).absolute())
