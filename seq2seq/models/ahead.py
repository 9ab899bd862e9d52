"""What is compiled ahead of time: reading a source, and one decode step, as functions of tensors alone.

`seq2seq.models.compiled` calls them once they are machine code; here they are Python that torch can export, and the
same numbers come out of both. Sizes may change from call to call: rows R, entries of each row C, of the pool E,
sentences B, source positions S.

Keys and values are read by their numbers in a pool (`seq2seq.nn.pool`) where they are, and scores are sums of products,
not matrix products: as Python that copies much and is slow, compiled it copies nothing. A step does not write to the
pool. What is new is returned, and takes part in the attention from the side.
"""

import copy
import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.models.decoding import replace_linears
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.packed import PackedLinear
from seq2seq.models.stack import Stack
from seq2seq.models.transformer import Transformer
from seq2seq.nn.block import Block, CrossBlock
from seq2seq.nn.masks import padding_mask
from seq2seq.nn.rotary import Rotation
from seq2seq.shapes import Bool, Float, Int, Tensor

STEP, READER, NATIVE = "step.so", "reader.so", "native.so"
"""Names of the libraries; a decoder-only model has no reader. The last one has products.cpp and ranking.cpp."""

INTERFACE = 3
"""Another number whenever the functions take or give something else, as they do not tell by themselves."""


class StepInputs(NamedTuple):
    """What a decode step is given.

    Attributes:
        tokens: [R], the last piece of every row.
        positions: [R, P], of every row what its position is told by, as `told_by_positions` says; [1, P] where all
            stand at the same one, as in an encoder-decoder.
        pool: [N, 2, E, G, K], keys and values of all layers.
        entries: [R, C], the numbers of each row's own entries.
        seen: [R, C], which of them are real; of an encoder-decoder [0], all are.
        sentence_at: [R], the sentence of each row; of a decoder-only model [0].
        source: [N, 2, B, S, G, K], keys and values of the source; of a decoder-only model [0].
        source_valid: [B, S], true at real source positions; of a decoder-only model [0].
    """

    tokens: Tensor
    positions: Tensor
    pool: Tensor
    entries: Tensor
    seen: Tensor
    sentence_at: Tensor
    source: Tensor
    source_valid: Tensor


class TargetStep(nn.Module):
    """One decode step of every row: the output of the last layer, and what is to be put into the pool.

    Args:
        model: Whose step it is; it is copied.
        panel: For products by products.cpp, the rows of a matrix in a panel; None multiplies by torch.
    """

    def __init__(self, model: Transformer, panel: int | None = None) -> None:
        super().__init__()
        assert isinstance(model, (EncoderDecoder, DecoderOnly))
        self.decoder: Any = _prepared(model.decoder, panel)
        self.has_source = isinstance(model, EncoderDecoder)

    def forward(self, *inputs: Tensor) -> tuple[Float[Tensor, "R D"], Float[Tensor, "N 2 R G K"]]:
        """The step; arguments as in `StepInputs`."""
        given = StepInputs(*inputs)
        x, rotation = _embedded(self.decoder, given.tokens[:, None], given.positions[:, None])
        added = []
        for number, layer in enumerate(self.decoder.blocks()):
            normed = layer.residual.before(x, layer.self_attention_norm)
            query, key, value = (part[:, :, 0] for part in layer.self_attention.project(normed, rotation))
            added.append(torch.stack([key, value]))
            seen = None if self.has_source else given.seen
            context = _of_past(query, key, value, given.pool[number], given.entries, seen)
            x = layer.attended(x, layer.self_attention.output(context))
            if self.has_source:
                attention, norm = layer.cross_attention, layer.cross_attention_norm
                query = attention.queries(layer.residual.before(x, norm))[:, :, 0]
                context = _of_source(query, given.source[number], given.source_valid, given.sentence_at)
                x = layer.residual.after(x, attention.output(context), norm)
            x = layer.fed_forward(x)
        return self.decoder.final_norm(x)[:, 0], torch.stack(added)


def _of_past(
    query: Float[Tensor, "R H K"],
    key: Float[Tensor, "R G K"],
    value: Float[Tensor, "R G K"],
    pool: Float[Tensor, "2 E G K"],
    entries: Int[Tensor, "R C"],
    seen: Bool[Tensor, "R C"] | None,
) -> Float[Tensor, "R 1 HK"]:
    """What each row sees of its entries in the pool, and of its own key and value, which are not there yet."""
    scores = _scores(query, pool[0][entries])
    if seen is not None:
        scores = scores.masked_fill(~seen[:, :, None], -math.inf)
    own = _scores(query, key[:, None])
    weights = torch.cat([scores, own], 1).softmax(1)
    past = entries.shape[1]
    context = _weighted(weights[:, :past], pool[1][entries]) + _weighted(weights[:, past:], value[:, None])
    return context.flatten(1)[:, None]


def _of_source(
    query: Float[Tensor, "R H K"],
    source: Float[Tensor, "2 B S G K"],
    valid: Bool[Tensor, "B S"],
    sentence_at: Int[Tensor, " R"],
) -> Float[Tensor, "R 1 HK"]:
    """What each row sees of its source."""
    scores = _scores(query, source[0][sentence_at]).masked_fill(~valid[sentence_at][:, :, None], -math.inf)
    return _weighted(scores.softmax(1), source[1][sentence_at]).flatten(1)[:, None]


