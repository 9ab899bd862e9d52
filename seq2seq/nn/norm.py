"""Norms over the width of a vector, and where they stand around a sublayer."""

import torch
from torch import nn

from seq2seq.config import NormKind, NormPlacement
from seq2seq.nn.dropout import Dropout
from seq2seq.shapes import Float, Tensor


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) times a weight: not centred, no bias.

    The mean square is taken in float32 for half precision, and the weight multiplies the rounded result, as in LLaMA.

    Args:
        width: Entries of a vector.
        eps: Added to the mean square.

    Source:
        Zhang and Sennrich 2019, arXiv:1910.07467, equation 4.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """The vectors with mean square 1, times the weight."""
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * normed.to(x.dtype)


def build_norm(kind: NormKind, width: int, eps: float) -> nn.Module:
    """A norm of the given kind, its weight 1 and its bias, if it has one, 0."""
    return nn.LayerNorm(width, eps) if kind is NormKind.layer_norm else RMSNorm(width, eps)


class Residual:
    """How a sublayer's output is added to its input. Not a module: it has no weights, the norm is the block's.

    A block calls ``h = residual.before(x, norm)``, gives `h` to the sublayer, and ``x = residual.after(x, out, norm)``:

        post       LN(x + f(x))
        pre        x + f(LN(x))         and one norm after the last block of the stack
        deepnorm   LN(scale * x + f(x))

    Args:
        placement: Where the norm stands.
        scale: Multiplies the input in deepnorm.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.1 (post); Xiong et al. 2020, arXiv:2002.04745 (pre);
        Wang et al. 2022, arXiv:2203.00555, figure 2 (deepnorm).
    """

    def __init__(self, placement: NormPlacement, scale: float = 1.0) -> None:
        self.is_pre, self.scale = placement is NormPlacement.pre, scale

    def before(self, x: Float[Tensor, "B T D"], norm: nn.Module) -> Float[Tensor, "B T D"]:
        """What the sublayer is given."""
        return norm(x) if self.is_pre else x

    def after(
        self,
        x: Float[Tensor, "B T D"],
        out: Float[Tensor, "B T D"],
        norm: nn.Module,
        dropout: Dropout | None = None,
        *,
        scaled: bool = False,
    ) -> Float[Tensor, "B T D"]:
        """Input and output of the sublayer together, with dropout, as `Dropout` says, on the output where it is
        given."""
        if self.scale != 1.0:
            x = self.scale * x
        total = x + out if dropout is None else dropout(out, x, scaled)
        return total if self.is_pre else norm(total)

    def __repr__(self) -> str:
        return f"Residual({'pre' if self.is_pre else 'post'}, scale={self.scale:g})"
