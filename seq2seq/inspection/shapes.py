"""The walk through a model: every operation of a real pass with its shape, parameters and multiply-adds.

The passes are those of training and of translation, run on a model as it is; nothing is worked out from its options.
Each operation also has its shape in the letters of `seq2seq.shapes`, and a size that is not what its letters say is an
error of the program.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seq2seq.inspection.hooks import listening
from seq2seq.inspection.recorder import Lengths, Recorder
from seq2seq.inspection.walk import Mode, Walk
from seq2seq.models import DecoderOnly, EncoderDecoder, Transformer
from seq2seq.models.stack import Stack
from seq2seq.nn.positions import LearnedPositions, check_positions
from seq2seq.shapes import Int, Tensor


def walk(model: Transformer, mode: Mode, *, batch: int, source: int, target: int) -> Walk:
    """The operations of one pass over a batch without padding.

    A decoder-only model reads a pair in a row, P = S - 1 positions of the source (without its EOS) and T of the target.
    With a source of 0 it reads plain text of T positions.

    Args:
        model: Any network, on any device; on torch's meta device nothing is computed and the shapes are the same.
        mode: Which pass. In `step` the new piece is the last of the `target` ones.
        batch: Sentences B.
        source: Source pieces S, EOS included.
        target: Target pieces T, BOS included.

    Raises:
        ValueError: for a size below 1, for no source where there is an encoder, or for a text that is longer than
            learned positions go.
    """
    _check(model, batch, source, target)
    recorder = Recorder(model)
    with _evaluating(model), torch.no_grad():
        if source == 0:
            assert isinstance(model, DecoderOnly)
            _read_text(model, recorder, mode, _ids(model, batch, target))
        else:
            _read_pair(model, recorder, mode, _ids(model, batch, source), _ids(model, batch, target))
    given = {"B": batch, "T": target} | ({"S": source} if isinstance(model, EncoderDecoder) else {})
    if isinstance(model, DecoderOnly) and source:
        given["P"] = source - 1
    return Walk(mode, tuple(recorder.operations), given)


def _read_pair(
    model: Transformer, recorder: Recorder, mode: Mode, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]
) -> None:
    """Source and target, as training and search read them."""
    valid = torch.ones_like(src, dtype=torch.bool)
    row = "P+T" if isinstance(model, DecoderOnly) else "T"
    if mode is Mode.training:
        with listening(recorder, Lengths(row, row)):
            model(src, valid, tgt_in)
        return
    if mode is Mode.prefill:
        with listening(recorder, Lengths("P", "P", cached=True)):
            state = model.start(src, valid)
        with listening(recorder, Lengths("T", row, cached=True)):
            model.step(tgt_in, state)
        return
    state = model.start(src, valid)
    if tgt_in.shape[1] > 1:
        _, state = model.step(tgt_in[:, :-1], state)
    with listening(recorder, Lengths("1", row, cached=True)):
        model.step(tgt_in[:, -1:], state)


def _read_text(model: DecoderOnly, recorder: Recorder, mode: Mode, ids: Int[Tensor, "B T"]) -> None:
    """Plain text, as training and generation read it."""
    valid = torch.ones_like(ids, dtype=torch.bool)
    if mode is Mode.training:
        with listening(recorder, Lengths("T", "T")):
            model.logits(model.read(ids))
    elif mode is Mode.prefill:
        with listening(recorder, Lengths("T", "T", cached=True)):
            hidden, _ = model.prefill(ids, valid)
            model.logits(hidden[:, -1])
    else:
        _, state = model.prefill(ids[:, :-1], valid[:, :-1])
        with listening(recorder, Lengths("1", "T", cached=True)):
            model.step(ids[:, -1:], state)


def _ids(model: Transformer, batch: int, length: int) -> Int[Tensor, "B T"]:
    """Any ids; shapes do not depend on them."""
    return torch.zeros(batch, length, dtype=torch.long, device=model.output.device)


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """The model without dropout inside this block."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _check(model: Transformer, batch: int, source: int, target: int) -> None:
    """Refuse sizes that the model cannot be given."""
    for name, size in (("batch", batch), ("target", target)):
        if size < 1:
            raise ValueError(f"{name}={size} is below 1; give at least one")
    if source < 0:
        raise ValueError(f"source={source} is below 0; give the number of source pieces, 0 for plain text")
    if isinstance(model, EncoderDecoder) and source == 0:
        raise ValueError("source=0 is for decoder-only models, which read plain text too; this one has an encoder")
    row = target + max(source - 1, 0) if isinstance(model, DecoderOnly) else target
    for name, length in (("encoder", source), ("decoder", row)):
        stack = getattr(model, name, None)
        if isinstance(stack, Stack) and isinstance(stack.embedding.positions, LearnedPositions):
            check_positions(length, stack.embedding.positions.table.num_embeddings)
