"""CTranslate2 computes what our models compute, and finds the translations that our search finds."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
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
from seq2seq.interop import import_hugging_face
from seq2seq.interop.ctranslate2 import export_ctranslate2, vocabulary
from seq2seq.models import build_model
from seq2seq.text.lines import read_lines
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translator import Translator
from seq2seq.translator.batches import pad

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
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 24, "num_encoder_layers": 1, "num_decoder_layers": 2}
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


ONE_STACK = {"architecture": Architecture.decoder_only}

TRANSLATING: dict[str, tuple[int, dict[str, Any]]] = {
    "the original": (26, {}),
    "Pre-LN": (22, {"norm_placement": NormPlacement.pre}),
    "RMSNorm, gate": (16, {"norm": NormKind.rms_norm, "gated": True}),
    "DeepNorm, halves": (24, {**DEEP, "positions": PositionKind.sinusoidal_halves}),
    "RoPE, grouped heads": (9, {**RMS_PRE, **ROPE, "num_kv_heads": 2}),
    "GPT-2": (3, {**DECODER_ONLY["GPT-2"], "max_positions": 80, **ONE_STACK}),
    "LLaMA 3": (21, {**DECODER_ONLY["LLaMA 3"], **ONE_STACK}),
    "decoder-only, sinusoids": (6, ONE_STACK),
}
"""Seeds with which random weights give translations that differ and end, and options."""

LIMIT = 20
"""Pieces of a translation, EOS included."""


def with_ends(bundle: Bundle, lines: list[str]) -> Bundle:
    """The model, with the bias of EOS with which most greedy translations end between the first step and the limit."""
    special, bias = bundle.target_tokenizer.special, bundle.model.output_bias
    assert bias is not None
    with torch.no_grad():
        bias.zero_()
        # Our probabilities count what is never produced, CTranslate2's do not: as good as nothing in trained models.
        bias[[special.pad, special.bos]] = -40.0
    endless = DecodeConfig(beam_size=1, min_length=LIMIT, max_length=LIMIT, max_length_factor=100.0)
    endless_ones = Translator(bundle, "cpu").translate(lines, endless)
    src, src_valid = pad([translation.source_ids[0] for translation in endless_ones], special.pad, torch.device("cpu"))
    tgt_in = torch.tensor([[special.bos, *translation.candidates[0].ids[:-1]] for translation in endless_ones])
    with torch.no_grad():
        logits = bundle.model(src, src_valid, tgt_in)
    others = logits.clone()
    others[..., special.eos] = -torch.inf
    margins = others.amax(-1) - logits[..., special.eos]

    def num_good(candidate: float) -> int:
        ended = margins < candidate
        first = torch.where(ended.any(-1), ended.int().argmax(-1), LIMIT)
        return int(((first >= 2) & (first < LIMIT - 5)).sum())

    candidates = margins.flatten().quantile(torch.linspace(0, 0.5, 60)).tolist()
    with torch.no_grad():
        bias[special.eos] = max(candidates, key=num_good)
    return bundle


SEARCHES = [
    DecodeConfig(
        beam_size=beam_size,
        penalty_form=PenaltyForm.power,
        length_penalty=exponent,
        max_length=LIMIT,
        max_length_factor=100.0,
    )
    for beam_size, exponent in ((1, 0.0), (4, 0.6))
]


def theirs(folder: Path, bundle: Bundle, sources: list[list[str]], decode: DecodeConfig, patience: float) -> list[Any]:
    """The pieces of CTranslate2's translations, EOS included, and their scores, found with equal settings.

    Equal are: the limit (of which EOS is a part), a score of log-probability over length^p with EOS counted in the
    length, and a stop only when nothing better can come. CTranslate2 stops at beam_size * patience finished hypotheses.
    """
    settings: dict[str, Any] = {
        "beam_size": decode.beam_size,
        "length_penalty": 0.0 if decode.penalty_form is PenaltyForm.none else decode.length_penalty,
        "patience": patience,
        "return_end_token": True,
        "return_scores": True,
    }
    device = {"compute_type": "float32", "inter_threads": 1, "intra_threads": 1}
    if bundle.model_config.architecture is Architecture.encoder_decoder:
        lengths = {"max_decoding_length": decode.max_length, "min_decoding_length": 0}
        translator = ctranslate2.Translator(str(folder), **device)
        found = translator.translate_batch(sources, max_batch_size=32, **lengths, **settings)
        return [(result.hypotheses[0], result.scores[0]) for result in found]
    bos = bundle.target_tokenizer.pieces([bundle.target_tokenizer.special.bos])
    lengths = {"max_length": decode.max_length, "min_length": 0}
    generator = ctranslate2.Generator(str(folder), **device)
    found = generator.generate_batch(
        [source + bos for source in sources],
        include_prompt_in_result=False,
        # prompts of other lengths in the batch would forbid EOS in some beams at first
        max_batch_size=1,
        **lengths,
        **settings,
    )
    return [(result.sequences[0], result.scores[0]) for result in found]


@pytest.mark.parametrize(("seed", "options"), TRANSLATING.values(), ids=TRANSLATING)
def test_translations_are_equal(tokenizer, tiny_lines, seed, options, tmp_path):
    lines = tiny_lines[:24]
    bundle = with_ends(random_bundle(tokenizer, {**options, "output_bias": True}, seed=seed), lines)
    translator = Translator(bundle, "cpu")
    export_ctranslate2(bundle, tmp_path / "model")
    sources = [tokenizer.pieces(tokenizer.encode(line)) for line in lines]
    for decode in SEARCHES:
        ours = [translation.candidates[0] for translation in translator.translate(lines, decode)]
        compared = []
        found = theirs(tmp_path / "model", bundle, sources, decode, patience=50.0)
        for candidate, (pieces, score) in zip(ours, found, strict=True):
            # At the limit CTranslate2 cuts, and this package closes with EOS; a beam may then choose otherwise.
            if candidate.hit_limit or pieces[-1] != "</s>":
                assert decode.beam_size > 1 or pieces[:-1] == list(candidate.tokens[:-1])
                continue
            compared.append(tuple(pieces))
            assert pieces == list(candidate.tokens)
            assert score == pytest.approx(candidate.score, abs=1e-4)
        assert len(compared) >= 12
        assert len(set(compared)) >= 8


SHARED = Path(__file__).parents[3] / "shared"
MARIAN, MULTI30K = SHARED / "models" / "multi30k_de_en_marian", SHARED / "data" / "multi30k"


@dataclass(frozen=True)
class Real:
    """A trained model, sentences and their references."""

    bundle: Bundle
    sources: list[str]
    references: list[str]

    def theirs(self, folder: Path, decode: DecodeConfig) -> list[str]:
        """CTranslate2's translations, of the model in the given folder."""
        tokenizer = self.bundle.source_tokenizer
        sources = [tokenizer.pieces(tokenizer.encode(line)) for line in self.sources]
        names = {name: id_ for id_, name in enumerate(vocabulary(self.bundle.target_tokenizer))}
        found = theirs(folder, self.bundle, sources, decode, patience=2.0)
        return [self.bundle.target_tokenizer.decode(names[piece] for piece in pieces) for pieces, _ in found]


