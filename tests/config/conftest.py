"""Composing the configuration files as `seq2seq train` does, without training."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from seq2seq.cli.train import compose, conf_dir, register
from seq2seq.config import TrainConfig

Compose = Callable[..., TrainConfig]


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Compose]:
    """A function from overrides to checked options; loggers write below `tmp_path`."""
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):

        def build(*overrides: str) -> TrainConfig:
            place = f"hydra.runtime.output_dir={tmp_path}"
            cfg = hydra_compose("train", overrides=[*overrides, place], return_hydra_config=True)
            HydraConfig.instance().set_config(cfg)
            with open_dict(cfg):
                del cfg["hydra"]
            return compose(cfg)

        yield build
    GlobalHydra.instance().clear()
