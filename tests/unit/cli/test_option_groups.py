from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from seq2seq.cli.option_groups import spread


@dataclass(frozen=True)
class Colours:
    """Options of one kind."""

    ink: Annotated[str, typer.Option(help="Of the letters.")] = "black"
    sheets: Annotated[int | None, typer.Option("--sheets", "-s", help="How many.")] = None


def test_the_fields_of_a_dataclass_are_options_of_the_command():
    seen = []

    @spread
    def draw(what: Annotated[str, typer.Argument()] = "line", *, colours: Colours, fast: bool = False) -> None:
        seen.append((what, colours, fast))

    app = typer.Typer()
    app.command()(draw)
    for arguments in ([], ["dot", "--ink", "red", "-s", "3", "--fast"]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert seen == [("line", Colours(), False), ("dot", Colours("red", 3), True)]
    text = CliRunner().invoke(app, ["--help"]).stdout
    assert "Of the letters." in text
    assert text.index("--ink") < text.index("--sheets") < text.index("--fast")
    assert CliRunner().invoke(app, ["--sheets", "many"]).exit_code == 2