@pytest.fixture(scope="module")
def real() -> Real:
    """200 sentences of Multi30k, and the model that is trained for them."""
    if not (MARIAN.is_dir() and MULTI30K.is_dir()):
        pytest.skip(f"needs {MARIAN.name} and {MULTI30K.name} in shared/ beside the checkout")
    sources, references = (list(read_lines(MULTI30K / f"test2016.{side}.gz"))[:200] for side in ("de", "en"))
    return Real(import_hugging_face(MARIAN), sources, references)


REAL_SEARCHES = {
    "greedy": DecodeConfig(beam_size=1, penalty_form=PenaltyForm.none, max_length=100),
    "beam 5": DecodeConfig(beam_size=5, penalty_form=PenaltyForm.power, length_penalty=0.6, max_length=100),
}


@pytest.mark.parametrize("decode", REAL_SEARCHES.values(), ids=REAL_SEARCHES)
def test_a_trained_model_gives_the_same_200_translations(real, decode, tmp_path):
    export_ctranslate2(real.bundle, tmp_path / "model")
    ours = [translation.text for translation in Translator(real.bundle, "cpu").translate(real.sources, decode)]
    assert real.theirs(tmp_path / "model", decode) == ours
    assert len(set(ours)) > 190


def test_8_bit_weights_of_a_trained_model_translate_nearly_as_well(real, tmp_path):
    decode, scores, sizes = REAL_SEARCHES["greedy"], {}, {}
    for quantization in ("float32", "int8"):
        export_ctranslate2(real.bundle, tmp_path / quantization, quantization)
        found = real.theirs(tmp_path / quantization, decode)
        scores[quantization] = sacrebleu.corpus_bleu(found, [real.references]).score
        sizes[quantization] = (tmp_path / quantization / "model.bin").stat().st_size
    assert scores["float32"] > 32
    assert abs(scores["int8"] - scores["float32"]) < 0.5
    assert sizes["int8"] < 0.35 * sizes["float32"]
