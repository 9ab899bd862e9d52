"""The Transformer of "Attention Is All You Need": an encoder, a decoder, and the projection onto the vocabulary."""

from itertools import islice

from torch import nn

from seq2seq.models.decoder import Decoder
from seq2seq.models.encoder import Encoder
from seq2seq.models.lean import LeanDecoder
from seq2seq.models.transformer import AttentionMaps, State, Transformer
from seq2seq.nn.block import CrossBlock
from seq2seq.nn.cache import DecoderState, KeyValue
from seq2seq.nn.embedding import Mixture
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.nn.pool import PooledState
from seq2seq.nn.positions import Places
from seq2seq.nn.rotary import Rotation
from seq2seq.nn.varlen import PackedMask, Packing
from seq2seq.shapes import Bool, Float, Int, Tensor


class EncoderDecoder(Transformer):
    """Source ids and target ids so far in, logits of the next target piece out.

    Args:
        encoder: Its embedding's table may be the decoder's too (three-way tying).
        decoder: Its embedding's table may be `output` too (two-way and three-way tying).
        output: The [V, D] matrix that gives logits.
        output_bias: Added to the logits; None without, as in the paper.

    Attributes:
        lean: Does the decoder's steps in its place; set where a model only decodes.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.
    """

    lean: LeanDecoder | None = None

    def __init__(
        self, encoder: Encoder, decoder: Decoder, output: nn.Parameter, output_bias: nn.Parameter | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output
        self.output_bias = output_bias

    def decode(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
        mixture: Mixture | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The decoder's output at every target position, before the projection onto the vocabulary."""
        # without packing, padding on the right of a causal stack is seen by nothing before it
        packed = None
        if self.packs:
            target = src_valid.new_ones(tgt_in.shape) if tgt_valid is None else tgt_valid
            packed = PackedMask(Packing.of_valid(target), Packing.of_valid(src_valid))
        if memory is None:
            memory = self.encoder(src, src_valid, packed.keys if packed is not None else None)
        return self.decoder(tgt_in, memory, src_valid, mixture, packed)

    def read_source(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """The encoder's output, which all passes over a batch's target have in common."""
        return self.encoder(src, src_valid, Packing.of_valid(src_valid) if self.packs else None)

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> DecoderState | PooledState:
        """The state that decoding begins with: the source encoded, no target piece seen."""
        if self.compiled is not None:
            return self.compiled.start(src, src_valid)
        return self.decoder.start(self.encoder(src, src_valid), src_valid)

    def step_hidden(self, tokens: Int[Tensor, "R T"], state: State) -> tuple[Float[Tensor, "R D"], State]:
        """The output at the last of the given pieces, and the state with them added. The old state is used up."""
        if isinstance(state, PooledState):
            assert self.compiled is not None
            return self.compiled.step(tokens, state)
        assert isinstance(state, DecoderState)
        lean = self.lean if tokens.shape[1] == 1 and state.attended is None else None
        hidden, state = (self.decoder if lean is None else lean).step(tokens, state)
        return hidden[:, -1], state

    @property
    def target_table(self) -> nn.Embedding:
        """The table that target ids are looked up in."""
        return self.decoder.embedding.rows

    @property
    def source_rows(self) -> int:
        """Rows of the table that source ids are looked up in."""
        return self.encoder.embedding.rows.num_embeddings

    def _attention_maps(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
    ) -> AttentionMaps:
        del tgt_valid
        maps = AttentionMaps([], [], [])
        source_mask, target_mask = padding_mask(src_valid), causal_mask(tgt_in.shape[1], device=tgt_in.device)
        places = Places.of_valid(src_valid)
        x = self.encoder.embedding(src, places)
        rotation = self.encoder.rotation(places, x)
        for block in self.encoder.blocks():
            normed = block.residual.before(x, block.self_attention_norm)
            maps.encoder.append(block.self_attention.weights(normed, source_mask, rotation))
            x = block(x, source_mask, rotation=rotation)
        memory = self.encoder.final_norm(x)
        places = Places.span(0, tgt_in.shape[1], tgt_in.device)
        x = self.decoder.embedding(tgt_in, places)
        rotation = self.decoder.rotation(places, x)
        for layer in self.decoder.blocks():
            normed = layer.residual.before(x, layer.self_attention_norm)
            maps.decoder.append(layer.self_attention.weights(normed, target_mask, rotation))
            source = layer.cross_attention.keys_values(memory)
            maps.cross.append(_weights_over(source, layer, x, source_mask, rotation))
            x = layer(x, source, source_mask, rotation)
        return maps

    def _cross_weights(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None,
        layer: int,
    ) -> Float[Tensor, "B H T S"]:
        del tgt_valid
        memory, mask = self.encoder(src, src_valid), padding_mask(src_valid)
        places = Places.span(0, tgt_in.shape[1], tgt_in.device)
        x = self.decoder.embedding(tgt_in, places)
        rotation = self.decoder.rotation(places, x)
        *before, last = islice(self.decoder.blocks(), layer + 1)
        for block in before:
            x = block(x, block.cross_attention.keys_values(memory), mask, rotation)
        return _weights_over(last.cross_attention.keys_values(memory), last, x, mask, rotation)


def _weights_over(
    source: KeyValue,
    layer: CrossBlock,
    x: Float[Tensor, "B T D"],
    mask: Bool[Tensor, "B 1 1 S"],
    rotation: Rotation | None,
) -> Float[Tensor, "B H T S"]:
    """The attention weights over the source in a decoder layer that is given `x`."""
    normed = layer.residual.before(x, layer.self_attention_norm)
    attended = layer.attended(x, layer.self_attention(normed, causal=True, rotation=rotation))
    normed = layer.residual.before(attended, layer.cross_attention_norm)
    return layer.cross_attention.weights(normed, source, mask)
