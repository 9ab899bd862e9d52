"""A model that multiplies by its weights in 8-bit integers, or in bfloat16, which is faster on CPUs made for that.

Weights are rounded when a model is loaded: on disk they are as they were trained. Tables that ids are looked up in,
norms, attention between positions and everything else is computed as before. What comes out of a row does not depend
on the rows around it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from seq2seq.config import Compute
from seq2seq.models.decoding import TurnedLinear
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.lean import LeanDecoder
from seq2seq.models.transformer import Transformer
from seq2seq.shapes import Float, Int, Tensor


def compute_in(model: Transformer, compute: Compute) -> None:
    """Let the model multiply by its weights in these numbers from now on. For decoding only, and for good.

    Raises:
        ValueError: if the model is not in float32 on a CPU, or this machine cannot do it.
    """
    if compute is Compute.float32:
        return
    check_machine(compute)
    if model.output.device.type != "cpu" or model.output.dtype is not torch.float32:
        raise ValueError(
            f"compute={compute.name} is for models in float32 on a CPU, got {model.output.dtype} on "
            f"{model.output.device}; choose device=cpu or compute=float32"
        )
    layer = Int8Linear if compute is Compute.int8 else BFloat16Linear
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, (nn.Linear, TurnedLinear)):
                setattr(module, name, layer(child.weight, child.bias))
    # the matrix stays beside it, where ids are looked up in it
    model.projection, model.estimated = layer(model.output, model.output_bias), None
    if isinstance(model, EncoderDecoder) and model.lean is not None:
        model.lean = LeanDecoder(model.decoder)  # the one before goes on with the layers before


def check_machine(compute: Compute) -> None:
    """Refuse numbers that this machine does not multiply in.

    Raises:
        ValueError: saying what is missing.
    """
    if compute is Compute.bfloat16 and not hasattr(torch.backends.mkldnn, "matmul"):
        raise ValueError(
            f"compute=bfloat16 needs torch 2.9 or later, where products can be set to it; this is torch "
            f"{torch.__version__}, choose compute=int8 or compute=float32"
        )
    if compute is Compute.bfloat16 and not _has_bfloat16():
        raise ValueError(
            "compute=bfloat16 needs a CPU with bfloat16 instructions (AVX512-BF16 or AMX), which this one has not; "
            "choose compute=int8 or compute=float32"
        )
    if compute is Compute.int8 and not _multiplies_int8():
        raise ValueError(
            f"compute=int8 needs a torch with oneDNN for this CPU, and torch {torch.__version__} does not multiply "
            "8-bit integers here; choose compute=float32"
        )


def _has_bfloat16() -> bool:
    """Whether torch and the CPU have products in bfloat16; elsewhere the setting is passed over in silence."""
    backend: Any = torch.backends.mkldnn
    return bool(backend.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _multiplies_int8() -> bool:
    """Whether a small product of 8-bit integers comes out right."""
    weight = torch.tensor([[127.0, -127.0, 1.0, 64.0], [0.0, 3.0, -127.0, 127.0]])
    x = torch.tensor([[1.0, -127.0, 127.0, 5.0], [-64.0, 127.0, 0.0, -127.0], [0.0, 0.0, 0.0, 0.0]])
    try:
        found = Int8Linear(weight, None)(x)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return torch.allclose(found, x @ weight.t(), rtol=0.02, atol=200.0)  # of up to 32,000


class _Rounded(nn.Module):
    """What all such layers have in common."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Refuse: what is saved must be what was trained.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a model that was loaded with compute=int8 or bfloat16 cannot be saved, it rounds its weights; load it "
            "with compute=float32"
        )


