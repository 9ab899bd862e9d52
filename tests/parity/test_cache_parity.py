"""Decoding step by step with a cache equals one forward pass over the prefix.

A ragged batch, prefills of several pieces, more than two cache blocks, and beams that are re-ranked and leave.
float64, tolerance 1e-10.
"""

import pytest
import torch

from seq2seq.config import ModelConfig
from seq2seq.models import build_model
from seq2seq.nn.cache import BLOCK

B, S, D, H, F, V, W = 3, 5, 8, 2, 12, 11, 3
NUM_ENCODER_LAYERS, NUM_DECODER_LAYERS = 2, 3
TOLERANCE = {"atol": 1e-10, "rtol": 0}
BOS = 1
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], dtype=torch.bool)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    sizes = ModelConfig(
        d_model=D,
        num_heads=H,
        d_ff=F,
        num_encoder_layers=NUM_ENCODER_LAYERS,
        num_decoder_layers=NUM_DECODER_LAYERS,
        dropout=0.1,
    )
    model = build_model(sizes, V, V).double().eval().requires_grad_(False)
    for parameter in model.parameters():  # also biases and norms, which start as 0 and 1
        parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


@pytest.fixture
def src():
    torch.manual_seed(2)
    return torch.randint(4, V, (B, S))


def targets(length, rows=B, seed=3):
    torch.manual_seed(seed)
    tgt_in = torch.randint(3, V, (rows, length))
    tgt_in[:, 0] = BOS
    return tgt_in


def stepped(model, state, tgt_in, sizes):
    """Logits after each chunk of `tgt_in`, and the state at the end."""
    logits, at = [], state.length
    for size in sizes:
        row, state = model.step(tgt_in[:, at : at + size], state)
        logits.append(row)
        at += size
    return torch.stack(logits, dim=1), state


def test_every_step_equals_its_row_of_the_full_pass_over_more_than_two_blocks(model, src):
    tgt_in = targets(2 * BLOCK + 9)
    steps, state = stepped(model, model.start(src, VALID), tgt_in, [1] * tgt_in.shape[1])
    torch.testing.assert_close(steps, model(src, VALID, tgt_in), **TOLERANCE)
    assert state.length == tgt_in.shape[1]


@pytest.mark.parametrize("sizes", [[4, 1, 1], [1, 3, 2], [6], [2 * BLOCK + 5, 1, 7], [BLOCK - 1, 1, 1, BLOCK, 3]])
def test_a_prefill_of_several_pieces_equals_the_full_pass(model, src, sizes):
    tgt_in = targets(sum(sizes))
    steps, _ = stepped(model, model.start(src, VALID), tgt_in, sizes)
    ends = torch.tensor(sizes).cumsum(0) - 1
    torch.testing.assert_close(steps, model(src, VALID, tgt_in)[:, ends], **TOLERANCE)


def test_all_positions_of_a_second_prefill_see_the_history_and_not_the_future(model, src):
    tgt_in = targets(7)
    state = model.start(src, VALID)
    first, state = model.decoder.step(tgt_in[:, :3], state)
    second, _ = model.decoder.step(tgt_in[:, 3:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), model.decode(src, VALID, tgt_in), **TOLERANCE)


def test_a_sentence_decoded_in_a_padded_batch_equals_the_sentence_alone(model, src):
    tgt_in = targets(6)
    steps, _ = stepped(model, model.start(src, VALID), tgt_in, [1] * 6)
    for b in range(B):
        length = int(VALID[b].sum())
        alone = model.start(src[b : b + 1, :length], VALID[b : b + 1, :length])
        one, _ = stepped(model, alone, tgt_in[b : b + 1], [1] * 6)
        torch.testing.assert_close(one[0], steps[b], **TOLERANCE)


def beam_decode(model, src, script, select=True):
    """Follow a script of beam choices; the logits of each step beside those of the full pass over each row's history.

    Args:
        model: The network.
        src: Source ids.
        script: For each step the old row of every new row, and the old index of every sentence that goes on.
        select: Whether the state follows the script.
    """
    state = model.start(src, VALID)
    sentences, history = torch.arange(B), torch.full((B, 1), BOS)
    generator = torch.Generator().manual_seed(4)
    cached, full = [], []
    for rows, kept in [*script, (None, None)]:
        logits, state = model.step(history[:, -1:], state)
        width = history.shape[0] // len(sentences)
        copies = sentences.repeat_interleave(width)
        cached.append(logits)
        full.append(model(src[copies], VALID[copies], history)[:, -1])
        if rows is None:
            break
        rows, kept = torch.tensor(rows), torch.tensor(kept)
        sentences, history = sentences[kept], history[rows]
        history = torch.cat([history, torch.randint(3, V, (len(rows), 1), generator=generator)], dim=1)
        if select:
            state = state.select(rows, kept)
    return torch.cat(cached), torch.cat(full)


WIDEN = ([0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2])
OVERTAKE = ([1, 0, 1, 5, 4, 3, 6, 8, 8], [0, 1, 2])


def test_the_cache_follows_re_ranked_beams_and_sentences_that_leave(model, src):
    leave_middle = ([2, 1, 0, 8, 6, 8], [0, 2])
    narrow = ([1, 0, 4, 4], [0, 1])
    leave_first = ([3, 2], [1])
    script = [WIDEN, OVERTAKE, OVERTAKE, leave_middle, narrow, leave_first, ([1, 1, 0], [0]), ([2, 1, 0], [0])]
    cached, full = beam_decode(model, src, script)
    torch.testing.assert_close(cached, full, **TOLERANCE)


