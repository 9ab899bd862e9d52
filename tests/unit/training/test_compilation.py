"""seq2seq.training.compilation, and what torch makes of the blocks that are compiled.

Compiling is traced in processes of their own: the shape checks of the tests stand in its way.
"""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from seq2seq.training import compilation
from seq2seq.training.compilation import check_compiler

SETTING = """
import copy, sys
from functools import partial
import torch
from seq2seq.config import Architecture, ModelConfig, NormKind, NormPlacement, PositionKind, Tying
from seq2seq.models import build_model
from seq2seq.models.stack import Execution

torch.set_num_threads(1)
V, GRAPHS = 19, []
plain_compile = torch.compile

def counting(graph, inputs):
    GRAPHS.append(graph)
    return graph

def batch(rows, source, target):
    src, tgt = torch.randint(4, V, (rows, source)), torch.randint(4, V, (rows, target))
    src_valid, tgt_valid = (torch.ones(side.shape, dtype=torch.bool) for side in (src, tgt))
    src_valid[-1:, source - 1 :] = False
    tgt_valid[-1:, target - 1 :] = False
    return src, src_valid, tgt, tgt_valid

def model_of(decoder_only=False, layers=2, dropout=0.0):
    kind = dict(num_encoder_layers=layers)
    if decoder_only:
        kind = dict(
            architecture=Architecture.decoder_only, num_encoder_layers=0, tying=Tying.two_way, num_kv_heads=2,
            positions=PositionKind.rope, norm=NormKind.rms_norm, norm_placement=NormPlacement.pre, gated=True,
        )
    torch.manual_seed(1)
    config = ModelConfig(d_model=32, num_heads=4, d_ff=20, num_decoder_layers=layers, dropout=dropout, **kind)
    return build_model(config, V, V).train()

def compare(plain, other, shapes, rtol=1e-4):
    for rows, source, target in shapes:
        given = batch(rows, source, target)
        results = []
        for model in (plain, other):
            model.zero_grad()
            out = model.decode(*given)[given[3]]
            out.square().sum().backward()
            results.append([out.detach(), *(one.grad for one in model.parameters() if one.grad is not None)])
        for one, two in zip(*results, strict=True):
            torch.testing.assert_close(two, one, rtol=rtol, atol=1e-4)
"""

SHAPES = "[(5, 13, 11), (3, 9, 9), (7, 7, 12), (12, 7, 7), (4, 21, 32), (3, 32, 4)]"


