"""Options from plain values, as YAML and JSON have them, and back."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: ``; did you mean 'dropout'?``, or the known words if none is near."""
    words = list(known)
    close = difflib.get_close_matches(name, words, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; expected one of {', '.join(words)}"


def from_dict(cls: type[T], values: dict[str, Any], *, where: str = "") -> T:
    """Build the dataclass `cls` from plain values, refusing what it does not declare.

    Args:
        cls: One of this module's dataclasses.
        values: Plain builtins as YAML or JSON give them; enums by member name.
        where: Dotted prefix of the option names in messages.

    Raises:
        ValueError: for an unknown or missing option, a value of the wrong type, or a failed check.
    """
    fields = {option_name(f.name): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = {option_name(name): hint for name, hint in typing.get_type_hints(cls).items()}
    for name in values:
        if name not in fields:
            raise ValueError(f"unknown option '{where}{name}'{nearest(name, fields)}")
    for name, declared in fields.items():
        required = declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING
        if values.get(name) == "???" or (required and values.get(name) is None):
            raise ValueError(f"option '{where}{name}' is missing; give {where}{name}=...")
    return cls(**{fields[name].name: _convert(hints[name], value, where + name) for name, value in values.items()})


def option_name(field_name: str) -> str:
    """How users type the name of a field: `from_` is `from`, which Python keeps for itself."""
    return field_name.removesuffix("_")


def _convert(hint: Any, value: Any, name: str) -> Any:
    """`value` as the type `hint`, for the few types that options have."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ValueError(f"option '{name}' is a group of options, got {value!r}")
        return from_dict(hint, value, where=name + ".")  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, Enum):
        word = value.name if isinstance(value, Enum) else value
        if word not in hint.__members__:
            raise ValueError(f"option '{name}' got {word!r}{nearest(str(word), hint.__members__)}")
        return hint[word]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    kind = typing.get_origin(hint) or hint
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"option '{name}' got {value!r}, expected {kind.__name__}")
    return value


def to_dict(config: Any) -> dict[str, Any]:
    """The options as plain builtins, enums by member name: what goes into YAML, JSON and checkpoints."""

    def plain(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.name
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {option_name(f.name): plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value

    values: dict[str, Any] = plain(config)
    return values
