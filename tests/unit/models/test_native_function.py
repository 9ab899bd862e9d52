"""seq2seq.models.native_function: what it refuses, and what becomes of tensors; tests/system calls what torch compiles.

The library here is written by hand, with the functions that torch's have.
"""

import ctypes
import gc
import shutil
import subprocess
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch

from seq2seq.models.native_function import NativeFunction

LIBRARY = """
#include <stddef.h>
#include <unistd.h>
static int made = 0;
int AOTInductorModelContainerCreateWithDevice(void** made_at, size_t at_once, const char* device, const char* folder) {
    made = (int)at_once;
    *made_at = &made;
    return at_once > 90 || device[0] != 'c' || folder != NULL;
}
int deleted = 0;
int AOTInductorModelContainerDelete(void* self) {
    deleted += self == &made;
    return 0;
}
int AOTInductorModelContainerRun(void* self, void** in, size_t num_in, void** out, size_t num_out, void* a, void* b) {
    size_t i;
    if (self != &made) return 2;
    if (made == 7) usleep(300000);
    if (num_in == 3) return 1;
    /* what it is given is what it answers, the other way round */
    for (i = 0; i < num_out; i++) out[i] = in[num_in - 1 - i];
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "library.c").write_text(LIBRARY, encoding="utf-8")
    built = folder / "library.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, folder / "library.c"], check=True)
    return built


def test_what_a_function_has_made_ends_with_it(library):
    function = NativeFunction(library, num_outputs=1, at_once=1)
    deleted = ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "deleted")
    before = deleted.value
    del function
    gc.collect()
    assert deleted.value == before + 1


def test_a_file_that_is_no_library_is_refused(tmp_path):
    path = tmp_path / "step.so"
    path.write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(
        ValueError, match=r"step\.so is not a library that torch .* loads \(.*\); compile the model anew"
    ):
        NativeFunction(path, num_outputs=1, at_once=1)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"step\.so is not a library that torch .* loads"):
        NativeFunction(tmp_path / "step.so", num_outputs=1, at_once=1)


def test_a_library_of_something_else_is_refused():
    # a module of Python is a library too
    with pytest.raises(ValueError, match=r"is not a library that torch .*AOTInductorModelContainerCreateWithDevice"):
        NativeFunction(Path(torch._C.__file__), num_outputs=1, at_once=1)


def test_a_library_that_does_not_get_ready_is_refused(library):
    with pytest.raises(ValueError, match=r"library\.so could not be made ready by torch .*; compile the model anew"):
        NativeFunction(library, num_outputs=1, at_once=91)


def test_a_failure_is_an_error_and_not_an_answer(library):
    function = NativeFunction(library, num_outputs=3, at_once=1)
    with pytest.raises(RuntimeError, match="compiled code failed; standard error has what torch says about it"):
        function(torch.ones(2), torch.ones(3), torch.ones(4))


def test_tensors_go_in_and_come_out_as_they_are(library):
    function = NativeFunction(library, num_outputs=2, at_once=1)
    first, second = torch.randn(2, 3), torch.arange(5)
    found = function(first, second)
    assert len(found) == 2
    assert torch.equal(found[0], second)
    assert torch.equal(found[1], first)
    assert found[0].data_ptr() == second.data_ptr()


def test_what_is_read_by_sizes_alone_is_made_contiguous(library):
    function = NativeFunction(library, num_outputs=1, at_once=1)
    turned = torch.randn(3, 5).t()
    (found,) = function(turned)
    assert found.is_contiguous()
    assert torch.equal(found, turned)


def test_nothing_is_kept_of_a_call(library):
    function = NativeFunction(library, num_outputs=1, at_once=1)
    tensor = torch.randn(4)
    storage = weakref.ref(tensor.untyped_storage())
    (found,) = function(tensor)
    del tensor, found
    gc.collect()
    assert storage() is None


def test_other_threads_go_on_meanwhile(library):
    function = NativeFunction(library, num_outputs=1, at_once=7)
    tensor, begin = torch.ones(2), time.monotonic()
    threads = [threading.Thread(target=function, args=(tensor,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.3 <= time.monotonic() - begin < 1.0
