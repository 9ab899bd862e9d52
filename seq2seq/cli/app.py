"""The command `seq2seq` with its subcommands, exit codes and the encoding of its streams.

Exit codes: 0 done, 1 something is wrong with the files or options, 2 the command was typed wrongly, 130 interrupted.
A subcommand's module is imported when it is called, and imports torch, Lightning and Hydra only when it runs, so that
`seq2seq --help` is quick.
"""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

import seq2seq
from seq2seq.cli.commands import LazyCommands
from seq2seq.cli.errors import told
from seq2seq.cli.processes import ERROR_FILE

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


class Commands(LazyCommands):
    """Runs a subcommand; what users can cause and mend is told in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand.

        Raises:
            SystemExit: with the exit code that fits, when the subcommand did not end well.
        """
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader (head, less) has gone, which is its right. Python would flush into the closed pipe at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None
        except Exception as error:
            known = told(error)
            if known is None:
                raise
            raise SystemExit(_tell(error, *known)) from error
        return result


def _tell(error: Exception, message: str, code: int) -> int:
    """Print the message, with the error's traceback where SEQ2SEQ_DEBUG is set; `code`."""
    if os.environ.get("SEQ2SEQ_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    if ERROR_FILE in os.environ:  # one of several processes, whose parent tells what is to be told
        Path(os.environ[ERROR_FILE]).write_text(message, encoding="utf-8")
    else:
        print(f"error: {message}", file=sys.stderr)
    return code


app = typer.Typer(
    cls=Commands,
    name="seq2seq",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"seq2seq {seq2seq.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and end."
    ),
) -> None:
    """Train Transformers that translate, translate with them, and measure how well they do."""
    del version  # its callback has done the work


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code.

    With SEQ2SEQ_DEBUG=1 in the environment, errors are shown with their traceback.

    Args:
        arguments: What stands behind the word `seq2seq`; as typed when left out.
    """
    _speak_utf8()
    try:
        app(None if arguments is None else list(arguments))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        # Python remembers an interrupt that came while text was executed, as dataclasses do it, and then ends what was
        # started with -m by the signal, whatever the exit code. Executing text once more makes it forget.
        exec("")


def _speak_utf8() -> None:
    """Make the standard streams UTF-8 whatever the locale says; text is data here, not a matter of taste."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`), who wants nothing of it
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  for the rest of the process
    # In a C locale, Python hands us file names with escaped bytes; those come out as they went in.
    for stream, errors in ((sys.stdin, "strict"), (sys.stdout, "surrogateescape"), (sys.stderr, "surrogateescape")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
