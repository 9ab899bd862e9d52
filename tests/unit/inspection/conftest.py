"""Models of any family with the tiny tokenizer, to look into."""

import dataclasses
from collections.abc import Callable

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import ModelConfig, Task
from seq2seq.models import build_model


@pytest.fixture(scope="session")
def bundle_of(tiny_bundle: Bundle) -> Callable[..., Bundle]:
    """Makes a bundle of a random model in float64 with a tokenizer of 61 pieces."""

    def build(config: ModelConfig, task: Task = Task.translation) -> Bundle:
        size = tiny_bundle.source_tokenizer.vocab_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = build_model(config, size, size).double().eval().requires_grad_(False)
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight), alpha=0.3)  # so that weights of attention differ widely
        return dataclasses.replace(tiny_bundle, model=model, model_config=config, task=task)

    return build
