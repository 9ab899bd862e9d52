"""A bundle with compiled code: what decodes without Python between its products, for one kind of CPU.

bundle/compiled/compiled.json    what the code was compiled for, and the checksums of all files
bundle/compiled/step.so          a decode step
bundle/compiled/reader.so        the encoder; not for a decoder-only model
bundle/compiled/native.so        the package's own C++: products of matrices, ranking of pieces

Such code runs with the rights of the process, so it is loaded only where that has been asked for.
"""

import json
import platform
from pathlib import Path
from typing import Any

import torch

from seq2seq.bundle import WEIGHTS_FILE, Bundle, is_bundle, write_bundle
from seq2seq.config import Compute, DecodeConfig, Task
from seq2seq.models.ahead import INTERFACE, NATIVE, READER, STEP
from seq2seq.models.compiled import CompiledSteps
from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.models.decoding import without_zeros
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.native_function import NativeFunction
from seq2seq.models.native_ranking import NativeRanking
from seq2seq.models.packed import PackedProjection, Products
from seq2seq.text.new_folder import new_folder
from seq2seq.translator.checksums import file_checksum

FOLDER, INDEX = "compiled", "compiled.json"


def check_compilable(bundle: Bundle) -> None:
    """Refuse models that compiled code is not for.

    Raises:
        ValueError: with what to do instead.
    """
    if bundle.task is not Task.translation:
        raise ValueError(
            "--to aoti is for models that translate, this one is a language model; `seq2seq generate` takes it as it is"
        )
    if not hasattr(torch.cpu, "get_capabilities"):
        raise ValueError(
            f"--to aoti needs torch 2.11 or later, which tells what the CPU can; this is torch {torch.__version__}"
        )


def save_compiled(bundle: Bundle, path: str | Path) -> None:
    """Write the bundle with code compiled for this machine, whole or not at all; an older bundle is replaced.

    Raises:
        ValueError: if something that is not a bundle is at `path`, the model is none that compiled code is for, or
            there is no C++ compiler.
        OSError: if it cannot be written.
    """
    from seq2seq.models.compilation import compile_model  # this takes a second

    check_compilable(bundle)
    model = bundle.model.float()
    assert isinstance(model, (EncoderDecoder, DecoderOnly))
    with new_folder(path, is_bundle, "a bundle") as scratch:
        write_bundle(bundle, scratch)
        folder = scratch / FOLDER
        folder.mkdir()
        libraries, packed = compile_model(model)
        for name, library in libraries.items():
            (folder / name).write_bytes(library)
        index = {
            "interface": INTERFACE,
            "torch": torch.__version__,
            "machine": platform.machine(),
            "cpu": sorted(_cpu_features()),
            "weights": file_checksum(scratch / WEIGHTS_FILE),
            "packed": packed,
            "files": {file.name: file_checksum(file) for file in sorted(folder.iterdir())},
        }
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def is_compiled(path: str | Path) -> bool:
    """Whether the bundle at `path` has compiled code."""
    return (Path(path) / FOLDER / INDEX).is_file()


def check_there(path: str | Path) -> None:
    """Refuse a bundle without compiled code.

    Raises:
        ValueError: with how to make it.
    """
    if not is_compiled(path):
        raise ValueError(f"{path} has no compiled code; {_remedy(path)}, and use that")


def _remedy(path: str | Path) -> str:
    return f"make it with `seq2seq convert {path} NEW_FOLDER --to aoti`"


def use_compiled(bundle: Bundle, path: str | Path) -> None:
    """Let the bundle's model, just loaded from `path`, decode by the compiled code that is there.

    Raises:
        ValueError: if there is none, it is damaged, or it is for other weights, another version of torch or another
            kind of CPU.
    """
    check_there(path)
    folder, remedy = Path(path) / FOLDER, _remedy(path)
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_bytes())
        compiled_for = index["torch"], index["machine"], frozenset(index["cpu"]), index["weights"]
        files: dict[str, str] = dict(index["files"])
        interface = index.get("interface", 1)
        missing = sorted({STEP, NATIVE, *([READER] if isinstance(bundle.model, EncoderDecoder) else [])} - files.keys())
        damaged = missing or [name for name, checksum in files.items() if file_checksum(folder / name) != checksum]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ValueError(f"{folder} is damaged ({problem!r}); {remedy} anew") from problem
    if interface != INTERFACE:
        raise ValueError(f"{folder} was compiled by another version of seq2seq; {remedy} anew")
    if damaged:
        raise ValueError(f"{folder / damaged[0]} is not the file that was compiled; {remedy} anew")
    version, machine, features, weights = compiled_for
    if version != torch.__version__:
        raise ValueError(f"{folder} was compiled for torch {version}, this is torch {torch.__version__}; {remedy} anew")
    lacking = sorted(features - _cpu_features())
    if machine != platform.machine() or lacking:
        other = f"this {platform.machine()} CPU lacks {', '.join(lacking[:5])}" if lacking else platform.machine()
        raise ValueError(f"{folder} was compiled for another kind of CPU ({machine}; {other}); {remedy} here")
    if weights != file_checksum(Path(path) / WEIGHTS_FILE):
        raise ValueError(f"{folder} was compiled for other weights than {WEIGHTS_FILE} beside it has; {remedy} anew")
    model, at_once = bundle.model, torch.get_num_threads()
    assert isinstance(model, (EncoderDecoder, DecoderOnly))
    step = NativeFunction(folder / STEP, num_outputs=2, at_once=at_once)
    reader = NativeFunction(folder / READER, num_outputs=1, at_once=at_once) if READER in files else None
    model.compiled = CompiledSteps(model, step, reader)
    model.ranking = NativeRanking(folder / NATIVE)
    if index.get("packed"):  # otherwise torch is faster on this machine
        bias = without_zeros(model.output_bias)
        model.projection = PackedProjection(Products(folder / NATIVE), model.output, bias)


def check_compiled(device: str | torch.device, compute: Compute, decode: DecodeConfig | None) -> None:
    """Refuse what compiled code does not do.

    Raises:
        ValueError: naming it.
    """
    if compute is not Compute.float32:
        raise ValueError(f"compute={compute.name}, but the backend aoti computes in float32; leave one of both out")
    if str(device) not in ("auto", "cpu"):
        raise ValueError(f"device={device}, but the backend aoti is for CPUs; leave one of both out")
    if decode is not None and decode.coverage_penalty:
        raise ValueError(
            "coverage_penalty watches the attention, which the backend aoti does not show; leave one of both out"
        )


def _cpu_features() -> frozenset[str]:
    """What the CPU can, by the names that torch has for it."""
    return frozenset(name for name, there in torch.cpu.get_capabilities().items() if there is True)
