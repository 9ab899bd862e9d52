"""`seq2seq inspect`: look inside a model."""

import typer

from seq2seq.cli.inspect_attention import attention
from seq2seq.cli.inspect_cost import cost
from seq2seq.cli.inspect_heads import heads
from seq2seq.cli.inspect_shapes import shapes

app = typer.Typer(no_args_is_help=True, help="Look inside a model: shapes, costs, attention, heads.")

app.command()(shapes)
app.command()(cost)
app.command()(attention)
app.command()(heads)
