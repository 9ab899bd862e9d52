"""The traps of the model: each is impossible, refused with a clear error, or held by a test of this file.

The numbers are those of the reference list of 16 traps. Not here: 13 (teacher forcing and free running compared), which
belongs to validation, and the warning of 11 (Post-LN without warm-up), which is training's. Most tests run for an
encoder-decoder and a decoder-only model of the original's kind, and for both with all that came later (Pre-LN, RMSNorm,
rotary positions, grouped heads, gates).
"""

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq.config import ModelConfig, NormPlacement, Tying
from seq2seq.models import DecoderOnly, build_model
from seq2seq.models.stack import Stack
from seq2seq.nn.attention import Heads, SelfAttention, attention_weights, split_heads
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.nn.norm import RMSNorm
from seq2seq.nn.positions import Places, SinusoidalPositions
from seq2seq.nn.rotary import RotaryPositions, Rotation
from seq2seq.training.loss import smoothed_cross_entropy
from seq2seq.training.schedule import noam_lr

B, S, T, D, H, G, K, V = 2, 5, 4, 24, 4, 2, 6, 19
PAD, BOS, EOS = 0, 1, 2
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
BOTH = ["original", "gpt2"]
FOUR = [*BOTH, "modern", "llama"]
EVERY_POSITION = ["original", "marian", "multi_query", "modern", "gpt2", "llama", "prefix_lm"]


@pytest.fixture(params=FOUR)
def config(request, families):
    return families(request.param)


@pytest.fixture
def model(config, scrambled):
    return scrambled(config)


@pytest.fixture
def src():
    torch.manual_seed(2)
    return torch.randint(4, V, (B, S))


@pytest.fixture
def tgt_in():
    torch.manual_seed(3)
    tgt_in = torch.randint(4, V, (B, T))
    tgt_in[:, 0] = BOS
    return tgt_in


def test_trap1_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="d_model=10 is not divisible by num_heads=4; choose d_model as a multiple"):
        ModelConfig(d_model=10, num_heads=4, d_ff=12, num_encoder_layers=1, num_decoder_layers=1)
    with pytest.raises(ValueError, match="d_model=10 is not divisible by num_heads=4"):
        Heads.plain(10, 4)


@pytest.mark.parametrize("name", BOTH)
def test_trap1_query_heads_that_key_heads_do_not_divide_are_refused(families, name):
    with pytest.raises(ValueError, match="num_heads=4 is not divisible by num_kv_heads=3; choose num_heads as a mult"):
        families(name, num_kv_heads=3)
    with pytest.raises(ValueError, match="num_heads=4 is not divisible by num_kv_heads=3"):
        Heads(D, 4, 3, K)


@pytest.mark.parametrize("name", BOTH)
def test_trap1_the_output_projection_takes_the_heads_width_whatever_it_is(families, name, scrambled, src, tgt_in):
    model = scrambled(families(name, d_head=K + 4))
    assert model.decoder.layers[0].self_attention.output.weight.shape == (D, H * (K + 4))
    assert model(src, VALID, tgt_in).shape == (B, T, V)
    with pytest.raises(RuntimeError, match=r"torch.Size\(\[24, 24\]\).*torch.Size\(\[24, 40\]\)"):
        model.load_state_dict(scrambled(families(name)).state_dict())


def test_trap2_true_means_may_attend(model, src, tgt_in):
    maps = model.attention_maps(src, VALID, tgt_in)
    for weights in (*maps.encoder, *maps.cross):
        seen = (weights > 0).any(dim=2).all(dim=1)
        assert torch.equal(seen, VALID)
    if isinstance(model, DecoderOnly):  # what each sees of the source without its EOS: the row's real pieces
        for weights in maps.decoder:
            assert torch.equal((weights[..., : S - 1] > 0).any(dim=2).all(dim=1), VALID[:, 1:])


def test_trap3_the_mask_stands_before_the_softmax_so_rows_sum_to_one(model, src, tgt_in):
    query, key = torch.randn(B, H, T, K, dtype=torch.float64), torch.randn(B, G, S, K, dtype=torch.float64)
    weights = attention_weights(query, key, padding_mask(VALID))
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64), atol=1e-12, rtol=0)
    maps = model.attention_maps(src, VALID, tgt_in)
    for weights in (*maps.encoder, *maps.decoder, *maps.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-12, rtol=0)


def test_trap3_a_row_with_every_key_masked_gives_no_nan(model, src, tgt_in):
    valid = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    assert model(src, valid, tgt_in).isfinite().all()
    maps = model.attention_maps(src, valid, tgt_in)
    assert all(not weights[1].any() for weights in (*maps.encoder, *maps.cross))
    if isinstance(model, DecoderOnly):
        assert all(not weights[1, :, : S - 1].any() for weights in maps.decoder)


