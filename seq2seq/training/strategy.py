"""Lightning's engine for the devices of a run, and a network divided among them."""

from typing import Any, Literal

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.plugins import HalfPrecision
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy
from pytorch_lightning.strategies import Strategy as Engine
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.utils._pytree import register_dataclass

from seq2seq.config import Precision, Strategy, TrainerConfig
from seq2seq.nn.block import Block
from seq2seq.training.loss import BatchLoss

LIGHTNING_PRECISION: dict[Precision, Literal["32-true", "bf16-mixed", "16-mixed"]] = {
    Precision.fp32: "32-true",
    Precision.bf16_mixed: "bf16-mixed",
    Precision.fp16_mixed: "16-mixed",
}
"""Lightning's names of the number formats; bf16_true is a plug-in of ours."""


class HalfWeights(HalfPrecision):
    """Weights in bfloat16, and batches as they are.

    They hold ids, which have no other precision; Lightning would change numbers in them, and refuses to look into what
    cannot be changed.
    """

    def __init__(self) -> None:
        super().__init__("bf16-true")

    def convert_input(self, data: Any) -> Any:
        """The batch itself."""
        return data


def half_weights(trainer: TrainerConfig) -> list[HalfWeights]:
    """The plug-in for weights in bfloat16, if the options ask for them."""
    return [HalfWeights()] if trainer.precision is Precision.bf16_true else []


# torch looks into what a divided network gives, to gather weights before the gradients of that are computed
register_dataclass(BatchLoss)


def build_strategy(trainer: TrainerConfig) -> Engine | str:
    """The engine that the options ask for; for one device the plain one."""
    num_ranks = trainer.devices * trainer.num_nodes
    if num_ranks == 1:
        return "auto"
    if trainer.strategy is Strategy.fsdp:
        return Sharded(num_ranks)
    return DDPStrategy(forward_sync_buffers=False, gradient_as_bucket_view=True)


class Sharded(ModelParallelStrategy):
    """Weights, gradients and optimiser state are divided among the ranks; a checkpoint is one file with all of them.

    So a run can be gone on from with another number of ranks, or with one. It is torch's `fully_shard`, which also runs
    on CPUs; Lightning's own `FSDPStrategy` is for CUDA alone.

    Args:
        num_ranks: Processes that the network is divided among.

    Source:
        Zhao et al. 2023, arXiv:2304.11277; in the form of torch's FSDP2, parameter by parameter.
    """

    def __init__(self, num_ranks: int) -> None:
        super().__init__(data_parallel_size=num_ranks, tensor_parallel_size=1, save_distributed_checkpoint=False)


def divide(module: LightningModule, engine: Engine) -> None:
    """Divide a network's weights among the ranks, if the engine does that.

    A layer without cross-attention is gathered when it computes. All else is gathered once for a batch: embeddings,
    which the loss needs after the network has computed, and layers with cross-attention, whose keys and values of the
    source are computed before them.

    Args:
        module: The network and its loss; all ranks have the same weights.
        engine: What the run computes with.
    """
    if not isinstance(engine, Sharded):
        return
    mesh = engine.device_mesh["data_parallel"]
    for block in (part for part in module.modules() if type(part) is Block):
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for method in ("training_loss", "validation_loss"):  # what is called in the place of `forward`
        register_fsdp_forward_method(module, method)


class WholeWeights(Callback):
    """Has all weights on every rank while a divided network is validated, for decoding takes many small steps."""

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gather them, when an average of the weights has been put into their place."""
        for part in _parts(pl_module):
            part.unshard()
            part.set_reshard_after_forward(False, recurse=False)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Divide them again."""
        self._divide(pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Divide them again, for the checkpoint that is written next."""
        self._divide(pl_module)

    def _divide(self, pl_module: LightningModule) -> None:
        for part in _parts(pl_module):
            part.reshard()
            # the outermost part is needed again, for the backward pass, as soon as it has computed
            part.set_reshard_after_forward(not isinstance(part, LightningModule), recurse=False)


def _parts(module: LightningModule) -> list[FSDPModule]:
    """The parts of a divided network; none of a whole one."""
    return [part for part in module.modules() if isinstance(part, FSDPModule)]
