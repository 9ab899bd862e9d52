"""The attention weights of one sentence, with the pieces that look and are looked at: by layer and head, and averaged.

A map has a row for each query (who looks) and a column for each key (what is looked at); a row sums to 1. Queries of
the source, and of a decoder's self-attention, are named by the piece that is read there. A query of cross-attention is
named by the piece that is predicted there, so that the map reads as an alignment of both sides.

A decoder-only model has one self-attention over source, separator (BOS) and target. Its part from target to source
stands in for cross-attention: as it is, so a row sums to what the target's pieces do not take for themselves.

Weights say where a head looked, not what it made of it: they are no probabilities of the next piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from seq2seq.bundle import Bundle
from seq2seq.models.transformer import AttentionMaps
from seq2seq.shapes import Float, Int, Tensor

DIGITS = 6
"""Decimals of a weight in JSON, as many as float32 has."""


class Kind(Enum):
    """Who looks at whom."""

    encoder = "encoder"
    decoder = "decoder"
    cross = "cross"


@dataclass(frozen=True)
class Attention:
    """All maps of one kind for one sentence.

    Attributes:
        kind: Who looks at whom.
        weights: By layer and head.
        queries: The pieces that look, one for each row.
        keys: The pieces that are looked at, one for each column.
        by_prediction: Whether queries are named by the piece predicted there, rather than read there.
        part: Whether the columns are a part of what the queries look at, so that rows sum to less than 1.
    """

    kind: Kind
    weights: Float[Tensor, "N H Q K"]
    queries: Sequence[str]
    keys: Sequence[str]
    by_prediction: bool = False
    part: bool = False

    @property
    def name(self) -> str:
        """What it is called."""
        if self.part:
            return "attention from target to source, the rest of a row being on the target"
        return {
            Kind.encoder: "encoder self-attention",
            Kind.decoder: "decoder self-attention",
            Kind.cross: "cross-attention",
        }[self.kind]


@dataclass(frozen=True)
class HeatMap:
    """One map: of a head, or a mean. Layers and heads are counted from 1; None is the mean over all of them."""

    layer: int | None
    head: int | None
    weights: Float[Tensor, "Q K"]

    @property
    def title(self) -> str:
        """Which one it is."""
        layer = "mean of all layers" if self.layer is None else f"layer {self.layer}"
        if self.layer is None:
            return layer
        return f"{layer}, mean of heads" if self.head is None else f"{layer}, head {self.head}"


@dataclass(frozen=True)
class Chosen:
    """The maps of one kind that were asked for: a row of means, and a row of heads for each layer; either may lack."""

    attention: Attention
    means: list[HeatMap]
    heads: list[list[HeatMap]]


def attention_of_pair(bundle: Bundle, source: Sequence[int], target: Sequence[int]) -> list[Attention]:
    """Every attention of a model that translates, while it writes (or is made to write) this target.

    Args:
        bundle: The model with its tokenizers.
        source: Source ids with EOS.
        target: Target ids with EOS, without BOS.
    """
    special, device = bundle.target_tokenizer.special, bundle.model.output.device
    src = torch.tensor([list(source)], device=device)
    tgt_in = torch.tensor([[special.bos, *target[:-1]]], device=device)
    maps = bundle.model.attention_maps(src, torch.ones_like(src, dtype=torch.bool), tgt_in)
    source_pieces = bundle.source_tokenizer.pieces(source)
    read = bundle.target_tokenizer.pieces([special.bos, *target[:-1]])
    predicted = bundle.target_tokenizer.pieces(target)
    decoder = _stacked(maps.decoder)
    if not maps.encoder:
        whole = [*source_pieces[:-1], *read]
        length = len(source) - 1
        if not length:
            return [Attention(Kind.decoder, decoder, whole, whole)]
        part = decoder[:, :, length:, :length]
        return [
            Attention(Kind.decoder, decoder, whole, whole),
            Attention(Kind.cross, part, predicted, source_pieces[:-1], by_prediction=True, part=True),
        ]
    return [
        Attention(Kind.encoder, _stacked(maps.encoder), source_pieces, source_pieces),
        Attention(Kind.decoder, decoder, read, read),
        Attention(Kind.cross, _stacked(maps.cross), predicted, source_pieces, by_prediction=True),
    ]


def attention_of_text(bundle: Bundle, ids: Sequence[int]) -> list[Attention]:
    """The one attention of a language model that reads this text.

    Args:
        bundle: The model with its tokenizer.
        ids: The text as `Tokenizer.prompt` gives it, at least one piece.
    """
    maps = maps_of_texts(bundle, torch.tensor([list(ids)]))
    pieces = bundle.target_tokenizer.pieces(ids)
    return [Attention(Kind.decoder, _stacked(maps.decoder), pieces, pieces)]


def maps_of_texts(bundle: Bundle, ids: Int[Tensor, "B T"]) -> AttentionMaps:
    """The weights of a language model: its text is a target that has no source, not even a separator."""
    ids = ids.to(bundle.model.output.device)
    src = ids.new_full((len(ids), 1), bundle.target_tokenizer.special.eos)
    return bundle.model.attention_maps(src, torch.ones_like(src, dtype=torch.bool), ids)


def _stacked(layers: list[Tensor]) -> Float[Tensor, "N H Q K"]:
    """The layers of a batch of one sentence, on the CPU."""
    return torch.stack([layer[0].float() if layer.dtype.itemsize < 4 else layer[0] for layer in layers]).cpu()


def choose(
    attentions: Sequence[Attention],
    *,
    kinds: Sequence[Kind] = (),
    layers: Sequence[int] = (),
    heads: Sequence[int] = (),
    averages_only: bool = False,
) -> list[Chosen]:
    """The maps that were asked for; means over heads come with them where all heads do.

    Args:
        attentions: Of one sentence.
        kinds: Which kinds; all when empty.
        layers: Which layers, counted from 1; all when empty, and then the mean over all layers too.
        heads: Which heads, counted from 1; all when empty.
        averages_only: No single heads.

    Raises:
        ValueError: for a kind, layer or head that the model does not have, or heads when only averages are wanted.
    """
    if averages_only and heads:
        raise ValueError(f"head {heads[0]} and averages only exclude each other; leave out --head or --average")
    have = [attention.kind for attention in attentions]
    for kind in kinds:
        if kind not in have:
            raise ValueError(
                f"this model has no {kind.name} attention; choose from {', '.join(known.name for known in have)}"
            )
    return [
        _choose(attention, layers, heads, averages_only)
        for attention in attentions
        if not kinds or attention.kind in kinds
    ]


def _choose(attention: Attention, layers: Sequence[int], heads: Sequence[int], averages_only: bool) -> Chosen:
    num_layers, num_heads = attention.weights.shape[:2]
    _check("layer", layers, num_layers, attention)
    _check("head", heads, num_heads, attention)
    chosen_layers = list(layers) or list(range(1, num_layers + 1))
    means = []
    if not heads:
        mean = attention.weights.mean(1)
        means = [HeatMap(layer, None, mean[layer - 1]) for layer in chosen_layers]
        if not layers and num_layers > 1:
            means.append(HeatMap(None, None, mean.mean(0)))
    rows = []
    if not averages_only:
        chosen_heads = list(heads) or list(range(1, num_heads + 1))
        rows = [
            [HeatMap(layer, head, attention.weights[layer - 1, head - 1]) for head in chosen_heads]
            for layer in chosen_layers
        ]
    return Chosen(attention, means, rows)


def _check(what: str, numbers: Sequence[int], count: int, attention: Attention) -> None:
    for number in numbers:
        if not 1 <= number <= count:
            raise ValueError(
                f"{what} {number}: the model's {attention.name} has {count} {what}s; choose from 1 to {count}, or "
                "another --kind"
            )


def as_data(chosen: Sequence[Chosen], output: str) -> dict[str, Any]:
    """The maps as plain builtins that JSON can hold.

    Args:
        chosen: What was asked for.
        output: How the target came about.
    """
    return {
        "output": output,
        "attention": [
            {
                "kind": one.attention.kind.name,
                "name": one.attention.name,
                "queries": list(one.attention.queries),
                "queries_named_by": "predicted piece" if one.attention.by_prediction else "read piece",
                "keys": list(one.attention.keys),
                "rows_sum_to_one": not one.attention.part,
                "maps": [
                    {"layer": heat.layer, "head": heat.head, "weights": _rounded(heat.weights)}
                    for heat in [*one.means, *(heat for row in one.heads for heat in row)]
                ],
            }
            for one in chosen
        ],
    }


def _rounded(weights: Float[Tensor, "Q K"]) -> list[list[float]]:
    return [[round(weight, DIGITS) for weight in row] for row in weights.tolist()]
