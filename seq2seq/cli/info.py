"""`seq2seq info`: what a bundle holds: network, vocabulary, search defaults, and where the weights come from."""

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.config import Architecture, ModelConfig, PositionKind, RopeScaling, Task, to_dict

if TYPE_CHECKING:
    from seq2seq.bundle import Bundle


class InfoFormat(Enum):
    """How the facts are printed."""

    table = "table"
    json = "json"


def info(
    bundle: Annotated[Path, typer.Argument(help="The folder `bundle` of a training run.")],
    form: Annotated[InfoFormat, typer.Option("--format", help="For people or for programs.")] = InfoFormat.table,
) -> None:
    """Show what a bundle holds, after checking that its parts fit together."""
    from seq2seq.bundle import load_bundle

    facts = describe(load_bundle(bundle))
    if form is InfoFormat.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        print("\n".join(table(facts)))


def describe(bundle: "Bundle") -> dict[str, Any]:
    """The facts about a bundle, as plain builtins that JSON can hold."""
    from seq2seq.bundle import FORMAT_VERSION

    facts: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "task": bundle.task.name,
        "network": in_words(bundle.model_config),
        "model": to_dict(bundle.model_config),
        "parameters": _count(bundle),
    }
    source, target = bundle.source_tokenizer, bundle.target_tokenizer
    if bundle.task is Task.translation:
        facts["languages"] = dict(zip(("source", "target"), bundle.languages, strict=True))
        facts["joint_vocabulary"] = source.vocabulary_sha256 == target.vocabulary_sha256
    if bundle.joint:
        facts["tokenizer"] = source.describe()
    else:
        facts |= {"source_tokenizer": source.describe(), "target_tokenizer": target.describe()}
    if bundle.task is Task.translation:
        facts["decode"] = to_dict(bundle.decode)
    return facts | {"provenance": bundle.provenance}


def in_words(config: ModelConfig) -> dict[str, str]:
    """What tells the families apart, a few words each; sizes that follow from others are worked out."""
    decoder_only = config.architecture is Architecture.decoder_only
    layers = [f"{config.num_decoder_layers:,}"]
    if not decoder_only:
        layers = [f"{config.num_encoder_layers:,} encoder", f"{config.num_decoder_layers:,} decoder"]
    heads = f"{config.num_heads:,} of width {config.head_width:,}"
    if config.kv_heads != config.num_heads:
        heads += f", {config.kv_heads:,} for keys and values"
    widths = dict.fromkeys(f"{width or config.d_ff:,}" for width in (config.encoder_d_ff, config.decoder_d_ff))
    feed_forward = f"{'gated ' if config.gated else ''}{config.activation.name}, width {' and '.join(widths)}"
    return {
        "architecture": config.architecture.name + (", source read both ways" if config.prefix_lm else ""),
        "layers": ", ".join(layers) + f", width {config.d_model:,}",
        "heads": heads + (", norm on queries and keys" if config.qk_norm else ""),
        "norm": f"{config.norm.name}, {config.norm_placement.name}",
        "positions": _positions(config),
        "feed_forward": feed_forward,
        "tying": config.tying.name,
    }


def _positions(config: ModelConfig) -> str:
    if config.positions is PositionKind.learned:
        return f"learned, {config.max_positions:,} of them"
    if config.positions is not PositionKind.rope:
        return config.positions.name
    rope = config.rope
    scaled = f", {rope.scaling.name} scaling by {rope.factor:g}" if rope.scaling is not RopeScaling.none else ""
    return f"rope, base {rope.base:g}{scaled}"


def _count(bundle: "Bundle") -> dict[str, int]:
    """Numbers of parameters; a tied matrix counts once, and only with the embeddings."""
    model = bundle.model
    ends = [table.weight for table in _embedding_tables(model)] + [model.output]
    if model.output_bias is not None:
        ends.append(model.output_bias)
    tables = {id(weight): weight for weight in ends}
    counts = {"embeddings_and_output": sum(weight.numel() for weight in tables.values())}
    for name, part in model.named_children():
        counts[f"{name}_layers"] = sum(weight.numel() for weight in part.parameters() if id(weight) not in tables)
    total = sum(weight.numel() for weight in model.parameters())
    assert sum(counts.values()) == total
    return {"total": total} | counts


def _embedding_tables(model: Any) -> list[Any]:
    from torch import nn

    return [module for module in model.modules() if isinstance(module, nn.Embedding)]


def table(facts: dict[str, Any], indent: str = "") -> list[str]:
    """The facts as lines of two columns; numbers of parameters and pieces with thousands separators."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{name}" if value else f"{indent}{name}: none")
            lines += table(value, indent + "  ")
        else:
            lines.append(f"{indent}{name:<{28 - len(indent)}} {_written(value)}")
    return lines


def _written(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(_written(item) for item in value)
    return str(value)
