"""`seq2seq info` for every family: network in words, parameters of all parts, tokenizers of all formats."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2seq.bundle import Bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.cli.info import describe, in_words
from seq2seq.config import (
    Activation,
    Architecture,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    RopeConfig,
    RopeScaling,
    Task,
    TokenizerConfig,
    TokenizerKind,
    Tying,
)
from seq2seq.models import build_model
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 3, "num_decoder_layers": 2}
GPT = ModelConfig(
    8, 2, 12, 0, 5, Architecture.decoder_only, tying=Tying.two_way, norm_placement=NormPlacement.pre,
    positions=PositionKind.learned, max_positions=1024, activation=Activation.gelu_tanh,
)  # fmt: skip
LLAMA = ModelConfig(
    16, 4, 24, 0, 2, Architecture.decoder_only, num_kv_heads=2, d_head=6, tying=Tying.none, norm=NormKind.rms_norm,
    norm_placement=NormPlacement.pre, positions=PositionKind.rope, activation=Activation.silu, gated=True, qk_norm=True,
    rope=RopeConfig(base=500000.0, scaling=RopeScaling.linear, factor=4.0), prefix_lm=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> SentencePieceTokenizer:
    lines = [f"one dog and {number} cats run" for number in range(40)]
    return train_tokenizer(lines, TokenizerConfig(kind=TokenizerKind.char, vocab_size=30, byte_fallback=False))[0]


def test_the_network_is_told_in_words():
    assert in_words(ModelConfig(**SIZES, decoder_d_ff=2048)) == {
        "architecture": "encoder_decoder",
        "layers": "3 encoder, 2 decoder, width 8",
        "heads": "2 of width 4",
        "norm": "layer_norm, post",
        "positions": "sinusoidal",
        "feed_forward": "relu, width 12 and 2,048",
        "tying": "three_way",
    }
    assert in_words(GPT) == {
        "architecture": "decoder_only",
        "layers": "5, width 8",
        "heads": "2 of width 4",
        "norm": "layer_norm, pre",
        "positions": "learned, 1,024 of them",
        "feed_forward": "gelu_tanh, width 12",
        "tying": "two_way",
    }
    assert in_words(LLAMA) == {
        "architecture": "decoder_only, source read both ways",
        "layers": "2, width 16",
        "heads": "4 of width 6, 2 for keys and values, norm on queries and keys",
        "norm": "rms_norm, pre",
        "positions": "rope, base 500000, linear scaling by 4",
        "feed_forward": "gated silu, width 24",
        "tying": "none",
    }


@pytest.mark.parametrize("config", [GPT, LLAMA, ModelConfig(**SIZES, output_bias=True)])
def test_every_parameter_is_counted_once(tokenizer, config):
    size = tokenizer.vocab_size
    model = build_model(config, size, size)
    counts = describe(Bundle(model, config, tokenizer, tokenizer))["parameters"]
    assert counts["total"] == sum(weight.numel() for weight in model.parameters())
    assert sum(counts.values()) == 2 * counts["total"]
    tables = {GPT: size + 1024, LLAMA: 2 * size}.get(config)
    if tables is None:
        assert counts["embeddings_and_output"] == size * 8 + size
        assert list(counts) == ["total", "embeddings_and_output", "encoder_layers", "decoder_layers"]
    else:
        assert counts["embeddings_and_output"] == tables * config.d_model
        assert list(counts) == ["total", "embeddings_and_output", "decoder_layers"]


def test_a_language_model_has_no_languages_and_no_search_options(tokenizer, tmp_path: Path):
    model = build_model(GPT, tokenizer.vocab_size, tokenizer.vocab_size)
    save_bundle(Bundle(model, GPT, tokenizer, tokenizer, task=Task.language_model), tmp_path / "b")

    facts = json.loads(CliRunner().invoke(app, ["info", str(tmp_path / "b"), "--format", "json"]).stdout)

    assert [*facts] == ["format_version", "task", "network", "model", "parameters", "tokenizer", "provenance"]
    assert facts["task"] == "language_model"
    assert facts["tokenizer"]["kind"] == "char"
    table = CliRunner().invoke(app, ["info", str(tmp_path / "b")]).stdout
    assert "task                         language_model\n" in table
    assert "  positions                  learned, 1,024 of them\n" in table


def test_two_tokenizers_with_one_table_are_a_joint_vocabulary(tokenizer, tmp_path: Path):
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    table = json.dumps({piece: id_ for id_, piece in enumerate(reversed(pieces))}).encode()
    other, _ = train_tokenizer(["ab"] * 9, TokenizerConfig(TokenizerKind.char, vocab_size=30, byte_fallback=False))
    sides = [MarianTokenizer(model.model, table, len(pieces) - 1) for model in (tokenizer, other)]
    config = ModelConfig(**SIZES)
    save_bundle(Bundle(build_model(config, len(pieces), len(pieces)), config, *sides), tmp_path / "b")

    facts = json.loads(CliRunner().invoke(app, ["info", str(tmp_path / "b"), "--format", "json"]).stdout)

    assert facts["joint_vocabulary"] is True
    assert [facts[f"{side}_tokenizer"]["format"] for side in ("source", "target")] == ["marian", "marian"]
    assert facts["source_tokenizer"]["special_ids"]["bos"] == facts["source_tokenizer"]["special_ids"]["pad"]
