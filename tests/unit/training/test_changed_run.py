"""What is said when a run goes on with other options or text."""

import dataclasses
import json
import logging

import numpy as np
import pytest
import torch
import yaml

from seq2seq.config import to_dict
from seq2seq.training.averaging import RUN_FILES
from seq2seq.training.changed_run import tell_changes

TEXT = {"train.en": {"sha256": "a1", "lines": 3}}


@pytest.fixture
def resumed(train_config, tmp_path):
    """The options of a run that goes on from a checkpoint of one with the same options and text."""
    parts = {"config.yaml": yaml.safe_dump(to_dict(train_config)), "run.json": json.dumps({"data": TEXT})}
    held = {name: torch.from_numpy(np.frombuffer(text.encode(), np.uint8).copy()) for name, text in parts.items()}
    torch.save({"state_dict": {}, RUN_FILES: held}, tmp_path / "last.ckpt")
    return dataclasses.replace(train_config, resume=str(tmp_path / "last.ckpt"))


def test_the_same_options_with_other_limits_and_the_same_text_elsewhere_are_no_change(resumed, caplog):
    longer = dataclasses.replace(resumed, trainer=dataclasses.replace(resumed.trainer, max_steps=1234))
    tell_changes(longer, {"moved.en": TEXT["train.en"]})
    assert caplog.records == []


def test_other_options_are_named_with_what_they_were(resumed, caplog):
    data = dataclasses.replace(resumed.data, batch_tokens=123)
    with caplog.at_level(logging.WARNING):
        tell_changes(dataclasses.replace(resumed, data=data, seed=77), TEXT)
    assert f"data.batch_tokens=123 (was {resumed.data.batch_tokens})" in caplog.text
    assert f"seed=77 (was {resumed.seed})" in caplog.text


def test_other_text_is_said(resumed, caplog):
    tell_changes(resumed, {"train.en": {"sha256": "b2", "lines": 3}})
    assert "was started with other text" in caplog.text
