"""`seq2seq inspect`: look inside a model."""

import typer

app = typer.Typer(no_args_is_help=True, help="Look inside a model: shapes, costs, attention, heads.")