def in_a_process(program, timeout=550, **environment):
    """What a program prints, run without the shape checks."""
    done = subprocess.run(
        [sys.executable, "-c", SETTING + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_one_graph_for_all_blocks_of_a_kind_and_all_shapes_of_batches():
    found = in_a_process(
        f"""
        torch.compile = partial(plain_compile, backend=counting, fullgraph=True)
        plain = model_of()
        other = copy.deepcopy(plain)
        other.execute(Execution(compiled=True))
        compare(plain, other, {SHAPES})
        print(len(GRAPHS), *(name for name in other.state_dict() if "orig" in name))
        """
    )
    assert found == ["2"], "one for encoder blocks, one for decoder blocks"


@pytest.mark.slow
def test_one_sentence_alone_has_a_graph_of_its_own_and_dropout_and_checkpointing_none():
    found = in_a_process(
        f"""
        torch.compile = partial(plain_compile, backend=counting, fullgraph=True)
        for decoder_only in (False, True):
            for checkpointed in (False, True):
                before = len(GRAPHS)
                other = model_of(decoder_only, dropout=0.3)
                other.execute(Execution(compiled=True, checkpointed=checkpointed))
                for shape in [*{SHAPES}, (1, 6, 5), (1, 9, 4)]:
                    other.decode(*batch(*shape)).square().sum().backward()
                print(len(GRAPHS) - before)
        """
    )
    # the function is compiled once for all models of a process: those computed twice find the graphs there
    assert found == ["4", "0", "2", "0"]


@pytest.mark.slow
def test_compiled_machine_code_gives_the_numbers_of_the_plain_pass():
    in_a_process(
        f"""
        for decoder_only in (False, True):
            for checkpointed in (False, True):
                plain = model_of(decoder_only)
                other = copy.deepcopy(plain)
                other.execute(Execution(compiled=True, checkpointed=checkpointed))
                compare(plain, other, {SHAPES})
        """
    )


@pytest.mark.slow
def test_blocks_without_padding_are_one_graph_too():
    found = in_a_process(
        """
        from torch.nn.attention import varlen
        from torch.nn.functional import scaled_dot_product_attention

        torch.compile = partial(plain_compile, backend=counting, fullgraph=True)

        def slices(starts):
            return [slice(int(one), int(two)) for one, two in zip(starts[:-1], starts[1:])]

        def looped(query, key, value, starts_q, starts_k, causal):
            parts = []
            for q, k in zip(slices(starts_q), slices(starts_k), strict=True):
                part = [side[None].transpose(1, 2) for side in (query[q], key[k], value[k])]
                out = scaled_dot_product_attention(*part, is_causal=causal, enable_gqa=True)
                parts.append(out[0].transpose(0, 1))
            return torch.cat(parts)

        @torch.library.custom_op("seq2seq_test::attend", mutates_args={})
        def attend(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts_q: torch.Tensor,
            starts_k: torch.Tensor, max_q: int, max_k: int, causal: bool
        ) -> torch.Tensor:
            return looped(query, key, value, starts_q, starts_k, causal).contiguous()

        @attend.register_fake
        def _(query, key, value, starts_q, starts_k, max_q, max_k, causal):
            return query.new_empty(query.shape)

        def remember(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:5])
            ctx.causal = inputs[7]

        def backward(ctx, grad):
            query, key, value, starts_q, starts_k = ctx.saved_tensors
            sides = [side.detach().requires_grad_() for side in (query, key, value)]
            with torch.enable_grad():
                out = looped(*sides, starts_q, starts_k, ctx.causal)
            return *torch.autograd.grad(out, sides, grad), None, None, None, None, None

        attend.register_autograd(backward, setup_context=remember)

        def in_the_kernels_place(query, key, value, starts_q, starts_k, max_q, max_k, *, window_size, enable_gqa):
            return attend(query, key, value, starts_q, starts_k, max_q, max_k, window_size == (-1, 0))

        varlen.varlen_attn = in_the_kernels_place
        for decoder_only in (False, True):
            before = len(GRAPHS)
            plain = model_of(decoder_only)
            other = copy.deepcopy(plain)
            other.execute(Execution(compiled=True, padding_free=True))
            compare(plain, other, [(5, 13, 11), (3, 9, 9), (7, 7, 12), (2, 7, 7), (4, 21, 32)])
            print(len(GRAPHS) - before)
        """
    )
    assert found == ["2", "1"]


@pytest.mark.slow
def test_this_machine_compiles_or_says_why_not():
    in_a_process("from seq2seq.training.compilation import check_compiler; check_compiler('cpu')")


@pytest.mark.slow
def test_a_missing_compiler_is_told_before_training(tmp_path):
    found = in_a_process(
        """
        from seq2seq.training.compilation import check_compiler
        try:
            check_compiler("cpu")
        except ValueError as error:
            print(error)
        """,
        CXX="no-such-compiler",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
    )
    said = " ".join(found)
    assert "cannot compile for cpu here: " in said
    assert "no-such-compiler" in said


def test_what_torch_says_of_a_failed_trial_is_told_with_what_to_do(monkeypatch):
    def fails(device):
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\nand much more")

    monkeypatch.setattr(compilation, "_compile_a_line", fails)
    with pytest.raises(ValueError, match=r"cannot compile for cpu here: InvalidCxxCompiler: No working C\+\+ compiler"):
        check_compiler("cpu")
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler .* install that, or choose trainer\.compile=false"):
        check_compiler("cpu")
    with pytest.raises(ValueError, match=r"cannot compile for cuda here: .* needs Triton and a C compiler"):
        check_compiler("cuda")


def test_compiled_code_that_is_wrong_is_not_used(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: lambda x: function(x) + 1)
    with pytest.raises(ValueError, match="cannot compile for cpu here: compiled code is wrong"):
        check_compiler("cpu")


def test_a_trial_that_succeeds_is_quiet(monkeypatch, caplog):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    check_compiler("cpu")
    assert not caplog.records
