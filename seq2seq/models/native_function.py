"""Machine code that torch has compiled ahead of time, called through its C interface.

Torch's own loader keeps Python's lock while the code runs, so that batches side by side would wait for each other. Here
the library is called by ctypes, which lets go of the lock; tensors go in and out as the handles of that interface.
"""

import ctypes
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seq2seq.shapes import Tensor

_Pointer = ctypes.c_void_p


class NativeFunction:
    """A function of tensors, in a shared library as ahead-of-time compilation of torch writes it. Thread-safe.

    Args:
        path: The library. It runs with the rights of this process: load none that you do not trust.
        num_outputs: Tensors that it returns.
        at_once: Threads that may be inside it at the same time; more than that wait.

    Raises:
        ValueError: if it is not such a library, or one that this version of torch does not load.
    """

    def __init__(self, path: Path, num_outputs: int, at_once: int) -> None:
        self._num_outputs = num_outputs
        self._container = _Pointer()
        try:
            library = ctypes.CDLL(str(path))
            create, self._run = library.AOTInductorModelContainerCreateWithDevice, library.AOTInductorModelContainerRun
            delete = library.AOTInductorModelContainerDelete
        except (OSError, AttributeError) as problem:
            raise ValueError(
                f"{path} is not a library that torch {torch.__version__} loads ({problem}); compile the model anew"
            ) from problem
        size = ctypes.c_size_t
        create.argtypes = [ctypes.POINTER(_Pointer), size, ctypes.c_char_p, ctypes.c_char_p]
        self._run.argtypes = [_Pointer, _Pointer, size, _Pointer, size, _Pointer, _Pointer]
        if create(ctypes.byref(self._container), at_once, b"cpu", None):
            raise ValueError(f"{path} could not be made ready by torch {torch.__version__}; compile the model anew")
        delete.argtypes = [_Pointer]
        weakref.finalize(self, delete, self._container).atexit = False  # the process's memory goes with it

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """What the function gives.

        Args:
            tensors: On the CPU, of the types and numbers of dimensions that it was compiled for; their sizes must fit
                each other, which is not checked.

        Raises:
            RuntimeError: if it fails, for example for want of memory; what it says is on standard error.
        """
        # the code addresses what it reads by the sizes alone
        inputs = _handles([tensor.contiguous() for tensor in tensors])
        given = (_Pointer * len(inputs))(*inputs)
        outputs = (_Pointer * self._num_outputs)()
        # the function owns what it is given, and the caller what it is answered
        if self._run(self._container, given, len(inputs), outputs, self._num_outputs, None, None):
            raise RuntimeError("compiled code failed; standard error has what torch says about it")
        return _tensors(outputs)


_pointer_in: Callable[[object, None], int] = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = _Pointer, [ctypes.py_object, ctypes.c_char_p]  # type: ignore[attr-defined]
_capsule: Callable[[int | None, None, None], object] = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [_Pointer, ctypes.c_char_p, _Pointer]  # type: ignore[attr-defined]


def _handles(tensors: list[Tensor]) -> list[int]:
    """A new handle of each tensor."""
    interface: Any = torch._C._aoti
    return [_pointer_in(capsule, None) for capsule in interface.unsafe_alloc_void_ptrs_from_tensors(tensors)]


def _tensors(handles: "ctypes.Array[ctypes.c_void_p]") -> list[Tensor]:
    """The tensors of handles, which are used up."""
    interface: Any = torch._C._aoti
    capsules = [_capsule(handle, None, None) for handle in handles]
    tensors: list[Tensor] = interface.alloc_tensors_by_stealing_from_void_ptrs(capsules)
    return tensors
