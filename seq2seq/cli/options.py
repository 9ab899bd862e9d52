"""What Hydra and `seq2seq train --help` are told about the options, all of it taken from `seq2seq.config`.

`schema` makes the classes that Hydra composes YAML against, `explain` the text of the help, and `check_overrides`
refuses a misspelt name on the command line before Hydra composes anything.
"""

import ast
import dataclasses
import difflib
import functools
import inspect
import keyword
import re
import typing
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq import config
from seq2seq.cli import UsageError
from seq2seq.config import TrainConfig, nearest, option_name

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

MISSING = "???"


def schema(cls: type) -> type:
    """A twin of the dataclass `cls` that OmegaConf can fill: the same fields, types and defaults.

    OmegaConf makes a frozen dataclass read-only and calls default factories, checks included, before any value has
    been given. The twin is neither frozen nor checked; `seq2seq.config.from_dict` does the checks on the whole.
    """
    hints = typing.get_type_hints(cls)
    columns: list[tuple[str, Any, Any]] = []
    for declared in dataclasses.fields(cls):
        hint: Any = hints[declared.name]
        default: Any
        if dataclasses.is_dataclass(hint) and any(keyword.iskeyword(name) for name in _names(hint)):
            # no class can have a field `from`; a dict can, and from_dict checks what is in it
            values: dict[str, Any] = {option_name(field.name): field.default for field in dataclasses.fields(hint)}
            hint = dict[str, Any]
            default = dataclasses.field(default_factory=functools.partial(dict, values))
        elif dataclasses.is_dataclass(hint):
            hint = schema(typing.cast(type, hint))
            default = dataclasses.field(default_factory=hint)
        elif declared.default_factory is not dataclasses.MISSING:
            default = dataclasses.field(default_factory=declared.default_factory)
        else:
            required = declared.default is dataclasses.MISSING
            default = dataclasses.field(default=MISSING if required else declared.default)
        columns.append((declared.name, hint, default))
    return dataclasses.make_dataclass(cls.__name__, columns)


def _names(cls: Any) -> list[str]:
    """The names of a dataclass' fields as users type them."""
    return [option_name(declared.name) for declared in dataclasses.fields(cls)]


def option_names(cls: type = TrainConfig, prefix: str = "") -> Iterator[str]:
    """The dotted names of all options, groups of options included, in the order of their declaration."""
    hints = typing.get_type_hints(cls)
    for declared in dataclasses.fields(cls):
        yield prefix + option_name(declared.name)
        if dataclasses.is_dataclass(hints[declared.name]):
            yield from option_names(typing.cast(type, hints[declared.name]), prefix + declared.name + ".")


def check_overrides(overrides: Sequence[str], folders: Sequence[Path]) -> None:
    """Refuse an override whose name is neither an option nor a config group.

    Hydra would accept ``+model.typo=1`` and answers other misspellings with advice to append the misspelt name.

    Args:
        overrides: Hydra's overrides as typed, for example ``model.d_model=256`` or ``+experiment=demo``.
        folders: Where configuration files are looked for; their sub-folders are the config groups.

    Raises:
        UsageError: naming the nearest right name, or for an override that cannot be read.
    """
    parsed = [_parse(override) for override in overrides]
    names = list(option_names())
    groups = _groups(folders)
    for override in parsed:
        name = override.key_or_group
        if name == "hydra" or name.startswith(("hydra.", "hydra/")):
            continue
        if name in groups:
            _check_choice(override, groups[name], names)
        elif name.split(".")[0] in ("logger", "callbacks"):
            _check_own(override, groups)
        elif name not in names:
            raise UsageError(f"unknown option '{name}'{_nearest_option(name, [*names, *groups])}")


