"""Under torchrun every rank translates its share, and rank 0 writes what one process would."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2seq.cli import UsageError, translate_ranks
from seq2seq.cli.app import app
from seq2seq.cli.engines import EngineOptions
from seq2seq.cli.translate_job import Answer, Job
from seq2seq.cli.translate_output import Format, Rows
from seq2seq.cli.translate_resume import PartialOutput
from seq2seq.config import DecodeConfig
from seq2seq.training.launch import Place
from seq2seq.translator import Request

LINES = ["der ant läuft!", "", "die cat.", "owl", "der dog sieht das pig und die gnu.", "17 elk.", "die bee."]


class Store:
    """What torch's store does, between threads."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self._changed:
            self._values[key] = value.encode()
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self._values, timeout=30)
            return self._values[key]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Two processes on one machine, of which this one leads."""
    shared = Store()
    monkeypatch.setattr(translate_ranks, "_store", lambda: shared)
    monkeypatch.setattr("seq2seq.training.launch.place", lambda: Place(0, 2, "torchrun"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    return shared


def job(folder: Path) -> Job:
    decode = DecodeConfig(beam_size=2, batch_tokens=20, max_length=6)
    return Job(str(folder), EngineOptions(device="cpu"), decode, Rows(Format.jsonl))


def test_rank_0_gives_the_answers_of_one_process(tiny_bundle_folder: Path, store: Store) -> None:
    codes: list[int] = []
    follower = threading.Thread(target=lambda: codes.append(translate_ranks.follow(EngineOptions(device="cpu"))))
    follower.start()
    own = job(tiny_bundle_folder)
    found = list(translate_ranks.led_answers(own, map(Request, LINES)))
    follower.join(30)
    assert codes == [0]
    engine = own.load()
    assert [answer.rows for answer in found] == [own.rows(one) for one in engine.stream(LINES)]
    assert [answer.ends_window for answer in found] == [False] * 6 + [True]


def test_a_stopped_job_goes_on_among_the_ranks(
    tiny_bundle_folder: Path, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES * 4), encoding="utf-8")
    options = ["--device", "cpu", "--batch-tokens", "3", "--format", "jsonl", "--beam", "2", "--max-length", "6"]
    command = ["translate", str(tiny_bundle_folder), str(tmp_path / "in"), "--resume", *options]

    def run(output: str) -> int:
        store.__init__()
        follower = threading.Thread(target=lambda: translate_ranks.follow(EngineOptions(device="cpu")))
        follower.start()
        code = CliRunner().invoke(app, [*command, "-o", str(tmp_path / output)]).exit_code
        follower.join(30)
        assert not follower.is_alive()
        return code

    assert run("whole") == 0
    original, left = PartialOutput.write, 20

    def write(self: PartialOutput, answer: Answer) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        original(self, answer)

    monkeypatch.setattr(PartialOutput, "write", write)
    assert run("out") == 130
    assert 0 < (tmp_path / "out.part").read_bytes().count(b"\n") < 20
    assert run("out") == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_what_goes_wrong_in_another_rank_is_told(tiny_bundle_folder: Path, store: Store) -> None:
    codes: list[int] = []

    def follow() -> None:
        codes.append(translate_ranks.follow(EngineOptions(device="cpu", devices=3)))

    follower = threading.Thread(target=follow)
    follower.start()
    with pytest.raises(ValueError, match="torchrun has started this one; leave --devices out"):
        list(translate_ranks.led_answers(job(tiny_bundle_folder), map(Request, LINES)))
    follower.join(30)
    assert codes == [2]


def test_strangers_are_shown_out(tiny_bundle_folder: Path, store: Store) -> None:
    def knock() -> None:
        host, port, _ = store.get("seq2seq translate 0").decode().split()
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"x" * 32)
            assert stranger.recv(1) == b""
        translate_ranks.follow(EngineOptions(device="cpu"))

    visitor = threading.Thread(target=knock)
    visitor.start()
    found: list[Answer] = list(translate_ranks.led_answers(job(tiny_bundle_folder), map(Request, LINES)))
    visitor.join(30)
    assert len(found) == len(LINES)


def test_others_that_do_not_come_are_missed(tiny_bundle_folder: Path, store: Store, monkeypatch) -> None:
    monkeypatch.setattr(translate_ranks, "PATIENCE", translate_ranks.timedelta(seconds=0.05))
    with pytest.raises(ValueError, match="0 of the 1 other processes have come within 0:00:00"):
        list(translate_ranks.led_answers(job(tiny_bundle_folder), map(Request, LINES)))


def test_each_rank_computes_on_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert translate_ranks.own_options(EngineOptions()).device == "cuda:1"
    told = EngineOptions(device="cuda", ensemble=["b"], threads=7)
    own = translate_ranks.own_options(EngineOptions(threads=2), told)
    assert (own.device, own.ensemble, own.threads) == ("cuda:1", ["b"], 2)
    with pytest.raises(UsageError, match="--device cuda:1 is one device for all; give --device cuda"):
        translate_ranks.own_options(EngineOptions(device="cuda:1"))


def test_processes_that_cannot_find_one_another_are_told_how_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ValueError, match="MASTER_ADDR is not in the environment"):
        translate_ranks._store()


def test_one_by_one_is_refused(tiny_bundle_folder: Path, store: Store) -> None:
    result = CliRunner().invoke(app, ["translate", str(tiny_bundle_folder), "--interactive"], input=b"owl\n")
    assert result.exit_code == 2
    assert "start one without torchrun" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_torchrun_gives_the_bytes_of_one_process(tiny_bundle_folder: Path, tmp_path: Path, command: str) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("".join(line + "\n" for line in LINES * 9), encoding="utf-8")
    options = ["--batch-tokens", "30", "--device", "cpu", "-o", str(output)]
    if command == "translate":
        arguments = ["translate", str(tiny_bundle_folder), str(source), "--format", "jsonl", *options]
    else:
        arguments = ["evaluate", str(tiny_bundle_folder), "--source", str(source), "--reference", str(source)]
        arguments += ["--format", "json", *options]
    found = []
    for start in (
        ["-m", "seq2seq"],
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "seq2seq"],
    ):
        done = subprocess.run(
            [sys.executable, *start, *arguments], capture_output=True, check=False, env={**os.environ}
        )
        assert done.returncode == 0, done.stderr.decode()
        found.append((output.read_bytes(), done.stdout))
    assert found[0] == found[1]
