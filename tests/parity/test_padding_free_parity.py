"""Rows put end to end give what the padded pass gives, at every real position, and so do the gradients.

On CPUs torch's kernel is not there: a loop over sequences, with the kernel's signature, stands in its place. The tests
marked gpu compare the kernel itself.
"""

import copy
import inspect
import math
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import varlen
from torch.nn.functional import scaled_dot_product_attention

from seq2seq.models import DecoderOnly
from seq2seq.models.stack import Execution
from seq2seq.nn.embedding import Mixture
from seq2seq.nn.masks import causal_mask, padding_mask
from seq2seq.nn.varlen import PackedMask, Packing, attend_packed

B, S, T, D, V = 3, 5, 4, 24, 19
TOLERANCE = {"rtol": 1e-10, "atol": 1e-12}
SRC_VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1]], dtype=torch.bool)
TGT_VALID = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)
TRANSLATORS = ["original", "pre_ln", "modern", "multi_query", "deepnorm", "marian", "gpt2", "llama", "qwen2", "qwen3"]
PADDING_FREE = Execution(padding_free=True)


def looped(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    return_aux=None,
    scale=None,
    window_size=(-1, -1),
    enable_gqa=False,
    seqused_k=None,
    block_table=None,
    num_splits=None,
):
    """What torch's kernel computes, sequence by sequence and head by head; refuses what the kernel refuses."""
    assert (cu_seq_q.dtype, cu_seq_k.dtype) == (torch.int32, torch.int32)
    assert query.dim() == key.dim() == value.dim() == 3
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    assert query.dtype == key.dtype == value.dtype
    assert enable_gqa or query.shape[1] == key.shape[1]
    assert window_size in [(-1, -1), (-1, 0)]
    assert len(cu_seq_q) == len(cu_seq_k) > 1
    assert (cu_seq_q[-1], cu_seq_k[-1]) == (len(query), len(key))
    group = query.shape[1] // key.shape[1]
    rows = []
    for sequence in range(len(cu_seq_q) - 1):
        queries = query[cu_seq_q[sequence] : cu_seq_q[sequence + 1]]
        keys, values = (part[cu_seq_k[sequence] : cu_seq_k[sequence + 1]] for part in (key, value))
        assert len(queries) <= max_q
        assert len(keys) <= max_k
        for position, one in enumerate(queries):
            seen = slice(0, position + 1 if window_size == (-1, 0) else len(keys))
            heads = []
            for head in range(query.shape[1]):
                scores = keys[seen, head // group] @ one[head] / math.sqrt(query.shape[2])
                heads.append(scores.softmax(0) @ values[seen, head // group])
            rows.append(torch.stack(heads))
    return torch.stack(rows)


@pytest.fixture
def in_the_kernels_place(monkeypatch):
    """The loop is called instead of the kernel; how often is counted."""
    calls = []

    def counted(*args, **kwargs):
        calls.append(kwargs)
        return looped(*args, **kwargs)

    monkeypatch.setattr(varlen, "varlen_attn", counted)
    return calls


@pytest.fixture
def trained(scrambled):
    """Builds a scrambled model in training mode, and its copy that does without padding."""

    def build(config):
        model = scrambled(config).requires_grad_(True).train()
        packed = copy.deepcopy(model)
        packed.execute(PADDING_FREE)
        return model, packed

    return build


def pairs():
    torch.manual_seed(3)
    return torch.randint(4, V, (B, S)), SRC_VALID, torch.randint(4, V, (B, T)), TGT_VALID


def assert_alike(padded, packed, valid, models):
    """Outputs at real positions, and the gradients of a random function of them."""
    torch.testing.assert_close(packed[valid], padded[valid], **TOLERANCE)
    weights = torch.randn_like(padded.detach())[valid]
    for out in (padded, packed):
        (out[valid] * weights).sum().backward()
    for (name, one), other in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, **TOLERANCE, msg=lambda text, name=name: f"{name}: {text}")


def test_the_stand_in_has_the_kernels_signature():
    from torch.nn.attention.varlen import varlen_attn

    ours, theirs = (inspect.signature(function).parameters for function in (looped, varlen_attn))
    assert [(one.name, one.kind, one.default) for one in ours.values()] == [
        (one.name, one.kind, one.default) for one in theirs.values()
    ]


@pytest.mark.parametrize("causal", [False, True])
def test_packed_attention_equals_masked_attention_with_uneven_and_empty_rows(in_the_kernels_place, causal):
    torch.manual_seed(1)
    valid = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)
    packing = Packing.of_valid(valid)
    query, key, value = (torch.randn(4, heads, 4, 6, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2))
    mask = padding_mask(valid) & causal_mask(4) if causal else padding_mask(valid)
    padded = scaled_dot_product_attention(query, key, value, mask, enable_gqa=True).transpose(1, 2)[valid]
    rows = (packing.pack(part.transpose(1, 2).flatten(2)).unflatten(2, (-1, 6)) for part in (query, key, value))
    out = attend_packed(*(part.transpose(1, 2) for part in rows), PackedMask(packing, packing), causal)
    packed = out.transpose(1, 2)[0]
    torch.testing.assert_close(packed, padded, **TOLERANCE)
    weights = torch.randn_like(padded)
    one, other = (torch.autograd.grad((side * weights).sum(), (query, key, value)) for side in (padded, packed))
    for left, right in zip(one, other, strict=True):
        torch.testing.assert_close(right, left, **TOLERANCE)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translation_without_padding_equals_translation_with_it(in_the_kernels_place, families, trained, name):
    config = families(name)
    models = trained(config)
    padded, packed = (model.decode(*pairs()) for model in models)
    decoder_only = isinstance(models[0], DecoderOnly)
    attentions = (
        config.num_decoder_layers if decoder_only else config.num_encoder_layers + 2 * config.num_decoder_layers
    )
    assert len(in_the_kernels_place) == attentions
    assert_alike(padded, packed, TGT_VALID, models)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_source_and_target_in_a_row_equal_those_with_padding(in_the_kernels_place, families, trained, name):
    models = trained(families(name))
    padded, packed = (model.read_pairs(*pairs()) for model in models)
    valid = torch.cat([SRC_VALID[:, :-1] & SRC_VALID[:, 1:], TGT_VALID], 1)
    assert_alike(padded, packed, valid, models)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_documents_of_a_block_are_sequences_of_their_own(in_the_kernels_place, families, trained, name):
    models = trained(families(name))
    documents = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0], [0, 1, 2, 2, 3, 3]])
    ids = torch.randint(4, V, documents.shape, generator=torch.Generator().manual_seed(2))
    padded, packed = (model.read(ids, documents) for model in models)
    assert_alike(padded, packed, torch.ones_like(documents, dtype=torch.bool), models)
    assert len(in_the_kernels_place) == 2


