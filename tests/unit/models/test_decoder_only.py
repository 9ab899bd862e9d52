"""seq2seq.models.decoder_only: source, separator and target in a row; plain text and packed documents; prompts."""

import copy
import math

import pytest
import torch

from seq2seq.nn.cache import BLOCK
from seq2seq.nn.positions import Places

B, S, T, D, H, K, V = 2, 5, 3, 24, 4, 6, 19
EOS, BOS = 2, 1
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
EXACT = {"atol": 1e-10, "rtol": 0}
NAMES = ["gpt2", "llama", "qwen3", "prefix_lm"]


@pytest.fixture(params=NAMES)
def model(request, families, scrambled):
    return scrambled(families(request.param))


@pytest.fixture
def llama(families, scrambled):
    return scrambled(families("llama"))


@pytest.fixture(params=[False, True], ids=["causal", "prefix_lm"])
def either(request, families, scrambled):
    """A LLaMA whose source is read causally, and one whose source is read as a whole."""
    return scrambled(families("llama", prefix_lm=request.param))


@pytest.fixture
def src():
    torch.manual_seed(2)
    src = torch.randint(3, V, (B, S))
    src[0, 4] = src[1, 2] = EOS
    return src


@pytest.fixture
def tgt_in():
    torch.manual_seed(3)
    tgt_in = torch.randint(3, V, (B, T))
    tgt_in[:, 0] = BOS
    return tgt_in


def test_a_pair_is_read_as_source_without_its_eos_then_bos_then_target(llama, src, tgt_in):
    hidden = llama.decode(src, VALID, tgt_in)
    first = llama.read(torch.tensor([[*src[0, :4].tolist(), *tgt_in[0].tolist()]]))
    second = llama.read(torch.tensor([[*src[1, :2].tolist(), *tgt_in[1].tolist()]]))
    torch.testing.assert_close(hidden[0], first[0, 4:], **EXACT)
    torch.testing.assert_close(hidden[1], second[0, 2:], **EXACT)
    torch.testing.assert_close(llama(src, VALID, tgt_in), hidden @ llama.output.T, **EXACT)


def test_the_whole_row_has_the_sources_positions_too(llama, src, tgt_in):
    rows = llama.read_pairs(src, VALID, tgt_in)
    assert rows.shape == (B, S - 1 + T, D)
    whole = llama.read(torch.tensor([[*src[0, :4].tolist(), *tgt_in[0].tolist()]]))
    torch.testing.assert_close(rows[0], whole[0], **EXACT)
    short = llama.read(torch.tensor([[*src[1, :2].tolist(), *tgt_in[1].tolist()]]))
    torch.testing.assert_close(rows[1, [0, 1, 4, 5, 6]], short[0], **EXACT)


def test_the_piece_that_closes_the_source_is_not_read(model, src, tgt_in):
    other = torch.where(src == EOS, 7, src)
    assert torch.equal(model(other, VALID, tgt_in), model(src, VALID, tgt_in))


def test_a_source_of_eos_only_leaves_the_target_alone(model, tgt_in):
    src = torch.full((B, 1), EOS)
    logits = model(src, torch.ones(B, 1, dtype=torch.bool), tgt_in)
    torch.testing.assert_close(logits, model.logits(model.read(tgt_in)), **EXACT)
    state = model.start(src, torch.ones(B, 1, dtype=torch.bool))
    assert (state.length, state.history.cache.buffer) == (0, None)
    for t in range(T):
        step, state = model.step(tgt_in[:, t : t + 1], state)
        torch.testing.assert_close(step, logits[:, t], **EXACT)


def test_it_is_pre_ln_written_out(llama):
    ids, places = torch.tensor([[5, 9, 4, 7]]), Places.span(0, 4)
    x = llama.decoder.embedding.rows.weight[ids]
    rotation = llama.decoder.rotary(places, x)
    for block in llama.decoder.layers:
        x = x + block.self_attention(block.self_attention_norm(x), causal=True, rotation=rotation)
        x = x + block.feed_forward(block.feed_forward_norm(x))
    torch.testing.assert_close(llama.read(ids), llama.decoder.final_norm(x), **EXACT)


def test_a_step_gives_the_logits_of_its_last_piece(model, src, tgt_in):
    logits, state = model.step(tgt_in, model.start(src, VALID))
    torch.testing.assert_close(logits, model(src, VALID, tgt_in)[:, -1], **EXACT)
    assert state.length == S - 1 + T
    assert state.history.seen.tolist() == [[[True] * 7], [[True, True, False, False, True, True, True]]]
    assert state.next_place.tolist() == [[7], [5]]


def moved(model, before, after):
    """At which positions of the rows something differs."""
    difference = model.read_pairs(*before) - model.read_pairs(*after)
    return (difference.abs().amax(dim=(0, 2)) > 1e-9).tolist()


