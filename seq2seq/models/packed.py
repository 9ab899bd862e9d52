"""Products with matrices that are laid out once for products.cpp, in compiled code and for the projection.

Torch lays a matrix out anew in each product with few rows, or multiplies without, and how fast it is depends on whose
CPU it is. Here the matrix lies as it is read. What the C++ code computes, and how, is said there; the operator's Python
is its slow twin.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear, pad

from seq2seq.shapes import Float, Int, Tensor

SYMBOL = "aoti_torch_cpu_packed_product"
"""The operator's name in compiled code, as torch makes it."""


def _packed_product(
    x: Float[Tensor, "R K"], panels: Float[Tensor, "P K W"], bias: Float[Tensor, " PW"], width: int
) -> Float[Tensor, "R N"]:
    product = torch.addmm(bias, x, panels.transpose(0, 1).flatten(1))
    return product[:, :width].contiguous()


def _its_shape(x: Tensor, panels: Tensor, bias: Tensor, width: int) -> Tensor:
    return x.new_empty(x.shape[0], width)


_library: Any = torch.library.Library
_OPERATORS = _library("seq2seq", "FRAGMENT")
_OPERATORS.define("packed_product(Tensor x, Tensor panels, Tensor bias, int width) -> Tensor")
_OPERATORS.impl("packed_product", _packed_product, "CPU")
_register_fake: Any = torch.library.register_fake
_register_fake("seq2seq::packed_product", _its_shape, lib=_OPERATORS)


def operator() -> torch._ops.OpOverload:
    """x [R, K] times a packed matrix, plus its bias: [R, N]."""
    found: torch._ops.OpOverload = torch.ops.seq2seq.packed_product.default
    return found


def in_panels(
    weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None, panel: int
) -> tuple[Float[Tensor, "P K W"], Float[Tensor, " PW"]]:
    """A matrix and its bias as products.cpp has them: panels[p, k, j] = weight[W p + j, k], zeros behind the last.

    Args:
        weight: The matrix.
        bias: None is zeros.
        panel: W.
    """
    num_rows, depth = weight.shape
    missing = -num_rows % panel
    panels = pad(weight.detach(), (0, 0, 0, missing)).view(-1, panel, depth).transpose(1, 2).contiguous()
    if bias is None:
        return panels, weight.new_zeros(num_rows + missing)
    return panels, pad(bias.detach(), (0, missing))


class PackedLinear(nn.Module):
    """`nn.Linear`, its matrix in panels.

    Args:
        layer: Whose weights it has.
        panel: Rows of the matrix in a panel.
    """

    def __init__(self, layer: nn.Linear, panel: int) -> None:
        super().__init__()
        self.width = layer.out_features
        panels, bias = in_panels(layer.weight, layer.bias, panel)
        self.panels = nn.Parameter(panels, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        """x W^T + b."""
        product: Tensor = operator()(x.flatten(0, -2), self.panels, self.bias, self.width)
        return product.view(*x.shape[:-1], self.width)


def check_native(tensor: Tensor) -> None:
    """Refuse what the C++ code would take for something else.

    Raises:
        ValueError: saying what it is.
    """
    if tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
        raise ValueError(
            f"native code computes in torch.float32 on cpu, got {tensor.dtype} on {tensor.device}; leave a model that "
            "decodes by compiled code where it was loaded"
        )


class Products:
    """The functions of products.cpp in a shared library.

    Args:
        path: The library. It runs with the rights of this process: load none that you do not trust.

    Raises:
        OSError: if it is no library.
        AttributeError: if it has other functions.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        library.seq2seq_panel_width.restype = number
        self.panel: int = library.seq2seq_panel_width()
        """Rows of a matrix in a panel."""
        function = library.seq2seq_packed_product
        function.argtypes, function.restype = [pointer, number, number, pointer, pointer, number, pointer], None
        self._function: Callable[..., None] = function  # lets go of Python's lock

    def __call__(
        self, x: Float[Tensor, "R K"], panels: Float[Tensor, "P K W"], bias: Float[Tensor, " PW"], width: int
    ) -> Float[Tensor, "R N"]:
        """What the operator computes, on as many threads as torch has here. All are on the CPU, in float32."""
        check_native(x)
        assert x.shape[1] == panels.shape[1], "as many columns as the matrix has"
        x = x.contiguous()
        out = x.new_empty(len(x), width)
        self._function(
            x.data_ptr(), len(x), x.shape[1], panels.data_ptr(), bias.data_ptr(), width, out.data_ptr()
        )  # fmt: skip
        return out


class PackedProjection:
    """The projection onto the vocabulary by a packed matrix.

    Args:
        products: What multiplies.
        weight: [V, D], float32, on the CPU.
        bias: [V], or None.
    """

    def __init__(self, products: Products, weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None) -> None:
        self._products, self._weight, self._bias = products, weight, bias
        self._panels, self._added = in_panels(weight, bias, products.panel)
        self._made_of = self._now()

    def __call__(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """The logits."""
        if hidden.dtype is not torch.float32 or hidden.device.type != "cpu" or self._now() != self._made_of:
            # the model has been moved, or its weights changed, since
            return linear(hidden, self._weight, self._bias)
        logits = self._products(hidden.flatten(0, -2), self._panels, self._added, len(self._weight))
        return logits.view(*hidden.shape[:-1], len(self._weight))

    def _now(self) -> list[tuple[int, int]]:
        """Where the weights are, and how often they have been written to."""
        return [(tensor.data_ptr(), tensor._version) for tensor in (self._weight, self._bias) if tensor is not None]

    def only(self, pieces: Int[Tensor, " n"]) -> "PackedProjection":
        """The projection onto some pieces alone, in their order."""
        bias = None if self._bias is None else self._bias.detach().index_select(0, pieces)
        return PackedProjection(self._products, self._weight.detach().index_select(0, pieces), bias)
