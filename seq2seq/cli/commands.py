"""The subcommands of `seq2seq`, each imported only when it is called: the list of them is to be there at once."""

import importlib
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS: dict[str, tuple[str, str, str]] = {
    "train": (
        "train",
        "train",
        "Train a model: options are NAME=VALUE; `seq2seq train --help` lists them.",
    ),
    "verify-resume": (
        "verify_resume",
        "verify_resume",
        "Train twice: straight, and stopped in the middle and resumed. Exit code 0 if both are equal bit for bit, else "
        "1.",
    ),
    "translate": (
        "translate",
        "translate",
        "Translate a file, or what comes on standard input: line n of the output translates line n of the input.",
    ),
    "generate": (
        "generate",
        "generate",
        "Go on from prompts: a file or standard input, one a line; one given as option; or typed at a terminal.",
    ),
    "evaluate": (
        "evaluate",
        "evaluate",
        "Score translations: those in a file, or those that a model gives for a test set.",
    ),
    "score": (
        "score",
        "score",
        "Print the log-probability of each translation: the sum over its pieces, the end included, in nats.",
    ),
    "doctor": (
        "doctor",
        "doctor",
        "Check that a model gives the same answers alone and in batches, with and without cache, in one process and "
        "two.",
    ),
    "diagnose": (
        "diagnose",
        "diagnose",
        "Look for search errors and for translations that look wrong, and sweep beam sizes and length penalties.",
    ),
    "average": (
        "average",
        "average",
        "Average the weights of checkpoints into a bundle, often some tenths of a BLEU point better than any of them.",
    ),
    "report": (
        "report",
        "report",
        "Write a page with the curves, sample translations, options and versions of a run; it needs no network.",
    ),
    "convert": (
        "convert",
        "convert",
        "Convert a model: other people's weights into a bundle, and a bundle for other programs.",
    ),
    "info": ("info", "info", "Show what a bundle holds, after checking that its parts fit together."),
    "data": ("data", "app", "Train a tokenizer; check parallel text; learn a shortlist."),
    "inspect": ("inspect", "app", "Look inside a model: shapes, costs, attention, heads."),
}
"""By name: the module in `seq2seq.cli`, the function (or group) in it, and the first sentence of its help."""

_OWN_OPTIONS: dict[str, dict[str, Any]] = {
    # what follows the word `train` belongs to Hydra, --help too
    "train": {
        "add_help_option": False,
        "context_settings": {"ignore_unknown_options": True, "help_option_names": []},
    }
}


class _Listed(TyperCommand):
    """Stands for a command in the list: its name and the first sentence of its help."""


class LazyCommands(TyperGroup):
    """A group that has `COMMANDS` beside its own, and imports that which is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        listed: dict[str, Any] = {name: _Listed(name, help=help_) for name, (_, _, help_) in COMMANDS.items()}
        self.commands = {**listed, **self.commands}

    def resolve_command(self, ctx: Any, args: Any) -> Any:
        """The command that is called, and what is left of the words."""
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, _Listed):
            assert name is not None, "what was found has a name"
            command = load(name)
        return name, command, rest


def load(name: str) -> Any:
    """The command of that name, ready to run."""
    module, attribute, _ = COMMANDS[name]
    found = getattr(importlib.import_module(f"seq2seq.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
        alone.command(name, **_OWN_OPTIONS.get(name, {}))(found)
        command = typer.main.get_command(alone)
    command.name = name
    return command
