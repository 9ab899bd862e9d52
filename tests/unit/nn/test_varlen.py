"""seq2seq.nn.varlen: which positions are kept and where sequences begin, how the kernel is called, what is refused.

That the results are right is in tests/parity/test_padding_free_parity.py.
"""

import inspect
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import varlen
from torch.nn.attention.varlen import varlen_attn

from seq2seq.nn.positions import Places
from seq2seq.nn.varlen import PackedMask, Packing, attend_packed, check_varlen

B, T, D, H, K = 3, 4, 8, 2, 6
VALID = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]], dtype=torch.bool)


def test_real_positions_are_kept_and_sequences_begin_where_rows_do():
    packing = Packing.of_valid(VALID)
    assert packing.places.tolist() == [2, 3, 8, 9, 10]
    assert packing.starts.tolist() == [0, 2, 2, 5]
    assert packing.starts.dtype == torch.int32
    assert (packing.longest, packing.shape) == (4, (3, 4))


def test_documents_of_a_block_are_sequences_and_all_positions_are_kept():
    packing = Packing.of_documents(torch.tensor([[0, 0, 1, 2], [0, 0, 0, 0], [0, 1, 1, 1]]))
    assert packing.places.tolist() == list(range(12))
    assert packing.starts.tolist() == [0, 2, 3, 4, 8, 9, 12]
    assert packing.starts.dtype == torch.int32


def test_unpacked_rows_are_back_in_their_places_and_zero_at_padding():
    x = torch.randn(B, T, D)
    packing = Packing.of_valid(VALID)
    packed = packing.pack(x)
    assert packed.shape == (1, 5, D)
    assert torch.equal(packed[0], x[VALID])
    assert torch.equal(packing.unpack(packed), x * VALID[..., None])


def test_places_go_with_the_positions_also_where_they_are_the_same_for_all_rows():
    packing = Packing.of_valid(VALID)
    assert packing.pack_places(Places.span(0, T)).index.tolist() == [[2, 3, 0, 1, 2]]
    own = packing.pack_places(Places.of_valid(VALID))
    assert own.index.tolist() == [[0, 1, 0, 1, 2]]
    assert own.end == T


def called_with(monkeypatch, causal, groups=H, dtype=torch.float32):
    """How the kernel is called, bound to its own signature."""
    calls = []

    def recorded(*args, **kwargs):
        calls.append(inspect.signature(varlen_attn).bind(*args, **kwargs).arguments)
        return args[0]

    monkeypatch.setattr(varlen, "varlen_attn", recorded)
    queries, keys = Packing.of_valid(VALID), Packing.of_valid(torch.ones(B, 2, dtype=torch.bool))
    mask = PackedMask(queries, queries if causal else keys)
    query = torch.randn(1, H, 5, K, dtype=dtype)
    key = torch.randn(1, groups, 5 if causal else 6, K, dtype=dtype)
    out = attend_packed(query, key, key + 1, mask, causal)
    assert out.shape == query.shape
    return calls[0]


def test_the_kernel_is_called_by_its_signature_over_another_sequence(monkeypatch):
    call = called_with(monkeypatch, causal=False)
    assert call["cu_seq_q"].tolist() == [0, 2, 2, 5]
    assert call["cu_seq_k"].tolist() == [0, 2, 4, 6]
    assert (call["max_q"], call["max_k"]) == (4, 2)
    assert (call["window_size"], call["enable_gqa"]) == ((-1, -1), False)
    assert [tuple(call[name].shape) for name in ("query", "key", "value")] == [(5, H, K), (6, H, K), (6, H, K)]


def test_causal_attention_is_a_window_to_the_left_and_shared_heads_are_told(monkeypatch):
    call = called_with(monkeypatch, causal=True, groups=1)
    assert (call["window_size"], call["enable_gqa"]) == ((-1, 0), True)


def test_under_autocast_the_kernel_gets_half_precision_whatever_comes_in(monkeypatch):
    with torch.autocast("cpu", torch.bfloat16):
        call = called_with(monkeypatch, causal=False)
    assert {call[name].dtype for name in ("query", "key", "value")} == {torch.bfloat16}
    assert called_with(monkeypatch, causal=False, dtype=torch.float16)["query"].dtype == torch.float16


@pytest.mark.parametrize("causal", [False, True])
def test_torchs_own_function_takes_the_call_and_gives_gradients_of_the_right_shapes(causal):
    # the meta device computes shapes alone, so the call can be made on any machine
    place = {"device": "meta", "dtype": torch.bfloat16, "requires_grad": True}
    query, key, value = (
        torch.empty(1, 4, 5, 8, **place),
        torch.empty(1, 2, 7, 8, **place),
        torch.empty(1, 2, 7, 8, **place),
    )
    starts = torch.empty(B + 1, dtype=torch.int32, device="meta")
    packing = Packing(starts, starts, T, (B, T))
    out = attend_packed(query, key, value, PackedMask(packing, packing), causal)
    assert (out.shape, out.dtype) == (query.shape, torch.bfloat16)
    gradients = torch.autograd.grad(out, (query, key, value), out.detach())
    assert [gradient.shape for gradient in gradients] == [query.shape, key.shape, value.shape]


def test_torch_without_the_kernel_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    with pytest.raises(ValueError, match=r"as torch 2\.13 has it, this is torch .*; install a newer torch, or choose"):
        check_varlen(64, 0.0)


def test_a_kernel_without_shared_heads_is_refused(monkeypatch):
    def of_before(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False):
        return query

    monkeypatch.setattr(varlen, "varlen_attn", of_before)
    with pytest.raises(ValueError, match=r"needs torch\.nn\.attention\.varlen as torch 2\.13 has it"):
        check_varlen(64, 0.0)


def test_dropout_on_attention_weights_is_refused():
    with pytest.raises(ValueError, match=r"model\.attention_dropout=0\.1; set it to 0 \(model\.dropout may stay\)"):
        check_varlen(64, 0.1)


@pytest.mark.parametrize("width", [20, 264])
def test_heads_of_a_width_that_the_kernel_has_not_are_refused(width):
    with pytest.raises(ValueError, match=f"a multiple of 8 and at most 256, got {width}; choose other model.d_model"):
        check_varlen(width, 0.0)


def test_a_machine_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"needs a CUDA GPU, and torch .* finds none; train on one, or choose"):
        check_varlen(64, 0.0)


def test_a_gpu_of_before_ampere_is_refused_and_one_of_after_is_not(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Old One")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    with pytest.raises(ValueError, match=r"8\.0 or more \(Ampere\), got 7\.5 \(Old One\); use another"):
        check_varlen(64, 0.0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    check_varlen(64, 0.0)


def test_a_translator_is_loaded_without_torchs_compiler():
    program = "import sys, seq2seq.translator; print('torch._dynamo' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8")
    assert found.stdout.strip() == "False"
