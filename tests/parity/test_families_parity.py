"""Fast = slow for every family, and for every pair of options that may be combined. float64, tolerance 1e-9.

Alone or in a padded batch, at once or step by step, with beams that are re-ranked and leave; what comes later changes
nothing; gradients are those of finite differences.
"""

import itertools
import random

import pytest
import torch

from seq2seq.config import (
    Activation,
    Architecture,
    AttentionBias,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    Tying,
)

V, T = 19, 4
PAD, BOS, EOS = 0, 1, 2
EXACT = {"atol": 1e-9, "rtol": 0}
SRC = torch.tensor([[5, 6, 7, 13, EOS], [8, EOS, PAD, PAD, PAD], [EOS, PAD, PAD, PAD, PAD], [9, 17, 4, EOS, PAD]])
VALID = SRC != PAD
TGT_IN = torch.tensor([[BOS, 4, 15, 6], [BOS, 6, 7, 7], [BOS, 9, 9, 18], [BOS, 3, 12, 5]])


def assert_consistent(model):
    """A batch equals its rows alone, and each step its row of the full pass."""
    full = model(SRC, VALID, TGT_IN)
    for row in range(len(SRC)):
        real = VALID[row : row + 1].sum()
        alone = model(SRC[row : row + 1, :real], VALID[row : row + 1, :real], TGT_IN[row : row + 1])
        torch.testing.assert_close(alone[0], full[row], **EXACT)
    for sizes in ([1] * T, [2, 1, 1], [T]):
        state, end = model.start(SRC, VALID), 0
        for size in sizes:
            logits, state = model.step(TGT_IN[:, end : end + size], state)
            end += size
            torch.testing.assert_close(logits, full[:, end - 1], **EXACT)


OPTIONS = {
    "architecture": [Architecture.encoder_decoder, Architecture.decoder_only],
    "norm": list(NormKind),
    "norm_placement": list(NormPlacement),
    "positions": list(PositionKind),
    "num_kv_heads": [4, 2, 1],
    "d_head": [None, 10],
    "activation": list(Activation),
    "gated": [False, True],
    "qk_norm": [False, True],
    "attention_bias": list(AttentionBias),
    "feed_forward_bias": [True, False],
    "tying": [Tying.two_way, Tying.none],
    "output_bias": [False, True],
    "scale_embedding": [True, False],
    "prefix_lm": [False, True],
}


def combinations():
    """Few combinations of all options, in which every two values that may meet do meet."""
    pick = random.Random(1)
    missing = {
        frozenset([(one, first), (other, second)])
        for one, other in itertools.combinations(OPTIONS, 2)
        for first in OPTIONS[one]
        for second in OPTIONS[other]
        if not ({one, other} == {"architecture", "prefix_lm"} and {first, second} == {OPTIONS["architecture"][0], True})
    }
    chosen = []
    while missing:
        candidates = [{name: pick.choice(values) for name, values in OPTIONS.items()} for _ in range(40)]
        for candidate in candidates:
            candidate["prefix_lm"] &= candidate["architecture"] is Architecture.decoder_only
        new = [{frozenset(pair) for pair in itertools.combinations(candidate.items(), 2)} for candidate in candidates]
        best = max(range(len(candidates)), key=lambda i: len(new[i] & missing))
        if new[best] & missing:
            chosen.append(candidates[best])
            missing -= new[best]
    return chosen


@pytest.mark.parametrize("options", combinations(), ids=lambda _: "")
def test_every_two_options_go_together(options, scrambled):
    depths = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    if options["architecture"] is Architecture.decoder_only:
        depths["num_encoder_layers"] = 0
    assert_consistent(scrambled(ModelConfig(24, 4, 20, dropout=0.0, max_positions=9, **depths, **options)))


def test_a_batch_its_rows_alone_and_steps_of_any_size_agree(family_model):
    assert_consistent(family_model)


