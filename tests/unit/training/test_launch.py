"""Who has started a process, and whether that is what the options say."""

import subprocess
import sys
import textwrap

import pytest
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch import distributed

from seq2seq.config import TrainerConfig
from seq2seq.training.launch import Place, check_started, cluster_environment, meet, place

TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
SLURM = {"SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2", "SLURM_PROCID": "3", "SLURM_JOB_NAME": "train"}
OURS = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}


@pytest.fixture
def environment(monkeypatch):
    """Sets variables that are gone after the test."""

    def give(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    for name in {*TORCHRUN, *SLURM, *OURS}:
        monkeypatch.delenv(name, raising=False)
    return give


def trainer(devices, num_nodes=1):
    return TrainerConfig(max_steps=1, devices=devices, num_nodes=num_nodes)


@pytest.mark.parametrize(
    ("variables", "expected", "kind"),
    [
        ({}, None, LightningEnvironment),
        (TORCHRUN, Place(3, 4, "torchrun"), TorchElasticEnvironment),
        (SLURM, Place(3, 4, "SLURM"), SLURMEnvironment),
        (SLURM | TORCHRUN, Place(3, 4, "torchrun"), TorchElasticEnvironment),
        (SLURM | {"SLURM_JOB_NAME": "interactive"}, None, LightningEnvironment),
        (OURS, Place(1, 2, "the environment (RANK, LOCAL_RANK, WORLD_SIZE)"), LightningEnvironment),
    ],
)
def test_the_environment_says_which_of_the_processes_this_one_is(environment, variables, expected, kind):
    environment(variables)
    assert place() == expected
    assert type(cluster_environment()) is kind


def test_a_cluster_does_not_write_checkpoints_of_its_own(environment):
    environment(SLURM)
    found = cluster_environment()
    assert isinstance(found, SLURMEnvironment)
    assert not found.auto_requeue


def test_numbers_that_are_missing_are_named(environment):
    environment(OURS)
    environment({"WORLD_SIZE": "two"})
    with pytest.raises(ValueError, match="WORLD_SIZE='two' in the environment is not a number"):
        place()


def test_slurm_must_say_how_many_tasks_are_on_each_node(environment, monkeypatch):
    environment(SLURM)
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    with pytest.raises(ValueError, match=r"--ntasks=4, which does not say .* --ntasks-per-node=DEVICES"):
        place()


def test_several_processes_that_were_not_started_are_refused_with_how_to_start_them(environment):
    environment({})
    check_started(trainer(1))
    with pytest.raises(ValueError, match=r"asks for 2 processes, .* `torchrun --nproc-per-node=2 SCRIPT`"):
        check_started(trainer(2))
    with pytest.raises(ValueError, match=r"asks for 6 .* --nnodes=3 --rdzv-endpoint=HOST:PORT --nproc-per-node=2"):
        check_started(trainer(2, num_nodes=3))


def test_other_processes_than_the_options_say_are_refused(environment):
    environment(TORCHRUN)
    check_started(trainer(2, num_nodes=2))
    with pytest.raises(ValueError, match=r"torchrun has started 4 processes, but trainer.devices=2 x .*=1 makes 2"):
        check_started(trainer(2))
    with pytest.raises(ValueError, match=r"torchrun has started 4 processes, but trainer.devices=1 x .*=1 makes 1"):
        check_started(trainer(1))


def test_a_process_that_is_alone_meets_nobody(environment):
    environment({})
    meet()
    environment(OURS | {"WORLD_SIZE": "1", "RANK": "0"})
    meet()
    assert not distributed.is_initialized()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_has_done_its_part_has_no_thread_of_the_group_any_more():
    program = """
        from pathlib import Path
        import torch
        from torch import distributed
        from seq2seq.training.launch import part

        def threads():
            return sorted(task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm"))

        part()  # has met nobody
        torch.ones(2) @ torch.ones(2)
        before = threads()
        store = distributed.HashStore()
        distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
        trainer = [distributed.group.WORLD]
        trainer.append(trainer)  # as a trainer and its model know each other
        distributed.all_reduce(torch.ones(3))
        during = threads()
        del trainer, store
        part()
        print(len(during) > len(before), threads() == before, distributed.is_initialized())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "True", "False"], done.stderr
