"""A model with the paper's sinusoids as one with Marian's: the same columns in another order."""

from dataclasses import replace

import torch

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, PositionKind
from seq2seq.models import build_model
from seq2seq.shapes import Tensor

_COLUMNS = ("rows.weight", "key_value.weight", "query.weight", "inner.weight")
"""Ends of the names of matrices that read the residual stream: its entries are their columns. So are the output's."""
_ELSEWHERE = ("key_value.bias", "query.bias", "inner.bias", "output_bias", "query_norm.weight", "key_norm.weight")
"""Ends of the names of parameters whose entries are others."""


def in_halves(bundle: Bundle) -> Bundle:
    """The same bundle, if its positions are not sinusoids in turn; else one with all sines before all cosines.

    Every entry of the residual stream is renamed: entry 2i becomes entry i, entry 2i + 1 becomes D/2 + i. Norms and
    residual additions treat all entries alike, so the model computes the same up to the order of sums.
    """
    config = bundle.model_config
    if config.positions is not PositionKind.sinusoidal or config.architecture is not Architecture.encoder_decoder:
        return bundle
    config = replace(config, positions=PositionKind.sinusoidal_halves)
    with torch.random.fork_rng(devices=[]):
        model = build_model(config, bundle.source_tokenizer.vocab_size, bundle.target_tokenizer.vocab_size)
    model.to(bundle.model.output).eval()
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    old = dict(bundle.model.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_reordered(name, old[name], order.to(parameter.device)))
    return replace(bundle, model=model, model_config=config)


def _reordered(name: str, parameter: Tensor, order: Tensor) -> Tensor:
    if name.endswith(_ELSEWHERE):
        return parameter
    return parameter[:, order] if name == "output" or name.endswith(_COLUMNS) else parameter[order]
