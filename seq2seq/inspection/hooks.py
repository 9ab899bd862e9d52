"""Lets the modules of a model tell a recorder what comes out of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from seq2seq.inspection.recorder import Event, Lengths, Recorder
from seq2seq.models.stack import Stack
from seq2seq.nn.attention import CrossAttention, SelfAttention
from seq2seq.nn.block import Block, CrossBlock
from seq2seq.nn.embedding import Embedding
from seq2seq.nn.feed_forward import FeedForward
from seq2seq.nn.positions import LearnedPositions
from seq2seq.nn.rotary import Rotation
from seq2seq.shapes import Float, Tensor

Told = Callable[[Any, Any], Any]
"""Called with a module's first input and its output; what it returns replaces the output, None leaves it."""


@contextmanager
def listening(recorder: Recorder, lengths: Lengths) -> Iterator[None]:
    """The recorder hears of everything that its model does inside this block.

    Args:
        recorder: Where it is written down.
        lengths: Symbols of the decoder's lengths.
    """
    hooks = _Hooks(recorder)
    try:
        for name in ("encoder", "decoder"):
            stack = getattr(recorder.model, name, None)
            if isinstance(stack, Stack):
                hooks.stack(stack, name)
        with recorder.listen(lengths):
            yield
    finally:
        for handle in hooks.handles:
            handle.remove()


