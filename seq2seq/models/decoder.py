"""The decoder: target ids so far and the memory in, one vector for each target position out."""

from dataclasses import replace

import torch

from seq2seq.models.stack import Stack
from seq2seq.nn.block import CrossBlock
from seq2seq.nn.cache import Cache, DecoderState, History
from seq2seq.nn.embedding import Mixture
from seq2seq.nn.masks import padding_mask
from seq2seq.nn.positions import Places
from seq2seq.nn.rotary import Rotation
from seq2seq.nn.varlen import PackedMask
from seq2seq.shapes import Bool, Float, Int, Tensor


class Decoder(Stack[CrossBlock]):
    """Embedding and N blocks with cross-attention.

    Target padding needs no mask: it stands to the right, and no real position sees what is on its right.
    """

    def forward(
        self,
        tgt_in: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S D"],
        src_valid: Bool[Tensor, "B S"],
        mixture: Mixture | None = None,
        packed: PackedMask | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The vector of every target position, from which the next piece is predicted.

        Args:
            tgt_in: Target ids with BOS in front.
            memory: The encoder's output.
            src_valid: True at real source positions.
            mixture: What stands in the place of some target ids.
            packed: Of target and source, to compute their real positions alone.
        """
        places = Places.span(0, tgt_in.shape[1], tgt_in.device)
        x = self.embedding(tgt_in, places, mixture)
        mask: Tensor | PackedMask = padding_mask(src_valid)
        if packed is not None:
            x, places, mask = packed.queries.pack(x), packed.queries.pack_places(places), packed
            memory = packed.keys.pack(memory)
        rotation = self.rotation(places, x)
        for layer in self.blocks():
            x = self.run(_decoded, layer, x, memory, mask, rotation)
        x = self.final_norm(x)
        return x if packed is None else packed.queries.unpack(x)

    def start(self, memory: Float[Tensor, "B S D"], src_valid: Bool[Tensor, "B S"]) -> DecoderState:
        """The state before the first target piece: keys and values of the source, nothing of the target."""
        source = torch.stack([layer.cross_attention.keys_values(memory).stacked() for layer in self.blocks()])
        return DecoderState(History(Cache(len(self.layers), len(memory))), 0, source, padding_mask(src_valid))

    def step(self, tokens: Int[Tensor, "R T"], state: DecoderState) -> tuple[Float[Tensor, "R T D"], DecoderState]:
        """The vectors of the next T target positions, and the state after them.

        With T > 1 this is a prefill: several known pieces at once. The given state must not be used again.
        """
        end = state.length + tokens.shape[1]
        places = Places.span(state.length, end, tokens.device)
        x = self.embedding(tokens, places)
        rotation = self.rotation(places, x)
        history, mask = state.history.prepare(len(tokens), tokens.shape[1], tokens.device)
        cache, layout, attended = history.cache, history.layout, state.attended
        for number, layer in enumerate(self.blocks()):
            source = state.of_source(number)
            if attended is not None and number == attended.layer:
                attended = attended.plus(
                    layer.step_weights(x, cache, number, mask, source, state.cross_mask, layout, rotation)
                )
            x, cache = layer.step(x, cache, number, mask, source, state.cross_mask, layout, rotation)
        history = history.after(cache, tokens.shape[1], mask)
        return self.final_norm(x), replace(state, history=history, length=end, attended=attended)


def _decoded(
    layer: CrossBlock,
    x: Float[Tensor, "B T D"],
    memory: Float[Tensor, "B S D"],
    mask: Bool[Tensor, "B 1 1 S"] | PackedMask,
    rotation: Rotation | None,
) -> Float[Tensor, "B T D"]:
    """The output of a layer, its keys and values of the source included."""
    return layer(x, layer.cross_attention.keys_values(memory), mask, rotation)
