"""`seq2seq generate`: prompts in, what a language model goes on with out, in order and N for N."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError
from seq2seq.cli.line_progress import LineProgress
from seq2seq.cli.machine import use_threads
from seq2seq.cli.search_options import MACHINE, Device, Threads
from seq2seq.config import GenerateConfig, PenaltyForm
from seq2seq.text.lines import check_place, iter_lines, read_lines, write_lines

if TYPE_CHECKING:
    from seq2seq.generator import Generation, Generator

STDIN = "-"

BETWEEN = "---"
"""The line between several texts of one prompt."""

INPUT, OUTPUT, SEARCH = "Input", "Output", "How to go on"


class Format(Enum):
    """How texts are written."""

    text = "text"
    jsonl = "jsonl"


def generate(
    model: Annotated[str, typer.Argument(help="Bundle of a language model.", show_default=False)],
    prompts: Annotated[
        str,
        typer.Argument(metavar="[PROMPTS]", help="Prompts, one a line, plain or .gz; - is standard input."),
    ] = STDIN,
    prompt: Annotated[
        str | None,
        typer.Option(help="One prompt, instead of a file; '' begins a text.", rich_help_panel=INPUT),
    ] = None,
    whole_file: Annotated[
        bool,
        typer.Option(
            "--whole-file",
            help="The whole file is one prompt, line feeds included but for the one at its end.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write (.gz compresses); it appears when all is done. Default: standard output.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="text: for prompts by the line one line a text, its line feeds written as spaces; for one prompt the "
            "text as it is. jsonl: an object a text, with pieces, ids, log-probabilities and why it ended.",
            rich_help_panel=OUTPUT,
        ),
    ] = Format.text,
    with_prompt: Annotated[
        bool,
        typer.Option("--with-prompt", help="As text: each text behind its prompt.", rich_help_panel=OUTPUT),
    ] = False,
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            help="Answer each prompt before the next one is read (always so at a terminal).",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    max_new: Annotated[
        int | None, typer.Option(help="Most new pieces (default 256).", show_default=False, rich_help_panel=SEARCH)
    ] = None,
    beam_size: Annotated[
        int | None,
        typer.Option("--beam-size", "--beam", help="Texts kept; 1 is greedy.", rich_help_panel=SEARCH),
    ] = None,
    penalty_form: Annotated[
        PenaltyForm | None, typer.Option(help="A beam's divisor for length.", rich_help_panel=SEARCH)
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Its exponent: larger favours longer texts.", rich_help_panel=SEARCH)
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            "-t",
            help="Draw the text: 1 by the model's probabilities, less is more cautious. Without it, or with 0, the "
            "most probable text is looked for.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Draw from the k most probable pieces.", rich_help_panel=SEARCH)
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Draw from the best pieces that together have this probability.", rich_help_panel=SEARCH),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Draw from the pieces that are so probable beside the best one.", rich_help_panel=SEARCH),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1: pieces that were there already become less probable.", rich_help_panel=SEARCH),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Texts drawn for each prompt.", rich_help_panel=SEARCH)] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed draws the same texts again.", rich_help_panel=SEARCH)
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            help="End a text where this comes; may be given several times. A line feed is $'\\n' in most shells.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(help="Pieces of prompts and new text decoded at once.", rich_help_panel=MACHINE),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Go on from prompts: a file or standard input, one a line; one given as option; or typed at a terminal.

    N prompts give N texts, or N times --samples, in order. At a terminal, and for a single prompt, the text is shown as
    it is written.

    seq2seq generate outputs/.../bundle --prompt "ROMEO:" --temperature 0.8 --top-k 40

    seq2seq generate outputs/.../bundle prompts.txt --beam 4 --format jsonl -o texts.jsonl
    """
    if prompt is not None and (whole_file or prompts != STDIN):
        raise UsageError("--prompt is the prompt itself; leave the file of prompts and --whole-file out")
    if with_prompt and format_ is Format.jsonl:
        raise UsageError("--with-prompt is for --format text; jsonl always has the prompt")
    options: dict[str, Any] = {
        "max_new_pieces": max_new,
        "beam_size": beam_size,
        "penalty_form": penalty_form,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "num_samples": samples,
        "seed": seed,
        "stop": stop,
        "batch_tokens": batch_tokens,
    }
    config = GenerateConfig(**{name: value for name, value in options.items() if value is not None})
    if output is not None:
        check_place(output)
    generator = load_generator(model, device, threads)
    if prompt is None and not whole_file:
        typed = prompts == STDIN and at_terminal()
        if typed and output is None and format_ is Format.text:
            converse(generator, config, with_prompt)
        else:
            run(generator, _lines(prompts), output, config, format_, with_prompt, read_ahead=not (typed or interactive))
        return
    only = "\n".join(_lines(prompts)) if prompt is None else prompt
    if format_ is Format.jsonl:
        run(generator, [only], output, config, format_, with_prompt)
    elif output is not None:
        write_lines(output, "".join(parts(generator, only, config, with_prompt)).split("\n"))
    else:
        show(parts(generator, only, config, with_prompt))


