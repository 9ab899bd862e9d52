"""The package's own C++, built for vector registers of several widths; a compiler does without those that are not."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from torch.utils.cpp_extension import TORCH_LIB_PATH, include_paths

import seq2seq.models

SOURCES = [Path(seq2seq.models.__file__).parent / name for name in ("products.cpp", "ranking.cpp")]


@pytest.fixture(scope="package", params=[4, 8, 16])
def lanes(request):
    """Floats of a register."""
    return request.param


@pytest.fixture(scope="package")
def native_library(lanes, tmp_path_factory):
    """A library with all functions, which the tests that run at the same time share."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    library = folder / f"native-{lanes}.so"
    # as torch's compiler has them, with what products_build adds
    flags = ["-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-fopenmp", "-fno-trapping-math"]
    flags += ["-fno-signed-zeros", "-ffp-contract=fast", "-fno-unsafe-math-optimizations", "-fno-finite-math-only"]
    torch_flags = [*(f"-I{path}" for path in include_paths()), f"-L{TORCH_LIB_PATH}", "-ltorch", "-ltorch_cpu"]
    with (folder / "native.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            command = [compiler, *flags, f"-DLANES={lanes}", *map(str, SOURCES), *torch_flags, "-o", str(library)]
            subprocess.run(command, check=True)
    return library
