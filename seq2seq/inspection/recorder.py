"""Writes down what a model does while it does it: what modules tell, and calls of torch that no module stands for."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from seq2seq.inspection.walk import Operation
from seq2seq.models import Transformer
from seq2seq.nn.masks import causal_mask
from seq2seq.shapes import Bool, Float, Tensor

_PRODUCTS = (torch.matmul, torch.bmm, torch.mm, torch.Tensor.matmul, torch.Tensor.bmm, torch.Tensor.mm)
_SUMS = (torch.add, torch.Tensor.add)
_CUTS = (torch.split, torch.chunk, torch.Tensor.split, torch.Tensor.chunk)
_TRANSPOSES = (torch.transpose, torch.Tensor.transpose)


@dataclass(frozen=True)
class Lengths:
    """How many positions a pass of the decoder is about, as symbols."""

    new: str
    """Positions that it is given."""
    seen: str
    """Positions that its self-attention looks at: those in the cache and the new ones."""
    cached: bool = False
    """Whether keys and values go through a cache."""


@dataclass(frozen=True)
class Event:
    """An operation that is about to happen: where, what, and its shape in letters."""

    stack: str
    layer: int | None
    part: str
    name: str = ""
    symbols: tuple[str, ...] = ()
    note: str = ""

    def of(self, name: str, *symbols: str, note: str = "") -> "Event":
        """Another operation at the same place."""
        return replace(self, name=name, symbols=symbols, note=note)


class Recorder(TorchFunctionMode):
    """The operations of a model's passes in the order in which they happen.

    `seq2seq.inspection.hooks` lets the modules tell what came out of them. What has no module is heard as a call of
    torch: the cut of a stacked projection, heads becoming a dimension, the sum with the residual, the projection onto
    the vocabulary. Attention is done here written out, so that scores and weights, which a fused kernel never shows,
    exist. Shapes are those of the tensors that flowed, and multiply-adds those of the matrix products that ran.

    Attributes:
        operations: What has happened so far.
        lengths: Symbols of the pass under way.
        cut: What the pieces of the next cut are.
        heads: What the next tensors to get a dimension for the heads are.
        turns: What the next tensors to be turned by rotary positions are.
        residual: What the next sum is.
        attention: Where the next attention is; its symbols are those of queries and keys.
        embedding: Where the embedding under way is.
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.operations: list[Operation] = []
        self.lengths = Lengths("T", "T")
        self.cut: list[Event] = []
        self.heads: list[Event] = []
        self.turns: list[Event] = []
        self.residual: Event | None = None
        self.attention = self.embedding = Event("decoder", None, "embedding")
        self._counted: set[int] = set()
        self._products = 0

    @contextmanager
    def listen(self, lengths: Lengths) -> Iterator[None]:
        """Write down the calls of torch inside, with these symbols for the decoder's lengths."""
        self.lengths = lengths
        with torch.no_grad(), self:
            yield
        assert self._products == 0, f"{self._products} multiply-adds ran that no operation was written down for"
        waiting = [*self.cut, *self.heads, *self.turns, *([self.residual] if self.residual else [])]
        assert not waiting, f"expected and never seen: {waiting}"

    def new(self, stack: str) -> str:
        """Symbol of the positions that a stack is given."""
        return "S" if stack == "encoder" else self.lengths.new

    def seen(self, stack: str) -> str:
        """Symbol of the positions that a stack's self-attention looks at."""
        return "S" if stack == "encoder" else self.lengths.seen

    def write(self, event: Event, out: Tensor, weights: Iterable[Tensor] = ()) -> None:
        """One operation, with the products that have run since the one before.

        Args:
            event: What it is.
            out: What came out.
            weights: Parameters that it used; those used before are not counted again.
        """
        fresh = {id(weight): weight.numel() for weight in weights if id(weight) not in self._counted}
        self._counted.update(fresh)
        products, self._products = self._products, 0
        self.operations.append(
            Operation(
                event.stack,
                event.layer,
                event.part,
                event.name,
                event.symbols,
                tuple(out.shape),
                sum(fresh.values()),
                products,
                event.note,
            )
        )

    def is_counted(self, weight: Tensor) -> bool:
        """Whether an operation before has used it."""
        return id(weight) in self._counted

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, and write down what it is known to stand for."""
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        if func is linear and args[1] is self.model.output:
            return self._project(*args)
        out = func(*args, **kwargs)
        if func is linear or func in _PRODUCTS:
            self._products += out.numel() * args[0].shape[-1]
        elif func in _CUTS and self.cut:
            pieces, self.cut = self.cut, []
            for event, piece in zip(pieces, out, strict=True):
                self.write(event, piece)
        elif func in _TRANSPOSES and self.heads:
            self.write(self.heads.pop(0), out)
        elif func in _SUMS and self.residual is not None:
            event, self.residual = self.residual, None
            self.write(event, out)
        return out

    def _project(
        self, hidden: Float[Tensor, "*rows D"], output: nn.Parameter, bias: nn.Parameter | None
    ) -> Float[Tensor, "*rows V"]:
        """Logits, of the target positions or, in generation, of the last one."""
        at = Event("output", None, "logits")
        rows = ("B", "T") if hidden.dim() == 3 else ("B",)
        if hidden.dim() == 2:
            self.write(at.of("last position", "B", "D", note="all that generation needs"), hidden)
        elif self.lengths.new != "T":
            self.write(at.of("target positions", "B", "T", "D", note="the source is not predicted"), hidden)
        out = linear(hidden, output, bias)
        self._products += out.numel() * hidden.shape[-1]
        tied = "by the tied table; " if self.is_counted(output) else ""
        note = tied + "their softmax is over the vocabulary"
        self.write(at.of("logits", *rows, "V", note=note), out, [output] if bias is None else [output, bias])
        return out

    def _attend(
        self,
        query: Float[Tensor, "B H T K"],
        key: Float[Tensor, "B G S K"],
        value: Float[Tensor, "B G S K"],
        mask: Bool[Tensor, "#B #H #T S"] | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
    ) -> Float[Tensor, "B H T K"]:
        """What `scaled_dot_product_attention` gives, step by step."""
        assert dropout_p == 0.0, "a walk is done in evaluation mode"
        at, (new, seen) = self.attention, self.attention.symbols
        if self.lengths.cached and at.stack == "decoder":
            note = "of the source" if at.part == "cross-attention" else "of all positions so far"
            for name, kept in (("k in the cache", key), ("v in the cache", value)):
                self.write(at.of(name, "B", "G", seen, "K", note=note), kept)
        copies = query.shape[1] // key.shape[1]
        shared = f"; {copies} query heads share a key head" if copies > 1 else ""
        scores = query @ key.repeat_interleave(copies, dim=1).transpose(-2, -1) / math.sqrt(query.shape[-1])
        self._products += scores.numel() * query.shape[-1]
        note = "q k^T / sqrt(K): rows are queries, columns keys" + shared
        self.write(at.of("scores", "B", "H", new, seen, note=note), scores)
        if is_causal:
            mask = causal_mask(query.shape[2], device=query.device)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
            symbols = ["1" if size == 1 else letter for size, letter in zip(mask.shape, "BH", strict=False)]
            symbols += ["1" if mask.shape[2] == 1 else new, seen]
            self.write(at.of("mask", *symbols, note="True = may attend; broadcast, before the softmax"), mask)
        weights = scores.softmax(-1)
        if mask is not None:
            weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)
        self.write(at.of("weights", "B", "H", new, seen, note="softmax over the keys: each row sums to 1"), weights)
        context = weights @ value.repeat_interleave(copies, dim=1)
        self._products += context.numel() * value.shape[2]
        self.write(at.of("context", "B", "H", new, "K", note="weights v"), context)
        return context
