"""What a run computes on: refused where it is not there, and CPU threads shared out."""

import logging
import os

import torch

from seq2seq.config import Accelerator, Precision, Strategy, TrainerConfig
from seq2seq.training.launch import place

log = logging.getLogger(__name__)


def check_devices(trainer: TrainerConfig) -> None:
    """Refuse devices that are not there, and what cannot be done on several.

    Raises:
        ValueError: saying what to choose.
    """
    wanted, kind = trainer.accelerator, device_kind(trainer.accelerator)
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}[kind]
    if not there:
        raise ValueError(
            f"trainer.accelerator={wanted.name} is not there: torch {torch.__version__} finds no such device; choose "
            "trainer.accelerator=cpu or auto, and leave trainer=gpu, ddp or fsdp out (trainer=ddp_cpu is two processes "
            "on a CPU)"
        )
    if kind == "cuda" and trainer.devices > torch.cuda.device_count():
        raise ValueError(
            f"trainer.devices={trainer.devices}, but torch finds {torch.cuda.device_count()} GPUs; choose at most so "
            "many, or look at CUDA_VISIBLE_DEVICES"
        )
    if kind == "mps" and trainer.devices * trainer.num_nodes > 1:
        raise ValueError("Apple's mps trains on one device alone; set trainer.devices=1, or trainer.accelerator=cpu")
    if trainer.strategy is Strategy.fsdp:
        _check_fsdp(trainer)


def _check_fsdp(trainer: TrainerConfig) -> None:
    if trainer.devices * trainer.num_nodes == 1:
        raise ValueError(
            "trainer.strategy=fsdp divides a model among devices, and there is one; set trainer.devices, or leave "
            "trainer=fsdp out"
        )
    if trainer.precision is Precision.fp16_mixed:
        raise ValueError(
            "trainer.precision=fp16_mixed scales the loss by whole gradients, which trainer.strategy=fsdp divides; "
            "choose trainer.precision=bf16_mixed"
        )


def device_kind(wanted: Accelerator) -> str:
    """What torch calls the device that a run gets."""
    if wanted in (Accelerator.cpu, Accelerator.mps):
        return wanted.name
    mps = torch.backends.mps.is_available()
    if wanted is Accelerator.gpu:
        return "mps" if mps else "cuda"
    return "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"


def share_threads(trainer: TrainerConfig) -> None:
    """Set the CPU threads of this process: as many as given, or, of several processes on CPUs, an equal share each."""
    if trainer.num_threads is not None:
        torch.set_num_threads(trainer.num_threads)
        return
    alone = trainer.devices == 1 or place() is None
    if alone or device_kind(trainer.accelerator) != "cpu" or "OMP_NUM_THREADS" in os.environ:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, cores // trainer.devices)
    torch.set_num_threads(threads)
    log.info(
        "%d processes share %d CPU cores: %d thread%s each (trainer.num_threads sets another number)",
        trainer.devices,
        cores,
        threads,
        "" if threads == 1 else "s",
    )
