"""The attention over the source that states add up: as one pass over the pieces gives it, whatever rows are chosen."""

import pytest
import torch

from seq2seq.models import Ensemble
from seq2seq.nn.attended import all_but_last

B, S, H = 3, 5, 4
BOS, EOS = 1, 2
SRC = torch.tensor([[5, 9, 4, 17, EOS], [8, 3, EOS, 0, 0], [6, 11, 7, EOS, 0]])
VALID = SRC > 0
EXACT = {"atol": 1e-6, "rtol": 0}  # sums are in float32
PLAN = [
    # rows that go on, their sentences, the place of each row's sentence
    ([0, 0, 1, 1, 2, 2], [0, 1, 2], None),
    ([1, 1, 3, 4, 0], [0, 1, 2], [0, 0, 1, 2, 0]),
    ([4, 1, 3], [0, 2], [0, 0, 1]),
    ([0, 2, 1, 1], [0, 1], [0, 1, 0, 0]),
]


def expected_sums(model, histories, layer, head):
    """For each row (sentence, pieces fed) the sums over its source pieces but EOS."""
    found = []
    for sentence, fed in histories:
        length = int(VALID[sentence].sum())
        src = SRC[sentence : sentence + 1, :length]
        weights = model.cross_weights(src, src > 0, torch.tensor([fed]), layer=layer, head=head)
        found.append(weights[0, :, : length - 1].sum(0).float())
    return found


def counted(sums: torch.Tensor, sentence: int) -> torch.Tensor:
    return sums[: int(VALID[sentence].sum()) - 1]


@pytest.mark.parametrize(("layer", "head"), [(0, None), (1, 2)])
def test_sums_are_those_of_one_pass_over_each_rows_pieces(family_model, layer, head):
    state = family_model.start(SRC, VALID).watch(layer, head)
    histories = [(sentence, [BOS]) for sentence in range(B)]
    sentences = list(range(B))
    for number, (rows, kept, places) in enumerate([*PLAN, ([], [], None)]):
        tokens = torch.tensor([[fed[-1]] for _, fed in histories])
        _, state = family_model.step(tokens, state)
        for row, (sentence, _) in enumerate(histories):
            own = state.attended.sums[row]
            torch.testing.assert_close(
                counted(own, sentence), expected_sums(family_model, histories[row : row + 1], layer, head)[0], **EXACT
            )
            assert (own[int(VALID[sentence].sum()) - 1 :] >= 1).all(), "the end and padding"
        if not rows:
            break
        sentences = [sentences[place] for place in kept]
        histories = [(histories[row][0], [*histories[row][1], 3 + number + at]) for at, row in enumerate(rows)]
        where = places if places is not None else [at // 2 for at in range(6)]
        assert [sentences[place] for place in where] == [sentence for sentence, _ in histories], "a plan that is none"
        state = state.select(torch.tensor(rows), torch.tensor(kept), None if places is None else torch.tensor(places))


def test_watching_changes_no_logit(family_model):
    plain, watched = family_model.start(SRC, VALID), family_model.start(SRC, VALID).watch(1, None)
    assert plain.attended is None
    for piece in (BOS, 7, 12):
        tokens = torch.full((B, 1), piece)
        expected, plain = family_model.step(tokens, plain)
        logits, watched = family_model.step(tokens, watched)
        assert torch.equal(logits, expected)


def test_several_positions_at_once_count_as_one_after_another(family_model):
    tokens = torch.tensor([[BOS, 7, 12], [BOS, 4, 4], [BOS, 18, 3]])
    _, together = family_model.step(tokens, family_model.start(SRC, VALID).watch(0, 1))
    state = family_model.start(SRC, VALID).watch(0, 1)
    for place in range(3):
        _, state = family_model.step(tokens[:, place : place + 1], state)
    torch.testing.assert_close(together.attended.sums, state.attended.sums, **EXACT)


def test_a_cache_that_has_to_grow_under_watch_is_the_same(families, scrambled):
    model = scrambled(families("original"))
    watched, plain = model.start(SRC, VALID).watch(1, None), model.start(SRC, VALID)
    for place in range(40):
        tokens = torch.full((B, 1), 3 + place % 9)
        logits, watched = model.step(tokens, watched)
        expected, plain = model.step(tokens, plain)
        assert torch.equal(logits, expected)
    pieces = [3 + place % 9 for place in range(40)]
    torch.testing.assert_close(
        counted(watched.attended.sums[2], 2), expected_sums(model, [(2, pieces)], 1, None)[0], atol=1e-5, rtol=0
    )


def test_an_ensemble_watches_its_first_member(families, scrambled):
    first, second = scrambled(families("original"), 1), scrambled(families("llama"), 2)
    ensemble = Ensemble([first, second])
    _, state = ensemble.step(torch.full((B, 1), BOS), ensemble.start(SRC, VALID).watch(1, 3))
    _, alone = first.step(torch.full((B, 1), BOS), first.start(SRC, VALID).watch(1, 3))
    assert torch.equal(state.attended.sums, alone.attended.sums)
    assert state.select(torch.tensor([2]), torch.tensor([2])).attended.sums.shape == (1, S)
    assert ensemble.start(SRC, VALID).attended is None


def test_all_but_the_last_real_position_count_on_whichever_side_the_padding_is():
    valid = torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)
    assert all_but_last(valid).int().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