@dataclass(frozen=True)
class _TurnsAloud(Rotation):
    """A rotation that tells what it turns."""

    recorder: Recorder

    def turn(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """As `Rotation.turn`."""
        turned = super().turn(x)
        self.recorder.write(self.recorder.turns.pop(0), turned)
        return turned


class _Hooks:
    """Puts forward hooks on modules, and keeps their handles."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.handles: list[RemovableHandle] = []
        self._tables: set[int] = set()

    def _after(self, module: nn.Module, told: Told) -> None:
        self.handles.append(module.register_forward_hook(lambda _module, args, out: told(args[0], out)))

    def stack(self, stack: Stack[Any], name: str) -> None:
        """Embedding, rotary positions, blocks, final norm."""
        at, recorder = Event(name, None, "embedding"), self.recorder
        self._embedding(stack.embedding, at)
        if stack.rotary is not None:

            def rotation(_places: Any, out: Rotation) -> Rotation:
                first = "1" if out.cos.shape[0] == 1 else "B"
                note = "cosines and sines of rotary positions, for all layers"
                recorder.write(at.of("angles", first, "1", recorder.new(name), "K", note=note), out.cos)
                return _TurnsAloud(out.cos, out.sin, recorder)

            self._after(stack.rotary, rotation)
        for index, block in enumerate(stack.blocks()):
            self._block(block, name, index)
        self._norm(stack.final_norm, Event(name, None, "final norm"))

    def _embedding(self, embedding: Embedding, at: Event) -> None:
        """The look-up, and the positions that are added to it."""
        recorder, table, positions = self.recorder, embedding.rows.weight, embedding.positions
        scaled = ", times sqrt(D)" if embedding.scale != 1.0 else ""

        def begins(_module: nn.Module, args: tuple[Any, ...]) -> None:
            recorder.embedding = at
            recorder.write(at.of("ids", "B", recorder.new(at.stack)), args[0])

        def looked_up(_ids: Tensor, out: Tensor) -> None:
            now = recorder.embedding
            again = "; counted above" if recorder.is_counted(table) else ""
            note = f"rows of the [V,D] table{scaled}: no product{again}"
            recorder.write(now.of("look-up", "B", recorder.new(now.stack), "D", note=note), out, [table])

        self.handles.append(embedding.register_forward_pre_hook(begins))
        if id(embedding.rows) not in self._tables:  # with three-way tying both embeddings have the same one
            self._tables.add(id(embedding.rows))
            self._after(embedding.rows, looked_up)
        if positions is not None:
            kind = "learned vectors" if isinstance(positions, LearnedPositions) else "sinusoids"

            def added(_vectors: Tensor, out: Tensor) -> None:
                event = at.of("position", "B", recorder.new(at.stack), "D", note=f"{kind}, added once")
                recorder.write(event, out, positions.parameters())

            self._after(positions, added)

    def _block(self, block: Block, stack: str, layer: int) -> None:
        """Sublayers with their norms and residuals."""
        own, cross, fed = (Event(stack, layer, name) for name in ("self-attention", "cross-attention", "feed-forward"))
        self._self_attention(block.self_attention, own)
        self._residual(block, block.self_attention.output, own)
        self._norm(block.self_attention_norm, own)
        if isinstance(block, CrossBlock):
            self._cross_attention(block.cross_attention, cross)
            self._residual(block, block.cross_attention.output, cross)
            self._norm(block.cross_attention_norm, cross)
        self._feed_forward(block.feed_forward, fed)
        self._residual(block, block.feed_forward.output, fed)
        self._norm(block.feed_forward_norm, fed)

    def _residual(self, block: Block, last: nn.Module, at: Event) -> None:
        """The sum that comes after the last module of a sublayer."""
        scale = "" if block.residual.scale == 1.0 else ", the input times the scale of DeepNorm"
        recorder = self.recorder

        def sublayer_done(_inner: Tensor, _out: Tensor) -> None:
            recorder.residual = at.of("residual", "B", recorder.new(at.stack), "D", note=f"x + f(x){scale}")

        self._after(last, sublayer_done)

    def _norm(self, norm: nn.Module, at: Event) -> None:
        recorder = self.recorder

        def normed(_x: Tensor, out: Tensor) -> None:
            note = f"{type(norm).__name__} over D"
            recorder.write(at.of("norm", "B", recorder.new(at.stack), "D", note=note), out, norm.parameters())

        if not isinstance(norm, nn.Identity):
            self._after(norm, normed)

    def _self_attention(self, attention: SelfAttention, at: Event) -> None:
        recorder, linear = self.recorder, attention.query_key_value

        def projected(_x: Tensor, out: Tensor) -> None:
            new = recorder.new(at.stack)
            event = at.of("q, k, v projection", "B", new, "HK+2GK", note="one product for all three")
            recorder.write(event, out, linear.parameters())
            recorder.cut = [_flat(at, name, new) for name in "qkv"]
            recorder.heads = [_split(at, name, new) for name in "qkv"]
            if getattr(recorder.model, at.stack).rotary is not None:
                recorder.turns = [_split(at, name, new, "turned") for name in "qk"]
            recorder.attention = at.of("", new, recorder.seen(at.stack))

        self._after(linear, projected)
        self._head_norms(attention, at)
        self._attention_output(attention, at)

    def _cross_attention(self, attention: CrossAttention, at: Event) -> None:
        recorder = self.recorder

        def source_projected(_memory: Tensor, out: Tensor) -> None:
            note = "of the encoder's output; computed once a sentence"
            recorder.write(at.of("k, v projection", "B", "S", "2GK", note=note), out, attention.key_value.parameters())
            recorder.cut = [_flat(at, name, "S") for name in "kv"]
            recorder.heads = [_split(at, name, "S") for name in "kv"]

        def queries_projected(_x: Tensor, out: Tensor) -> None:
            new = recorder.new(at.stack)
            recorder.write(at.of("q projection", "B", new, "HK"), out, attention.query.parameters())
            recorder.heads = [_split(at, "q", new)]
            recorder.attention = at.of("", new, "S")

        self._after(attention.key_value, source_projected)
        self._after(attention.query, queries_projected)
        self._head_norms(attention, at)
        self._attention_output(attention, at)

    def _head_norms(self, attention: SelfAttention | CrossAttention, at: Event) -> None:
        """The norms over the width of each head of queries and keys, where there are any."""
        for name, norm in (("q", attention.query_norm), ("k", attention.key_norm)):
            if not isinstance(norm, nn.Identity):
                self._after(norm, self._head_normed(name, norm, isinstance(attention, CrossAttention), at))

    def _head_normed(self, name: str, norm: nn.Module, cross: bool, at: Event) -> Told:
        def normed(_x: Tensor, out: Tensor) -> None:
            length = "S" if cross and name == "k" else self.recorder.new(at.stack)
            self.recorder.write(_split(at, name, length, "normed"), out, norm.parameters())

        return normed

    def _attention_output(self, attention: SelfAttention | CrossAttention, at: Event) -> None:
        recorder = self.recorder

        def merged(_module: nn.Module, args: tuple[Any, ...]) -> None:
            event = at.of("heads merged", "B", recorder.new(at.stack), "HK", note="side by side, not added up")
            recorder.write(event, args[0])

        def projected(_merged: Tensor, out: Tensor) -> None:
            event = at.of("output projection", "B", recorder.new(at.stack), "D")
            recorder.write(event, out, attention.output.parameters())

        self.handles.append(attention.output.register_forward_pre_hook(merged))
        self._after(attention.output, projected)

    def _feed_forward(self, network: FeedForward, at: Event) -> None:
        recorder = self.recorder

        def widened(_x: Tensor, out: Tensor) -> None:
            new = recorder.new(at.stack)
            event = at.of("inner", "B", new, "2F" if network.gated else "F", note="each position on its own")
            recorder.write(event, out, network.inner.parameters())
            if network.gated:
                recorder.cut = [at.of(name, "B", new, "F") for name in ("gate", "value")]

        def activated(_inner: Tensor, out: Tensor) -> None:
            note = "of the gate, times the value" if network.gated else ""
            recorder.write(at.of("activation", "B", recorder.new(at.stack), "F", note=note), out)

        def narrowed(_inner: Tensor, out: Tensor) -> None:
            recorder.write(at.of("output", "B", recorder.new(at.stack), "D"), out, network.output.parameters())

        self._after(network.inner, widened)
        self._after(network.dropout, activated)
        self._after(network.output, narrowed)


def _flat(at: Event, name: str, length: str) -> Event:
    """Queries, keys or values with the heads side by side."""
    return at.of(name, "B", length, "HK" if name == "q" else "GK")


def _split(at: Event, name: str, length: str, what: str = "in heads") -> Event:
    """Queries, keys or values with the heads as a dimension."""
    return at.of(f"{name} {what}", "B", "H" if name == "q" else "G", length, "K")
