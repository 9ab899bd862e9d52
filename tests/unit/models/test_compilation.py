"""seq2seq.models.compilation: a C++ compiler that is missing or fails.

What is compiled where there is one, tests/system/test_compiled_command.py has.
"""

import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import torch._inductor
import torch._inductor.cpp_builder
from torch._inductor.exc import CppCompileError, InductorError

from seq2seq.models.compilation import compile_model


@pytest.fixture
def model(families, scrambled):
    return scrambled(families("original")).float()


def test_without_a_compiler_nothing_is_begun(model, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    monkeypatch.setattr(torch.export, "export", None)
    said = r"could not be compiled: /nowhere/g\+\+ is not a C\+\+ compiler that works; install a C\+\+ compiler such as"
    # torch has read the variable when it was imported
    with torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/g++")}), pytest.raises(ValueError, match=said):
        compile_model(model)


NO_LIBRARY = Path(__file__)


@pytest.fixture
def failing(model, monkeypatch, tmp_path):
    """Compiles with torch failing by an error."""
    # as Python that tests check, the model cannot be exported
    monkeypatch.setattr(torch.export, "export", lambda *_, **__: Mock(spec=torch.export.ExportedProgram))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("seq2seq.models.compilation._built", lambda folder: NO_LIBRARY)
    monkeypatch.setattr("seq2seq.models.compilation._panel", lambda *_: None)

    def compile_with(error):
        def fail(*_, package_path, **__):
            Path(package_path).write_text("half", encoding="utf-8")
            raise error

        monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", fail)
        try:
            with torch._inductor.config.patch({"cpp.cxx": (None, "true")}):
                compile_model(model)
        finally:
            assert list(tmp_path.iterdir()) == []

    return compile_with


REFUSAL = CppCompileError(["g++", "x.cpp"], "\nx.cpp:3: fatal error: no such header\n  more of it\n")


@pytest.mark.parametrize("error", [REFUSAL, InductorError(REFUSAL, None)], ids=["plain", "wrapped"])
def test_what_the_compiler_says_is_told_and_no_files_are_left(failing, error):
    with pytest.raises(ValueError, match=r"compiled: x\.cpp:3: fatal error: no such header; install a C\+\+ compiler"):
        failing(error)


def test_other_errors_are_not_blamed_on_the_compiler(failing):
    with pytest.raises(InductorError, match="KeyError: 'a bug'"):
        failing(InductorError(KeyError("a bug"), None))


def test_what_the_compiler_says_of_the_packages_own_code_is_told(model, monkeypatch, tmp_path):
    def fail(_):
        raise REFUSAL

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torch._inductor.cpp_builder.CppBuilder, "build", fail)
    with (
        torch._inductor.config.patch({"cpp.cxx": (None, "true"), "cpp.vec_isa_ok": True}),
        pytest.raises(ValueError, match=r"compiled: x\.cpp:3: fatal error: no such header; install a C\+\+ compiler"),
    ):
        compile_model(model)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_archiver_is_told_of(model, monkeypatch):
    monkeypatch.setattr(torch._inductor.cpp_builder.CppBuilder, "build", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with (
        torch._inductor.config.patch({"cpp.cxx": (None, "/bin/true"), "cpp.vec_isa_ok": True}),
        pytest.raises(ValueError, match=r"compiled: `ar`, which comes with a compiler, failed: .*'ar'.*; install a C"),
    ):
        compile_model(model)
