"""Training on a CPU, with gradients by hand, against the same network in plain operations: the same loss curve."""

import pytest
import torch

from seq2seq.config import Activation, ModelConfig, NormPlacement
from seq2seq.corpus.batching import make_batch
from seq2seq.models import build_model
from seq2seq.nn import attention, cpu_attention, cpu_linear, dropout
from seq2seq.text.special import SpecialIds
from seq2seq.training.loss import batch_loss, smoothed_cross_entropy

STEPS, V = 20, 23
OPTIONS = {
    "the paper's": {},
    "Pre-LN": {"norm_placement": NormPlacement.pre},
    "grouped heads, a gate": {"num_kv_heads": 1, "activation": Activation.silu, "gated": True},
}


def batches():
    generator = torch.Generator().manual_seed(2)

    def rows(longest):
        lengths = torch.randint(2, longest + 1, (5,), generator=generator).tolist()
        return [[*torch.randint(4, V, (length,), generator=generator).tolist(), 3] for length in lengths]

    return [make_batch(rows(6), rows(4), SpecialIds(), SpecialIds()) for _ in range(3)]


def curve(changes, by_hand):
    """The loss of each step, per piece."""
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 2, "num_decoder_layers": 2}
    torch.manual_seed(1)
    model = build_model(ModelConfig(**(sizes | {"dropout": 0.0} | changes)), V, V).double().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, data = [], batches()
    for step in range(STEPS):
        batch = data[step % len(data)]
        hidden = model.decode(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid)
        if by_hand:
            loss = batch_loss(model, hidden, batch.tgt_out, batch.tgt_valid, 0.1, chunk=7).loss
        else:
            valid = batch.tgt_valid
            loss = smoothed_cross_entropy(model.logits(hidden[valid]), batch.tgt_out[valid], 0.1)[0]
        loss = loss / batch.num_target_tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plain(monkeypatch):
    """All by torch's operations and their gradients."""
    for module in (attention, dropout):
        monkeypatch.setattr(module, "draws_bytes", lambda x: False)


@pytest.mark.parametrize("name", OPTIONS)
def test_without_dropout_the_loss_curve_is_that_of_plain_operations(monkeypatch, name):
    calls, sums = [], []
    attend, product = cpu_attention.attend, cpu_linear.product
    monkeypatch.setattr(attention, "attend", lambda *inputs: calls.append(1) or attend(*inputs))
    monkeypatch.setattr(cpu_linear, "product", lambda *inputs: sums.append(1) or product(*inputs))
    found = curve(OPTIONS[name], by_hand=True)
    assert len(calls) == STEPS * 6
    num_products = len(sums)
    assert num_products > STEPS * 6
    plain(monkeypatch)
    expected = curve(OPTIONS[name], by_hand=False)
    assert (len(calls), len(sums)) == (STEPS * 6, num_products), "none of the plain run"
    assert found == pytest.approx(expected, rel=1e-8)
    assert found[-1] < 0.8 * found[0], "it learns"


def test_with_dropout_everywhere_the_loss_goes_down_as_in_plain_operations(monkeypatch):
    rates = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
    found = curve(rates, by_hand=True)
    plain(monkeypatch)
    expected = curve(rates, by_hand=False)
    assert found != expected, "other random numbers"
    assert sum(found[-5:]) == pytest.approx(sum(expected[-5:]), rel=0.1)
