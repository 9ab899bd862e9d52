"""Slow twins of a model, which must give the same: one without a cache, and one in float64.

Without a cache no keys and values are remembered between decode steps: each step reads all target pieces again.
"""

import copy
from dataclasses import dataclass, replace

import torch
from torch import cat

from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.transformer import Transformer
from seq2seq.nn.masks import prefix_mask
from seq2seq.nn.positions import Places
from seq2seq.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class Seen:
    """What was read so far, everything by the row."""

    src: Int[Tensor, "R S"]
    """Source ids; the prompts of a decoder-only model."""
    src_valid: Bool[Tensor, "R S"]
    """True where they are real."""
    memory: Float[Tensor, "R S D"] | None
    """The encoder's output, where there is an encoder."""
    ids: Int[Tensor, "R t"]
    """Target pieces, BOS among them."""

    def select(self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"], places: object = None) -> "Seen":
        """The state of hypotheses `rows`; nothing is kept by the sentence."""
        rows = rows.to(self.ids.device)
        memory = None if self.memory is None else self.memory.index_select(0, rows)
        return Seen(
            self.src.index_select(0, rows), self.src_valid.index_select(0, rows), memory, self.ids.index_select(0, rows)
        )


class UncachedEncoderDecoder(EncoderDecoder):
    """The given model, whose steps read the target from the start.

    Args:
        model: Whose weights are used.
    """

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__(model.encoder, model.decoder, model.output, model.output_bias)
        self.train(model.training)

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> Seen:  # type: ignore[override]
        """The state that decoding begins with: the source encoded."""
        return Seen(src, src_valid, self.read_source(src, src_valid), src[:, :0])

    def step(  # type: ignore[override]  # another state
        self, tokens: Int[Tensor, "R T"], state: Seen
    ) -> tuple[Float[Tensor, "R V"], Seen]:
        """Logits after the last of the given pieces, by a forward pass over all of them."""
        ids = cat([state.ids, tokens], 1)
        hidden = self.decode(state.src, state.src_valid, ids, memory=state.memory)
        return self.logits(hidden[:, -1]), replace(state, ids=ids)


class UncachedDecoderOnly(DecoderOnly):
    """The given model, whose steps read the prompt and what came after it from the start.

    Args:
        model: Whose weights are used.
    """

    def __init__(self, model: DecoderOnly) -> None:
        super().__init__(model.decoder, model.output, model.output_bias, model.prefix_lm)
        self.train(model.training)

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> Seen:  # type: ignore[override]
        """The state that decoding begins with, the source without its EOS: nothing is computed."""
        return self.prefill(src[:, :-1], src_valid[:, :-1] & src_valid[:, 1:])[1]

    def prefill(  # type: ignore[override]  # another state
        self, ids: Int[Tensor, "B P"], valid: Bool[Tensor, "B P"]
    ) -> tuple[Float[Tensor, "B 0 D"], Seen]:
        """No output, for nobody asks for it, and the state after the prompts: nothing is computed."""
        return self.output.new_empty(len(ids), 0, self.output.shape[1]), Seen(ids, valid, None, ids[:, :0])

    def step(  # type: ignore[override]  # another state
        self, tokens: Int[Tensor, "R T"], state: Seen
    ) -> tuple[Float[Tensor, "R V"], Seen]:
        """Logits after the last of the given pieces, by a forward pass over prompt and pieces."""
        ids = cat([state.ids, tokens], 1)
        valid = cat([state.src_valid, state.src_valid.new_ones(ids.shape)], 1)
        mask = prefix_mask(valid, state.src.shape[1], self.prefix_lm)
        hidden = self.hidden(cat([state.src, ids], 1), Places.of_valid(valid), mask)
        return self.logits(hidden[:, -1]), replace(state, ids=ids)


def uncached(model: Transformer) -> Transformer:
    """The model, with its weights and without its cache."""
    if isinstance(model, EncoderDecoder):
        return UncachedEncoderDecoder(model)
    assert isinstance(model, DecoderOnly)
    return UncachedDecoderOnly(model)


def in_float64(model: Transformer) -> Transformer | None:
    """A copy of the model whose rounding does not show; None where it is so already, or its device cannot."""
    if model.output.dtype is torch.float64 or model.output.device.type == "mps":
        return None
    return copy.deepcopy(model).double()
