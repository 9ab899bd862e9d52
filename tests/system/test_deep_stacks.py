"""DeepNorm trains stacks of a depth at which plain Post-LN does not."""

import pytest
import torch

from seq2seq.config import ModelConfig, NormPlacement
from seq2seq.models import build_model
from seq2seq.training.loss import smoothed_cross_entropy

PAD, BOS, EOS = 0, 1, 2
VOCABULARY, LONGEST, DEPTH = 12, 6, 18
STEPS, WARMUP, RATE = 200, 50, 1e-3


def sequences(generator):
    """32 random sequences of 2 to 6 of eight letters, each ended by EOS, and where they are real."""
    lengths = torch.randint(2, LONGEST + 1, (32, 1), generator=generator)
    letters = torch.randint(4, VOCABULARY, (32, LONGEST + 1), generator=generator)
    place = torch.arange(LONGEST + 1)
    return torch.where(place < lengths, letters, torch.where(place == lengths, EOS, PAD)), place <= lengths


def loss_of_copying(placement):
    """Mean loss of the last 20 of 200 steps of learning to copy, in nats a piece, with 18 + 18 layers."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    model = build_model(ModelConfig(32, 2, 64, DEPTH, DEPTH, dropout=0.0, norm_placement=placement), 12, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, step / WARMUP)
        src, valid = sequences(generator)
        tgt_in = torch.cat([torch.full((32, 1), BOS), src[:, :-1]], dim=1)
        total, _ = smoothed_cross_entropy(model.logits(model.decode(src, valid, tgt_in)[valid]), src[valid], 0.0)
        loss = total / valid.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


@pytest.mark.slow
def test_eighteen_layers_a_side_learn_to_copy_with_deepnorm_and_not_with_plain_post_ln():
    """Whoever knows the lengths but does not look at the source has a loss of about 1.7."""
    assert loss_of_copying(NormPlacement.deepnorm) < 0.4
    assert loss_of_copying(NormPlacement.post) > 1.4
