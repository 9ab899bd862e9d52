"""The attention that a decoder has paid to each source piece, added up while it decodes."""

from dataclasses import dataclass, replace

import torch

from seq2seq.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class Attended:
    """A part of a state, for searches that want to know what of the source has been looked at.

    Attributes:
        layer: Of the decoder, from 0: whose attention it is.
        head: Of the layer, from 0; None for the mean of all.
        sums: [R, S], for each row and source piece; at least 1 at what does not count: EOS and padding.
    """

    layer: int
    head: int | None
    sums: Tensor

    @staticmethod
    def nothing(counted: Bool[Tensor, "R S"], layer: int, head: int | None) -> "Attended":
        """Before the first target piece; `counted` is true at source pieces that count."""
        return Attended(layer, head, (~counted).float())

    def plus(self, weights: Float[Tensor, "R H T S"]) -> "Attended":
        """With the attention of T further positions."""
        of_head = weights.mean(1) if self.head is None else weights[:, self.head]
        return replace(self, sums=self.sums + of_head.sum(1).float())

    def select(self, rows: Int[Tensor, " R2"]) -> "Attended":
        """Of the given rows, in the given order."""
        return replace(self, sums=self.sums.index_select(0, rows.to(self.sums.device)))


def all_but_last(valid: Bool[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """True at real pieces but for the last one of each row, its EOS, whichever side the padding is on."""
    later = torch.cat([valid[:, 1:], torch.zeros_like(valid[:, :1])], 1)
    return valid & later
