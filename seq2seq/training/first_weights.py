"""Fine-tuning: a run that begins with a bundle's weights instead of random ones, and trains all or part of them."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from seq2seq.bundle import load_bundle
from seq2seq.config import Architecture, DataKind, InitConfig, ModelConfig, TrainConfig
from seq2seq.models import DecoderOnly, EncoderDecoder, Transformer
from seq2seq.shapes import Tensor
from seq2seq.training.data_module import Tokenizers
from seq2seq.training.run_folder import read_run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FirstWeights:
    """What a fine-tuned model has from before."""

    model: ModelConfig
    """Its sizes and switches."""
    tokenizers: Tokenizers
    """Its tokenizers."""
    languages: tuple[str | None, str | None]
    """Codes of source and target, where known."""
    weights: dict[str, Tensor] | None
    """Its weights; None in a run that is resumed, whose checkpoint has them."""
    facts: dict[str, Any]
    """Where it came from."""


def read_first_weights(config: TrainConfig) -> FirstWeights | None:
    """What `init.from` names; None without it.

    A resumed run has in its own folder all that it needs of the bundle, which may be gone by then.

    Raises:
        FileNotFoundError: if there is no such bundle, or the checkpoint to resume from lies in no run's folder.
        ValueError: if the bundle is damaged.
    """
    if config.init.from_ is None:
        return None
    if config.resume is not None:
        before, tokenizers, facts = read_run(Path(config.resume).absolute().parent.parent)
        languages = before.data.source_lang, before.data.target_lang
        return FirstWeights(before.model, tokenizers, languages, None, facts.get("init", {}))
    bundle = load_bundle(config.init.from_)
    log.info(
        "fine-tuning %s (%s, %s): weights, sizes and tokenizers are its own, and of model.* only the dropouts count",
        config.init.from_,
        bundle.model_config.architecture.name,
        bundle.task.name,
    )
    _warn_of_languages(config, bundle.languages)
    return FirstWeights(
        bundle.model_config,
        Tokenizers(bundle.source_tokenizer, bundle.target_tokenizer),
        bundle.languages,
        bundle.model.state_dict(),
        {"from": config.init.from_, "task": bundle.task.name, "provenance": bundle.provenance},
    )


def _warn_of_languages(config: TrainConfig, languages: tuple[str | None, str | None]) -> None:
    """Say so when the text is of other languages than the bundle: it may be meant, and may be a mistake."""
    ours = config.data.source_lang, config.data.target_lang
    if any(one and other and one != other for one, other in zip(ours, languages, strict=True)):
        log.warning(
            "init.from=%s translates from %s to %s, the text of this run is %s to %s; its tokenizer may not suit it",
            config.init.from_,
            *languages,
            *ours,
        )


def fine_tuned(config: TrainConfig, first: FirstWeights) -> TrainConfig:
    """The options with those of the network replaced by the bundle's, and its languages where none are given.

    Raises:
        ValueError: if the bundle's network cannot be trained on this data or with this loss.
    """
    typed = config.model
    model = replace(
        first.model,
        dropout=typed.dropout,
        attention_dropout=typed.attention_dropout,
        activation_dropout=typed.activation_dropout,
    )
    if config.data.kind is DataKind.text:
        if model.architecture is Architecture.encoder_decoder:
            raise ValueError(
                f"init.from={config.init.from_} is an encoder-decoder, which goes on from no text without a source; "
                "give a decoder-only bundle, or pairs of lines instead of data.kind=text"
            )
        if model.prefix_lm:
            log.info("plain text has no prefix that is seen whole: the new bundle has model.prefix_lm=false")
            model = replace(model, prefix_lm=False)
    data = replace(
        config.data,
        source_lang=config.data.source_lang or first.languages[0],
        target_lang=config.data.target_lang or first.languages[1],
    )
    config = replace(config, model=model, data=data)
    try:
        config.check_model()
    except ValueError as problem:
        raise ValueError(f"init.from={config.init.from_} does not suit this run: {problem}") from problem
    return config


def freeze(model: Transformer, init: InitConfig) -> None:
    """Take the chosen parts out of training: no gradient is computed for them.

    A matrix that is embedding and output at once counts as embedding.

    Raises:
        ValueError: if the model lacks a part, or nothing would be left to train.
    """
    if init.freeze_encoder and not isinstance(model, EncoderDecoder):
        raise ValueError(
            f"init.freeze_encoder=true, but init.from={init.from_} is decoder-only; use init.freeze_decoder or "
            "init.freeze_embeddings"
        )
    for part in _frozen(model, init):
        part.requires_grad_(False)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if not trained:
        raise ValueError("init.freeze_* leaves no weight to train; leave one of them out")
    if trained < model.num_parameters():
        log.info(
            "%s of %s parameters are trained, the others are frozen", f"{trained:,}", f"{model.num_parameters():,}"
        )


def _frozen(model: Transformer, init: InitConfig) -> Iterator[nn.Module]:
    assert isinstance(model, EncoderDecoder | DecoderOnly)
    stacks = [(model.decoder, init.freeze_decoder)]
    if isinstance(model, EncoderDecoder):
        stacks.append((model.encoder, init.freeze_encoder))
    for stack, frozen in stacks:
        if init.freeze_embeddings:
            yield stack.embedding
        if frozen:
            yield from (stack.layers, stack.final_norm)