class Int8Linear(_Rounded):
    """x W^T + b, of weights and inputs rounded to 8 bits; products are added up without error.

    Each row of W is rounded to whole multiples of its largest entry over 127, each input x to multiples of its own
    largest entry over 127. The operators are those that torch's compiler uses for quantised models on CPUs.

    Source:
        Jacob et al. 2018, arXiv:1712.05877, section 2.2, equation 7. Deviations: zero points are 0 (inputs are stored
        with 128 added), the scale of an input is found when it comes, row by row.

    Args:
        weight: W [N, K], float32.
        bias: b [N]; None without.
    """

    def __init__(self, weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None) -> None:
        super().__init__()
        largest = weight.detach().abs().amax(1).clamp_min(_TINY)
        # without VNNI two products are added up in 16 bits, which hold 255 * 63 * 2 but not 255 * 127 * 2
        scales = largest / (127 if torch.cpu._is_vnni_supported() else 63)
        self._set((weight.detach() / scales[:, None]).round().to(torch.int8), scales, bias)

    def _set(self, integers: Int[Tensor, "N K"], scales: Float[Tensor, " N"], bias: Float[Tensor, " N"] | None) -> None:
        self._packed = torch.ops.onednn.qlinear_prepack(integers, None)
        self._scales = scales
        self._zeros = torch.zeros(len(scales), dtype=torch.int32)
        self._bias = None if bias is None else bias.detach().clone()

    def forward(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        """One row of outputs for each row of inputs."""
        rows = x.reshape(-1, x.shape[-1])
        scales = rows.abs().amax(-1, keepdim=True).div_(127).clamp_min_(_TINY)
        # signed inputs would do, but for one row alone they take a hundred times as long
        integers = rows.div(scales).add_(128.5).to(torch.uint8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, 128, self._packed, self._scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        out.mul_(scales)
        if self._bias is not None:
            out.add_(self._bias)
        return out.view(*x.shape[:-1], out.shape[-1])

    def only(self, pieces: Int[Tensor, " n"]) -> "Int8Linear":
        """The same for some rows of W."""
        bias = None if self._bias is None else self._bias.index_select(0, pieces)
        return self._like(self._integers().index_select(0, pieces), self._scales.index_select(0, pieces), bias)

    def num_bytes(self) -> int:
        """Bytes that the weights take, as integers."""
        return self._packed.numel() + 4 * self._scales.numel() + (0 if self._bias is None else 4 * self._bias.numel())

    def _integers(self) -> Int[Tensor, "N K"]:
        """W as whole numbers."""
        return self._packed.to_dense().t().contiguous()

    @staticmethod
    def _like(
        integers: Int[Tensor, "N K"], scales: Float[Tensor, " N"], bias: Float[Tensor, " N"] | None
    ) -> "Int8Linear":
        made = Int8Linear.__new__(Int8Linear)
        nn.Module.__init__(made)
        made._set(integers, scales, bias)
        return made

    def __deepcopy__(self, memo: dict[Any, Any]) -> "Int8Linear":
        # packed weights have no storage that could be copied
        return self._like(self._integers(), self._scales, self._bias)


_TINY = torch.finfo(torch.float32).tiny


class BFloat16Linear(_Rounded):
    """x W^T + b, of weights and inputs rounded to bfloat16; products are added up, and come out, in float32.

    The weights stay in float32, and are rounded in each product. That is a setting of the whole process while it lasts,
    so that nothing else should multiply at the same time (`multiplies_alone`).

    Args:
        weight: W [N, K], float32.
        bias: b [N]; None without.
    """

    def __init__(self, weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        """One row of outputs for each row of inputs."""
        with _bfloat16_products():
            return linear(x, self.weight, self.bias)

    def only(self, pieces: Int[Tensor, " n"]) -> "BFloat16Linear":
        """The same for some rows of W."""
        bias = None if self.bias is None else self.bias.detach().index_select(0, pieces)
        return BFloat16Linear(self.weight.detach().index_select(0, pieces), bias)


def multiplies_alone(model: nn.Module) -> bool:
    """Whether the model's products change a setting of the process, which what is computed beside them would follow."""
    return any(isinstance(module, BFloat16Linear) for module in model.modules())


_one_at_a_time = threading.Lock()


@contextmanager
def _bfloat16_products() -> Iterator[None]:
    """Products of float32 matrices on the CPU are of bfloat16 numbers inside."""
    backend: Any = torch.backends.mkldnn
    setting = backend.matmul
    with _one_at_a_time:  # or the setting of one product would be what another one found, and left behind
        before = setting.fp32_precision
        setting.fp32_precision = "bf16"
        try:
            yield
        finally:
            setting.fp32_precision = before