def test_text_in_whole_blocks_has_no_padding_and_stays_as_it_is(in_the_kernels_place, families, trained):
    padded, packed = (model.read(torch.arange(4, 16).view(2, 6)) for model in trained(families("gpt2")))
    assert torch.equal(padded, packed)
    assert not in_the_kernels_place


@pytest.mark.parametrize("name", ["original", "modern", "gpt2"])
def test_vectors_in_the_place_of_ids_and_a_source_read_once_are_packed_too(
    in_the_kernels_place, families, trained, name
):
    models = trained(families(name))
    where = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.bool)
    vectors = torch.randn(4, D, dtype=torch.float64)
    src, src_valid, tgt_in, tgt_valid = pairs()
    padded, packed = (
        model.decode(
            src, src_valid, tgt_in, tgt_valid, Mixture(where, vectors), memory=model.read_source(src, src_valid)
        )
        for model in models
    )
    assert in_the_kernels_place
    assert_alike(padded, packed, TGT_VALID, models)


def test_evaluation_always_takes_the_padded_pass(in_the_kernels_place, families, trained):
    padded, packed = (model.eval().decode(*pairs()) for model in trained(families("original")))
    assert torch.equal(padded, packed)
    assert not in_the_kernels_place


@pytest.mark.parametrize("name", ["original", "gpt2"])
def test_a_batch_without_rows_gives_every_parameter_a_gradient_of_zero(in_the_kernels_place, families, trained, name):
    _, packed = trained(families(name))
    no_ids, none_valid = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.bool)
    packed.logits(packed.decode(no_ids, none_valid, no_ids, none_valid)).sum().backward()
    assert not in_the_kernels_place
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in packed.parameters())


def test_layers_computed_twice_give_the_same_gradients_without_padding(in_the_kernels_place, families, scrambled):
    gradients = []
    for checkpointed in (False, True):
        model = scrambled(families("modern", dropout=0.3)).requires_grad_(True).train()
        model.execute(replace(PADDING_FREE, checkpointed=checkpointed))
        torch.manual_seed(4)
        model.decode(*pairs()).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["original", "modern", "llama"])
def test_the_kernel_equals_the_padded_pass_on_a_gpu(families, name):
    from seq2seq.models import build_model

    torch.manual_seed(1)
    model = build_model(families(name, d_model=64, d_head=16), V, V).cuda().train()
    packed = copy.deepcopy(model)
    packed.execute(PADDING_FREE)
    batch = [tensor.cuda() for tensor in pairs()]
    results = []
    for one in (model, packed):
        with torch.autocast("cuda", torch.bfloat16):
            out = one.decode(*batch)
        out.float()[batch[3]].square().sum().backward()
        results.append((out.detach().float()[batch[3]], [parameter.grad for parameter in one.parameters()]))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=0.05, atol=0.05)
    for left, right in zip(results[0][1], results[1][1], strict=True):
        if left is not None:
            difference = (left - right).norm() / left.norm().clamp(min=1e-3)
            assert difference < 0.05
