"""Building the package's own C++ where a model is compiled, and finding out whether products.cpp is faster there than
torch, as it is by far on processors that torch's library of matrix products was not made for.
"""

import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from seq2seq.models.packed import Products, in_panels
from seq2seq.shapes import Tensor

NAME = "seq2seq_products"
"""Of the static library, for the linker."""

_PRODUCTS, _RANKING = (Path(__file__).parent / name for name in ("products.cpp", "ranking.cpp"))
_ROWS = (1, 5, 64, 320)
"""Numbers of rows that are tried: one line alone, by greedy search and by beam search, and batches of 64 of them."""
_TRIES = 9
_SECONDS = 0.002
"""How long a try takes at least."""


def build(folder: Path) -> Path:
    """Compile products.cpp into a static library in `folder`, and with ranking.cpp into a shared one, whose path is
    returned.

    Raises:
        torch._inductor.exc.CppCompileError: if the compiler fails.
        ValueError: if there is no `ar`, or it fails.
    """
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    # a product and a sum are one instruction; nothing else is done but what is written
    flags = ["-ffp-contract=fast", "-fno-unsafe-math-optimizations", "-fno-finite-math-only"]
    object_file, shared = (
        CppBuilder(
            name=NAME,
            sources=[str(source) for source in sources],
            output_dir=str(folder),
            BuildOption=CppTorchOptions(vec_isa=pick_vec_isa(), compile_only=compile_only, extra_flags=flags),
        )
        for sources, compile_only in (([_PRODUCTS], True), ([folder / f"{NAME}.o", _RANKING], False))
    )
    object_file.build()
    shared.build()
    archive = ["ar", "rcs", str(folder / f"lib{NAME}.a"), object_file.get_target_file_path()]
    try:
        subprocess.run(archive, check=True, capture_output=True, encoding="utf-8")
    except (FileNotFoundError, subprocess.CalledProcessError) as problem:
        said = problem.stderr.strip() if isinstance(problem, subprocess.CalledProcessError) else problem
        raise ValueError(f"`ar`, which comes with a compiler, failed: {said}") from problem
    return Path(shared.get_target_file_path())


def faster_than_torch(products: Products, depth: int, width: int) -> bool:
    """Whether a matrix [width, depth] is multiplied with faster, on the whole, by these than by torch.

    Both are timed in turn with some numbers of rows; what counts is the mean of the logarithms of the medians' ratios.
    """
    weight = torch.ones(width, depth)
    panels, bias = in_panels(weight, None, products.panel)
    turned = weight.t().contiguous()
    ratios = []
    for num_rows in _ROWS:
        x = torch.ones(num_rows, depth)

        def own(x: Tensor = x) -> object:
            return products(x, panels, bias, width)

        def others(x: Tensor = x) -> object:
            return x @ turned

        ratios.append(math.log(_ratio(own, others)))
    return sum(ratios) < 0


def _ratio(one: Callable[[], object], other: Callable[[], object]) -> float:
    """How long `one` takes over how long `other` takes."""
    other()
    times = max(1, round(_SECONDS / max(_seconds(other, 1), 1e-7)))
    tries = [(_seconds(one, times), _seconds(other, times)) for _ in range(_TRIES)]
    return median(own for own, _ in tries) / median(others for _, others in tries)


def _seconds(function: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        function()
    return time.perf_counter() - started
