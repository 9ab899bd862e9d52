"""seq2seq.nn.host_memory: freed memory is there for the next step."""

import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from seq2seq.nn import host_memory

FAULTS = """
    import resource
    import torch
    from seq2seq.nn.host_memory import keep_freed_memory

    def faults(size=48):  # pages that the system has cleared for four tensors (MiB) that come and go
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            torch.ones(size << 18)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    torch.set_num_threads(1)
    first = faults()
    assert keep_freed_memory()
    for _ in range(4):  # until the memory that is kept has room for what comes and goes
        faults()
    print(first, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_memory_that_is_freed_is_not_cleared_anew_by_the_system():
    # in a process of its own, as the setting stays
    command = [sys.executable, "-c", textwrap.dedent(FAULTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    before, after = map(int, done.stdout.split())
    assert before > 4 * 10_000  # of 4 KiB each, four times 48 MiB
    assert after < before / 20


THREADS = """
    from concurrent.futures import ThreadPoolExecutor

    def faults_of_a_thread():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(faults, 80).result()  # more than the 64 MiB that glibc has in a thread's own memory

    assert keep_freed_memory(threads=True)
    rounds = [faults_of_a_thread() for _ in range(24)]
    print(first, sorted(rounds[-8:])[4])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_threads_that_come_and_go_have_it_too():
    begin = textwrap.dedent(FAULTS[: FAULTS.index("    assert")])
    command = [sys.executable, "-c", begin + textwrap.dedent(THREADS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    before, after = map(int, done.stdout.split())
    assert before > 4 * 10_000
    assert after < before / 32  # of a thread in the middle; with memory of its own it has even more than `before`


def test_other_systems_and_libraries_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(host_memory.ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not host_memory.keep_freed_memory()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not host_memory.keep_freed_memory()
