"""What a walk through a model is made of: its operations one by one, and in sections for reading."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby

from seq2seq.inspection.letters import bind


class Mode(Enum):
    """Which passes of a model are looked at.

    training: all target positions at once, as in training and scoring. prefill: the source is read, then several known
    target pieces at once fill the cache. step: one new piece, with the keys and values of all before it in the cache.
    """

    training = "training"
    prefill = "prefill"
    step = "step"


@dataclass(frozen=True)
class Operation:
    """One thing that a model does on the way."""

    stack: str
    """`encoder`, `decoder`, or `output` for what comes after them."""
    layer: int | None
    """Which layer of the stack, from 0; None outside of the layers."""
    part: str
    """Sublayer: `embedding`, `self-attention`, `cross-attention`, `feed-forward`, `norm`, `logits`."""
    name: str
    """What is computed."""
    symbols: tuple[str, ...]
    """Its shape in the letters of `seq2seq.shapes`."""
    shape: tuple[int, ...]
    """The shape that it had in the pass."""
    parameters: int = 0
    """Trained numbers that are used here and were not counted before: a tied matrix counts where it comes first."""
    multiply_adds: int = 0
    """Of the matrix product that ran; norms, softmax, sums and look-ups count as none."""
    note: str = ""
    """What a reader may want to know."""

    @property
    def path(self) -> str:
        """Where it is, for messages: ``decoder layer 0 self-attention scores``."""
        layer = "" if self.layer is None else f" layer {self.layer}"
        return f"{self.stack}{layer} {self.part} {self.name}"


@dataclass(frozen=True)
class Section:
    """Operations that are read together: a layer, an embedding, the output. Equal layers may share a section."""

    stack: str
    layers: tuple[int, ...]
    """The layers that it stands for, each with these shapes; none outside of the layers."""
    operations: tuple[Operation, ...]
    """Of one of the layers."""

    @property
    def repeat(self) -> int:
        """How many times the operations ran."""
        return max(1, len(self.layers))

    @property
    def title(self) -> str:
        """For people, with layers counted from 1: ``encoder layers 1 to 6, each (x 6 layers)``."""
        if not self.layers:
            return self.stack if self.stack == "output" else f"{self.stack} {self.operations[0].part}"
        if self.repeat == 1:
            return f"{self.stack} layer {self.layers[0] + 1}"
        return f"{self.stack} layers {self.layers[0] + 1} to {self.layers[-1] + 1}, each (x {self.repeat} layers)"


@dataclass(frozen=True)
class Walk:
    """The operations of one pass, in the order in which they ran.

    Raises:
        AssertionError: if an operation's shape is not what its symbols say.
    """

    mode: Mode
    operations: tuple[Operation, ...]
    given: Mapping[str, int]
    """Letters that the caller chose: B, S, T, P."""
    letters: dict[str, int] = field(init=False)
    """What each letter stood for. With different feed-forward widths, F has `F (encoder)` and `F (decoder)`."""

    def __post_init__(self) -> None:
        bound = {}
        for stack in ("encoder", "decoder"):
            own = [op for op in self.operations if (op.stack == "encoder") is (stack == "encoder")]
            if own:
                bound[stack] = bind([(op.path, op.symbols, op.shape) for op in own], self.given)
        object.__setattr__(self, "letters", _merged(bound))

    @property
    def parameters(self) -> int:
        """Trained numbers that the pass used, tied ones counted once."""
        return sum(op.parameters for op in self.operations)

    @property
    def multiply_adds(self) -> int:
        """Of all matrix products of the pass."""
        return sum(op.multiply_adds for op in self.operations)

    def sections(self, *, all_layers: bool = False) -> list[Section]:
        """The operations by layer; neighbouring layers that are alike are one section, unless all are asked for."""
        sections = list(_by_layer(self.operations))
        if all_layers:
            return sections
        folded: list[Section] = []
        for section in sections:
            if folded and _alike(folded[-1], section):
                folded[-1] = replace(folded[-1], layers=folded[-1].layers + section.layers)
            else:
                folded.append(section)
        return folded


def _merged(bound: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The letters of both stacks, which must agree except for the feed-forward width."""
    letters: dict[str, int] = {}
    apart = len({own["F"] for own in bound.values() if "F" in own}) > 1
    for stack, own in bound.items():
        for letter, size in own.items():
            name = f"F ({stack})" if letter == "F" and apart else letter
            assert letters.setdefault(name, size) == size, f"{letter} is {letters[name]} and {size} in one pass"
    return letters


def _by_layer(operations: tuple[Operation, ...]) -> Iterator[Section]:
    """A section for each run of operations of one layer, or of one part outside of the layers."""

    def place(op: Operation) -> tuple[str, int | None, str]:
        return op.stack, op.layer, op.part if op.layer is None and op.stack != "output" else ""

    for (stack, layer, _), run in groupby(operations, key=place):
        yield Section(stack, () if layer is None else (layer,), tuple(run))


def _alike(before: Section, section: Section) -> bool:
    """Whether a layer follows on another one and does the same."""
    if before.stack != section.stack or not before.layers or section.layers != (before.layers[-1] + 1,):
        return False
    return [replace(op, layer=0) for op in before.operations] == [replace(op, layer=0) for op in section.operations]
