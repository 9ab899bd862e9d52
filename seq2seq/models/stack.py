"""What encoder, decoder and decoder-only model have in common: an embedding, blocks, and perhaps a last norm."""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, cast

from torch import nn

from seq2seq.nn.block import Block
from seq2seq.nn.embedding import Embedding
from seq2seq.nn.positions import Places
from seq2seq.nn.rotary import RotaryPositions, Rotation
from seq2seq.shapes import Float, Tensor

AnyBlock = TypeVar("AnyBlock", bound=Block)


class Stack(nn.Module, Generic[AnyBlock]):
    """An embedding and N blocks.

    Args:
        embedding: Ids to vectors; adds the positions, where they are added.
        layers: The blocks.
        final_norm: After the last block: a Pre-LN stack has one, a Post-LN stack must not.
        rotary: Rotary positions, which all blocks share; None without.
    """

    def __init__(
        self,
        embedding: Embedding,
        layers: Sequence[AnyBlock],
        final_norm: nn.Module | None = None,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm if final_norm is not None else nn.Identity()
        self.rotary = rotary
        is_pre = [block.residual.is_pre for block in layers]
        assert all(pre == (final_norm is not None) for pre in is_pre), "a final norm belongs to Pre-LN blocks"

    def blocks(self) -> Iterator[AnyBlock]:
        """The layers, first to last."""
        return cast(Iterator[AnyBlock], iter(self.layers))

    def rotation(self, places: Places, like: Float[Tensor, "B T D"]) -> Rotation | None:
        """How queries and keys at these places are turned; None where positions are added instead."""
        return self.rotary(places, like) if self.rotary is not None else None
