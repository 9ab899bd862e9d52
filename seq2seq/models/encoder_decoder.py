"""The Transformer of "Attention Is All You Need": an encoder, a decoder, and the projection onto the vocabulary."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import linear

from seq2seq.models.decoder import Decoder
from seq2seq.models.encoder import Encoder
from seq2seq.nn.cache import DecoderState
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one forward pass, a tensor for each layer; each row of a tensor sums to 1 over keys."""

    encoder: list[Tensor]
    """[B, H, S, S] for each encoder layer."""
    decoder: list[Tensor]
    """[B, H, T, T] for each decoder layer, zero above the diagonal."""
    cross: list[Tensor]
    """[B, H, T, S] for each decoder layer."""


class EncoderDecoder(nn.Module):
    """Source ids and target ids so far in, logits of the next target piece out.

    Args:
        encoder: Its embedding's table may be the decoder's too (three-way tying).
        decoder: Its embedding's table may be `output` too (two-way and three-way tying).
        output: The [V, D] matrix that gives logits. No bias, as tied to an embedding that has none.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3; tying: Press and Wolf 2017, arXiv:1608.05859.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, output: nn.Parameter) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output

    def forward(
        self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T V"]:
        """Logits of every target position: row t is the distribution of the piece after tgt_in[:, t].

        Args:
            src: Source ids, EOS at the end, padded on the right.
            src_valid: True at real source positions.
            tgt_in: Target ids with BOS in front, padded on the right.
        """
        return self.logits(self.decode(src, src_valid, tgt_in))

    def decode(
        self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        """The decoder's output at every target position, before the projection onto the vocabulary."""
        return self.decoder(tgt_in, self.encoder(src, src_valid), src_valid)

    def logits(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Projection onto the vocabulary."""
        return linear(hidden, self.output)

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> DecoderState:
        """The state that decoding begins with: the source encoded, no target piece seen."""
        return self.decoder.start(self.encoder(src, src_valid), src_valid)

    def step(self, tokens: Int[Tensor, "R T"], state: DecoderState) -> tuple[Float[Tensor, "R V"], DecoderState]:
        """Logits after the last of the given pieces, and the state with them added. The old state is used up."""
        hidden, state = self.decoder.step(tokens, state)
        return self.logits(hidden[:, -1]), state

    @torch.no_grad()
    def attention_maps(
        self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]
    ) -> AttentionMaps:
        """The attention weights of every layer and head, computed beside a plain forward pass without dropout."""
        training = self.training
        self.eval()
        try:
            return self._attention_maps(src, src_valid, tgt_in)
        finally:
            self.train(training)

    def _attention_maps(
        self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]
    ) -> AttentionMaps:
        maps = AttentionMaps([], [], [])
        source_mask, target_mask = padding_mask(src_valid), causal_mask(tgt_in.shape[1], device=tgt_in.device)
        x = self.encoder.embedding(src)
        for encoder_layer in self.encoder.blocks():
            maps.encoder.append(encoder_layer.self_attention.weights(x, source_mask))
            x = encoder_layer(x, source_mask)
        memory, x = x, self.decoder.embedding(tgt_in)
        for layer in self.decoder.blocks():
            maps.decoder.append(layer.self_attention.weights(x, target_mask))
            x = layer.after_self_attention(x, layer.self_attention(x, causal=True))
            source = layer.cross_attention.keys_values(memory)
            maps.cross.append(layer.cross_attention.weights(x, source, source_mask))
            x = layer.rest(x, source, source_mask)
        return maps

    def num_parameters(self) -> int:
        """Trained numbers, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())
