"""The search of an ensemble against all sequences there are, their members' predictions averaged by hand."""

import itertools
import math

import pytest
import torch

from seq2seq.config import Average, PenaltyForm
from seq2seq.models import Ensemble
from seq2seq.search import LengthPenalty, SearchLimits, beam_search

BOS, EOS = 1, 2
PIECES = [5, 8, 14]
LONGEST = 4
SRC = torch.tensor([[4, 9, 7, 11, 2], [5, 3, 2, 0, 0]])
WEIGHTS = [0.2, 0.5, 0.3]


def all_sequences() -> list[tuple[int, ...]]:
    """Everything of up to `LONGEST` pieces that ends in EOS."""
    return [(*body, EOS) for length in range(LONGEST) for body in itertools.product(PIECES, repeat=length)]


def log_probs_by_hand(members, sentence: int, sequences: list[tuple[int, ...]], average: Average) -> list[float]:
    """One forward pass of each member over all sequences, and a mean at each place."""
    src = SRC[sentence][SRC[sentence] != 0].expand(len(sequences), -1)
    tgt_in = torch.tensor([[BOS, *ids[:-1], *[0] * (LONGEST - len(ids))] for ids in sequences])
    rows = [member(src, src != 0, tgt_in).softmax(-1) for member in members]
    if average is Average.probability:
        mean = sum(weight * own for weight, own in zip(WEIGHTS, rows, strict=True))
    else:
        product = math.prod(own**weight for weight, own in zip(WEIGHTS, rows, strict=True))
        mean = product / product.sum(-1, keepdim=True)
    return [
        sum(math.log(own[place, id_]) for place, id_ in enumerate(ids))
        for own, ids in zip(mean, sequences, strict=True)
    ]


@pytest.mark.parametrize("average", list(Average))
def test_a_wide_beam_finds_the_best_sequences_of_the_mean_of_different_models(families, scrambled, average):
    configs = (families("original", d_model=16, d_ff=28), families("llama"), families("modern"))
    members = [scrambled(config, seed) for seed, config in enumerate(configs, start=3)]
    penalty = LengthPenalty(PenaltyForm.gnmt, 0.7)
    ensemble = Ensemble(members, WEIGHTS, average)
    limits = SearchLimits(
        bos=BOS,
        eos=EOS,
        suppressed=tuple(sorted(set(range(19)) - {EOS, *PIECES})),
        min_lengths=[1, 1],
        max_lengths=[LONGEST, LONGEST],
    )
    found = beam_search(
        ensemble.step,
        ensemble.start(SRC, SRC != 0),
        limits,
        beam_size=len(PIECES) ** (LONGEST - 1),
        n_best=6,
        penalty=penalty,
        device="cpu",
    )
    for sentence, hypotheses in enumerate(found):
        every = all_sequences()
        log_probs = log_probs_by_hand(members, sentence, every, average)
        scores = [log_prob / penalty(len(ids)) for log_prob, ids in zip(log_probs, every, strict=True)]
        best = sorted(zip(scores, every, strict=True), reverse=True)[:6]
        assert [one.ids for one in hypotheses] == [ids for _, ids in best]
        assert [one.score for one in hypotheses] == pytest.approx([score for score, _ in best], abs=1e-9)
