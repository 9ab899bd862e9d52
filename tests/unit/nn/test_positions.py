"""seq2seq.nn.positions: where pieces stand, both layouts of the sinusoid without a longest length, learned tables."""

import copy
import math

import pytest
import torch

from seq2seq.nn.positions import LearnedPositions, Places, SinusoidalPositions, check_positions, sinusoids

D = 8


def test_every_element_is_the_formula_of_the_paper():
    table = sinusoids(7, D)
    assert table.dtype is torch.float64
    assert table.shape == (7, D)
    for position in range(7):
        for i in range(D // 2):
            angle = position / 10000 ** (2 * i / D)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_a_position_k_steps_later_is_a_rotation_that_does_not_depend_on_where():
    table, k = sinusoids(40, D), 6
    for i in range(D // 2):
        frequency = 10000 ** (-2 * i / D)
        sin, cos = math.sin(k * frequency), math.cos(k * frequency)
        rotated = torch.stack(
            [
                table[:-k, 2 * i] * cos + table[:-k, 2 * i + 1] * sin,
                table[:-k, 2 * i + 1] * cos - table[:-k, 2 * i] * sin,
            ],
            dim=1,
        )
        torch.testing.assert_close(rotated, table[k:, 2 * i : 2 * i + 2], atol=1e-12, rtol=0)


def test_no_two_positions_look_alike_over_thousands():
    table = sinusoids(3000, D)
    distances = torch.cdist(table, table) + torch.eye(3000) * 9
    assert distances.min() > 1e-4


def test_positions_start_where_they_are_told_to():
    positions, x = SinusoidalPositions(D).double(), torch.randn(2, 3, D, dtype=torch.float64)
    torch.testing.assert_close(
        positions(x, Places.span(4, 7)) - x, sinusoids(7, D)[4:].expand(2, 3, D), atol=1e-12, rtol=0
    )


def test_there_is_no_longest_length():
    positions, x = SinusoidalPositions(D).double(), torch.zeros(1, 3, D, dtype=torch.float64)
    torch.testing.assert_close(positions(x, Places.span(4999, 5002))[0], sinusoids(5002, D)[4999:], atol=1e-12, rtol=0)
    long = torch.zeros(1, 5000, D, dtype=torch.float64)
    torch.testing.assert_close(positions(long, Places.span(0, 5000))[0], sinusoids(5000, D), atol=1e-12, rtol=0)


@pytest.mark.parametrize("through", [torch.float32, torch.bfloat16])
def test_a_model_moved_to_float64_gets_sinusoids_in_float64(through):
    positions = SinusoidalPositions(D).to(through).double()
    x = torch.zeros(1, 9, D, dtype=torch.float64)
    assert torch.equal(positions(x, Places.span(0, 9))[0], sinusoids(9, D))


def test_what_a_position_gets_does_not_depend_on_what_was_asked_before():
    fresh, grown = SinusoidalPositions(D).double(), SinusoidalPositions(D).double()
    x = torch.zeros(1, 2, D, dtype=torch.float64)
    grown(x, Places.span(1000, 1002))
    assert torch.equal(fresh(x, Places.span(5, 7)), grown(x, Places.span(5, 7)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_sum_keeps_the_precision_of_its_input(dtype):
    assert SinusoidalPositions(D)(torch.zeros(1, 2, D, dtype=dtype), Places.span(0, 2)).dtype is dtype


def test_it_has_nothing_to_train_and_nothing_to_save():
    positions = SinusoidalPositions(D)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}


def test_a_table_grown_in_inference_mode_serves_training_and_copies():
    positions = SinusoidalPositions(D)
    with torch.inference_mode():
        positions(torch.zeros(1, 1, D), Places.span(999, 1000))
    x = torch.zeros(1, 3, D, requires_grad=True)
    copy.deepcopy(positions)(x, Places.span(500, 503)).sum().backward()
    assert torch.equal(x.grad, torch.ones(1, 3, D))


def test_it_works_after_being_built_without_memory():
    with torch.device("meta"):
        positions = SinusoidalPositions(D)
    positions.to_empty(device="cpu")
    torch.testing.assert_close(
        positions(torch.zeros(1, 3, D), Places.span(0, 3))[0].double(), sinusoids(3, D), atol=1e-6, rtol=0
    )


def test_the_halves_layout_has_all_sines_first():
    expected = [[0.0, 0.0, 1.0, 1.0], [math.sin(1), math.sin(0.01), math.cos(1), math.cos(0.01)]]
    assert sinusoids(2, 4, halves=True).tolist() == [pytest.approx(row, abs=1e-15) for row in expected]
    both = sinusoids(30, D), sinusoids(30, D, halves=True)
    assert torch.equal(both[1], torch.cat([both[0][:, 0::2], both[0][:, 1::2]], dim=1))
    x = torch.zeros(1, 300, D, dtype=torch.float64)
    positions = SinusoidalPositions(D, halves=True)
    assert torch.equal(positions(x, Places.span(0, 300))[0], sinusoids(300, D, halves=True))


@pytest.mark.parametrize(("d_model", "num_positions"), [(6, 40), (8, 300)])
def test_the_halves_layout_is_marians(d_model, num_positions):
    """The recipe of MarianMT in `transformers`: sines of the angles of even columns, then cosines of odd ones."""
    expected = torch.zeros(num_positions, d_model, dtype=torch.float64)
    for position in range(num_positions):
        for column in range(d_model):
            angle = position / 10000 ** (2 * (column // 2) / d_model)
            at = column // 2 + (column % 2) * (d_model // 2)
            expected[position, at] = math.cos(angle) if column % 2 else math.sin(angle)
    torch.testing.assert_close(sinusoids(num_positions, d_model, halves=True), expected, atol=1e-12, rtol=0)


def test_rows_that_stand_at_different_places_each_get_their_own():
    positions, x = SinusoidalPositions(D).double(), torch.zeros(2, 3, D, dtype=torch.float64)
    index = torch.tensor([[4, 5, 6], [0, 0, 1]])
    assert torch.equal(positions(x, Places(index, 7)), sinusoids(7, D)[index])


def test_a_span_is_the_same_in_every_row_and_knows_its_end():
    places = Places.span(3, 6)
    assert places.index.tolist() == [[3, 4, 5]]
    assert places.end == 6


@pytest.mark.parametrize(
    ("valid", "index"),
    [
        ([1, 1, 1, 1, 1], [0, 1, 2, 3, 4]),
        ([1, 1, 1, 0, 0], [0, 1, 2, 2, 2]),
        ([0, 0, 1, 1, 1], [0, 0, 0, 1, 2]),
        ([1, 1, 0, 0, 1], [0, 1, 1, 1, 2]),
        ([0, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
    ],
    ids=["full", "right", "left", "between", "nothing"],
)
def test_positions_are_counted_over_real_pieces_wherever_the_padding_is(valid, index):
    places = Places.of_valid(torch.tensor([valid, [1] * 5], dtype=torch.bool))
    assert places.index.tolist() == [index, [0, 1, 2, 3, 4]]
    assert places.end == 5


@pytest.fixture
def learned():
    torch.manual_seed(1)
    return LearnedPositions(7, D).double()


def test_learned_positions_add_the_rows_of_their_table(learned):
    x = torch.randn(2, 3, D, dtype=torch.float64)
    torch.testing.assert_close(learned(x, Places.span(4, 7)), x + learned.table.weight[4:], atol=0, rtol=0)
    index = torch.tensor([[4, 5, 6], [0, 0, 1]])
    torch.testing.assert_close(learned(x, Places(index, 7)), x + learned.table.weight[index], atol=0, rtol=0)
    assert [tuple(p.shape) for p in learned.parameters()] == [(7, D)]


@pytest.mark.parametrize(("start", "end"), [(0, 8), (7, 8), (20, 23)])
def test_a_position_beyond_the_learned_table_is_refused_with_both_numbers(learned, start, end):
    x = torch.zeros(1, end - start, D, dtype=torch.float64)
    message = rf"a sequence of {end} pieces was asked for, but this model has learned positions for 7; give it shorter"
    with pytest.raises(ValueError, match=message):
        learned(x, Places.span(start, end))


def test_padding_does_not_count_towards_the_learned_tables_size(learned):
    valid = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0, 1, 1, 1]], dtype=torch.bool)
    x = torch.zeros(2, 10, D, dtype=torch.float64)
    added = learned(x, Places.of_valid(valid))
    assert torch.equal(added[0, 3:], learned.table.weight)
    assert torch.equal(added[1, valid[1]], learned.table.weight[:6])
    one_more = torch.cat([valid, torch.ones(2, 1, dtype=torch.bool)], dim=1)
    with pytest.raises(ValueError, match="a sequence of 8 pieces was asked for"):
        learned(torch.zeros(2, 11, D, dtype=torch.float64), Places.of_valid(one_more))
    assert (
        learned(torch.zeros(2, 0, D, dtype=torch.float64), Places(torch.zeros(2, 0, dtype=torch.long), 9)).numel() == 0
    )


def test_a_length_up_to_the_table_is_accepted():
    check_positions(7, 7)
    with pytest.raises(
        ValueError, match=r"train with a larger model\.max_positions or with positions that have no limit"
    ):
        check_positions(8, 7)
