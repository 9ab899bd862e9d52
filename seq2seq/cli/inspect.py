"""`seq2seq inspect`: look inside a model."""

import typer

from seq2seq.cli.inspect_attention import attention
from seq2seq.cli.inspect_heads import heads

app = typer.Typer(no_args_is_help=True, help="Look inside a model: shapes, costs, attention, heads.")

app.command()(attention)
app.command()(heads)
