"""A tiny language model that several packages' tests share."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch

from seq2seq.bundle import Bundle, save_bundle
from seq2seq.config import Architecture, ModelConfig, NormPlacement, PositionKind, Task, TokenizerConfig, Tying
from seq2seq.models import build_model
from seq2seq.text.tokenizer_training import train_tokenizer


@pytest.fixture(scope="session")
def tiny_writer(tiny_lines: list[str]) -> Bundle:
    """A random language model in float64, scaled so that some of its texts end early and few bytes are no characters.

    Its tokenizer keeps line feeds and spells rare characters as bytes; 300 pieces are rounded up to 304 rows. Shared by
    all tests: leave it as it is.
    """
    config = TokenizerConfig(vocab_size=300, normalization="identity", keep_whitespace=True)
    tokenizer, _ = train_tokenizer([line + "\n" for line in tiny_lines], config)
    sizes = ModelConfig(
        d_model=16,
        num_heads=2,
        d_ff=24,
        num_encoder_layers=0,
        num_decoder_layers=2,
        architecture=Architecture.decoder_only,
        tying=Tying.none,
        positions=PositionKind.rope,
        norm_placement=NormPlacement.pre,
        output_bias=True,
        vocab_multiple=8,
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        model = build_model(sizes, tokenizer.vocab_size, tokenizer.vocab_size).double().eval()
        model.output.mul_(3)
        assert model.output_bias is not None
        model.output_bias[sorted(tokenizer.byte_ids)] -= 4
        model.output_bias[tokenizer.special.eos] += 0.5
        for weight in model.decoder.layers.parameters():
            if weight.dim() > 1:
                weight.mul_(4)
    return Bundle(model, sizes, tokenizer, tokenizer, task=Task.language_model)


@pytest.fixture(scope="session")
def tiny_writer_folder(tiny_writer: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The language model on disk, in float32."""
    folder = tmp_path_factory.mktemp("writer") / "bundle"
    save_bundle(dataclasses.replace(tiny_writer, model=copy.deepcopy(tiny_writer.model).float()), folder)
    return folder
