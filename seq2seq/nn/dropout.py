"""Dropout that does not hold up training on a CPU."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from seq2seq.shapes import Float, Tensor


class Dropout(nn.Module):
    """Zeroes each element with probability p in training and scales the rest by 1 / (1 - p).

    On a CPU, torch draws one float for each element with a single thread, which takes longer than the product
    before it. Here one random byte decides, of a stream of their own that a draw of torch's generator seeds (so
    seeds and saved random states work as usual). A byte has 256 values, so p is rounded to the nearest 1/256 there (0.1
    becomes 26/256 = 0.1016; the least is 1/256) and the scale is exact for the rounded value. On other devices, and in
    compiled code, this is torch's dropout.

    Args:
        p: Probability of a zero.

    Source:
        Srivastava et al. 2014, "Dropout", JMLR 15; p rounded on CPUs as said.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout={p} is not a probability below 1; choose 0 <= dropout < 1")
        self.p = p

    def ahead(self, x: Float[Tensor, "*shape"]) -> float:
        """The scale, for who makes what will be dropped out of such an `x` and can multiply it at no cost.

        It is 1 where that is not worth while: in evaluation, and where gradients are not written by hand.
        """
        if not self.training or self.p == 0.0 or not writes_gradients(x):
            return 1.0
        return ByteChances(self.p).scale

    def forward(
        self, x: Float[Tensor, "*shape"], base: Float[Tensor, "*shape"] | None = None, scaled: bool = False
    ) -> Float[Tensor, "*shape"]:
        """The vectors, some elements zeroed in training; unchanged in evaluation.

        Args:
            x: The vectors.
            base: Added to them after.
            scaled: Whether they come multiplied by what `ahead` has given, which is not 1.
        """
        if not self.training or self.p == 0.0:
            return x if base is None else base + x
        if not draws_bytes(x):
            if scaled:  # torch scales by itself
                x = x / ByteChances(self.p).scale
            dropped = nn.functional.dropout(x, self.p)
            return dropped if base is None else base + dropped
        chances = ByteChances(self.p)
        if base is not None:  # under autocast the two may differ
            dtype = torch.promote_types(base.dtype, x.dtype)
            x, base = x.to(dtype), base.to(dtype)
        scale = 1.0 if scaled else chances.scale
        total: Tensor = _Dropped.apply(x, base, chances.draw(x.shape), scale)  # type: ignore[no-untyped-call]
        return total

    def extra_repr(self) -> str:
        """The probability, for the printed model."""
        return f"p={self.p}"


def draws_bytes(x: Tensor) -> bool:
    """Whether dropout on such a tensor draws bytes: on a CPU, but not in compiled code, which draws as fast as it
    computes."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def writes_gradients(x: Tensor) -> bool:
    """Whether layers in training take their own gradients: on a CPU in full precision, but not in compiled code."""
    full = x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    return full and draws_bytes(x)


class ByteChances:
    """Elements are dropped whose byte, of 256 equally likely ones, is below `threshold`.

    Args:
        p: Probability of dropping, more than 0; rounded to the nearest 1/256 from 1/256 to 255/256.
    """

    def __init__(self, p: float) -> None:
        self.threshold = min(255, max(1, round(p * 256)))

    @property
    def scale(self) -> float:
        """What kept elements are multiplied by, so that expectations stay."""
        return 256 / (256 - self.threshold)

    def draw(self, shape: torch.Size) -> Tensor:
        """1 for each element that is kept and 0 for the others, as bytes.

        They are of a stream that torch's generator seeds, as it is slow in drawing many. Widen them to floats before
        use: multiplying these is several times as fast as anything with booleans.
        """
        num_bytes = shape.numel()
        with torch.profiler.record_function("random bytes"):  # NumPy's time is seen beside that of torch's operators
            seed = int(torch.randint(2**63 - 1, ()))
            words = np.random.SFC64(seed).random_raw((num_bytes + 7) // 8)
            drawn = words.view(np.uint8)[:num_bytes]
            np.greater_equal(drawn, self.threshold, out=drawn.view(np.bool_))
            return torch.from_numpy(drawn).view(shape)


class _Dropped(torch.autograd.Function):
    """x with elements dropped, plus perhaps a base, in one pass. Only the bytes are kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, base: Tensor | None, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        factors = kept.to(x.dtype)
        if base is None:
            return _scaled(factors.mul_(x), scale)
        return torch.addcmul(base, x, factors, value=scale, out=factors)  # a new tensor would take longer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        of_x = _scaled(kept.to(grad.dtype).mul_(grad), ctx.scale)
        return of_x, grad if ctx.needs_input_grad[1] else None, None, None


def _scaled(x: Tensor, scale: float) -> Tensor:
    """The same tensor, multiplied in place."""
    return x if scale == 1.0 else x.mul_(scale)
