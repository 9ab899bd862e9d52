"""An estimate of the memory that training takes, in float32, part by part."""

from dataclasses import dataclass

from seq2seq.config import Activation, NormKind, NormPlacement, PositionKind
from seq2seq.inspection.cost import Sizes, parameter_parts
from seq2seq.inspection.formulas import Figure, Letters
from seq2seq.nn.cpu_attention import LONGEST

FLOAT = 4
"""Bytes of a number in training."""


@dataclass(frozen=True)
class MemoryPart:
    """Bytes of one kind of thing."""

    name: str
    formula: str
    """Of its numbers, 4 bytes each."""
    bytes: int


def training_memory(sizes: Sizes) -> list[MemoryPart]:
    """What is in memory when the way back begins: weights, gradients, Adam's moments, activations, logits.

    Gradients are counted in full although they come into being while activations go; with several batches a step both
    are there. Activations are those of a batch without padding, on a CPU. Not counted are torch
    itself (about 300 MB on a CPU), the data, what an operation needs for a moment, and what the C library keeps of
    freed memory.

    How near it is, on a CPU (transformer_small with 8,000 and transformer_base with 16,000 pieces, 1,024 target pieces
    a batch): the activations are within 1% of what autograd keeps; the whole is 5% to 15% above what is allocated with
    one batch a step and 2% to 5% below with two; the process grows by 7% to 43% more than the estimate.
    """
    parameters = sum(part.total for part in parameter_parts(sizes))
    parts = [
        ("weights", "parameters", parameters),
        ("gradients", "parameters", parameters),
        ("Adam's moments", "2 parameters", 2 * parameters),
    ]
    if not sizes.decoder_only:
        figure = kept_by_layers(sizes, "encoder")
        parts.append(("encoder activations", figure.formula, figure.value))
    figure = kept_by_layers(sizes, "decoder")
    parts.append(("decoder activations", figure.formula, figure.value))
    ends = kept_at_the_ends(sizes)
    parts.append(("embeddings, log-probs", " + ".join(figure.formula for figure in ends), _sum(ends)))
    logits = Figure.of(f"B {sizes.predicted} V", sizes.letters("decoder"))
    parts.append(("logits or their gradient", logits.formula, logits.value))
    return [MemoryPart(name, formula, FLOAT * count) for name, formula, count in parts]


def kept_by_layers(sizes: Sizes, stack: str) -> Figure:
    """Numbers that N layers of a stack keep for the way back.

    Of each sublayer its input and its sum with the residual, and one more with RMSNorm; queries, keys, values and
    context of attention, twice more with norms on queries and keys, and its weights or, beyond `LONGEST` keys
    without dropout, the sums of softmax by head; the inside of the feed-forward network; what norms divide by. Dropout
    keeps a byte for each element.
    """
    config = sizes.config
    length = "S" if stack == "encoder" else "T"
    cross = stack == "decoder" and not sizes.decoder_only
    sublayers, rms = (3 if cross else 2), config.norm is NormKind.rms_norm
    letters = sizes.letters(stack)
    normed = 2 if config.qk_norm else 0
    width = {
        "D": (2 + rms) * sublayers,
        "H K": 2 + normed + (2 + normed if cross else 0),
        "G K": 2 + normed,
        "F": _feed_forward_copies(sizes),
        "": sublayers * (1 if rms else 2),
    }
    if config.qk_norm:
        width["H"] = sublayers - 1
    terms = [f"{copies} N B {length} {name}" for name, copies in width.items()]
    if cross:
        terms.append(f"{2 + normed} N B S G K")
    dropped = [f"{sublayers} N B {length} D"] if config.dropout > 0 else []
    for keys in (length, "S") if cross else (length,):
        weights = f"N B H {length}^2" if keys == length else f"N B H {length} {keys}"
        if config.attention_dropout > 0 or letters[keys] <= LONGEST:
            terms.append(weights)
            dropped += [weights] if config.attention_dropout > 0 else []
            continue
        terms.append(f"N B {length} H")
        if sizes.decoder_only and sizes.source:
            terms.append(f"N B {length}^2")  # the mask of source and target as numbers, in every layer
    if config.activation_dropout > 0 and (config.gated or config.activation is not Activation.relu):
        dropped.append(f"N B {length} F")
    return _with_bytes(Figure.of(" + ".join(terms), letters), dropped, letters)


def _with_bytes(numbers: Figure, dropped: list[str], letters: Letters) -> Figure:
    """Numbers of four bytes, and what takes one byte each."""
    if not dropped:
        return numbers
    chances = Figure.of(" + ".join(dropped), letters)
    before = f"{numbers.formula} + " if numbers.value else ""
    return Figure(f"{before}({chances.formula}) / {FLOAT}", numbers.value + -(-chances.value // FLOAT))


def _feed_forward_copies(sizes: Sizes) -> int:
    """Tensors [B, T, F] that a feed-forward network keeps: ReLU needs its output only, the others their input too."""
    config = sizes.config
    copies = 4 if config.gated else 1 if config.activation is Activation.relu else 2
    return copies + (config.activation is Activation.gelu_sigmoid)


def kept_at_the_ends(sizes: Sizes) -> list[Figure]:
    """Numbers that are kept outside of the layers: embeddings, final norms, the predicted positions."""
    config, letters = sizes.config, sizes.letters("decoder")
    final_norm = 1 + (config.norm is NormKind.rms_norm) if config.norm_placement is NormPlacement.pre else 0
    figures = [Figure.of(f"B {sizes.predicted} D + B {sizes.predicted} V", letters)]
    for length in ("T",) if sizes.decoder_only else ("S", "T"):
        copies = final_norm + (length == "S")  # cross-attention keeps the encoder's output
        if copies:
            figures.append(Figure.of(f"{copies} B {length} D", letters))
        if config.dropout > 0:
            figures.append(_with_bytes(Figure("0", 0), [f"B {length} D"], letters))
        if config.positions is PositionKind.rope:
            figures.append(Figure.of(f"2 B {length} K", letters))
    return figures


def _sum(figures: list[Figure]) -> int:
    return sum(figure.value for figure in figures)