def _parse(override: str) -> "Override":
    """One override, read by Hydra's grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_overrides([override])[0]
    except HydraException as error:
        raise UsageError(
            f"cannot read {override!r}; write NAME=VALUE or GROUP=CHOICE, and quote a value that has spaces, commas "
            "or brackets twice: \"name='a, b'\""
        ) from error


def _groups(folders: Sequence[Path]) -> dict[str, list[str]]:
    """Config groups, with the names of their files."""
    groups: dict[str, list[str]] = {}
    for folder in folders:
        for file in sorted(folder.glob("*/**/*.yaml")):
            group = file.parent.relative_to(folder).as_posix()
            if not group.startswith("hydra"):
                groups.setdefault(group, []).append(file.stem)
    return groups


def _check_choice(override: "Override", choices: list[str], names: list[str]) -> None:
    """Refuse a word that no file of the group is named by. Lists, sweeps and other forms are left to Hydra."""
    if override.is_delete() or override.is_sweep_override():
        return
    choice = override.value()
    if isinstance(choice, str) and choice not in choices:
        raise UsageError(f"'{override.key_or_group}={choice}': no such choice{nearest(choice, choices)}")


def _check_own(override: "Override", groups: dict[str, list[str]]) -> None:
    """Refuse an option of a logger or callback that is not there. Any may be added, which a + says."""
    group, _, rest = override.key_or_group.partition(".")
    known = groups.get(group, [])
    name = rest.partition(".")[0]
    if override.is_add() or override.is_force_add() or name in known:
        return
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    own = f"; for one of your own give the class, +{group}.{name}._target_=package.Class"
    meant = f"; did you mean '{group}.{close[0]}'?" if close else own
    raise UsageError(f"{group}.{name} has no _target_: there is no such {group.removesuffix('s')}{meant}")


def hint(key: str, said: str) -> str:
    """What was probably meant, for what OmegaConf says of a wrong name or word; empty if nothing is near.

    Args:
        key: The option's dotted name.
        said: OmegaConf's message.
    """
    value = re.search(r"Invalid value '(.*)', expected one of \[(.*)\]", said)
    if value is not None:
        close = difflib.get_close_matches(value[1], value[2].split(", "), n=1, cutoff=0.6)
        return f"; did you mean {close[0]!r}?" if close else ""
    if re.search("Key '.*' (is )?not in ", said) and not key.startswith(("logger.", "callbacks.")):
        return _nearest_option(key, list(option_names()))
    return ""


def _nearest_option(name: str, known: list[str]) -> str:
    """A hint for a misspelt dotted name: a near one in the same group, else anywhere, or what the group has."""
    group, _, last = name.rpartition(".")
    siblings = [other for other in dict.fromkeys(known) if other.rpartition(".")[0] == group]
    same_depth = [other for other in known if other.count(".") == name.count(".")]
    by_last = {other.rpartition(".")[2]: other for other in reversed(known)}
    if last in by_last:
        return f"; did you mean '{by_last[last]}'?"
    begun = [other for other in siblings if other.rpartition(".")[2].startswith(f"{last}_")]
    if len(begun) == 1:
        return f"; did you mean '{begun[0]}'?"
    for words, typed in (
        ({other.rpartition(".")[2]: other for other in siblings}, last),
        ({other: other for other in same_depth}, name),
        (by_last, last),
    ):
        close = difflib.get_close_matches(typed, words, n=1, cutoff=0.7)
        if close:
            return f"; did you mean '{words[close[0]]}'?"
    if not group or not siblings:
        return "; `seq2seq train --help` lists the options"
    return f"; {group} has {', '.join(other.rpartition('.')[2] for other in siblings)}"


def explain(cls: type = TrainConfig, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, default and explanation of every option below `cls`; the default of a required one is '(required)'."""
    hints = typing.get_type_hints(cls)
    texts = _docstrings()[cls.__name__]
    for declared in dataclasses.fields(cls):
        hint = hints[declared.name]
        if dataclasses.is_dataclass(hint):
            yield from explain(typing.cast(type, hint), prefix + declared.name + ".")
            continue
        text = texts[declared.name]
        if isinstance(hint, type) and issubclass(hint, Enum):
            text += f" One of: {', '.join(hint.__members__)}."
        yield prefix + option_name(declared.name), _written(declared), text


def _written(declared: "dataclasses.Field[Any]") -> str:
    """A default as one would type it."""
    if declared.default is dataclasses.MISSING:
        return "(required)" if declared.default_factory is dataclasses.MISSING else "{}"
    if isinstance(declared.default, Enum):
        return declared.default.name
    if declared.default is None:
        return "null"
    if isinstance(declared.default, bool):
        return str(declared.default).lower()
    return str(declared.default)


def _docstrings() -> dict[str, dict[str, str]]:
    """The string below each field of each class of `seq2seq.config`, on one line."""
    found: dict[str, dict[str, str]] = {}
    declared_in = (
        config.data,
        config.decode,
        config.generate,
        config.model,
        config.optim,
        config.trainer,
        config.training,
    )
    for node in (node for module in declared_in for node in ast.parse(inspect.getsource(module)).body):
        if isinstance(node, ast.ClassDef):
            fields = found.setdefault(node.name, {})
            for field, below in zip(node.body, node.body[1:], strict=False):
                named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    assert isinstance(field, ast.AnnAssign)
                    assert isinstance(field.target, ast.Name)
                    fields[field.target.id] = " ".join(str(below.value.value).split())
    return found
