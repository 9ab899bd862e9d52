"""Cases of padding, masks and tied weights that need the network only: B8 and T9."""

import copy

import pytest
import torch

from seq2seq.config import ModelConfig, Tying
from seq2seq.models import build_model
from seq2seq.nn.attention import attention_weights
from seq2seq.nn.masks import padding_mask

B, S, T, D, H, F, V = 3, 5, 4, 8, 2, 12, 11
EMPTY = 1
FULL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], dtype=torch.bool)
WITH_AN_EMPTY_ROW = FULL.clone().index_fill_(0, torch.tensor([EMPTY]), False)
OTHERS = [0, 2]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def tiny(tying=Tying.three_way, vocab=(V, V), **changes):
    sizes = ModelConfig(
        d_model=D, num_heads=H, d_ff=F, num_encoder_layers=2, num_decoder_layers=3, tying=tying, **changes
    )
    torch.manual_seed(1)
    return build_model(sizes, *vocab)


@pytest.fixture
def batch():
    torch.manual_seed(2)
    return torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))


@pytest.mark.parametrize("attention_dropout", [0.0, 0.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_b8_a_row_of_padding_gives_no_nan_forward_or_backward_and_leaves_the_others_alone(
    batch, dtype, attention_dropout
):
    src, tgt_in = batch
    model = tiny(dropout=0.0, attention_dropout=attention_dropout).to(dtype).train()
    torch.manual_seed(3)
    expected = model(src, FULL, tgt_in)
    torch.manual_seed(3)
    logits = model(src, WITH_AN_EMPTY_ROW, tgt_in)
    assert logits.isfinite().all()
    assert torch.equal(logits[OTHERS], expected[OTHERS])
    assert not torch.equal(logits[EMPTY], expected[EMPTY])
    logits.float().square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_b8_a_row_of_padding_in_a_decode_step(batch, dtype):
    src, tgt_in = batch
    model = tiny().to(dtype).eval()
    with torch.inference_mode():
        states = [model.start(src, valid) for valid in (FULL, WITH_AN_EMPTY_ROW)]
        for pieces in (tgt_in[:, :2], tgt_in[:, 2:3], tgt_in[:, 3:]):
            (expected, states[0]), (logits, states[1]) = (model.step(pieces, state) for state in states)
            assert logits.isfinite().all()
            assert torch.equal(logits[OTHERS], expected[OTHERS])


@pytest.mark.parametrize("dtype", DTYPES)
def test_b8_a_row_of_padding_in_the_written_out_attention(batch, dtype):
    query = torch.randn(B, H, T, D // H, dtype=dtype, requires_grad=True)
    key = torch.randn(B, H, S, D // H, dtype=dtype, requires_grad=True)
    weights = attention_weights(query, key, padding_mask(WITH_AN_EMPTY_ROW))
    assert not weights[EMPTY].any()
    assert torch.equal(weights[OTHERS], attention_weights(query, key, padding_mask(FULL))[OTHERS])
    weights.float().square().sum().backward()
    assert query.grad.isfinite().all()
    assert key.grad.isfinite().all()
    assert not query.grad[EMPTY].any()


def test_b8_scores_that_fill_the_range_of_half_precision_stay_finite(batch):
    src, tgt_in = batch
    model = tiny(dropout=0.0).half().eval().requires_grad_(False)
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        layer.self_attention.query_key_value.weight.mul_(30)
    assert model(src, WITH_AN_EMPTY_ROW, tgt_in).isfinite().all()


VOCABULARIES = {Tying.three_way: (V, V), Tying.two_way: (V + 2, V), Tying.none: (V + 2, V)}
NUM_TABLES = {Tying.three_way: 1, Tying.two_way: 2, Tying.none: 3}


@pytest.fixture(params=list(Tying), ids=lambda tying: tying.name)
def tied(request):
    return request.param, tiny(request.param, VOCABULARIES[request.param], dropout=0.0)


def storages(model):
    return {
        model.encoder.embedding.rows.weight.data_ptr(),
        model.decoder.embedding.rows.weight.data_ptr(),
        model.output.data_ptr(),
    }


def assert_tied(model, tying):
    assert len(storages(model)) == NUM_TABLES[tying]
    if tying is not Tying.none:
        assert model.decoder.embedding.rows.weight is model.output
    if tying is Tying.three_way:
        assert model.encoder.embedding.rows.weight is model.output
    names = [name for name, _ in model.named_parameters() if "rows" in name or name == "output"]
    assert len(names) == NUM_TABLES[tying]


def test_t9_a_fresh_model_is_tied_as_asked(tied):
    assert_tied(tied[1], tied[0])


def test_t9_tied_weights_are_counted_once(tied):
    tying, model = tied
    source, target = VOCABULARIES[tying]
    tables = {Tying.three_way: [target], Tying.two_way: [source, target], Tying.none: [source, target, target]}[tying]
    inside = sum(
        p.numel() for part in (model.encoder.layers, model.decoder.layers) for layer in part for p in layer.parameters()
    )
    assert model.num_parameters() == inside + D * sum(tables)
    optimizer = torch.optim.Adam(model.parameters())
    assert sum(p.numel() for group in optimizer.param_groups for p in group["params"]) == model.num_parameters()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_t9_tying_survives_a_change_of_precision(tied, dtype):
    model = tied[1].to(dtype)
    assert model.output.dtype is dtype
    assert_tied(model, tied[0])
    assert_tied(model.to(torch.float32), tied[0])


def test_t9_tying_survives_a_copy_and_the_copy_is_apart(tied):
    twin = copy.deepcopy(tied[1])
    assert_tied(twin, tied[0])
    assert not storages(twin) & storages(tied[1])


def test_t9_tying_survives_a_state_dict_saved_and_loaded(tied, tmp_path):
    tying, model = tied
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = tiny(tying, VOCABULARIES[tying]).requires_grad_(False)
    for parameter in other.parameters():
        parameter.zero_()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert_tied(other, tying)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_t9_tying_survives_an_optimiser_step_that_moves_the_table_once(tied, optimizer, batch):
    (tying, model), (src, tgt_in) = tied, batch
    before = model.output.detach().clone()
    model(src, FULL, tgt_in).square().sum().backward()
    gradient = model.output.grad.clone()
    optimizer(model.parameters(), lr=0.5).step()
    assert_tied(model, tying)
    moved = model.output.detach() - before
    assert moved.any()
    if optimizer is torch.optim.SGD:
        torch.testing.assert_close(moved, -0.5 * gradient)


def test_t9_a_tied_tables_gradient_is_the_sum_over_its_uses(batch):
    src, tgt_in = batch
    tied, untied = tiny(Tying.three_way, dropout=0.0).double(), tiny(Tying.none, dropout=0.0).double()
    state = tied.state_dict()
    untied.load_state_dict(state)
    for model in (tied, untied):
        model(src, FULL, tgt_in).pow(3).sum().backward()
    parts = [untied.encoder.embedding.rows.weight.grad, untied.decoder.embedding.rows.weight.grad, untied.output.grad]
    torch.testing.assert_close(tied.output.grad, sum(parts))
    assert all(part.any() for part in parts)
