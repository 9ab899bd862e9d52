"""The processes of one run: who has started them, which of them this one is, and how they meet.

A run on several devices is several equal processes, one for each. `seq2seq train` starts them itself; torchrun and
SLURM's srun start them too, and tell each in its environment which one it is. Importing this module loads neither
torch nor Lightning.
"""

import gc
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from seq2seq.config import Accelerator, TrainerConfig

if TYPE_CHECKING:
    from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment

_PATIENCE = timedelta(hours=3)
"""Longest that a process waits for the others. Rank 0 does some work alone; a process that died is noticed at once."""


@dataclass(frozen=True)
class Place:
    """Which of a run's processes this one is."""

    rank: int
    """Its number, counted from 0 over all machines."""
    num_ranks: int
    """How many there are."""
    by: str
    """Who has started them, for messages."""


def place() -> Place | None:
    """This process' place among those that were started together; None for one that was started alone.

    Raises:
        ValueError: for an environment that contradicts itself.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return Place(_number("RANK"), _number("WORLD_SIZE"), "torchrun")
    if "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        if _number("SLURM_NTASKS") > 1 and "SLURM_NTASKS_PER_NODE" not in os.environ:
            raise ValueError(
                f"SLURM was given --ntasks={os.environ['SLURM_NTASKS']}, which does not say how many are on each node; "
                "give --nodes and --ntasks-per-node=DEVICES instead"
            )
        return Place(_number("SLURM_PROCID"), _number("SLURM_NTASKS"), "SLURM")
    if "LOCAL_RANK" in os.environ:
        return Place(_number("RANK"), _number("WORLD_SIZE"), "the environment (RANK, LOCAL_RANK, WORLD_SIZE)")
    return None


def _number(name: str) -> int:
    """A variable of the environment.

    Raises:
        ValueError: if it is missing, or no number.
    """
    value = os.environ.get(name, "")
    if not value.isdigit():
        raise ValueError(
            f"{name}={value!r} in the environment is not a number, but other variables say that this is one process of "
            "several; start them with torchrun or srun, or with `seq2seq train trainer.devices=N` alone"
        )
    return int(value)


def check_started(trainer: TrainerConfig) -> None:
    """Refuse a run whose processes are others than the options say.

    Raises:
        ValueError: saying how to start them.
    """
    wanted, here = trainer.devices * trainer.num_nodes, place()
    if here is None and wanted > 1:
        nodes = "" if trainer.num_nodes == 1 else f"--nnodes={trainer.num_nodes} --rdzv-endpoint=HOST:PORT "
        raise ValueError(
            f"trainer.devices={trainer.devices} x trainer.num_nodes={trainer.num_nodes} asks for {wanted} processes, "
            f"and this one was started alone: start them with `torchrun {nodes}--nproc-per-node={trainer.devices} "
            "SCRIPT` or `-m seq2seq train ...` for SCRIPT; `seq2seq train` itself starts those of one machine"
        )
    if here is not None and here.num_ranks != wanted:
        raise ValueError(
            f"{here.by} has started {here.num_ranks} processes, but trainer.devices={trainer.devices} x "
            f"trainer.num_nodes={trainer.num_nodes} makes {wanted}; give trainer.devices, the processes of a machine, "
            "and trainer.num_nodes, the machines"
        )


def cluster_environment() -> "ClusterEnvironment":
    """Lightning's view of who has started the processes."""
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    here = place()
    if here is not None and here.by == "torchrun":
        return TorchElasticEnvironment()
    if here is not None and here.by == "SLURM":
        # its own answer to a signal is another checkpoint in another place; `interruption` has one for all
        return SLURMEnvironment(auto_requeue=False)
    return LightningEnvironment()


def meet(accelerator: Accelerator = Accelerator.auto) -> None:
    """Have the processes that were started together find one another; one that was started alone goes on alone.

    Args:
        accelerator: With `cpu`, no GPU is touched.

    Raises:
        ValueError: for an environment that contradicts itself.
    """
    import torch
    from torch import distributed

    here = place()
    if here is None or here.num_ranks == 1 or distributed.is_initialized():
        return
    environment = cluster_environment()
    os.environ["MASTER_ADDR"] = environment.main_address
    os.environ["MASTER_PORT"] = str(environment.main_port)
    backend = "gloo"
    if torch.cuda.is_available() and accelerator is not Accelerator.cpu:
        # what the processes tell one another beside gradients stays on the CPU, so that no GPU is waited for
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(environment.local_rank() % torch.cuda.device_count())
    distributed.init_process_group(backend, rank=here.rank, world_size=here.num_ranks, timeout=_PATIENCE)


def part() -> None:
    """Have a process that has done its part leave the others, if it has met any.

    The group's threads end here. Left alone until Python's end, they now and then let go of tensors when Python is no
    longer there for that, and the process is aborted.
    """
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
        gc.collect()  # what a model and its trainer still hold of it goes with their cycles
