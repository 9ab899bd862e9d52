"""Compiling what `seq2seq.models.ahead` has into shared libraries. This needs a C++ compiler; using them does not."""

import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from seq2seq.models.ahead import (
    NATIVE,
    READER,
    STEP,
    SourceInputs,
    SourceReader,
    StepInputs,
    TargetStep,
    told_by_positions,
)
from seq2seq.models.compiled import packed_source
from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.packed import SYMBOL, Products, operator
from seq2seq.models.products_build import NAME, build, faster_than_torch
from seq2seq.shapes import Tensor

# Sizes that are all different, so that none is taken for another one.
_SENTENCES, _ROWS, _ENTRIES, _ROOM, _SOURCE = 6, 28, 17, 300, 13


def compile_model(
    model: EncoderDecoder | DecoderOnly, own_products: bool | None = None
) -> tuple[dict[str, bytes], bool]:
    """The libraries for a model in float32 on a CPU by their names, and whether its matrices are in panels there.

    Args:
        model: What is compiled.
        own_products: Whether matrices are multiplied by products.cpp, or by torch. None takes what is faster on this
            machine.

    Raises:
        ValueError: if there is no C++ compiler, or it fails.
    """
    _check_compiler()
    with TemporaryDirectory() as folder:
        native = _built(Path(folder))
        panel = _panel(model, native, own_products)
        products = None if panel is None else Path(folder)
        libraries = {
            NATIVE: native.read_bytes(),
            STEP: _library(TargetStep(model, panel), step_example(model), (tuple(_step_sizes(model)),), products),
        }
        if isinstance(model, EncoderDecoder):
            sizes = (tuple(_reader_sizes()),)
            libraries[READER] = _library(SourceReader(model, panel), reader_example(model), sizes, products)
    return libraries, panel is not None


def _built(folder: Path) -> Path:
    """The library of the package's own C++, built in `folder`.

    Raises:
        ValueError: if the compiler fails.
    """
    from torch._inductor.exc import CppCompileError

    try:
        return build(folder)
    except CppCompileError as problem:
        raise _not_compiled(_said_by(problem)) from problem
    except ValueError as problem:
        raise _not_compiled(str(problem)) from problem


def _panel(model: EncoderDecoder | DecoderOnly, native: Path, own_products: bool | None) -> int | None:
    """Rows of a matrix in a panel of products.cpp; None if torch multiplies."""
    from torch._inductor import config

    # not of the first versions of torch that compile ahead of time
    if own_products is False or not hasattr(config.aot_inductor, "custom_ops_to_c_shims"):
        return None
    products, inner = Products(native), next(model.decoder.blocks()).feed_forward.inner
    if own_products is None and not faster_than_torch(products, inner.in_features, inner.out_features):
        return None
    return products.panel


def step_example(model: EncoderDecoder | DecoderOnly) -> StepInputs:
    """Inputs of a step, of sizes that do not matter."""
    layers = list(model.decoder.blocks())
    heads = layers[0].self_attention.heads
    kept = (heads.num_kv_heads, heads.d_head)
    crosses = isinstance(model, EncoderDecoder)
    told = told_by_positions(model.decoder, 1)
    return StepInputs(
        tokens=torch.zeros(_ROWS, dtype=torch.long),
        positions=told[:1].clone() if crosses else told[:1].repeat(_ROWS, 1),
        pool=told.new_zeros(len(layers), 2, _ROOM, *kept),
        entries=torch.zeros(_ROWS, _ENTRIES, dtype=torch.long),
        seen=torch.ones(0 if crosses else (_ROWS, _ENTRIES), dtype=torch.bool),
        sentence_at=torch.zeros(_ROWS if crosses else 0, dtype=torch.long),
        source=told.new_zeros((len(layers), 2, _SENTENCES, _SOURCE, *kept) if crosses else 0),
        source_valid=torch.ones((_SENTENCES, _SOURCE) if crosses else 0, dtype=torch.bool),
    )


def reader_example(model: EncoderDecoder) -> SourceInputs:
    """Sources of sizes that do not matter, padded."""
    src = torch.zeros(_SENTENCES, _SOURCE, dtype=torch.long)
    return packed_source(model, src, torch.arange(_SOURCE) < torch.arange(_SOURCE - _SENTENCES, _SOURCE)[:, None])


