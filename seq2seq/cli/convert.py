"""`seq2seq convert`: models of other programs into bundles, and bundles into models of other programs."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq.cli import UsageError

if TYPE_CHECKING:
    from seq2seq.bundle import Bundle


class Kind(Enum):
    """What a folder holds, or is to hold."""

    bundle = "bundle"
    huggingface = "huggingface"
    ctranslate2 = "ctranslate2"
    aoti = "aoti"


_NAMES = {
    Kind.bundle: "a bundle",
    Kind.huggingface: "a Hugging Face folder",
    Kind.ctranslate2: "a CTranslate2 model",
    Kind.aoti: "a bundle with compiled code",
}


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help="A bundle, or a Hugging Face folder (config.json, safetensors, tokenizer) of MarianMT/OPUS-MT, GPT-2, "
            "LLaMA 2 or 3, Qwen 2, 2.5 or 3. What it is, is recognised.",
            show_default=False,
        ),
    ],
    target: Annotated[Path, typer.Argument(help="The folder to write; it appears when all is done.")],
    to: Annotated[
        Kind | None,
        typer.Option(
            help="What TARGET is to be. bundle: what every command here takes. huggingface: for `transformers`, where "
            "the model fits one of the families above. ctranslate2: for the C++ engine CTranslate2. aoti: a bundle "
            "with code compiled ahead of time for this machine's CPU and version of torch, which `translate --backend "
            "aoti` runs; this takes a C++ compiler and a minute or two. Default for a Hugging Face folder: bundle; for "
            "a bundle it must be said.",
            show_default=False,
        ),
    ] = None,
    quantization: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="For --to ctranslate2, how the weights are stored: float32, float16, bfloat16, int16, int8, "
            "int8_float32, int8_float16, int8_bfloat16. int8 is the usual choice on CPUs: a quarter of the size, "
            "faster, and nearly the same translations. Default: float32.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older TARGET of the same kind.")] = False,
) -> None:
    """Convert a model: other people's weights into a bundle, and a bundle for other programs.

    Nothing is downloaded: give the folder of a model that you have. The path of TARGET is printed.

    seq2seq convert opus-mt-de-en de-en, and then: seq2seq translate de-en test.de

    seq2seq convert outputs/.../bundle de-en-ct2 --to ctranslate2 --quantization int8

    seq2seq convert de-en de-en-fast --to aoti, and then: seq2seq translate de-en-fast test.de --backend aoti
    """
    kind = recognised(source)
    wanted = _wanted(source, kind, to, quantization)
    _check_target(target, wanted, overwrite)
    if wanted is Kind.ctranslate2:
        from seq2seq.interop.ctranslate2 import check_quantization

        check_quantization(quantization)
    with _stage(f"reading {source}"):
        bundle = _read(source, kind)
    with _stage(f"writing {target}"):
        _write(bundle, target, wanted, quantization)
    for line in summary(bundle, source, kind, target, wanted, quantization):
        print(line, file=sys.stderr)
    print(target)


def recognised(source: Path) -> Kind:
    """What the folder at `source` is; a bundle or a Hugging Face folder.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it is something that cannot be converted, with what to do instead.
    """
    if not source.exists():
        hint = " (nothing is downloaded: a name on a model hub is not enough)" if len(source.parts) == 2 else ""
        raise FileNotFoundError(f"{source} does not exist; expected a bundle or a Hugging Face folder{hint}")
    if not source.is_dir():
        raise ValueError(f"{source} is a file; {_FILES.get(source.suffix, 'give the folder of the model')}")
    kind = kind_of(source)
    if kind is Kind.ctranslate2:
        raise ValueError(
            f"{source} is a CTranslate2 model, which cannot be read back; convert the bundle or the Hugging Face "
            "folder that it was made from"
        )
    if kind is not None:
        return kind
    if kind_of(source / "bundle") is Kind.bundle:
        raise ValueError(f"{source} is the folder of a run; name its bundle, {source / 'bundle'}")
    config = source / "config.json"
    try:
        json.loads(config.read_bytes() if config.exists() else "{}")
    except ValueError as problem:
        raise ValueError(f"{config} is damaged ({problem}); expected JSON, download it again") from problem
    raise ValueError(
        f"{source} is neither a bundle nor a Hugging Face folder: it has no config.json with a format_version or a "
        "model_type; give the folder that has the model's config.json"
    )


_PICKLE = (
    "such a file is a pickle and could run code when it is loaded, so it is not read; give the folder of a Hugging "
    "Face model with config.json and model.safetensors"
)
_FILES = {
    ".bin": _PICKLE,
    ".pt": _PICKLE,
    ".pth": _PICKLE,
    ".ckpt": "make a bundle of a run's checkpoints with `seq2seq average`, and give that",
    ".npz": "Marian's own files are not read; give the Hugging Face folder of the model",
    ".safetensors": "give the folder that it is in, with its config.json and tokenizer",
    ".json": "give the folder that it is in",
}
"""What to do with a file of some other kind, by the end of its name."""


def kind_of(folder: Path) -> Kind | None:
    """What a folder holds, by its config.json; None if that is something else or not there."""
    from seq2seq.interop import is_hugging_face
    from seq2seq.interop.ctranslate2 import is_ctranslate2

    if is_ctranslate2(folder):
        return Kind.ctranslate2
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if isinstance(config, dict) and "format_version" in config:
        return Kind.bundle
    return Kind.huggingface if is_hugging_face(folder) else None


def _wanted(source: Path, kind: Kind, to: Kind | None, quantization: str | None) -> Kind:
    """What to write.

    Raises:
        UsageError: if that is not said, or makes no sense for this source.
    """
    if to is None and kind is Kind.huggingface:
        to = Kind.bundle
    if to is None:
        raise UsageError(f"{source} is a bundle; say what it is to become: --to huggingface, ctranslate2 or aoti")
    if to is kind:
        raise UsageError(f"{source} is {_NAMES[kind]} already; --to {kind.name} would change nothing")
    if quantization is not None and to is not Kind.ctranslate2:
        raise UsageError(f"--quantization is for --to ctranslate2, got --to {to.name}")
    return to


def _check_target(target: Path, wanted: Kind, overwrite: bool) -> None:
    """Refuse to replace what is not an older result of the same kind, or without having been told to.

    Raises:
        ValueError: if there is something at `target`.
    """
    if not target.exists():
        return
    if not target.is_dir() or kind_of(target) is not (Kind.bundle if wanted is Kind.aoti else wanted):
        raise ValueError(f"{target} exists and is not {_NAMES[wanted]}; choose another place or remove it first")
    if not overwrite:
        raise ValueError(f"{target} exists; give --overwrite to replace it, or choose another place")


def _read(source: Path, kind: Kind) -> "Bundle":
    if kind is Kind.bundle:
        from seq2seq.bundle import load_bundle

        return load_bundle(source)
    from seq2seq.interop import import_hugging_face

    return import_hugging_face(source)


def _write(bundle: "Bundle", target: Path, wanted: Kind, quantization: str | None) -> None:
    from seq2seq.bundle import save_bundle
    from seq2seq.interop import export_hugging_face
    from seq2seq.interop.ctranslate2 import export_ctranslate2

    if wanted is Kind.bundle:
        save_bundle(bundle, target)
    elif wanted is Kind.huggingface:
        export_hugging_face(bundle, target)
    elif wanted is Kind.aoti:
        from seq2seq.translator.compiled_package import save_compiled

        save_compiled(bundle, target)
    else:
        export_ctranslate2(bundle, target, quantization)


@contextmanager
def _stage(text: str) -> Iterator[None]:
    """A moving bar with the time on standard error while the block runs, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(text, total=None)
        yield


