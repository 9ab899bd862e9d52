"""Times optimiser steps of a training run from outside, as a Lightning callback."""

import time
from typing import Any

import torch
from measuring import peak_rss_mb
from operator_names import is_attention, is_product
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.profiler import ProfilerActivity, profile

from seq2seq.corpus.batching import Batch


class UpdateMeter(Callback):
    """Leaves the first updates out, times the next ones, and profiles a few more.

    The clock runs from the end of one update to the end of another, so that putting batches together counts as well.

    Args:
        warmup: Updates left out, at least 1.
        timed: Updates timed.
        profiled: Updates under the profiler, which slows them down.
    """

    def __init__(self, warmup: int, timed: int, profiled: int) -> None:
        self.warmup, self.timed, self.profiled = warmup, timed, profiled
        self.num_done = self.num_tokens = self.num_padding = self.num_positions = 0
        self.figures: dict[str, float] = {}
        self.others: dict[str, float] = {}
        self.device = ""

    def finished(self) -> bool:
        """Whether all updates have been taken that it needs."""
        return self.num_done >= self.warmup + self.timed + self.profiled

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: tuple[Batch, ...], batch_idx: int
    ) -> None:
        """Count the update; start or stop the clock or the profiler."""
        self.num_done += 1
        if self.warmup < self.num_done <= self.warmup + self.timed:
            self.num_tokens += sum(part.num_target_tokens for part in batch)
            self.num_padding += sum(part.num_padding for part in batch)
            self.num_positions += sum(part.num_positions for part in batch)
        if self.num_done == self.warmup:
            self.started = self._clocks(pl_module.device)
        if self.num_done == self.warmup + self.timed:
            self._stop(pl_module.device)
        if self.num_done == self.warmup + self.timed + self.profiled:
            self._clocks(pl_module.device)
            self.profiler.stop()
            shares = operator_shares(self.profiler, pl_module.device)
            self.figures |= {
                "matmul_share": sum(share for name, share in shares.items() if is_product(name)),
                "attention_share": sum(share for name, share in shares.items() if is_attention(name)),
            }
            self.others = {
                name: share for name, share in shares.items() if not is_product(name) and not is_attention(name)
            }

    def _stop(self, device: torch.device) -> None:
        """Stop the clock, look at the memory, and start the profiler, which needs memory of its own."""
        seconds, cpu_seconds = (end - start for start, end in zip(self.started, self._clocks(device), strict=True))
        self.figures = {
            "target_tokens_per_second": self.num_tokens / seconds,
            "target_tokens_per_cpu_second": self.num_tokens / cpu_seconds,
            "updates_per_second": self.timed / seconds,
            "padding_share": self.num_padding / self.num_positions,
            "real_tokens_per_update": self.num_tokens / self.timed,
            "peak_rss_mb": peak_rss_mb(),
        }
        self.device = str(device)
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            self.figures["peak_gpu_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
            self.device = f"{device}, {torch.cuda.get_device_name(device)}"
            activities.append(ProfilerActivity.CUDA)
        self.profiler = profile(activities=activities)
        self.profiler.start()

    @staticmethod
    def _clocks(device: torch.device) -> tuple[float, float]:
        """Seconds of the wall clock and of all CPU threads, once a GPU has done what it was given."""
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter(), time.process_time()


def operator_shares(profiler: profile, device: torch.device) -> dict[str, float]:
    """Each operator's share of the time inside operators (on the GPU, else the CPU), what it calls not counted."""
    on_gpu = device.type == "cuda"
    times = {
        event.key: event.self_device_time_total if on_gpu else event.self_cpu_time_total
        for event in profiler.key_averages()
        if event.device_type.name == "CPU"  # a GPU's kernels are listed once more by themselves
    }
    total = sum(times.values())
    return {name: spent / total for name, spent in times.items()}
