"""How the network computes in training, as the options say, and whether this machine can do it."""

from seq2seq.config import Architecture, Precision, TrainConfig, TrainerConfig
from seq2seq.models.stack import Execution
from seq2seq.nn.varlen import check_varlen
from seq2seq.training.compilation import check_compiler
from seq2seq.training.devices import device_kind


def execution(trainer: TrainerConfig) -> Execution:
    """What the options choose."""
    return Execution(
        compiled=trainer.compile,
        checkpointed=trainer.activation_checkpointing,
        padding_free=trainer.padding_free,
    )


def check_execution(config: TrainConfig) -> None:
    """Refuse what cannot be computed here, before any work.

    Raises:
        ValueError: saying what to choose instead.
    """
    trainer, device = config.trainer, device_kind(config.trainer.accelerator)
    if trainer.precision is Precision.fp16_mixed and device == "cpu":
        raise ValueError(
            "trainer.precision=fp16_mixed needs a GPU, and this run is on the CPU; choose trainer.precision=bf16_mixed "
            "or fp32"
        )
    if trainer.padding_free:
        _check_padding_free(config, device)
    if trainer.compile:
        check_compiler(device)


def _check_padding_free(config: TrainConfig, device: str) -> None:
    """Refuse `trainer.padding_free` where its kernel has no such arithmetic, masks or device."""
    trainer, model = config.trainer, config.model
    if model.architecture is Architecture.decoder_only and model.prefix_lm:
        raise ValueError(
            "trainer.padding_free=true cannot express model.prefix_lm=true, in which the source is seen whole and the "
            "target is causal; choose trainer.padding_free=false, or model.prefix_lm=false"
        )
    if device != "cuda":
        raise ValueError(
            f"trainer.padding_free=true needs a CUDA GPU, and this run is on {device}; choose trainer=gpu on a machine "
            "with one, or trainer.padding_free=false, the padded pass, which gives the same numbers"
        )
    if trainer.precision is Precision.fp32:
        raise ValueError(
            "trainer.padding_free=true needs half precision, got trainer.precision=fp32; choose "
            "trainer.precision=bf16_mixed, or trainer.padding_free=false"
        )
    check_varlen(model.head_width, model.attention_dropout)
