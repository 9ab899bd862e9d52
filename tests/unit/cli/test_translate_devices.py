"""`--devices N`: the same bytes as one process, and no process left behind, however it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seq2seq.cli.app import app
from seq2seq.cli.engines import Backend, EngineOptions
from seq2seq.cli.translate_devices import COMMAND, share
from seq2seq.cli.translate_job import Answer, Job
from seq2seq.cli.translate_output import Rows
from seq2seq.cli.translate_ranks import own_options
from seq2seq.cli.translate_shares import Task, Window, deal, windows
from seq2seq.config import DecodeConfig, LongLines
from seq2seq.translator import Candidate, Request, Translator
from seq2seq.translator.batches import Part

LINES = [
    *["der ant läuft!", "", "die cat.", "owl", "der dog sieht das pig und die gnu.", "\u200b", "17 elk."],
    *[f"die {animal} und der {animal}." for animal in ("bee", "fox", "hen", "owl", "pig", "ram")],
]


def call(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_bytes("".join(line + "\n" for line in LINES).encode())
    return path


def test_two_processes_write_the_bytes_of_one(tiny_bundle_folder: Path, source: Path, tmp_path: Path) -> None:
    outputs = []
    for number in (1, 2):
        output = tmp_path / f"{number}.jsonl"
        result = call(
            *("translate", tiny_bundle_folder, source, "-o", output, "--format", "jsonl", "--n-best", 2),
            *("--batch-tokens", 20, "--devices", number, "--device", "cpu", "--threads", 2),
            *("--max-source-length", 9, "--long", "truncate"),
        )
        assert result.exit_code == 0, result.output
        assert result.stderr.count("line 5 has 10 pieces") == 1
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"\n") == len(LINES)


def test_what_a_process_says_when_it_fails_ends_the_whole(tiny_bundle_folder: Path, source: Path, tmp_path: Path):
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in tiny_bundle_folder.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes()[: 200 if file.suffix == ".safetensors" else None])
    result = call("translate", damaged, source, "--devices", 2)
    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    assert "model.safetensors does not fit" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL; was there enough memory?"),
        ("import sys; sys.exit(7)", "ended with code 7 and has not said why"),
    ],
)
def test_a_process_that_dies_is_named(tiny_bundle_folder: Path, source: Path, monkeypatch, program: str, said: str):
    monkeypatch.setattr("seq2seq.cli.translate_devices.COMMAND", [sys.executable, "-c", program])
    result = call("translate", tiny_bundle_folder, source, "--devices", 2)
    assert result.stdout_bytes == b""
    assert result.exit_code == (137 if "SIGKILL" in said else 7)
    assert said in result.stderr


def answered(task: Task) -> list[Answer]:
    return [Answer([f"{number} {line.text}"], None, False) for number, line in task.lines]


def window(*tasks: list[int], error: Exception | None = None) -> Window:
    """Lines with these numbers, in these batches."""
    numbers = sorted(number for task in tasks for number in task)
    return Window([Task([(number, Request(f"line {number}")) for number in task]) for task in tasks], numbers, error)


def test_answers_come_in_order_whoever_is_faster() -> None:
    def slow(task: Task) -> list[Answer]:
        time.sleep(0.02)
        return answered(task)

    found = list(deal([window([3, 1], [2, 5], [4]), window([6]), window()], [slow, answered]))
    assert [answer.rows for answer in found] == [[f"{number} line {number}"] for number in range(1, 7)]
    assert [answer.ends_window for answer in found] == [False] * 4 + [True] * 2


def test_an_error_of_the_input_comes_after_the_lines_before_it() -> None:
    found = deal([window([2, 1], error=ValueError("line 3 is not UTF-8"))], [answered, answered])
    assert [next(found).rows, next(found).rows] == [["1 line 1"], ["2 line 2"]]
    with pytest.raises(ValueError, match="line 3 is not UTF-8"):
        next(found)


def test_the_input_is_not_read_far_ahead_of_what_has_been_written() -> None:
    read = []

    def windows() -> Iterator[Window]:
        for number in range(1, 100):
            read.append(number)
            yield window([number])

    found = deal(windows(), [answered])
    for number in range(1, 5):
        assert next(found).rows == [f"{number} line {number}"]
        assert len(read) <= number + 2
    found.close()


def test_batches_are_those_of_one_process(tiny_bundle_folder: Path, tiny_lines: list[str]) -> None:
    lines = [*tiny_lines[:40], "", " ".join(["der ant."] * 20)]
    decode = DecodeConfig(beam_size=1, max_length=3, batch_tokens=30, max_source_length=40, long_lines=LongLines.split)
    job = Job(str(tiny_bundle_folder), EngineOptions(), decode, Rows())
    engine = job.load()
    assert isinstance(engine, Translator)
    batches: list[list[int]] = []
    search = engine._search

    def noted(parts: list[Part], decode: DecodeConfig) -> list[list[Candidate]]:
        batches.append([part.number for part in parts])
        return search(parts, decode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_search", noted)
        list(engine.stream(lines, on_notice=lambda _: None))
    shared = [task for window in windows(job, map(Request, lines)) for task in window.tasks]
    dealt = [sorted(number for number, line in task.lines if line.text) for task in shared]
    whole = [sorted(batch) for batch in batches if 42 not in batch]
    assert len(whole) > 5
    assert [batch for batch in dealt if 42 not in batch and batch] == whole
    assert sorted(number for task in shared for number, _ in task.lines) == list(range(1, 43))


@pytest.mark.parametrize(
    "signum",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_leaves_no_process(tiny_bundle_folder: Path, tmp_path: Path, signum: signal.Signals) -> None:
    command = [sys.executable, "-m", "seq2seq", "translate", str(tiny_bundle_folder), "--devices", "2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        try:
            children = _wait_for(lambda: _children(process.pid), 2)
            process.send_signal(signum)
            process.wait(60)
        finally:
            process.kill()
        assert (
            process.returncode
            in {
                signal.SIGINT: (130,),
                signal.SIGTERM: (143,),
                signal.SIGKILL: (-9,),
            }[signum]
        )
    _wait_for(lambda: [child for child in children if not _alive(child)], 2)


def _children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def _alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_for(find, number: int) -> list[int]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = find()
        if len(found) >= number:
            return found
        time.sleep(0.1)
    raise AssertionError(f"found {find()}, expected {number}")


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (["--devices", "0"], "--devices 0 is not positive", 2),
        (["--devices", "2", "--device", "cuda:1"], "--device cuda:1 is one device, --devices 2 asks for several", 2),
        (["--devices", "2", "--device", "cuda"], "--devices 2 is more than the 0 GPUs that torch sees here", 1),
        (["--devices", "2", "--device", "mps"], "--devices 2 needs so many GPUs, and there is one of kind mps", 1),
        (["--devices", "2", "--interactive"], "--devices 2 shares out many lines", 2),
    ],
)
def test_devices_that_cannot_be_are_refused(tiny_bundle_folder, source, monkeypatch, options, message, code):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    result = call("translate", tiny_bundle_folder, source, *options)
    assert (result.exit_code, result.stdout_bytes) == (code, b"")
    assert message in result.stderr


@pytest.mark.parametrize(("total", "number", "expected"), [(5, 2, [3, 2]), (2, 3, [1, 1, 1])])
def test_the_threads_of_a_cpu_are_shared_out(total: int, number: int, expected: list[int]) -> None:
    options = EngineOptions(device="cpu", devices=number, threads=total)
    assert [share(options, rank).threads for rank in range(number)] == expected


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    for device in ("auto", "cuda"):
        found = [share(EngineOptions(device=device, devices=3), rank) for rank in range(3)]
        assert [own.device for own in found] == ["cuda:0", "cuda:1", "cuda:2"]
        assert {own.devices for own in found} == {1}


def test_a_worker_starts_as_a_module_and_ends_when_there_is_nothing_to_do() -> None:
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, check=False, env={**os.environ})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_compiled_code_is_for_the_cpu_where_there_are_gpus_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    options = EngineOptions(backend=Backend.aoti, devices=2, threads=4)
    assert [(share(options, rank).device, share(options, rank).threads) for rank in range(2)] == [("cpu", 2)] * 2
    alone = EngineOptions(backend=Backend.aoti)
    assert own_options(alone, alone).device == "cpu"
    assert own_options(EngineOptions(), EngineOptions()).device == "cuda:1"


def test_the_first_number_of_nested_threads_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "6,2")
    assert [share(EngineOptions(device="cpu", devices=2), rank).threads for rank in range(2)] == [3, 3]


def test_when_all_is_answered_no_thread_is_left_that_could_end_with_the_interpreter() -> None:
    tasks = [Task([(number, Request(f"{number}"))]) for number in range(1, 9)]

    def ask(task: Task) -> list[Answer]:
        time.sleep(0.01)
        return [Answer([line.text], None, hit_limit=False) for _, line in task.lines]

    before = set(threading.enumerate())
    found = list(deal([Window(tasks, list(range(1, 9)), None)], [ask, ask, ask]))
    assert [answer.rows for answer in found] == [[f"{number}"] for number in range(1, 9)]
    assert set(threading.enumerate()) <= before
