"""CTranslate2 computes what our models compute, and finds the translations that our search finds."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import (
    Activation,
    Architecture,
    AttentionBias,
    DecodeConfig,
    ModelConfig,
    NormKind,
    NormPlacement,
    PenaltyForm,
    PositionKind,
    RopeConfig,
    RopeScaling,
    Task,
    Tying,
)
from seq2seq.interop.ctranslate2 import export_ctranslate2, vocabulary
from seq2seq.models import build_model
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translator import Candidate, Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `interop` is not installed")

TOLERANCE = 3e-5
"""Between two float32 computations of log-probabilities and logits of up to some tens."""

ROPE = {"positions": PositionKind.rope}
SWIGLU = {"gated": True, "activation": Activation.silu, "feed_forward_bias": False}
NO_BIAS = {"attention_bias": AttentionBias.none, "feed_forward_bias": False}
RMS_PRE = {"norm": NormKind.rms_norm, "norm_placement": NormPlacement.pre, "norm_eps": 1e-3}
DEEP = {"norm_placement": NormPlacement.deepnorm, "norm_eps": 1e-2}
STRETCHED: dict[str, Any] = {"factor": 3.0, "original_positions": 16}

ENCODER_DECODERS: dict[str, dict[str, Any]] = {
    "the original": {"tying": Tying.three_way},
    "sinusoids in halves, GELU": {"positions": PositionKind.sinusoidal_halves, "activation": Activation.gelu},
    "Pre-LN, learned positions": {
        "norm_placement": NormPlacement.pre,
        "positions": PositionKind.learned,
        "max_positions": 40,
        "norm_eps": 1e-2,
    },
    "Pre-LN with RMSNorm, RoPE, grouped heads, SwiGLU, no biases": {
        **RMS_PRE,
        **ROPE,
        **SWIGLU,
        **NO_BIAS,
        "num_kv_heads": 2,
    },
    "Post-LN with RMSNorm, multi-query, wide heads": {"norm": NormKind.rms_norm, "num_kv_heads": 1, "d_head": 6},
    "biases of queries, keys and values, and of the output": {
        "attention_bias": AttentionBias.qkv,
        "output_bias": True,
        "tying": Tying.two_way,
    },
    "depths and widths apart, GELU by sigmoid": {
        "num_encoder_layers": 3,
        "num_decoder_layers": 1,
        "encoder_d_ff": 20,
        "decoder_d_ff": 28,
        "activation": Activation.gelu_sigmoid,
    },
    "rows without a piece, embedding not scaled": {"vocab_multiple": 16, "scale_embedding": False},
    "DeepNorm": DEEP,
    "DeepNorm, learned positions, grouped heads, GEGLU": {
        **DEEP,
        "positions": PositionKind.learned,
        "max_positions": 40,
        "num_kv_heads": 2,
        "gated": True,
        "activation": Activation.gelu_tanh,
    },
    "RoPE, linear scaling": {**ROPE, "rope": RopeConfig(scaling=RopeScaling.linear, factor=3.0)},
    "RoPE, YaRN": {**ROPE, "rope": RopeConfig(scaling=RopeScaling.yarn, **STRETCHED)},
}

DECODER_ONLY: dict[str, dict[str, Any]] = {
    "GPT-2": {
        "norm_placement": NormPlacement.pre,
        "positions": PositionKind.learned,
        "max_positions": 40,
        "activation": Activation.gelu_tanh,
        "scale_embedding": False,
        "tying": Tying.two_way,
    },
    "LLaMA 2": {**RMS_PRE, **ROPE, **SWIGLU, **NO_BIAS, "scale_embedding": False},
    "LLaMA 3": {
        **RMS_PRE,
        **ROPE,
        **SWIGLU,
        **NO_BIAS,
        "num_kv_heads": 2,
        "rope": RopeConfig(base=5e5, scaling=RopeScaling.llama3, **STRETCHED),
    },
    "Qwen 2": {**RMS_PRE, **ROPE, **SWIGLU, "attention_bias": AttentionBias.qkv, "num_kv_heads": 2},
    "Qwen 3": {**RMS_PRE, **ROPE, **SWIGLU, **NO_BIAS, "qk_norm": True, "d_head": 6, "num_kv_heads": 1},
    "RoPE, YaRN": {**RMS_PRE, **ROPE, "rope": RopeConfig(scaling=RopeScaling.yarn, **STRETCHED)},
    "Post-LN, sinusoids": {},
    "DeepNorm, output bias, rows without a piece": {**DEEP, "output_bias": True, "vocab_multiple": 16},
}


@pytest.fixture(scope="module")
def tokenizer(tiny_bundle: Bundle) -> Tokenizer:
    return tiny_bundle.source_tokenizer


def random_bundle(tokenizer: Tokenizer, options: dict[str, Any], *, seed: int = 5) -> Bundle:
    """Weights of some size, so that no two pieces are nearly equal in probability; no bias or norm as it began."""
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 24, "num_encoder_layers": 2, "num_decoder_layers": 3}
    if options.get("architecture") is Architecture.decoder_only:
        sizes["num_encoder_layers"] = 0
    config = ModelConfig(**{"tying": Tying.none, **sizes, **options})
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(1.5)
            else:
                weight.add_(0.3 * torch.randn_like(weight))
        model.output.mul_(2)
    return Bundle(model, config, tokenizer, tokenizer)


def random_pairs(tokenizer: Tokenizer, count: int) -> list[tuple[list[int], list[int]]]:
    """Ids of sources and targets of uneven lengths, special ids left out."""
    draw = torch.Generator().manual_seed(1)

    def ids(length: int) -> list[int]:
        return torch.randint(4, tokenizer.vocab_size, (length,), generator=draw).tolist()

    return [(ids(1 + 7 * row % 12), ids(row % 9)) for row in range(count)]


def our_logits(bundle: Bundle, source: list[int], target: list[int]) -> torch.Tensor:
    """At each target position and EOS; those of pieces that are never produced left out as CTranslate2 has them."""
    special = bundle.target_tokenizer.special
    src = torch.tensor([[*source, special.eos]])
    with torch.no_grad():
        logits = bundle.model(src, torch.ones_like(src, dtype=torch.bool), torch.tensor([[special.bos, *target]]))[0]
    logits = logits[:, : bundle.target_tokenizer.vocab_size].clone()
    logits[:, [special.pad, special.bos]] -= 10000 if bundle.task is Task.translation else 0
    return logits


@pytest.mark.parametrize("options", ENCODER_DECODERS.values(), ids=ENCODER_DECODERS)
def test_log_probabilities_of_an_encoder_decoder_are_equal(tokenizer, options, tmp_path):
    bundle, pairs, names = random_bundle(tokenizer, options), random_pairs(tokenizer, 13), vocabulary(tokenizer)
    export_ctranslate2(bundle, tmp_path / "model")
    translator = ctranslate2.Translator(str(tmp_path / "model"), compute_type="float32", intra_threads=1)
    sides = [[[names[id_] for id_ in pair[side]] for pair in pairs] for side in (0, 1)]
    compared = 0
    for (source, target), found in zip(pairs, translator.score_batch(*sides), strict=True):
        log_probs = our_logits(bundle, source, target).log_softmax(-1)
        ids = [*target, tokenizer.special.eos]
        expected = log_probs[torch.arange(len(ids)), ids]
        torch.testing.assert_close(torch.tensor(found.log_probs), expected, atol=TOLERANCE, rtol=0)
        compared += len(ids)
    assert compared == sum(len(target) + 1 for _, target in pairs)


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("options", DECODER_ONLY.values(), ids=DECODER_ONLY)
def test_logits_of_a_decoder_only_model_are_equal(tokenizer, options, task, tmp_path):
    bundle = random_bundle(tokenizer, {"architecture": Architecture.decoder_only, **options})
    bundle = replace(bundle, task=task)
    pairs, names, bos = random_pairs(tokenizer, 13), vocabulary(tokenizer), tokenizer.special.bos
    export_ctranslate2(bundle, tmp_path / "model")
    generator = ctranslate2.Generator(str(tmp_path / "model"), compute_type="float32", intra_threads=1)
    rows = [[names[id_] for id_ in [*source, bos, *target]] for source, target in pairs]
    found = torch.from_numpy(np.array(generator.forward_batch(rows)))
    for row, (source, target) in enumerate(pairs):
        theirs = found[row, len(source) : len(source) + len(target) + 1]
        ours = our_logits(bundle, source, target)
        compared = ours[0] > -1000
        assert compared.sum() == tokenizer.vocab_size - (2 if task is Task.translation else 0)
        assert (theirs[:, ~compared] < -1000).all()
        torch.testing.assert_close(theirs[:, compared], ours[:, compared], atol=TOLERANCE, rtol=0)


TRANSLATING: dict[str, tuple[dict[str, Any], float]] = {
    "the original": ({}, 3.0),
    "Pre-LN": ({"norm_placement": NormPlacement.pre}, 1.0),
    "RMSNorm, gate": ({"norm": NormKind.rms_norm, "gated": True}, 2.0),
    "DeepNorm, halves": ({**DEEP, "positions": PositionKind.sinusoidal_halves}, 2.0),
    "RoPE, grouped heads": ({**RMS_PRE, **ROPE, "num_kv_heads": 2}, 2.0),
    "GPT-2": (DECODER_ONLY["GPT-2"] | {"max_positions": 80, "architecture": Architecture.decoder_only}, 2.0),
    "LLaMA 3": (DECODER_ONLY["LLaMA 3"] | {"architecture": Architecture.decoder_only}, 2.0),
    "decoder-only, sinusoids": ({"architecture": Architecture.decoder_only}, 2.0),
}