def test_positions_of_the_source_see_all_of_it_in_a_prefix_lm_and_else_nothing_later(either, src, tgt_in):
    everything = torch.ones_like(VALID)
    for place in range(S - 1):
        changed = src.clone()
        changed[:, place] = (changed[:, place] + 3) % V
        seen = moved(either, (src, everything, tgt_in), (changed, everything, tgt_in))
        assert seen == [either.prefix_lm or row >= place for row in range(S - 1)] + [True] * T


def test_nothing_sees_a_later_piece_of_the_target_not_even_the_source(either, src, tgt_in):
    everything = torch.ones_like(VALID)
    before = either.read_pairs(src, everything, tgt_in)
    for place in range(T):
        changed = tgt_in.clone()
        changed[:, place:] = (changed[:, place:] + 3) % V
        after = either.read_pairs(src, everything, changed)
        assert torch.equal(after[:, : S - 1 + place], before[:, : S - 1 + place])
        assert not torch.equal(after[:, S - 1 + place], before[:, S - 1 + place])


def test_documents_of_a_packed_block_are_read_as_if_each_were_alone(model):
    torch.manual_seed(4)
    ids = torch.randint(3, V, (B, 9))
    lengths = [[4, 1, 4], [2, 7]]
    documents = torch.stack([torch.repeat_interleave(torch.tensor(row)) for row in lengths])
    packed = model.read(ids, documents)
    for b, row in enumerate(lengths):
        for part, alone in zip(packed[b].split(row), ids[b].split(row), strict=True):
            torch.testing.assert_close(part, model.read(alone[None])[0], **EXACT)
    assert (packed[0, 4:] - model.read(ids)[0, 4:]).abs().max() > 1e-3


def test_a_block_of_one_document_is_the_block_read_as_one_text(model):
    ids = torch.randint(3, V, (B, 9))
    torch.testing.assert_close(model.read(ids, torch.full((B, 9), 3)), model.read(ids), **EXACT)


def test_plain_text_is_causal_by_a_bit(model):
    ids = torch.randint(3, V, (B, 9))
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]]).expand(B, 9)
    for given in (None, documents):
        before, changed = model.read(ids, given), ids.clone()
        changed[:, 6:] = (changed[:, 6:] + 3) % V
        assert torch.equal(model.read(changed, given)[:, :6], before[:, :6])
        assert not torch.equal(model.read(changed, given)[:, 6], before[:, 6])


PROMPTS = [[5, 9, 4, 7, 3], [8], [6, 12]]


def padded(left):
    longest = max(map(len, PROMPTS))
    rows = []
    for prompt in PROMPTS:
        padding = [0] * (longest - len(prompt))
        rows.append([*padding, *prompt] if left else [*prompt, *padding])
    ids = torch.tensor(rows)
    return ids, ids != 0


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_uneven_prompts_go_on_as_if_each_were_alone_whichever_side_is_padded(model, left):
    ids, valid = padded(left)
    hidden, state = model.prefill(ids, valid)
    assert state.next_place.tolist() == [[5], [1], [2]]
    tokens = torch.tensor([[3, 7, 11, 4], [9, 9, 10, 5], [16, 4, 18, 6]])
    together = []
    for piece in (tokens[:, :1], tokens[:, 1:3], tokens[:, 3:]):
        logits, state = model.step(piece, state)
        together.append(logits)
    for row, prompt in enumerate(PROMPTS):
        alone, state = model.prefill(torch.tensor([prompt]), torch.ones(1, len(prompt), dtype=torch.bool))
        torch.testing.assert_close(hidden[row, valid[row]], alone[0], **EXACT)
        for piece, expected in zip((tokens[:, :1], tokens[:, 1:3], tokens[:, 3:]), together, strict=True):
            logits, state = model.step(piece[row : row + 1], state)
            torch.testing.assert_close(logits[0], expected[row], **EXACT)


def test_a_prompt_that_is_read_causally_is_the_beginning_of_the_text(families, scrambled):
    for name in ("gpt2", "llama"):
        model, ids = scrambled(families(name)), torch.randint(3, V, (B, 9))
        hidden, state = model.prefill(ids[:, :6], torch.ones(B, 6, dtype=torch.bool))
        whole = model.read(ids)
        torch.testing.assert_close(hidden, whole[:, :6], **EXACT)
        logits, _ = model.step(ids[:, 6:], state)
        torch.testing.assert_close(logits, model.logits(whole[:, -1]), **EXACT)


def test_a_prompt_of_nothing_leaves_the_state_empty(model):
    hidden, state = model.prefill(torch.zeros(B, 0, dtype=torch.long), torch.zeros(B, 0, dtype=torch.bool))
    assert hidden.shape == (B, 0, D)
    assert (state.length, state.history.cache.buffer, state.num_bytes()) == (0, None, 0)
    assert state.next_place.tolist() == [[0], [0]]


def test_long_texts_are_decoded_over_more_than_two_blocks_of_the_cache(either):
    ids = torch.randint(3, V, (B, 2 * BLOCK + 5))
    whole = either.logits(either.read(ids))
    _, state = either.prefill(ids[:, :0], torch.zeros(B, 0, dtype=torch.bool))
    for place in range(ids.shape[1]):
        logits, state = either.step(ids[:, place : place + 1], state)
        torch.testing.assert_close(logits, whole[:, place], **EXACT)


