"""Dropout that does not hold up training on a CPU."""

import torch
from torch import nn

from seq2seq.shapes import Float, Tensor


class Dropout(nn.Module):
    """Zeroes each element with probability p in training and scales the rest by 1 / (1 - p).

    On a CPU, torch draws one float for each element with a single thread, which takes longer than the product
    before it. Here one random byte decides, eight of them from each draw of torch's own generator (so seeds and
    saved random states work as usual). A byte has 256 values, so p is rounded to the nearest 1/256 there (0.1
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

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The vectors, some elements zeroed in training; unchanged in evaluation."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():  # compiled code draws as fast as it computes
            return nn.functional.dropout(x, self.p)
        threshold = min(255, max(1, round(self.p * 256)))
        return x * _keep_mask(x.shape, threshold).to(x.dtype).mul_(256 / (256 - threshold))

    def extra_repr(self) -> str:
        """The probability, for the printed model."""
        return f"p={self.p}"


def _keep_mask(shape: torch.Size, threshold: int) -> Tensor:
    """A boolean tensor whose elements are True with probability 1 - threshold / 256."""
    num_bytes = shape.numel()
    draws = torch.empty((num_bytes + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.uint8)[:num_bytes].view(shape) >= threshold
