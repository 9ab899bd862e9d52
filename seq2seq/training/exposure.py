"""How much worse a model predicts when it is fed with its own predictions: what teacher forcing leaves unseen.

In training a decoder is given the right pieces, in generation its own. Its accuracy is the share of pieces predicted
right: teacher-forced when the right pieces are given, free-running when the best piece of each step is given to the
next one, from BOS on, over exactly the length of the right text. Both are counted at the same places, and a piece is
right only at its own place. So a good translation in other words, or one piece longer, has a low free-running accuracy:
the number says how much of the reference is followed, not how good the text is.

Source:
    Bengio et al. 2015, arXiv:1506.03099, section 1 (the difference between training and inference); Ranzato et al.
    2016, arXiv:1511.06732, which calls it exposure bias.
"""

import torch

from seq2seq.corpus.batching import Batch
from seq2seq.corpus.text_blocks import TextBatch
from seq2seq.models import DecoderOnly, Transformer
from seq2seq.models.transformer import State
from seq2seq.shapes import Bool, Float, Int, Tensor

FREE = 32
"""Pieces of plain text that a language model runs on freely: further on, hardly a piece stands at its own place."""


@torch.no_grad()
def free_running_target(model: Transformer, batch: Batch) -> Int[Tensor, ""]:
    """How many target pieces, EOS among them, are right when each is predicted from the predictions before it."""
    state = model.start(batch.src, batch.src_valid)
    return _free_running(model, state, batch.tgt_in[:, :1], batch.tgt_out, batch.tgt_valid)


@torch.no_grad()
def free_running_text(
    model: DecoderOnly, batch: TextBatch, hidden: Float[Tensor, "B T D"]
) -> tuple[Int[Tensor, ""], Int[Tensor, ""], Int[Tensor, ""]]:
    """How many pieces are right in teacher forcing and in free running, and how many are compared.

    The first half of the first part of each block is given, and the model runs on from there for the rest of that part,
    at most `FREE` pieces. Where the next document begins, its BOS is given: that is never predicted.

    Args:
        model: The model.
        batch: Blocks of text.
        hidden: The output at every place of the batch when the right pieces are given.
    """
    lengths = _first_parts(batch)
    begin = (
        lengths // 2 - (lengths > 1).long()
    )  # the last place of the first half; its prediction is the first free one
    index = begin[:, None] + torch.arange(FREE, device=begin.device)
    inside = index < lengths[:, None]
    index = index.clamp(max=batch.ids.shape[1] - 1)
    right, counted = batch.targets.gather(1, index), batch.counted.gather(1, index) & inside
    rows = torch.arange(len(index), device=index.device)[:, None].expand_as(index)
    forced = model.logits(hidden[rows[counted], index[counted]]).argmax(-1)
    width = int(begin.max()) if len(begin) else 0
    given = torch.arange(width, device=begin.device) < begin[:, None]
    _, state = model.prefill(batch.ids[:, :width], given)
    free = _free_running(model, state, batch.ids.gather(1, begin[:, None]), right, counted)
    return (forced == right[counted]).sum(), free, counted.sum()


def _first_parts(batch: TextBatch) -> Int[Tensor, " B"]:
    """How long the first part of each block is, without padding and without what is not predicted at its end."""
    places = torch.arange(1, batch.ids.shape[1] + 1, device=batch.ids.device)
    counted = batch.counted
    if batch.documents is not None:
        counted = counted & (batch.documents == batch.documents[:, :1])
    return (places * counted).amax(1)


def _free_running(
    model: Transformer,
    state: State,
    first: Int[Tensor, "B 1"],
    right: Int[Tensor, "B T"],
    counted: Bool[Tensor, "B T"],
) -> Int[Tensor, ""]:
    """How many places that count are predicted right, each from the best pieces of the steps before.

    Args:
        model: The model.
        state: Before the first step.
        first: Given in the first step.
        right: The right prediction of each step.
        counted: Which of them count. After another one, the right piece is given.
    """
    correct = counted.new_zeros((), dtype=torch.long)
    ends = (torch.arange(1, right.shape[1] + 1, device=right.device) * counted).amax(1).tolist()  # waits for the device
    tokens = first
    for place in range(max(ends, default=0)):
        going_on = [row for row, end in enumerate(ends) if end > place]
        if len(going_on) < len(ends):
            ends = [ends[row] for row in going_on]
            rows = torch.tensor(going_on, device=right.device)
            state, tokens, right, counted = state.select(rows, rows), tokens[rows], right[rows], counted[rows]
        logits, state = model.step(tokens, state)
        best, here = logits.argmax(-1), counted[:, place]
        correct = correct + ((best == right[:, place]) & here).sum()
        tokens = best.where(here, right[:, place])[:, None]
    return correct
