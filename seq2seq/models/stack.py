"""What encoder, decoder and decoder-only model have in common: an embedding, blocks, and perhaps a last norm."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from seq2seq.nn.block import Block
from seq2seq.nn.embedding import Embedding
from seq2seq.nn.positions import Places
from seq2seq.nn.rotary import RotaryPositions, Rotation
from seq2seq.nn.varlen import PackedMask
from seq2seq.shapes import Bool, Float, Tensor

AnyBlock = TypeVar("AnyBlock", bound=Block)


@dataclass(frozen=True)
class Execution:
    """How a network computes in training. It learns the same with all of them, up to rounding."""

    compiled: bool = False
    """Blocks are compiled by torch, once for all blocks of a kind and for batches of any shape."""
    checkpointed: bool = False
    """A block's input alone is kept for the backward pass, which computes the block a second time."""
    padding_free: bool = False
    """Blocks compute real positions alone, put end to end."""


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
        self.execution = Execution()
        is_pre = [block.residual.is_pre for block in layers]
        assert all(pre == (final_norm is not None) for pre in is_pre), "a final norm belongs to Pre-LN blocks"

    def blocks(self) -> Iterator[AnyBlock]:
        """The layers, first to last."""
        return cast(Iterator[AnyBlock], iter(self.layers))

    def rotation(self, places: Places, like: Float[Tensor, "B T D"]) -> Rotation | None:
        """How queries and keys at these places are turned; None where positions are added instead."""
        return self.rotary(places, like) if self.rotary is not None else None

    def run(self, function: Callable[..., Tensor], *inputs: object) -> Tensor:
        """What a function of a block and tensors gives; in training computed as `execution` says.

        Args:
            function: Of a module, not of a class or another function: it is compiled once, for all blocks.
            inputs: Of the function, the block first.
        """
        if not self.training:
            return function(*inputs)
        if self.execution.compiled:
            function = _compiled(function)
        if self.execution.checkpointed and torch.is_grad_enabled():
            # with the random state as it was, so that dropout leaves out the same the second time
            return cast(Tensor, checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=True))
        return function(*inputs)


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, compiled at its first call. Not kept on a module: copies of a model share it, and no name changes.

    Blocks alone are compiled, not whole networks: that takes a fraction of the time, since all blocks of a stack are
    one and the same function, and it holds however a network is called.
    """
    return torch.compile(function, dynamic=True)


def block_output(
    block: Block,
    x: Float[Tensor, "B T D"],
    mask: Bool[Tensor, "#B 1 #T T"] | PackedMask | None,
    causal: bool,
    rotation: Rotation | None,
) -> Float[Tensor, "B T D"]:
    """The output of a block without cross-attention."""
    return block(x, mask, causal, rotation)
