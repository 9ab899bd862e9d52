"""Options that several commands have are declared once, as the fields of a dataclass.

A command takes such a dataclass as one parameter; `spread` makes an option of each of its fields.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer is to see it: a parameter that is a dataclass has become an option for each field.

    The options stand where the parameter stood; their names, help and defaults are those of the fields.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            groups[name] = hint
            parameters += [_parameter(hint, field) for field in dataclasses.fields(hint)]
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=parameter.default, annotation=hint))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(group: type[Any], field: "dataclasses.Field[Any]") -> inspect.Parameter:
    hint = get_type_hints(group, include_extras=True)[field.name]
    assert field.default is not dataclasses.MISSING, f"{field.name} is an option, which has a default"
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hint)
