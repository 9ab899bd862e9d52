"""A model that decodes by compiled code."""

import numpy as np
import torch
from torch.nn.functional import embedding

from seq2seq.models.ahead import SourceInputs, StepInputs, told_by_positions
from seq2seq.models.decoder_only import DecoderOnly, without_last
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.native_function import NativeFunction
from seq2seq.nn.pool import Pool, PooledState
from seq2seq.shapes import Bool, Float, Int, Tensor


class CompiledSteps:
    """What a model does in decoding but for the projection onto the vocabulary.

    Args:
        model: On a CPU, in float32, with the weights that were compiled.
        step: `seq2seq.models.ahead.TargetStep`.
        reader: `SourceReader`; None for a decoder-only model, whose modules read the source.
    """

    def __init__(
        self, model: EncoderDecoder | DecoderOnly, step: NativeFunction, reader: NativeFunction | None
    ) -> None:
        self._model, self._step, self._reader = model, step, reader
        self._decoder = model.decoder
        layers = list(model.decoder.blocks())
        heads = layers[0].self_attention.heads
        self._kept = (len(layers), 2, 0, heads.num_kv_heads, heads.d_head)
        self._told: list[Tensor] = []

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> PooledState:
        """The state that decoding begins with: the source read."""
        model = self._model
        if isinstance(model, DecoderOnly):
            return _after_source(model, src, src_valid)
        assert self._reader is not None
        (source,) = self._reader(*packed_source(model, src, src_valid))
        return PooledState(
            pool=Pool(source.new_empty(self._kept)),
            entries=np.empty((len(src), 0), dtype=np.int64),
            seen=None,
            length=0,
            next_place=None,
            sentence_at=np.arange(len(src)),
            source=source,
            source_valid=src_valid,
        )

    def step(self, tokens: Int[Tensor, "R 1"], state: PooledState) -> tuple[Float[Tensor, "R D"], PooledState]:
        """The output at the given pieces, and the state after them. The given state must not be used again."""
        assert tokens.shape[1] == 1, "compiled code takes one position at a time"
        state = state.with_room()
        if state.next_place is None:
            positions = self._told_at(state.length)
        else:  # with padding, the length is no position
            told = told_by_positions(self._decoder, int(state.next_place.max()) + 1)
            positions = embedding(torch.from_numpy(state.next_place[:, 0]), told)
        hidden, added = self._step(
            *StepInputs(
                tokens=tokens[:, 0],
                positions=positions,
                pool=state.pool.buffer,
                entries=torch.from_numpy(state.entries),
                seen=_NOTHING if state.seen is None else torch.from_numpy(state.seen),
                sentence_at=torch.from_numpy(state.sentence_at) if state.next_place is None else _NO_SENTENCES,
                source=state.source,
                source_valid=state.source_valid,
            )
        )
        return hidden, state.after(added)

    def _told_at(self, place: int) -> Float[Tensor, "1 P"]:
        """What rows that stand at the same position are told about it."""
        if place >= len(self._told):
            told = told_by_positions(self._decoder, place + 1)
            self._told = [told[at : at + 1] for at in range(len(told))]
        return self._told[place]


def packed_source(model: EncoderDecoder, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> SourceInputs:
    """What the model's encoder is given: sources without their padding, wherever that is."""
    valid = src_valid.numpy()
    place_of = np.flatnonzero(valid)
    ends = valid.cumsum(axis=1)
    positions = torch.from_numpy((ends - 1)[valid])
    firsts = np.cumsum(ends[:, -1:], axis=0) - ends[:, -1:]  # pieces of the rows before
    piece_at = np.minimum(firsts + np.maximum(ends - 1, 0), max(len(place_of) - 1, 0))  # a row may be all padding
    return SourceInputs(
        pieces=src.flatten()[torch.from_numpy(place_of)],
        positions=embedding(positions, told_by_positions(model.encoder, src.shape[1])),
        place_of=torch.from_numpy(place_of),
        piece_at=torch.from_numpy(piece_at),
        valid=src_valid,
    )


_NOTHING = torch.empty(0, dtype=torch.bool)
_NO_SENTENCES = torch.empty(0, dtype=torch.long)


def _after_source(model: DecoderOnly, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> PooledState:
    """The state of a decoder-only model whose modules have read the source without its EOS."""
    plain = model.prefill(src[:, :-1], without_last(src_valid))[1]
    buffer, (num_rows, length) = plain.history.cache.buffer, (len(src), plain.length)
    heads = next(model.decoder.blocks()).self_attention.heads
    pool = model.output.new_empty(len(model.decoder.layers), 2, 0, heads.num_kv_heads, heads.d_head)
    if buffer is not None:
        pool = buffer[:, :, :, :length].flatten(2, 3)
    return PooledState(
        pool=Pool(pool, num_rows * length),
        entries=np.arange(num_rows * length).reshape(num_rows, length),
        seen=plain.source_mask[:, 0, 0].numpy(),
        length=length,
        next_place=None if plain.next_place is None else plain.next_place.numpy(),
        sentence_at=np.arange(num_rows),
        source=pool.new_empty(0),
        source_valid=_NOTHING,
    )