@pytest.mark.parametrize(("kv_heads", "length"), [(4, 1), (2, BLOCK), (1, BLOCK + 1)])
def test_the_cache_takes_the_memory_of_the_formula_with_lengths_in_whole_blocks(families, scrambled, kv_heads, length):
    """2 L B G T K numbers, T rounded up to a multiple of 32."""
    model = scrambled(families("llama", num_kv_heads=kv_heads))
    _, state = model.prefill(torch.randint(3, V, (B, length)), torch.ones(B, length, dtype=torch.bool))
    rounded = (length + BLOCK - 1) // BLOCK * BLOCK
    assert state.num_bytes() == 2 * len(model.decoder.layers) * B * kv_heads * rounded * K * 8


def written_out_maps(model, ids, allowed):
    """Each layer's weights from the projections, softmax by hand; what follows, too, from these weights."""
    places = Places(torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 1, 1, 2, 3, 4]]), 7)
    x = model.decoder.embedding(ids, places)
    rotation, maps = model.decoder.rotation(places, x), []
    for block in model.decoder.layers:
        query, key, value = block.self_attention.project(block.self_attention_norm(x), rotation)
        share = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(share, dim=1), value.repeat_interleave(share, dim=1)
        exponentials = (torch.einsum("bhtk,bhsk->bhts", query, key) / math.sqrt(query.shape[-1])).exp() * allowed
        maps.append(exponentials / exponentials.sum(-1, keepdim=True))
        context = torch.einsum("bhts,bhsk->bthk", maps[-1], value).flatten(2)
        x = x + block.self_attention.output(context)
        x = x + block.feed_forward(block.feed_forward_norm(x))
    return maps


def test_attention_maps_equal_weights_written_out(either, src, tgt_in):
    ids, real = torch.cat([src[:, :4], tgt_in], dim=1), torch.ones(B, 7)
    real[1, 2:4] = 0
    allowed = torch.ones(7, 7).tril()
    if either.prefix_lm:
        allowed[:4, :4] = 1
    allowed = (allowed * real[:, None, :])[:, None]
    maps = either.attention_maps(src, VALID, tgt_in)
    assert (maps.encoder, maps.cross) == ([], [])
    for actual, expected in zip(maps.decoder, written_out_maps(either, ids, allowed), strict=True):
        assert actual.shape == (B, H, 7, 7)
        torch.testing.assert_close(actual, expected, **EXACT)


def test_padding_of_uneven_targets_takes_no_learned_position(families, scrambled, src, tgt_in):
    model = scrambled(families("gpt2", max_positions=5))
    pair = src[1:, :3], VALID[1:, :3], tgt_in[1:]  # 2 pieces, then 3
    uneven = torch.tensor([[3, 4, 5, 6, EOS], [7, 8, EOS, 0, 0]]), VALID, torch.tensor([[BOS, 0, 0], [BOS, 9, 10]])
    real = torch.tensor([[1, 0, 0], [1, 1, 1]], dtype=torch.bool)
    with pytest.raises(ValueError, match="a sequence of 7 pieces was asked for"):
        model(*uneven)
    logits, maps = model(*uneven, real), model.attention_maps(*uneven, real)
    for row, (source, target) in enumerate([(5, 1), (3, 3)]):
        alone = uneven[0][row : row + 1, :source], VALID[row : row + 1, :source], uneven[2][row : row + 1, :target]
        torch.testing.assert_close(logits[row, :target], model(*alone)[0], **EXACT)
        kept = [*range(source - 1), *range(4, 4 + target)]
        for batched, single in zip(maps.decoder, model.attention_maps(*alone).decoder, strict=True):
            torch.testing.assert_close(batched[row][:, kept][:, :, kept], single[0], **EXACT)
    torch.testing.assert_close(model(*pair), model(*pair, real[1:]), **EXACT)


def test_attention_maps_see_no_dropout_leave_the_mode_as_it_was_and_keep_no_graph(llama, src, tgt_in):
    expected = llama.attention_maps(src, VALID, tgt_in)
    own = copy.deepcopy(llama).train().requires_grad_(True)
    for module in own.modules():
        if hasattr(module, "p"):
            module.p = 0.5
    maps = own.attention_maps(src, VALID, tgt_in)
    assert own.training
    assert all(torch.equal(one, other) for one, other in zip(expected.decoder, maps.decoder, strict=True))
    assert not maps.decoder[0].requires_grad


def test_every_weight_gets_a_gradient(model, src, tgt_in):
    model.requires_grad_(True)(src, VALID, tgt_in).pow(3).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 0, name


def test_dropout_makes_training_passes_differ_and_evaluation_passes_equal(families, scrambled, src, tgt_in):
    model = scrambled(families("llama", dropout=0.3))
    assert not torch.equal(model.train()(src, VALID, tgt_in), model(src, VALID, tgt_in))
    assert torch.equal(model.eval()(src, VALID, tgt_in), model(src, VALID, tgt_in))