WIDEN = ([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], [0, 1, 2, 3])
OVERTAKE = ([1, 0, 1, 5, 4, 3, 6, 8, 8, 11, 9, 9], [0, 1, 2, 3])
LEAVE_MIDDLE = ([2, 1, 0, 8, 6, 8, 9, 9, 11], [0, 2, 3])
NARROW = ([1, 0, 4, 4, 8, 6], [0, 1, 2])
LEAVE_FIRST = ([3, 2, 5, 5], [1, 2])


def test_the_state_follows_re_ranked_beams_and_sentences_that_leave(family_model):
    state, sentences, history = family_model.start(SRC, VALID), torch.arange(4), torch.full((4, 1), BOS)
    generator = torch.Generator().manual_seed(4)
    for rows, kept in (WIDEN, OVERTAKE, OVERTAKE, LEAVE_MIDDLE, NARROW, LEAVE_FIRST, ([1, 0, 2, 3], [0, 1])):
        logits, state = family_model.step(history[:, -1:], state)
        copies = sentences.repeat_interleave(history.shape[0] // len(sentences))
        whole = family_model(SRC[copies], VALID[copies], history)
        torch.testing.assert_close(logits, whole[:, -1], **EXACT)
        sentences, history = sentences[kept], history[rows]
        history = torch.cat([history, torch.randint(3, V, (len(rows), 1), generator=generator)], dim=1)
        state = state.select(torch.tensor(rows), torch.tensor(kept))


def test_two_decodes_of_one_model_do_not_disturb_each_other(family_model):
    whole = family_model(SRC, VALID, TGT_IN)
    first, second = family_model.start(SRC, VALID), family_model.start(SRC.flip(0), VALID.flip(0))
    for t in range(T):
        logits, first = family_model.step(TGT_IN[:, t : t + 1], first)
        _, second = family_model.step(TGT_IN.flip(0)[:, t : t + 1], second)
        torch.testing.assert_close(logits, whole[:, t], **EXACT)


def test_a_later_piece_of_the_target_does_not_move_earlier_logits_by_a_bit(family_model):
    before = family_model(SRC, VALID, TGT_IN)
    for t in range(1, T):
        changed = TGT_IN.clone()
        changed[:, t:] = (changed[:, t:] + 3) % V
        after = family_model(SRC, VALID, changed)
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.equal(after[:, t], before[:, t])


def test_what_stands_at_padded_positions_of_the_source_does_not_matter_by_a_bit(family_model):
    garbage = torch.where(VALID, SRC, 11)
    assert torch.equal(family_model(garbage, VALID, TGT_IN), family_model(SRC, VALID, TGT_IN))


def test_every_piece_of_the_source_but_its_end_matters_to_every_logit(family_model):
    everything = torch.ones_like(VALID)
    before = family_model(SRC, everything, TGT_IN)
    for place in range(SRC.shape[1] - 1):
        changed = SRC.clone()
        changed[:, place] = (changed[:, place] + 3) % V
        assert ((family_model(changed, everything, TGT_IN) - before).abs().amax(dim=-1) > 1e-9).all()


def test_the_gradient_is_that_of_finite_differences_along_random_directions(family_model):
    weights = list(family_model.requires_grad_(True).parameters())
    generator = torch.Generator().manual_seed(6)

    def loss():
        return family_model(SRC, VALID, TGT_IN).sin().sum()

    gradients = torch.autograd.grad(loss(), weights)
    for _ in range(3):
        direction = [torch.randn(w.shape, generator=generator, dtype=w.dtype) for w in weights]
        values = []
        with torch.no_grad():
            for step in (1e-6, -2e-6):  # one step ahead, then one behind
                torch._foreach_add_(weights, direction, alpha=step)
                values.append(loss().item())
            torch._foreach_add_(weights, direction, alpha=1e-6)
        slope = sum((gradient * along).sum() for gradient, along in zip(gradients, direction, strict=True)).item()
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-5, abs=1e-4)
