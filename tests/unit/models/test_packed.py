"""seq2seq.models.packed: matrices in panels; and products.cpp, built for registers of several widths."""

import time
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seq2seq.models import products_build
from seq2seq.models.packed import PackedLinear, PackedProjection, Products, in_panels, operator


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def test_a_panel_has_one_column_of_its_rows_after_another_and_zeros_behind_the_last():
    weight, bias = torch.arange(15.0).view(5, 3) + 1, torch.arange(5.0) + 1
    panels, added = in_panels(weight, bias, 4)
    assert panels.shape == (2, 3, 4)
    assert panels[0].tolist() == [[1, 4, 7, 10], [2, 5, 8, 11], [3, 6, 9, 12]]
    assert panels[1].tolist() == [[13, 0, 0, 0], [14, 0, 0, 0], [15, 0, 0, 0]]
    assert added.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    assert in_panels(weight, None, 4)[1].tolist() == [0] * 8


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 9), depth=st.integers(1, 9), width=st.integers(1, 20), panel=st.integers(1, 9))
def test_the_operator_is_a_product_with_the_matrix_and_its_bias(rows, depth, width, panel):
    x, weight, bias = (drawn(*shape).double() for shape in ((rows, depth), (width, depth), (width,)))
    found = operator()(x, *in_panels(weight, bias, panel), width)
    torch.testing.assert_close(found, x @ weight.t() + bias, rtol=0, atol=1e-12)
    assert found.is_contiguous()


@pytest.mark.parametrize("shape", [(3,), (2, 1), (1, 5, 2)])
def test_a_packed_layer_is_the_layer(shape):
    layer = nn.Linear(6, 10).double()
    x = drawn(*shape, 6).double()
    torch.testing.assert_close(PackedLinear(layer, 4)(x), layer(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_holds_no_gradients(bias):
    layer = PackedLinear(nn.Linear(6, 10, bias=bias), 4)
    assert not any(parameter.requires_grad for parameter in layer.parameters())


@pytest.fixture(scope="module")
def products(native_library):
    return Products(native_library)


def test_a_panel_is_two_registers_wide(products, lanes):
    assert products.panel == 2 * lanes


SHAPES = [(1, 1), (3, 7), (16, 31), (33, 64), (600, 65), (257, 200)]


@pytest.mark.parametrize(("depth", "width"), SHAPES)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 6, 7, 12, 13, 300])
def test_products_are_those_of_the_operator(products, rows, depth, width):
    x, weight, bias = drawn(rows, depth), drawn(width, depth), drawn(width)
    panels, added = in_panels(weight, bias, products.panel)
    found = products(x, panels, added, width)
    exact = x.double() @ weight.double().t() + bias.double()
    # float32 sums of so many terms are this close to the true ones
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2e-6 * depth**0.5 * 4)
    torch.testing.assert_close(found, operator()(x, panels, added, width), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("depth", "width"), SHAPES)
def test_a_row_is_multiplied_alike_whatever_is_beside_it_and_on_however_many_threads(products, depth, width):
    x, weight, bias = drawn(260, depth), drawn(width, depth), drawn(width)
    panels, added = in_panels(weight, bias, products.panel)
    together = products(x, panels, added, width)
    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            assert torch.equal(products(x, panels, added, width), together)
            for first, count in ((0, 1), (7, 2), (9, 5), (100, 13), (3, 250)):
                some = products(x[first : first + count], panels, added, width)
                assert torch.equal(some, together[first : first + count])
    finally:
        torch.set_num_threads(threads)


def test_what_is_not_a_number_stays_in_its_row(products):
    x, (panels, bias) = drawn(9, 20), in_panels(drawn(40, 20), None, products.panel)
    x[4, 3], x[6, 2] = torch.nan, torch.inf
    found = products(x, panels, bias, 40)
    assert found[4].isnan().all()
    assert not found[6].isfinite().any()
    assert found[[0, 1, 2, 3, 5, 7, 8]].isfinite().all()


def test_rows_that_do_not_lie_side_by_side_are_multiplied_too(products):
    x, (panels, bias) = drawn(20, 9).t(), in_panels(drawn(40, 20), None, products.panel)
    torch.testing.assert_close(products(x, panels, bias, 40), products(x.contiguous(), panels, bias, 40))


@pytest.mark.parametrize("bias", [False, True])
def test_the_projection_gives_logits_and_those_of_some_pieces(products, bias):
    weight, added = drawn(70, 12), drawn(70) if bias else None
    projection, hidden = PackedProjection(products, weight, added), drawn(2, 3, 12)
    logits = nn.functional.linear(hidden, weight, added)
    torch.testing.assert_close(projection(hidden), logits)
    pieces = torch.tensor([3, 69, 0, 41])
    torch.testing.assert_close(projection.only(pieces)(hidden[0]), logits[0][:, pieces])
    assert torch.equal(projection.only(pieces)(hidden[0]), projection(hidden)[0][:, pieces])


@pytest.mark.parametrize(
    ("ratios", "faster"),
    [([0.5] * 4, True), ([2.0] * 4, False), ([0.2, 0.5, 2.0, 2.0], True), ([0.8, 0.8, 1.5, 1.5], False)],
)
def test_what_is_faster_on_the_whole_is_chosen(monkeypatch, ratios, faster):
    left = iter(ratios)
    monkeypatch.setattr(products_build, "_ratio", lambda one, other: next(left))
    assert products_build.faster_than_torch(Mock(spec=Products, panel=4), 8, 8) is faster
    assert list(left) == []


def test_the_slower_of_two_functions_is_found():
    def slow():
        time.sleep(0.004)

    def fast():
        time.sleep(0.0005)

    assert products_build._ratio(slow, fast) > 1.5
    assert products_build._ratio(fast, slow) < 1 / 1.5


def test_both_products_are_what_is_timed(monkeypatch):
    found = []
    monkeypatch.setattr(products_build, "_ratio", lambda own, others: found.append((own(), others())) or 1.0)
    products = Mock(
        spec=Products, side_effect=lambda x, panels, bias, width: operator()(x, panels, bias, width), panel=4
    )
    products_build.faster_than_torch(products, 8, 6)
    assert [len(own) for own, _ in found] == [1, 5, 64, 320]
    for own, others in found:
        torch.testing.assert_close(own, others)


@pytest.mark.parametrize("other", [{"dtype": torch.float64}, {"dtype": torch.bfloat16}, {"device": "meta"}])
def test_what_native_code_would_take_for_something_else_is_refused(products, other):
    panels, bias = in_panels(drawn(40, 20), None, products.panel)
    with pytest.raises(ValueError, match=r"native code computes in torch\.float32 on cpu, got torch\..* on .*; leave"):
        products(drawn(3, 20).to(**other), panels, bias, 40)


def test_a_projection_whose_weights_have_changed_since_gives_what_they_are_now(products):
    weight, hidden = nn.Parameter(drawn(70, 12), requires_grad=False), drawn(3, 12)
    projection = PackedProjection(products, weight, None)
    weight.mul_(2)
    torch.testing.assert_close(projection(hidden), nn.functional.linear(hidden, weight))
    weight.data = weight.data.double()
    torch.testing.assert_close(projection(hidden.double()), nn.functional.linear(hidden.double(), weight))
