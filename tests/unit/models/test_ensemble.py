import copy
import math
from collections.abc import Callable

import pytest
import torch

from seq2seq.config import Average
from seq2seq.models import Ensemble, Transformer
from seq2seq.models.ensemble import EnsembleState

SRC = torch.tensor([[4, 9, 7, 11, 2], [5, 3, 2, 0, 0]])
TGT = torch.tensor([[1, 8, 6], [1, 13, 4]])
WEIGHTS = [2.0, 1.0, 5.0]
BOTH = list(Average)


@pytest.fixture(scope="module")
def members(families: Callable, scrambled: Callable) -> list[Transformer]:
    """Three models of different architecture, depth and width."""
    return [
        scrambled(families("original", d_model=16, d_ff=28), seed=3),
        scrambled(families("llama"), seed=4),
        scrambled(families("modern", num_decoder_layers=1), seed=5),
    ]


def by_hand(rows: list[torch.Tensor], weights: list[float], average: Average) -> torch.Tensor:
    """Log-probabilities of the mean, from the definitions."""
    shares = [weight / sum(weights) for weight in weights]
    if average is Average.probability:
        return sum(share * own.softmax(-1) for share, own in zip(shares, rows, strict=True)).log()
    mean = sum(share * own.softmax(-1).log() for share, own in zip(shares, rows, strict=True))
    return (mean.exp() / mean.exp().sum(-1, keepdim=True)).log()


@pytest.mark.parametrize("average", BOTH)
def test_the_mean_of_different_models_is_the_one_by_hand(members, average):
    found = Ensemble(members, WEIGHTS, average)(SRC, SRC != 0, TGT)
    expected = by_hand([member(SRC, SRC != 0, TGT) for member in members], WEIGHTS, average)
    torch.testing.assert_close(found.log_softmax(-1), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("average", BOTH)
def test_cached_steps_give_what_one_pass_over_the_target_gives_also_after_rows_were_chosen(members, average):
    ensemble = Ensemble(members, WEIGHTS, average)
    rows, sentences = torch.tensor([1, 0, 0]), torch.tensor([1, 0, 0])
    state = ensemble.start(SRC, SRC != 0)
    _, state = ensemble.step(TGT[:, :1], state)
    state = state.select(rows, sentences)
    target = TGT[rows]
    for place in (1, 2):
        logits, state = ensemble.step(target[:, place : place + 1], state)
    expected = ensemble(SRC[rows], SRC[rows] != 0, target)[:, -1]
    torch.testing.assert_close(logits.log_softmax(-1), expected.log_softmax(-1), rtol=0, atol=1e-10)
    assert isinstance(state, EnsembleState)
    assert state.num_bytes() == sum(member.num_bytes() for member in state.members)


@pytest.mark.parametrize("average", BOTH)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_members_give_exactly_their_own_logits(members, average, count):
    alone = copy.deepcopy(members[0]).float()
    found = Ensemble([alone] * count, average=average)(SRC, SRC != 0, TGT)
    expected = alone(SRC, SRC != 0, TGT)
    if average is Average.probability or count < 3:  # thirds are not exact, and a mean of logits feels it
        assert torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_piece_that_only_one_member_thinks_possible_is_possible_by_the_mean_of_probabilities_alone(members):
    inf = math.inf
    first, second = torch.tensor([[0.0, -inf, -inf]]), torch.tensor([[0.0, 0.0, -inf]])
    found = Ensemble(members[:2]).mean([first, second]).softmax(-1)
    torch.testing.assert_close(found, torch.tensor([[0.75, 0.25, 0.0]]))
    found = Ensemble(members[:2], average=Average.log_probability).mean([first, second]).softmax(-1)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0, 0.0]]))


def test_very_unequal_logits_neither_overflow_nor_vanish(members):
    first, second = torch.tensor([[3000.0, 0.0]]).double(), torch.tensor([[-3000.0, 0.0]]).double()
    found = Ensemble(members[:2], [1.0, 3.0]).mean([first, second]).log_softmax(-1)
    torch.testing.assert_close(found, torch.tensor([[0.25, 0.75]]).double().log())


def test_not_a_number_in_one_member_stays_visible(members):
    for average in BOTH:
        found = Ensemble(members[:2], average=average).mean([torch.tensor([[0.0, 1.0]]), torch.tensor([[math.nan, 1]])])
        assert found.isnan().any()


def test_each_member_computes_in_its_own_precision(members):
    half, double = copy.deepcopy(members[0]).bfloat16(), members[2]
    ensemble = Ensemble([half, double])
    assert [member.output.dtype for member in ensemble.members] == [torch.bfloat16, torch.float64]
    found = ensemble(SRC, SRC != 0, TGT)
    expected = by_hand([half(SRC, SRC != 0, TGT).double(), double(SRC, SRC != 0, TGT)], [1, 1], Average.probability)
    assert found.dtype is torch.float64
    torch.testing.assert_close(found.log_softmax(-1), expected, rtol=0, atol=1e-10)
    assert Ensemble([half, half])(SRC, SRC != 0, TGT).dtype is torch.float32


def test_an_ensemble_is_in_evaluation_mode_and_tells_rows_and_device(members):
    ensemble = Ensemble([copy.deepcopy(members[0]).train(), members[1]])
    assert not any(module.training for module in ensemble.modules())
    assert ensemble.output.shape[0] == 19
    assert ensemble.output.device == torch.device("cpu")


def test_no_member_is_refused():
    with pytest.raises(ValueError, match="an ensemble has 0 members, expected at least one model"):
        Ensemble([])


def test_weights_must_be_positive_numbers_one_for_each(members):
    with pytest.raises(ValueError, match="got 2 weights for 3 models; give one for each, in their order"):
        Ensemble(members, [1.0, 2.0])
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"weights has {wrong}, expected positive numbers; leave out a model"):
            Ensemble(members, [1.0, wrong, 1.0])


def test_models_of_other_vocabularies_are_refused(members, families, scrambled):
    wide = scrambled(families("original", vocab_multiple=4))
    with pytest.raises(
        ValueError, match="model 2 of the ensemble has 20 rows for the source vocabulary, the first one"
    ):
        Ensemble([members[0], wide])
    more = copy.deepcopy(members[2])
    more.output = torch.nn.Parameter(torch.zeros(21, 24))
    with pytest.raises(ValueError, match="model 2 of the ensemble has 21 rows for the target vocabulary"):
        Ensemble([members[0], more])


def test_models_on_different_devices_are_refused(members):
    with pytest.raises(ValueError, match="model 2 of the ensemble is on meta, the first one on cpu; put all on one"):
        Ensemble([members[0], copy.deepcopy(members[0]).to("meta")])