def test_the_cache_follows_random_beams_beyond_two_blocks(model, src):
    generator = torch.Generator().manual_seed(5)
    script = [WIDEN]
    for _ in range(2 * BLOCK + 7):
        beams = torch.randint(0, W, (B, W), generator=generator) + W * torch.arange(B)[:, None]
        script.append((beams.flatten().tolist(), [0, 1, 2]))
    cached, full = beam_decode(model, src, script)
    torch.testing.assert_close(cached, full, **TOLERANCE)


def test_without_the_selection_the_logits_are_wrong(model, src):
    cached, full = beam_decode(model, src, [([0, 1, 2], [0, 1, 2]), ([1, 2, 0], [0, 1, 2])], select=False)
    assert (cached - full).abs().max() > 1e-3


def test_beams_that_share_the_sources_keys_equal_beams_with_copies_of_them(model, src):
    tgt_in = targets(4, rows=B * W)
    shared = model.start(src, VALID).select(torch.arange(B).repeat_interleave(W), torch.arange(B))
    copies = model.start(src.repeat_interleave(W, 0), VALID.repeat_interleave(W, 0))
    shared_steps, shared = stepped(model, shared, tgt_in, [1, 2, 1])
    copied_steps, copies = stepped(model, copies, tgt_in, [1, 2, 1])
    torch.testing.assert_close(shared_steps, copied_steps, **TOLERANCE)
    assert shared.of_source(0).key.shape[0] == B
    assert copies.of_source(0).key.shape[0] == B * W


def test_two_decodes_of_one_model_do_not_disturb_each_other(model, src):
    first_tgt, second_tgt = targets(4, seed=6), targets(4, seed=7)
    first, second, interleaved = model.start(src, VALID), model.start(src.flip(0), VALID), []
    for t in range(4):
        logits, first = model.step(first_tgt[:, t : t + 1], first)
        _, second = model.step(second_tgt[:, t : t + 1], second)
        interleaved.append(logits)
    torch.testing.assert_close(torch.stack(interleaved, dim=1), model(src, VALID, first_tgt), **TOLERANCE)


def test_the_sources_keys_and_values_are_computed_once_a_sentence(model, src):
    calls = []
    handles = [
        layer.cross_attention.key_value.register_forward_hook(lambda *_: calls.append(1))
        for layer in model.decoder.layers
    ]
    stepped(model, model.start(src, VALID), targets(5), [1] * 5)
    for handle in handles:
        handle.remove()
    assert len(calls) == NUM_DECODER_LAYERS


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.25)])
def test_the_parity_holds_within_the_rounding_of_shorter_numbers(src, dtype, tolerance):
    torch.manual_seed(8)
    sizes = ModelConfig(d_model=D, num_heads=H, d_ff=F, num_encoder_layers=2, num_decoder_layers=3)
    model = build_model(sizes, V, V).to(dtype).eval().requires_grad_(False)
    tgt_in = targets(BLOCK + 4)
    steps, state = stepped(model, model.start(src, VALID), tgt_in, [1] * tgt_in.shape[1])
    assert (steps - model(src, VALID, tgt_in)).abs().max() < tolerance
    assert state.history.cache.seen(0, 1).key.dtype is dtype


@pytest.mark.parametrize(("batch", "source", "target"), [(1, 5, 1), (3, 4, BLOCK), (2, 7, BLOCK + 1), (2, 3, 70)])
def test_the_cache_takes_the_memory_of_the_formula_with_target_lengths_in_whole_blocks(model, batch, source, target):
    """2 L B H T K numbers for the target, T rounded up to a multiple of 32, and 2 L B H S K for the source."""
    src, valid = torch.randint(4, V, (batch, source)), torch.ones(batch, source, dtype=torch.bool)
    state = model.start(src, valid)
    width, rounded = D // H, (target + BLOCK - 1) // BLOCK * BLOCK
    cross = 2 * NUM_DECODER_LAYERS * batch * H * source * width
    assert state.num_bytes() == cross * 8
    _, state = stepped(model, state, targets(target, rows=batch), [1] * target)
    own = 2 * NUM_DECODER_LAYERS * batch * H * rounded * width
    assert rounded - target < BLOCK
    assert state.num_bytes() == (own + cross) * 8


def test_beams_share_the_memory_of_what_they_have_in_common(model, src):
    state = model.start(src, VALID)
    source = state.num_bytes()
    state = state.select(torch.arange(B).repeat_interleave(W), torch.arange(B))
    tgt_in = targets(BLOCK, rows=B * W)
    _, state = stepped(model, state, tgt_in, [1] * BLOCK)
    entry = 2 * NUM_DECODER_LAYERS * B * H * (D // H) * 8
    assert state.num_bytes() - source == W * BLOCK * entry, "nothing has been ranked anew, so each has its own past"
    first = torch.arange(B).repeat_interleave(W) * W
    state = state.select(first, torch.arange(B))
    _, state = model.step(tgt_in[:, :1], state)
    assert state.num_bytes() - source == 2 * BLOCK * entry, "all continue one, whose past is there once"
