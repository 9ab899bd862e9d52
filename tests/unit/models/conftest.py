"""The package's own C++, built for vector registers of several widths; a compiler does without those that are not."""

import shutil
import subprocess
from pathlib import Path

import pytest
from torch.utils.cpp_extension import TORCH_LIB_PATH, include_paths

import seq2seq.models

SOURCES = [Path(seq2seq.models.__file__).parent / name for name in ("products.cpp", "ranking.cpp")]


@pytest.fixture(scope="package", params=[None, 4, 8, 16])
def lanes(request):
    """Floats of a register; None are those of this processor."""
    return request.param


@pytest.fixture(scope="package")
def native_library(lanes, tmp_path_factory):
    """A library with all functions."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path_factory.mktemp("native") / "native.so"
    flags = ["-std=c++20", "-O2", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-fopenmp"]
    if lanes is not None:
        flags.append(f"-DLANES={lanes}")
    torch_flags = [*(f"-I{folder}" for folder in include_paths()), f"-L{TORCH_LIB_PATH}", "-ltorch", "-ltorch_cpu"]
    subprocess.run([compiler, *flags, *map(str, SOURCES), *torch_flags, "-o", str(library)], check=True)
    return library
