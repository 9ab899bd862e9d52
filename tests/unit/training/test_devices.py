"""What a run computes on."""

import logging
import os

import pytest
import torch

from seq2seq.config import Accelerator, Precision, Strategy, TrainerConfig
from seq2seq.training.devices import check_devices, share_threads


def trainer(**options):
    return TrainerConfig(**({"max_steps": 1, "accelerator": Accelerator.cpu} | options))


@pytest.fixture
def gpus(monkeypatch):
    """Pretends that there are GPUs."""

    def pretend(number, mps=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    pretend(0)
    return pretend


@pytest.mark.parametrize("wanted", [Accelerator.gpu, Accelerator.mps])
def test_a_device_that_is_not_there_is_refused(gpus, wanted):
    with pytest.raises(ValueError, match=f"trainer.accelerator={wanted.name} is not there: .*trainer=ddp_cpu"):
        check_devices(trainer(accelerator=wanted))


@pytest.mark.parametrize("wanted", [Accelerator.gpu, Accelerator.auto])
def test_more_gpus_than_there_are_are_refused(gpus, wanted):
    gpus(2)
    check_devices(trainer(accelerator=wanted, devices=2))
    with pytest.raises(ValueError, match=r"trainer.devices=3, but torch finds 2 GPUs; choose at most so many"):
        check_devices(trainer(accelerator=wanted, devices=3))


@pytest.mark.parametrize("wanted", [Accelerator.gpu, Accelerator.auto, Accelerator.mps])
def test_apples_gpu_is_one_device(gpus, wanted):
    gpus(0, mps=True)
    check_devices(trainer(accelerator=wanted))
    with pytest.raises(ValueError, match=r"mps trains on one device alone; set trainer.devices=1"):
        check_devices(trainer(accelerator=wanted, devices=2))


def test_a_cpu_has_as_many_processes_as_are_wanted(gpus):
    check_devices(trainer(devices=7, num_nodes=2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 1}, "divides a model among devices, and there is one"),
        ({"precision": Precision.fp16_mixed}, "choose trainer.precision=bf16_mixed"),
    ],
)
def test_what_cannot_be_divided_is_refused(gpus, options, message):
    divided = {"strategy": Strategy.fsdp, "devices": 2}
    check_devices(trainer(**divided))
    with pytest.raises(ValueError, match=message):
        check_devices(trainer(**(divided | options)))


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ({"num_threads": 3, "devices": 2}, {}, 3),
        ({"devices": 2}, {}, 2),
        ({"devices": 9}, {}, 1),
        ({"devices": 2}, {"OMP_NUM_THREADS": "4"}, None),
        ({"devices": 1}, {}, None),
    ],
)
def test_processes_on_cpus_share_the_cores(gpus, monkeypatch, caplog, options, variables, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name, value in ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)
    given = []
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    with caplog.at_level(logging.INFO):
        share_threads(trainer(**options))
    assert given == ([] if expected is None else [expected])
    assert ("share 5 CPU cores" in caplog.text) == (expected in (1, 2))
