import copy
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import linear

from seq2seq.config import Compute
from seq2seq.models import quantized
from seq2seq.models.decoding import TurnedLinear, prepare_for_decoding
from seq2seq.models.estimated import EstimatedProjection
from seq2seq.models.narrowed import Narrowed
from seq2seq.models.quantized import BFloat16Linear, Int8Linear, check_machine, compute_in, multiplies_alone

N, K = 12, 24


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(N, K, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def bias() -> torch.Tensor:
    return torch.arange(N, dtype=torch.float32)


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2)) * torch.rand(*shape[:-1], 1) * 10


def test_products_are_exactly_those_of_rounded_numbers(weight, bias):
    x = inputs(3, K)
    most = 127 if torch.cpu._is_vnni_supported() else 63  # without VNNI sums of two products must fit into 16 bits
    scale, of_weight = x.abs().amax(1, keepdim=True) / 127, weight.abs().amax(1) / most
    integers, whole = (x / scale + 0.5).floor().double(), (weight / of_weight[:, None]).round().double()
    expected = (scale * of_weight * (integers @ whole.t())).float()
    torch.testing.assert_close(Int8Linear(weight, None)(x), expected)
    torch.testing.assert_close(Int8Linear(weight, bias)(x), expected + bias)


@pytest.mark.parametrize("shape", [(K,), (1, K), (2, 5, K), (0, K), (400, K)])
@pytest.mark.parametrize("layer", [Int8Linear, BFloat16Linear])
def test_outputs_are_close_to_those_of_float32_whatever_the_shape(layer, shape, weight, bias):
    x = inputs(*shape)
    found, expected = layer(weight, bias)(x), linear(x, weight, bias)
    assert found.dtype is torch.float32
    assert found.shape == expected.shape
    assert (found - expected).norm() <= 0.02 * expected.norm()


def test_a_row_does_not_depend_on_the_rows_around_it(weight, bias):
    x = inputs(5, K)
    x[3] *= 1000
    layer = Int8Linear(weight, bias)
    torch.testing.assert_close(torch.cat([layer(row[None]) for row in x]), layer(x), rtol=0, atol=0)


def test_rows_of_zeros_and_columns_of_zeros_give_the_bias_and_nan_stays_nan(weight, bias):
    weight[4] = 0
    x = inputs(3, K)
    x[1], x[2, 5] = 0, torch.nan
    out = Int8Linear(weight, bias)(x)
    assert torch.equal(out[1], bias)
    assert out[0, 4] == bias[4]
    assert out[2].isnan().all()


