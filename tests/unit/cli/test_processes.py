"""Small programs run together: errors, signals, and what is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from seq2seq.cli import processes
from seq2seq.cli.processes import ProcessFailedError, run_together


def program(text):
    """A program that knows its rank."""
    head = "import os, signal, sys, time\nfrom pathlib import Path\nrank = int(os.environ['RANK'])\n"
    return [sys.executable, "-S", "-c", head + text]


SLEEPS = "time.sleep(100)\n"
FAILS = "Path(os.environ['SEQ2SEQ_ERROR_FILE']).write_text(f'rank {rank} says why')\nsys.exit(1)\n"


def lives(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(") ")[2][0] not in "ZX"


@pytest.fixture
def signals_pass(tmp_path, monkeypatch):
    """Sends this process, which runs programs together, signals as soon as all of them are ready."""
    monkeypatch.chdir(tmp_path)

    def send(*signums, number=2):
        def wait_and_send():
            limit = time.monotonic() + 20
            while len(list(tmp_path.glob("ready_*"))) < number and time.monotonic() < limit:
                time.sleep(0.01)
            for signum in signums:
                os.kill(os.getpid(), signum)
                time.sleep(0.1)

        threading.Thread(target=wait_and_send).start()

    return send


READY = "Path(f'ready_{rank}').write_text(str(os.getpid()))\n"


def test_each_process_is_told_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OWN")
    text = f"Path(str(rank)).write_text(' '.join(os.environ[name] for name in {names}))\n"
    assert run_together(program(text), 2, {"OWN": "x"}) is None
    assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["0 0 0 2 2 127.0.0.1 x", "1 1 0 2 2 127.0.0.1 x"]


def test_the_error_of_the_process_that_failed_first_is_told_and_the_others_are_ended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.3)
    text = READY + f"if rank == 1:\n    {FAILS.replace(chr(10), chr(10) + '    ')}\n" + SLEEPS
    with pytest.raises(ProcessFailedError, match=r"^rank 1 says why$") as failed:
        run_together(program(text), 2, {})
    assert failed.value.exit_code == 1
    assert not lives(int((tmp_path / "ready_0").read_text()))


def test_of_several_errors_the_earliest_is_told():
    with pytest.raises(ProcessFailedError, match=r"^rank 1 says why$"):
        run_together(program("time.sleep(0.4 * (1 - rank))\n" + FAILS), 2, {})


def test_a_process_that_was_killed_is_told_with_the_signal_and_before_what_others_say_of_it():
    text = "if rank == 0:\n    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(0.2)\n" + FAILS
    with pytest.raises(ProcessFailedError, match=r"rank 0.* was ended by SIGKILL; was there enough memory") as failed:
        run_together(program(text), 2, {})
    assert failed.value.exit_code == 137


def test_a_process_that_does_not_say_why_is_told_with_its_code():
    with pytest.raises(ProcessFailedError, match=r"process 0 of 1 .* ended with code 3 and has not said why"):
        run_together(program("sys.exit(3)"), 1, {})


def test_what_nobody_expected_is_told_with_its_traceback(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    text = "from seq2seq.cli.processes import tell_parent_of_errors\ntell_parent_of_errors()\n[][1]\n"
    with pytest.raises(ProcessFailedError, match=r"(?s)^Traceback .*IndexError: list index out of range$"):
        run_together(program(text), 1, {})


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_said(signals_pass, signum):
    signals_pass(signum)
    before = signal.getsignal(signum)
    text = f"signal.signal({int(signum)}, lambda *_: sys.exit(128 + {int(signum)}))\n" + READY + SLEEPS
    assert run_together(program(text), 2, {}) == signum
    assert signal.getsignal(signum) is before


def test_the_second_signal_kills_processes_that_do_not_listen(signals_pass, tmp_path):
    signals_pass(signal.SIGINT, signal.SIGINT)
    text = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + READY + SLEEPS
    assert run_together(program(text), 2, {}) == signal.SIGINT
    assert not any(lives(int(file.read_text())) for file in tmp_path.glob("ready_*"))


def test_a_process_notices_that_its_parent_was_killed_and_asks_itself_to_stop(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    child = program(
        "from seq2seq.cli.processes import end_with_parent\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        f"end_with_parent()\nos.chdir({str(tmp_path)!r})\n{READY}{SLEEPS}"
    )
    parent = f"from seq2seq.cli.processes import run_together\nrun_together({child!r}, 2, {{}})\n"
    process = subprocess.Popen([sys.executable, "-S", "-c", parent])
    limit = time.monotonic() + 20
    while len(list(tmp_path.glob("ready_*"))) < 2 and time.monotonic() < limit:
        time.sleep(0.01)
    process.kill()
    process.wait()
    pids = [int(file.read_text()) for file in tmp_path.glob("ready_*")]
    while any(lives(pid) for pid in pids) and time.monotonic() < limit:
        time.sleep(0.01)
    assert len(pids) == 2
    assert not any(lives(pid) for pid in pids)


def test_a_process_that_nobody_has_started_so_watches_nothing(monkeypatch):
    monkeypatch.delenv(processes.PARENT, raising=False)
    monkeypatch.delenv(processes.ERROR_FILE, raising=False)
    hook, threads = sys.excepthook, threading.active_count()
    processes.end_with_parent()
    processes.tell_parent_of_errors()
    assert (sys.excepthook, threading.active_count()) == (hook, threads)
