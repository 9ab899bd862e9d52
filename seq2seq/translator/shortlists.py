"""The pieces that a batch's translations are chosen from, where a shortlist is wanted."""

from collections.abc import Sequence

import numpy as np
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig
from seq2seq.models import Ensemble, Transformer
from seq2seq.models.narrowed import Narrowed, NarrowedState
from seq2seq.search.progress import Bonus
from seq2seq.search.rules import Rows, Rule
from seq2seq.shapes import Bool, Float, Tensor
from seq2seq.translator.batches import Part
from seq2seq.translator.phrases import phrase_ids


def check_shortlist(bundle: Bundle, decode: DecodeConfig) -> None:
    """Refuse to look for a shortlist in a bundle that has none.

    Raises:
        ValueError: saying how it gets one.
    """
    if decode.shortlist and bundle.shortlist is None:
        raise ValueError(
            "a shortlist is wanted, but the bundle has none; make one with `seq2seq data shortlist BUNDLE --source "
            "TRAIN.src --target TRAIN.tgt`, or choose shortlist=false"
        )


def narrowed(
    model: Transformer | Ensemble, bundle: Bundle, parts: Sequence[Part], *, forbids: bool = False
) -> Narrowed:
    """The model, among the pieces that the bundle's shortlist gives for each part and those that the part demands.

    Args:
        model: What predicts.
        bundle: Has the shortlist and the tokenizers.
        parts: The sentences of the batch.
        forbids: As for `Narrowed`.
    """
    assert bundle.shortlist is not None
    demanded = [[*part.prefix, *phrase_ids(bundle.target_tokenizer, part.phrases)] for part in parts]
    allowed = torch.from_numpy(bundle.shortlist.allowed([part.source for part in parts], demanded))
    return Narrowed(model, allowed, forbids=forbids)


class OwnPieces:
    """No piece that is among the batch's for other sentences' sake.

    Args:
        forbidden: For each sentence of the search, and each of the batch's pieces, whether it must not have that.
    """

    def __init__(self, forbidden: Bool[Tensor, "B n"]) -> None:
        self._forbidden = forbidden

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R n"]) -> None:
        """Forbid the pieces of other sentences."""
        log_probs.masked_fill_(self._forbidden.index_select(0, rows.sentences.to(log_probs.device)), -torch.inf)


def own_pieces(narrow: Narrowed, repeats: int) -> list[Rule]:
    """The rule that keeps a batch's sentences apart, if one is needed; `repeats` sentences of the search each."""
    return [] if narrow.forbidden is None else [OwnPieces(narrow.forbidden.repeat_interleave(repeats, 0))]


def of_model(bonus: Bonus) -> Bonus:
    """A bonus that is asked with the state of a narrowed model, and answers by that of the model itself."""

    def asked(state: object) -> Float[np.ndarray, " R"]:
        assert isinstance(state, NarrowedState)
        return bonus(state.model)

    return asked