def test_without_vnni_weights_have_seven_bits_so_that_sums_of_two_fit(weight, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    layer = Int8Linear(weight, None)
    assert layer._integers().abs().max() == 63
    x = inputs(4, K)
    expected = linear(x, weight)
    assert (layer(x) - expected).norm() <= 0.03 * expected.norm()


@pytest.mark.parametrize("layer", [Int8Linear, BFloat16Linear])
def test_some_rows_alone_give_the_same(layer, weight, bias):
    x, pieces = inputs(3, K), torch.tensor([1, 5, 11])
    for own in (bias, None):
        whole = layer(weight, own)
        torch.testing.assert_close(whole.only(pieces)(x), whole(x)[:, pieces], rtol=1e-5, atol=1e-4)


def test_a_copy_gives_the_same_and_nothing_is_saved(weight, bias):
    layer, x = Int8Linear(weight, bias), inputs(3, K)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert layer.num_bytes() == N * K + 4 * N + 4 * N
    for one in (layer, BFloat16Linear(weight, bias)):
        with pytest.raises(ValueError, match="loaded with compute=int8 or bfloat16 cannot be saved"):
            one.state_dict()


def test_the_setting_for_products_is_put_back(weight):
    before = torch.backends.mkldnn.matmul.fp32_precision
    BFloat16Linear(weight, None)(inputs(2, K))
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    with pytest.raises(RuntimeError):
        BFloat16Linear(weight, None)(inputs(2, K + 1))
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@pytest.fixture(params=["marian", "modern", "prefix_lm", "llama"])
def model(request, families, scrambled):
    return scrambled(families(request.param)).float()


@pytest.mark.parametrize(
    "compute",
    [
        Compute.int8,
        pytest.param(
            Compute.bfloat16,
            marks=pytest.mark.skipif(not quantized._has_bfloat16(), reason="this CPU has no bfloat16 instructions"),
        ),
    ],
)
def test_logits_are_close_and_every_layer_is_replaced(model, compute):
    src = torch.tensor([[4, 5, 6, 7, 2], [8, 9, 2, 0, 0]])
    valid, tgt = src != 0, torch.tensor([[1, 4, 5], [1, 6, 7]])
    expected = model(src, valid, tgt)
    parameters = model.num_parameters()
    compute_in(model, compute)
    found = model(src, valid, tgt)
    assert 0 < (found - expected).norm() <= 0.15 * expected.norm()
    assert isinstance(model.projection, Int8Linear if compute is Compute.int8 else BFloat16Linear)
    assert not any(type(module) is torch.nn.Linear for module in model.modules())
    assert (model.num_parameters() < parameters) == (compute is Compute.int8)
    hidden, _ = model.step_hidden(tgt[:, :1], model.start(src, valid))
    logits, _ = model.step(tgt[:, :1], model.start(src, valid))
    torch.testing.assert_close(model.projected_onto(torch.tensor([3, 8]))(hidden), logits[:, [3, 8]])
    narrow = Narrowed(model, torch.ones(2, logits.shape[1], dtype=torch.bool))
    torch.testing.assert_close(narrow.step(tgt[:, :1], narrow.start(src, valid))[0], logits)


def test_a_model_that_keeps_its_matrices_in_two_forms_is_rounded_as_any_other(model):
    twin = copy.deepcopy(model)
    prepare_for_decoding(twin)
    twin.estimated = EstimatedProjection(twin.output, None)  # of the weights as they were
    for one in (model, twin):
        compute_in(one, Compute.int8)
    assert not any(isinstance(module, TurnedLinear) for module in twin.modules())
    assert twin.estimated is None
    src, tgt = torch.tensor([[4, 5, 6, 7, 2]]), torch.tensor([[1, 4, 5]])
    torch.testing.assert_close(twin(src, src > 0, tgt), model(src, src > 0, tgt), rtol=0, atol=0)
    # a decode step has a function of its own, which must not go on with the layers before
    first = torch.tensor([[1]])
    found, expected = (one.step(first, one.start(src, src > 0))[0] for one in (twin, model))
    torch.testing.assert_close(found, expected)


def test_float32_changes_nothing(model):
    before = copy.deepcopy(model.state_dict())
    compute_in(model, Compute.float32)
    assert model.projection is None
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_models_of_other_precisions_are_refused(model):
    with pytest.raises(ValueError, match=r"compute=int8 is for models in float32 on a CPU, got torch\.float64 on cpu"):
        compute_in(model.double(), Compute.int8)


def test_machines_that_cannot_do_it_are_told_apart(weight, monkeypatch):
    check_machine(Compute.float32)

    def missing(*arguments: object) -> bool:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(quantized.Int8Linear, "forward", missing)
    with pytest.raises(ValueError, match="compute=int8 needs a torch with oneDNN for this CPU"):
        check_machine(Compute.int8)
    monkeypatch.setattr(quantized.Int8Linear, "forward", lambda self, x: linear(x, weight[:2, :4]))
    with pytest.raises(ValueError, match="does not multiply 8-bit integers here; choose compute=float32"):
        check_machine(Compute.int8)
    monkeypatch.setattr(quantized, "_has_bfloat16", lambda: False)
    with pytest.raises(ValueError, match="compute=bfloat16 needs a CPU with bfloat16 instructions"):
        check_machine(Compute.bfloat16)


@pytest.mark.skipif(not quantized._has_bfloat16(), reason="this CPU has no bfloat16 instructions")
def test_products_in_several_threads_leave_the_setting_as_it_was(weight):
    before = torch.backends.mkldnn.matmul.fp32_precision
    layer, x = BFloat16Linear(weight, None), inputs(64, K)
    expected = layer(x)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: layer(x), range(400)))
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    assert all(torch.equal(one, expected) for one in found)


@pytest.mark.parametrize(("layer", "alone"), [(BFloat16Linear, True), (Int8Linear, False)])
def test_it_is_told_which_models_must_multiply_alone(weight, layer, alone):
    assert multiplies_alone(torch.nn.Sequential(torch.nn.Linear(2, 2), layer(weight, None))) is alone


def test_a_torch_without_the_setting_is_told(monkeypatch):
    monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace())
    with pytest.raises(ValueError, match=r"compute=bfloat16 needs torch 2\.9 or later"):
        check_machine(Compute.bfloat16)