def test_trap4_the_softmax_runs_over_the_keys_and_not_over_the_queries(model, src, tgt_in):
    maps = model.attention_maps(src, torch.ones_like(VALID), tgt_in)
    for weights in (*maps.encoder, *maps.decoder, *maps.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-12, rtol=0)
        assert (weights.sum(-2) - 1).abs().max() > 1e-3


@pytest.mark.parametrize("num_kv_heads", [H, G, 1])
def test_trap4_heads_are_concatenated_and_not_added_up(num_kv_heads):
    layer = SelfAttention(Heads(D, H, num_kv_heads, K)).double().requires_grad_(False)
    x = torch.randn(B, T, D, dtype=torch.float64)
    layer.output.weight.copy_(torch.eye(D))
    layer.output.bias.zero_()
    value = split_heads(layer.query_key_value(x)[..., -num_kv_heads * K :], num_kv_heads)
    for head in range(H):
        context = layer.weights(x, None)[:, head] @ value[:, head // (H // num_kv_heads)]
        torch.testing.assert_close(layer(x)[..., head * K : (head + 1) * K], context, atol=1e-12, rtol=0)


def counted(monkeypatch, cls, record):
    """Calls of a class' forward pass, recorded."""
    original = cls.forward

    def forward(self, first, second):
        record(first, second)
        return original(self, first, second)

    monkeypatch.setattr(cls, "forward", forward)


def test_trap5_sinusoids_are_added_once_on_each_side_and_go_on_from_step_to_step(
    families, scrambled, src, tgt_in, monkeypatch
):
    model, added = scrambled(families("original")), []
    counted(monkeypatch, SinusoidalPositions, lambda x, places: added.append(places.index.tolist()))
    source = [[0, 1, 2, 3, 4], [0, 1, 2, 2, 2]]
    model(src, VALID, tgt_in)
    assert added == [source, [[0, 1, 2, 3]]]
    added.clear()
    state = model.start(src, VALID)
    for pieces in (tgt_in[:, :2], tgt_in[:, 2:3], tgt_in[:, 3:4]):
        _, state = model.step(pieces, state)
    assert added == [source, [[0, 1]], [[2]], [[3]]]


def test_trap5_a_decoder_only_model_counts_on_from_each_rows_source(families, scrambled, src, tgt_in, monkeypatch):
    model, added, turned = scrambled(families("llama")), [], []
    counted(monkeypatch, RotaryPositions, lambda places, like: added.append(places.index.tolist()))
    turn = Rotation.turn
    monkeypatch.setattr(Rotation, "turn", lambda self, x: turned.append(x.shape[1]) or turn(self, x))
    model(src, VALID, tgt_in)
    assert added == [[[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 1, 1, 2, 3, 4, 5]]]
    assert turned == [H, G] * 2  # queries and keys, in each layer
    added.clear()
    state = model.start(src, VALID)
    for pieces in (tgt_in[:, :2], tgt_in[:, 2:3], tgt_in[:, 3:4]):
        _, state = model.step(pieces, state)
    assert added == [[[0, 1, 2, 3], [0, 1, 1, 1]], [[4, 5], [2, 3]], [[6], [4]], [[7], [5]]]


def without_positions(model):
    for stack in (getattr(model, "encoder", None), model.decoder):
        if stack is not None:
            stack.embedding.positions, stack.rotary = None, None


@pytest.mark.parametrize("name", ["original", "modern", "multi_query", "prefix_lm"])
def test_trap5_without_positions_the_source_has_no_order_and_with_them_it_has(families, name, scrambled, src, tgt_in):
    model = scrambled(families(name))
    everything, order = torch.ones_like(VALID), torch.tensor([3, 0, 2, 1, 4])  # the last is the source's EOS
    moved = (model(src[:, order], everything, tgt_in) - model(src, everything, tgt_in)).abs().max()
    assert moved > 1e-2
    without_positions(model)
    shuffled, straight = model(src[:, order], everything, tgt_in), model(src, everything, tgt_in)
    torch.testing.assert_close(shuffled, straight, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", EVERY_POSITION)
def test_trap5_positions_count_from_the_first_real_piece_of_a_left_padded_source(
    families, name, scrambled, src, tgt_in
):
    model = scrambled(families(name))
    left, left_valid = src.clone(), VALID.flip(1)
    left[1] = torch.tensor([PAD, PAD, *src[1, :3]])
    right, shifted = model(src, VALID, tgt_in), model(left, left_valid, tgt_in)
    torch.testing.assert_close(shifted, right, atol=1e-10, rtol=0)
    state = model.start(left, left_valid)
    for t in range(T):
        logits, state = model.step(tgt_in[:, t : t + 1], state)
        torch.testing.assert_close(logits, right[:, t], atol=1e-10, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_trap6_a_later_target_piece_does_not_move_earlier_logits_by_a_bit(model, src, tgt_in, dtype):
    model = model.to(dtype)
    before = model(src, VALID, tgt_in)
    for t in range(1, T):
        changed = tgt_in.clone()
        changed[:, t:] = (changed[:, t:] + 3) % V
        after = model(src, VALID, changed)
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.equal(after[:, t], before[:, t])


def test_trap7_padding_changes_neither_logits_nor_loss(model, src, tgt_in):
    wide_src = torch.cat([src, torch.full((B, 7), PAD)], dim=1)
    wide_valid = torch.cat([VALID, torch.zeros(B, 7, dtype=torch.bool)], dim=1)
    wide_tgt = torch.cat([tgt_in, torch.full((B, 9), PAD)], dim=1)
    logits, wide_logits = model(src, VALID, tgt_in), model(wide_src, wide_valid, wide_tgt)[:, :T]
    torch.testing.assert_close(wide_logits, logits, atol=1e-10, rtol=0)
    for smoothing in (0.0, 0.1):
        loss, _ = smoothed_cross_entropy(logits.flatten(0, 1), tgt_in.flatten(), smoothing)
        wide_loss, _ = smoothed_cross_entropy(wide_logits.flatten(0, 1), tgt_in.flatten(), smoothing)
        assert wide_loss.item() == pytest.approx(loss.item(), abs=1e-9)


def test_trap7_a_sentence_alone_has_the_logits_it_has_in_a_padded_batch(model, src, tgt_in):
    together = model(src, VALID, tgt_in)
    for b in range(B):
        length = int(VALID[b].sum())
        alone = model(src[b : b + 1, :length], VALID[b : b + 1, :length], tgt_in[b : b + 1])
        torch.testing.assert_close(alone[0], together[b], atol=1e-10, rtol=0)


def test_trap7_what_stands_at_padded_positions_does_not_matter_by_a_bit(model, src, tgt_in):
    garbage = torch.where(VALID, src, (src + 5) % V)
    assert not torch.equal(garbage, src)
    assert torch.equal(model(garbage, VALID, tgt_in), model(src, VALID, tgt_in))


def test_trap8_a_prefill_after_a_history_is_causal(model, src, tgt_in):
    """Were it not, the second layer's keys of the pieces in its middle would be wrong, and the logits after them."""
    for sizes in ([1, 2, 1], [2, 2], [1, 3]):
        state, end = model.start(src, VALID), 0
        for size in sizes:
            logits, state = model.step(tgt_in[:, end : end + size], state)
            end += size
            torch.testing.assert_close(logits, model(src, VALID, tgt_in)[:, end - 1], atol=1e-10, rtol=0)


def of_kind(module, kinds):
    return [part for part in module.modules() if isinstance(part, kinds)]


@pytest.mark.parametrize("name", ["original", "pre_ln", "modern", "deepnorm", "gpt2", "llama", "prefix_lm"])
def test_trap9_the_norms_stand_where_the_configuration_says(families, name, src, tgt_in):
    config = families(name)
    model = build_model(config, V, V).double()
    is_pre = config.norm_placement is NormPlacement.pre
    per_layer = 2 if isinstance(model, DecoderOnly) else 3
    last = (1 if isinstance(model, DecoderOnly) else 2) if is_pre else 0
    norms = of_kind(model, (nn.LayerNorm, RMSNorm))
    assert len(norms) == 2 * config.num_encoder_layers + per_layer * config.num_decoder_layers + last
    hidden = model.decode(src, VALID, tgt_in)  # norms start as the identity, so what a norm gives has mean square 1
    torch.testing.assert_close(hidden.square().mean(-1), torch.ones(B, T).double(), atol=1e-2, rtol=0)
    stream = []
    model.decoder.layers[-1].register_forward_hook(lambda _, args, out: stream.append(out))
    hidden = model.decode(src, VALID, tgt_in)
    assert (stream[0][:, -T:] is hidden or torch.equal(stream[0][:, -T:], hidden)) is not is_pre


@pytest.mark.parametrize("name", ["original", "pre_ln", "deepnorm", "gpt2"])
def test_trap9_a_stack_with_the_wrong_end_is_impossible(families, name):
    stack = build_model(families(name), V, V).decoder
    other = None if isinstance(stack.final_norm, nn.LayerNorm) else nn.LayerNorm(D)
    with pytest.raises(AssertionError, match="a final norm belongs to Pre-LN blocks"):
        Stack(stack.embedding, list(stack.layers), other)


@pytest.mark.parametrize("tying", [Tying.two_way, Tying.none], ids=lambda tying: tying.name)
@pytest.mark.parametrize("name", BOTH)
def test_trap10_tied_weights_are_one_after_loading_and_moving_and_are_counted_once(families, name, tying):
    config = families(name, tying=tying)
    model, other = build_model(config, V, V), build_model(config, V, V)
    other.load_state_dict(model.state_dict())
    inside = sum(
        p.numel()
        for name, p in model.named_parameters(remove_duplicate=False)
        if not name.endswith("rows.weight") and name != "output"
    )
    num_tables = (1 if isinstance(model, DecoderOnly) else 2) + (tying is Tying.none)
    for one in (model, other, other.to(torch.bfloat16).to(torch.float32)):
        assert (one.output.data_ptr() == one.decoder.embedding.rows.weight.data_ptr()) is (tying is Tying.two_way)
        assert one.num_parameters() == inside + num_tables * V * D


@pytest.mark.parametrize("name", ["pre_ln", "llama"])
def test_trap11_output_projections_of_pre_ln_start_smaller_so_the_stream_does_not_grow_with_depth(families, name):
    variances = []
    for depth in (2, 32):
        torch.manual_seed(5)
        model = build_model(families(name, num_decoder_layers=depth), V, V)
        stream = []
        model.decoder.layers[-1].register_forward_hook(lambda _, args, out, stream=stream: stream.append(out))
        model(torch.randint(4, V, (16, 9)), torch.ones(16, 9, dtype=torch.bool), torch.randint(4, V, (16, 8)))
        variances.append(stream[0].var().item())
    assert variances[1] < 2 * variances[0]  # sixteen times the layers
    block = model.decoder.layers[0]
    for part in (block.self_attention, block.feed_forward):
        inner = next(linear for linear in part.children() if linear is not part.output)
        assert part.output.weight.std() < 0.3 * inner.weight.std()


LETTERS = 4
LONGEST = 3


def copy_batch(size, generator):
    """Random sequences of 1 to 3 letters to be copied: src and tgt_out end in EOS, tgt_in starts with BOS."""
    lengths = torch.randint(1, LONGEST + 1, (size, 1), generator=generator)
    letters = torch.randint(4, 4 + LETTERS, (size, LONGEST + 1), generator=generator)
    place = torch.arange(LONGEST + 1)
    tgt_out = torch.where(place < lengths, letters, torch.where(place == lengths, EOS, PAD))
    tgt_in = torch.cat([torch.full((size, 1), BOS), tgt_out[:, :-1]], dim=1)
    return tgt_out, place <= lengths, tgt_in, tgt_out


def learn_to_copy(model, num_steps, generator):
    """Train in place; the loss of each step, in nats a piece."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step in range(1, num_steps + 1):
        src, valid, tgt_in, tgt_out = copy_batch(32, generator)
        for group in optimizer.param_groups:
            group["lr"] = noam_lr(step, d_model=64, warmup_steps=30, factor=0.04)
        hidden = model.decode(src, valid, tgt_in)[valid]
        loss, _ = smoothed_cross_entropy(model.logits(hidden), tgt_out[valid], 0.0)
        losses.append(loss.item() / int(valid.sum()))
        optimizer.zero_grad()
        loss.div(valid.sum()).backward()
        optimizer.step()
    return losses


@pytest.mark.parametrize(
    ("name", "depth"), [("original", {"num_encoder_layers": 6, "num_decoder_layers": 6}), ("gpt2", {})], ids=BOTH
)
def test_trap11_and_12_models_learn_to_copy_and_to_stop_within_a_hundred_steps(families, name, depth):
    torch.manual_seed(4)
    generator = torch.Generator().manual_seed(5)
    config = families(name, d_model=64, d_ff=64, **depth)
    model = build_model(config, 4 + LETTERS, 4 + LETTERS).train()
    losses = learn_to_copy(model, 100, generator)
    assert losses[0] < math.log(4 + LETTERS) + 2  # knows nothing, and is not sure of much that is wrong
    src, valid, _, tgt_out = copy_batch(128, generator)
    model.eval()
    with torch.inference_mode():
        state, token, produced = model.start(src, valid), torch.full((128, 1), BOS), []
        for _ in range(LONGEST + 1):
            logits, state = model.step(token, state)
            token = logits.argmax(-1, keepdim=True)
            produced.append(token)
    produced = torch.cat(produced, dim=1)
    # without a look at the source at best one in six would be right: a third has one letter, of four
    assert ((produced == tgt_out) | ~valid).all(dim=1).float().mean().item() > 0.5
    ends = (produced == EOS).int().argmax(dim=1)
    assert (ends == valid.sum(dim=1) - 1).float().mean().item() > 0.8


def test_trap12_row_t_predicts_what_follows_piece_t_and_depends_on_it(model, src, tgt_in):
    for t in range(T):
        changed = tgt_in.clone()
        changed[:, t] = (changed[:, t] + 3) % V
        moved = (model(src, VALID, changed) - model(src, VALID, tgt_in)).abs().amax(dim=(0, 2)) > 1e-9
        assert moved.tolist() == [row >= t for row in range(T)]


def test_trap14_the_two_softmaxes_run_over_different_axes(model, src, tgt_in):
    logits, maps = model(src, VALID, tgt_in), model.attention_maps(src, VALID, tgt_in)
    assert logits.shape == (B, T, V)
    in_a_row = S - 1 + T if isinstance(model, DecoderOnly) else T
    assert maps.decoder[-1].shape == (B, H, in_a_row, in_a_row)
    assert [weights.shape for weights in maps.cross[-1:]] == ([] if isinstance(model, DecoderOnly) else [(B, H, T, S)])
    next_piece = logits[:, -1].softmax(-1)
    torch.testing.assert_close(next_piece.sum(-1), torch.ones(B, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["original", "marian", "modern", "llama", "prefix_lm"])
def test_trap15_position_5000_is_like_any_other(families, name, scrambled):
    model = scrambled(families(name)).float()
    decoder, ids = model.decoder, torch.tensor([[7, 8, 9]])

    def vectors(start):
        places = Places.span(start, start + 3)
        x = decoder.embedding(ids, places)
        rotation = decoder.rotation(places, x)
        return x if rotation is None else rotation.turn(x.view(1, 3, H, K).transpose(1, 2))

    assert vectors(5000).isfinite().all()
    assert (vectors(5000) - vectors(0)).abs().max() > 0.1
    src = torch.randint(4, V, (1, 5001 if isinstance(model, DecoderOnly) else 3))
    with torch.inference_mode():
        state = model.start(src, torch.ones_like(src, dtype=torch.bool))
        logits, _ = model.step(torch.randint(4, V, (1, 5001 if name == "original" else 2)), state)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", ["multi_query", "gpt2"])
def test_trap15_learned_positions_beyond_their_table_are_refused_with_both_lengths(
    families, name, scrambled, src, tgt_in
):
    model = scrambled(families(name, max_positions=6))
    message = r"a sequence of 8 pieces was asked for, but this model has learned positions for 6; give it shorter text"
    long = torch.randint(4, V, (B, 9 if isinstance(model, DecoderOnly) else 8))
    with pytest.raises(ValueError, match=message):
        model.start(long, torch.ones_like(long, dtype=torch.bool))
    state = model.start(src[:, :3], VALID[:, :3])
    for _ in range(6 - state.length):
        _, state = model.step(tgt_in[:, :1], state)
    with pytest.raises(ValueError, match="a sequence of 7 pieces was asked for, but this model has learned positions"):
        model.step(tgt_in[:, :1], state)


class CountingMode(TorchDispatchMode):
    """Counts the operations that torch runs."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations(model, batch, source, target):
    src, tgt_in = torch.randint(4, V, (batch, source)), torch.randint(4, V, (batch, target))
    valid = torch.ones(batch, source, dtype=torch.bool)
    with torch.inference_mode(), CountingMode() as full:
        model(src, valid, tgt_in)
    state = model.start(src, valid).select(torch.arange(batch).repeat_interleave(target), torch.arange(batch))
    with torch.inference_mode(), CountingMode() as one_step:
        model.step(tgt_in.reshape(-1, 1), state)
    return full.count, one_step.count


@pytest.mark.parametrize("name", FOUR)
def test_trap16_no_loop_over_sentences_positions_heads_or_beams(families, name, scrambled):
    few, many = (
        scrambled(families(name)),
        scrambled(families(name, num_heads=12, num_kv_heads=families(name).kv_heads * 3)),
    )
    assert operations(few, 2, 3, 5) == operations(many, 7, 11, 13)
    assert causal_mask(50).shape == (1, 1, 50, 50)