_FREE: Any = torch.export.Dim.AUTO
"""A size that may be another one at each call."""


def _step_sizes(model: EncoderDecoder | DecoderOnly) -> StepInputs:
    """Which sizes of a step's inputs are free."""
    crosses = isinstance(model, EncoderDecoder)
    none: Any = {}
    free: dict[str, Any] = {
        "tokens": {0: _FREE},
        "positions": none if crosses else {0: _FREE},
        "pool": {2: _FREE},
        "entries": {0: _FREE, 1: _FREE},
        "seen": none if crosses else {0: _FREE, 1: _FREE},
        "sentence_at": {0: _FREE} if crosses else none,
        "source": {2: _FREE, 3: _FREE} if crosses else none,
        "source_valid": {0: _FREE, 1: _FREE} if crosses else none,
    }
    return StepInputs(**free)


def _reader_sizes() -> SourceInputs:
    """Which sizes of the encoder's inputs are free: all but those of the model."""
    some: Any = {0: _FREE}
    both: Any = {0: _FREE, 1: _FREE}
    return SourceInputs(pieces=some, positions=some, place_of=some, piece_at=both, valid=both)


def _library(module: nn.Module, example: tuple[Tensor, ...], sizes: tuple[Any, ...], products: Path | None) -> bytes:
    """The shared library of a module; `products` is the folder of the static library that it needs, if any.

    Raises:
        ValueError: if there is no C++ compiler, or it fails.
    """
    from torch._inductor.utils import fresh_cache

    with torch.no_grad(), TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about itself
        package = Path(folder) / "package.pt2"
        # what goes wrong is raised outside, or torch would leave its files behind, and say so
        with fresh_cache(dir=folder):
            problem = _package(torch.export.export(module, tuple(example), dynamic_shapes=sizes), package, products)
        if problem is not None:
            raise _not_compiled(problem)
        with zipfile.ZipFile(package) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".so"))
            return archive.read(name)


def _check_compiler() -> None:
    """Refuse to begin without a C++ compiler.

    Raises:
        ValueError: if there is none.
    """
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as problem:
        raise _not_compiled(f"{os.environ.get('CXX', 'g++')} is not a C++ compiler that works") from problem


def _package(program: torch.export.ExportedProgram, path: Path, products: Path | None) -> str | None:
    """Write the compiled program to `path`; what the C++ compiler says, if it fails."""
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.exc import CppCompileError, InductorError

    settings = _SETTINGS if products is None else _SETTINGS | _SETTINGS_OF_PRODUCTS
    try:
        with _linking_from(products):
            aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)
    except (CppCompileError, InductorError) as problem:
        cause = problem.inner_exception if isinstance(problem, InductorError) else problem
        if not isinstance(cause, CppCompileError):
            raise
        return _said_by(cause)
    return None


def _said_by(problem: Any) -> str:
    """The first line of what the compiler says."""
    said: str = problem.output.strip().partition("\n")[0]
    return said


@contextmanager
def _linking_from(folder: Path | None) -> Iterator[None]:
    """Have the linker look for libraries in a folder too."""
    before = os.environ.get("LIBRARY_PATH")
    if folder is not None:
        os.environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(folder), before]))
    try:
        yield
    finally:
        if folder is not None:
            if before is None:
                del os.environ["LIBRARY_PATH"]
            else:
                os.environ["LIBRARY_PATH"] = before


def _not_compiled(problem: str) -> ValueError:
    return ValueError(
        f"the model could not be compiled: {problem}; install a C++ compiler such as g++ (the variable CXX names "
        "another one), or compile it on another machine with the same CPU and version of torch"
    )


_SETTINGS = {
    # As many threads as torch has where the code is called: one for each of the batches that are decoded side by side.
    "cpp.dynamic_threads": True,
    # The numbers of entries and sentences are the state's own, and the search's pieces are in the vocabulary.
    "assert_indirect_indexing": False,
}

_SETTINGS_OF_PRODUCTS = {
    "aot_inductor.custom_op_libs": [NAME],
    "aot_inductor.custom_ops_to_c_shims": {
        operator(): [
            f"AOTITorchError {SYMBOL}(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle, int64_t, AtenTensorHandle*)"
        ]
    },
}