class SourceInputs(NamedTuple):
    """What the encoder is given: the T real pieces of all sentences, one after the other, and how they are padded.

    Products take real pieces alone; only attention has them by sentence.

    Attributes:
        pieces: [T], ids.
        positions: [T, P], as in `StepInputs`.
        place_of: [T], of each piece its place in the padded batch, counted row by row.
        piece_at: [B, S], of each place its piece; any where there is padding.
        valid: [B, S], true at real places.
    """

    pieces: Tensor
    positions: Tensor
    place_of: Tensor
    piece_at: Tensor
    valid: Tensor


class SourceReader(nn.Module):
    """The encoder, and the keys and values that a decoder's layers have of its output.

    Args:
        model: Whose encoder it is; it is copied.
        panel: As in `TargetStep`.
    """

    def __init__(self, model: EncoderDecoder, panel: int | None = None) -> None:
        super().__init__()
        self.encoder: Any = _prepared(model.encoder, panel)
        self.attentions: Any = nn.ModuleList(
            _prepared(layer.cross_attention, panel) for layer in model.decoder.blocks()
        )

    def forward(self, *inputs: Tensor) -> Float[Tensor, "N 2 B S G K"]:
        """Keys and values of every layer, padded; arguments as in `SourceInputs`."""
        given = SourceInputs(*inputs)
        x, rotation = _embedded(self.encoder, given.pieces[None], given.positions[None])
        mask = padding_mask(given.valid)
        for layer in self.encoder.blocks():
            attention = layer.self_attention
            packed = attention.project(layer.residual.before(x, layer.self_attention_norm), rotation)
            query, key, value = (part[0][:, given.piece_at].transpose(0, 1) for part in packed)
            context = scaled_dot_product_attention(query, key, value, mask, enable_gqa=attention.heads.grouped)
            context = context.transpose(1, 2).flatten(2).flatten(0, 1)[given.place_of]
            x = layer.fed_forward(layer.attended(x, attention.output(context[None])))
        memory = self.encoder.final_norm(x)
        sources = [attention.keys_values(memory).stacked()[:, 0] for attention in self.attentions]
        return torch.stack([source[:, given.piece_at] for source in sources])


def told_by_positions(stack: Stack[Block] | Stack[CrossBlock], end: int) -> Float[Tensor, "T P"]:
    """For each position below `end` (at least) what the stack is told about it.

    Its sinusoid or learned vector, P = D; with rotary positions cosines and sines, P = 2 K; nothing, P = 0.

    Raises:
        ValueError: if there are fewer learned positions.
    """
    weight = stack.embedding.rows.weight
    if stack.rotary is not None:
        return stack.rotary.until(end, weight)
    positions = stack.embedding.positions
    return weight.new_empty(end, 0) if positions is None else positions.until(end, weight)


def _embedded(
    stack: Stack[Block] | Stack[CrossBlock], ids: Int[Tensor, "B T"], positions: Float[Tensor, "#B T P"]
) -> tuple[Float[Tensor, "B T D"], Rotation | None]:
    """The vectors that a stack begins with, and how its queries and keys are turned."""
    x = stack.embedding.rows(ids)
    if stack.embedding.scale != 1.0:
        x = x * stack.embedding.scale
    if stack.rotary is not None:
        cos, sin = positions[:, None].chunk(2, dim=-1)
        return x, Rotation(cos, sin)
    return (x if stack.embedding.positions is None else x + positions), None


def _scores(query: Float[Tensor, "R H K"], key: Float[Tensor, "R C G K"]) -> Float[Tensor, "R C H"]:
    """q k / sqrt(K) of each query with the keys of its head's group."""
    num_rows, num_heads, width = query.shape
    groups = key.shape[2]
    grouped = query.reshape(num_rows, 1, groups, num_heads // groups, width)
    # what is scaled are the sums: queries would be scaled anew for each key in compiled code
    return (grouped * key[:, :, :, None]).sum(-1).flatten(2) * (1 / math.sqrt(width))


def _weighted(weights: Float[Tensor, "R C H"], value: Float[Tensor, "R C G K"]) -> Float[Tensor, "R H K"]:
    """The sum of the values with these weights, for each head."""
    num_rows, num_entries, num_heads = weights.shape
    groups = value.shape[2]
    grouped = weights.reshape(num_rows, num_entries, groups, num_heads // groups, 1)
    return (grouped * value[:, :, :, None]).sum(1).flatten(1, 2)


class _TurnedLinear(nn.Module):
    """`nn.Linear` with its matrix stored as [in, out]: with few rows its products are faster so.

    The bias is added to three dimensions and not to two, where torch would add it before the product, by a copy.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().t().contiguous(), requires_grad=False)
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach(), requires_grad=False)

    def forward(self, x: Float[Tensor, "B T in"]) -> Float[Tensor, "B T out"]:
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


def _prepared(module: nn.Module, panel: int | None) -> nn.Module:
    """A copy of the module, for decoding alone, with its matrices as its products read them."""
    module = copy.deepcopy(module).eval().requires_grad_(False)
    replace_linears(module, _TurnedLinear if panel is None else partial(PackedLinear, panel=panel))
    return module
