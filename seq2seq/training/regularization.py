"""Two regularisers on top of dropout: word dropout, and the divergence between two passes (R-Drop)."""

from functools import partial

import torch

from seq2seq.models import Transformer
from seq2seq.shapes import Bool, Float, Int, Tensor
from seq2seq.text.special import SpecialIds
from seq2seq.training.chunks import in_chunks


def word_dropout(
    ids: Int[Tensor, "B T"], replaceable: Bool[Tensor, "B T"], probability: float, unk: int
) -> Int[Tensor, "B T"]:
    """The ids, each replaceable one turned into the unknown piece with the given probability, for itself.

    Args:
        ids: Pieces that the model is given.
        replaceable: Which of them may go.
        probability: 0 draws no random number.
        unk: The unknown piece.

    Source:
        Bowman et al. 2016, arXiv:1511.06349, section 3.1 (on what a decoder is given).
    """
    if probability == 0:
        return ids
    return ids.masked_fill((torch.rand(ids.shape, device=ids.device) < probability) & replaceable, unk)


def check_unknown(option: str, probability: float, special: SpecialIds) -> None:
    """Refuse word dropout with a vocabulary whose unknown piece is another special one, as in GPT-2's.

    Raises:
        ValueError: naming the option.
    """
    if probability > 0 and special.unk in (special.pad, special.bos, special.eos):
        raise ValueError(
            f"optim.{option}={probability} puts the unknown piece in the place of others, which this vocabulary does "
            f"not have (its id, {special.unk}, is that of padding, BOS or EOS); leave the option out"
        )


def divergence(
    model: Transformer,
    one: Float[Tensor, "B T D"],
    other: Float[Tensor, "B T D"],
    counted: Bool[Tensor, "B T"],
    chunk: int | None,
) -> Float[Tensor, ""]:
    """How far the predictions of two passes are apart, in nats, summed over the places that count.

    At each place it is (KL(p || q) + KL(q || p)) / 2. Gradients flow into both passes.

    Args:
        model: Has the projection onto the vocabulary.
        one: The output of one pass.
        other: The output of another one over the same text.
        counted: Which places count.
        chunk: Places whose logits exist at a time, those of both passes together; None for all.

    Source:
        Wu et al. 2021, arXiv:2106.14448, equation 2.
    """
    size = max(1, chunk // 2) if chunk is not None else None
    parts = in_chunks(partial(_divergence, model), size, one[counted], other[counted])
    return torch.stack(parts).sum()


def _divergence(model: Transformer, one: Float[Tensor, "n D"], other: Float[Tensor, "n D"]) -> Float[Tensor, ""]:
    logits = model.logits(torch.cat([one, other]))
    if logits.dtype is not torch.float64:
        logits = logits.float()
    p, q = logits.log_softmax(-1).chunk(2)
    return ((p.exp() - q.exp()) * (p - q)).sum() / 2
