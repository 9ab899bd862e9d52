"""DeepNorm trains stacks of a depth at which plain Post-LN does not."""

import pytest
import torch

from seq2seq.config import ModelConfig, NormPlacement
from seq2seq.models import build_model
from seq2seq.training.loss import smoothed_cross_entropy

PAD, BOS, EOS = 0, 1, 2
VOCABULARY, LONGEST = 11, 6
STEPS, RATE = 160, 2e-3
UNIGRAM = 2.164
"""Loss of who knows only how frequent each piece is, in nats: a fifth are EOS, the rest are eight letters alike."""


def sequences(generator):
    """32 random sequences of 2 to 6 of eight letters, each ended by EOS, and where they are real."""
    lengths = torch.randint(2, LONGEST + 1, (32, 1), generator=generator)
    letters = torch.randint(3, VOCABULARY, (32, LONGEST + 1), generator=generator)
    place = torch.arange(LONGEST + 1)
    return torch.where(place < lengths, letters, torch.where(place == lengths, EOS, PAD)), place <= lengths


def loss_of_copying(placement, depth, seed):
    """Mean loss of the last 20 steps of learning to copy, in nats a piece, with as many layers on each side."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(100 + seed)
    config = ModelConfig(32, 4, 64, depth, depth, dropout=0.0, norm_placement=placement)
    model = build_model(config, VOCABULARY, VOCABULARY)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for _ in range(STEPS):
        src, valid = sequences(generator)
        tgt_in = torch.cat([torch.full((32, 1), BOS), src[:, :-1]], dim=1)
        total, _ = smoothed_cross_entropy(model.logits(model.decode(src, valid, tgt_in)[valid]), src[valid], 0.0)
        loss = total / valid.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_eighteen_layers_a_side_learn_to_copy_with_deepnorm_and_not_with_plain_post_ln(seed):
    """It is the depth that Post-LN does not bear: two layers a side learn with the same rate and steps."""
    assert loss_of_copying(NormPlacement.deepnorm, 18, seed) < 0.5 * UNIGRAM
    assert loss_of_copying(NormPlacement.post, 18, seed) > 0.9 * UNIGRAM
    assert loss_of_copying(NormPlacement.post, 2, seed) < 0.5 * UNIGRAM