def summary(
    bundle: "Bundle", source: Path, kind: Kind, target: Path, wanted: Kind, quantization: str | None
) -> list[str]:
    """What was read and written, and what to do next."""
    config = bundle.model_config
    languages = " to ".join(language for language in bundle.languages if language)
    facts = [
        config.architecture.name,
        bundle.task.name + (f" {languages}" if languages else ""),
        f"{bundle.model.num_parameters():,} parameters",
        f"{bundle.target_tokenizer.vocab_size:,} pieces",
    ]
    return [
        f"read     {_NAMES[kind]}{_family(source, kind)}: {', '.join(facts)}, weights in {_precisions(source)}",
        f"written  {_NAMES[wanted]}: {_size(target)}, weights in {_written(target, wanted, quantization)}",
        f"next     {_next(bundle, target, wanted)}",
    ]


def _family(source: Path, kind: Kind) -> str:
    if kind is not Kind.huggingface:
        return ""
    config: dict[str, Any] = json.loads((source / "config.json").read_text(encoding="utf-8"))
    return f" ({config['model_type']})"


def _written(target: Path, wanted: Kind, quantization: str | None) -> str:
    return quantization or "float32" if wanted is Kind.ctranslate2 else _precisions(target)


def _precisions(folder: Path) -> str:
    """The number formats of the weights in a folder's safetensors files."""
    from safetensors import safe_open

    from seq2seq.corpus.shortlist import FILE as SHORTLIST_FILE

    found = set()
    for file in sorted(set(folder.glob("*.safetensors")) - {folder / SHORTLIST_FILE}):
        with safe_open(file, framework="pt") as tensors:
            found |= {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118  it is no dict
    words = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    return " and ".join(sorted(words.get(name, name) for name in found))


def _size(folder: Path) -> str:
    total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return f"{total / 1e6:,.1f} MB"


def _next(bundle: "Bundle", target: Path, wanted: Kind) -> str:
    from seq2seq.config import Architecture, Task

    if wanted is Kind.ctranslate2:
        return f"{target / 'README.md'} has a program that uses it"
    if wanted is Kind.aoti:
        return f"seq2seq translate {target} INPUT -o OUTPUT --backend aoti"
    if wanted is Kind.huggingface:
        is_pair = bundle.model_config.architecture is Architecture.encoder_decoder
        return (
            f'transformers.{"AutoModelForSeq2SeqLM" if is_pair else "AutoModelForCausalLM"}.from_pretrained("{target}")'
        )
    if bundle.task is Task.language_model:
        return f'seq2seq generate {target} --prompt "Once upon a time"'
    return f"seq2seq translate {target} INPUT -o OUTPUT"
