"""`seq2seq info`: what a bundle holds: sizes, vocabulary, search defaults, and where the weights come from."""

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.config import to_dict

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

    source, target = bundle.languages
    return {
        "format_version": FORMAT_VERSION,
        "languages": {"source": source, "target": target},
        "model": to_dict(bundle.model_config),
        "parameters": _count(bundle),
        "joint_vocabulary": bundle.joint,
        "source_tokenizer": bundle.source_tokenizer.describe(),
        "target_tokenizer": bundle.target_tokenizer.describe(),
        "decode": to_dict(bundle.decode),
        "provenance": bundle.provenance,
    }


def _count(bundle: "Bundle") -> dict[str, int]:
    """Numbers of parameters; a tied matrix counts once, and only with the embeddings."""
    model = bundle.model
    total = sum(weight.numel() for weight in model.parameters())
    tables = {id(table.weight): table.weight for table in _embedding_tables(model)} | {id(model.output): model.output}
    embeddings = sum(weight.numel() for weight in tables.values())

    def layers(part: Any) -> int:
        return sum(weight.numel() for weight in part.parameters() if id(weight) not in tables)

    counts = {
        "total": total,
        "embeddings_and_output": embeddings,
        "encoder_layers": layers(model.encoder),
        "decoder_layers": layers(model.decoder),
    }
    assert embeddings + counts["encoder_layers"] + counts["decoder_layers"] == total
    return counts


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