def at_terminal() -> bool:
    """Whether someone types the prompts."""
    return sys.stdin.isatty()


def load_generator(model: str, device: str = "auto", threads: int | None = None) -> "Generator":
    """The bundle's generator.

    Raises:
        ValueError: for a model that translates, or an unknown device.
        FileNotFoundError: if there is no bundle.
    """
    use_threads(threads)

    from seq2seq.generator import Generator

    return Generator.load(model, device)


def run(
    generator: "Generator",
    prompts: Iterable[str],
    output: str | None,
    config: GenerateConfig,
    format_: Format,
    with_prompt: bool,
    *,
    read_ahead: bool = True,
) -> None:
    """Go on from all prompts, a line of output for each text.

    Raises:
        ValueError: for text that is not UTF-8, or a prompt that is too long, after what comes before it on stdout.
        FileNotFoundError: for a file that is not there.
    """
    with ExitStack() as stack:
        progress = LineProgress(
            prompts,
            wanted=output is not None or not sys.stdout.isatty(),
            doing="writing",
            each=config.num_samples,
        )
        stack.callback(progress.stop)
        found = generator.generate_each(
            prompts,
            config,
            read_ahead=read_ahead,
            on_notice=lambda notice: progress.print(f"seq2seq: {notice}"),
        )
        rows = (
            as_json(one) if format_ is Format.jsonl else as_text(one, with_prompt) for one in progress.follow(found)
        )
        if output is not None:
            write_lines(output, rows)
            return
        for row in rows:
            sys.stdout.buffer.write(row.encode("utf-8") + b"\n")
            sys.stdout.buffer.flush()


def converse(generator: "Generator", config: GenerateConfig, with_prompt: bool) -> None:
    """Answer each line that is typed before the next one is read, showing the text as it is written."""
    print("One prompt a line; end with Ctrl-D.", file=sys.stderr)
    for number, prompt in enumerate(_lines(STDIN), start=1):
        show(parts(generator, prompt, config, with_prompt, number=number))


def parts(
    generator: "Generator", prompt: str, config: GenerateConfig, with_prompt: bool, *, number: int = 1
) -> Iterator[str]:
    """The texts of one prompt as they are written, with a line between them and no line feed behind the last."""
    for sample in range(1, config.num_samples + 1):
        if sample > 1:
            yield f"\n{BETWEEN}\n"
        if with_prompt:
            yield prompt
        yield from generator.stream(
            prompt,
            config,
            number=number,
            sample=sample,
            on_notice=lambda notice: print(f"seq2seq: {notice}", file=sys.stderr),
        )


def show(texts: Iterable[str]) -> None:
    """Write the parts to standard output, each at once, and a line feed behind the last."""
    for text in texts:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def as_text(found: "Generation", with_prompt: bool) -> str:
    """The text as one line."""
    text = (found.prompt if with_prompt else "") + found.text
    return text.replace("\n", " ").replace("\r", " ")


def as_json(found: "Generation") -> str:
    """The text as one JSON object."""
    record: dict[str, Any] = {
        "number": found.number,
        "sample": found.sample,
        "prompt": found.prompt,
        "prompt_ids": found.prompt_ids,
        "text": found.text,
        "ended": found.ended.name,
        "log_prob": found.log_prob,
        "tokens": found.tokens,
        "ids": found.ids,
        "token_log_probs": found.token_log_probs,
        "notice": found.notice,
    }
    return json.dumps(record, ensure_ascii=False)


def _lines(path: str) -> Iterable[str]:
    """The prompts, each as soon as it is there if they come on standard input."""
    return iter_lines(sys.stdin.buffer, "standard input") if path == STDIN else read_lines(path)
