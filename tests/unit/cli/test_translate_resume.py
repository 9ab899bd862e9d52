"""`--resume`: a job that is stopped at any moment goes on, and its output is that of one that never was."""

import gzip
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from seq2seq.cli.app import app
from seq2seq.cli.translate_job import Answer
from seq2seq.cli.translate_resume import PartialOutput
from seq2seq.translator import Request

LINES = [f"der {first} sieht die {second}." for first in ("ant", "bee", "cat") for second in ("dog", "elk", "fox")] + [
    "",
    "owl",
]
OPTIONS: dict[str, Any] = {"models": ["1234"], "decode": {"beam_size": 4, "seed": 1}}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["translate", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_bytes("".join(line + "\n" for line in LINES).encode())
    return path


class Killed(BaseException):
    """Stands in for a signal that nobody can catch."""


def answers(lines: Iterable[Request], first: int, window: int) -> Iterable[Answer]:
    """Two rows for each line; a notice for every third."""
    for number, line in enumerate(lines, start=first):
        notice = f"line {number}" if number % 3 == 0 else None
        ends = number % window == 0
        yield Answer([line.text.upper(), f"{number}"], notice, hit_limit=False, ends_window=ends)


def go_on(output: Path, lines: list[Request], window: int) -> int:
    """One run of the job; the notices of all runs."""
    with PartialOutput(output, OPTIONS) as partial:
        for answer in answers(partial.remaining(lines, "in.txt"), partial.lines + 1, window):
            partial.write(answer)
        partial.finish()
        return partial.notices


def expected(lines: list[Request]) -> bytes:
    return b"".join(row.encode() + b"\n" for answer in answers(lines, 1, 1) for row in answer.rows)


@pytest.mark.parametrize("name", ["out.txt", "out.gz"])
@pytest.mark.parametrize("seed", range(4))
def test_a_job_killed_at_random_moments_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, name: str
) -> None:
    draw = random.Random(seed)
    lines = [Request(f"zeile {number} {'x' * (number % 5)}") for number in range(41)]
    window = draw.choice([1, 3, 7])
    output = tmp_path / name
    whole = {"write": PartialOutput.write, "fsync": os.fsync, "replace": Path.replace}
    kills, left = 0, 0

    def maybe(call):
        def run(*arguments):
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return call(*arguments)

        return run

    monkeypatch.setattr(PartialOutput, "write", maybe(whole["write"]))
    monkeypatch.setattr(os, "fsync", maybe(whole["fsync"]))
    monkeypatch.setattr(Path, "replace", maybe(whole["replace"]))
    while True:
        left = draw.randint(1, 40)
        try:
            notices = go_on(output, lines, window)
        except Killed:
            kills += 1
            part = tmp_path / f"{name}.part"
            if part.exists() and draw.random() < 0.5:  # what had not been committed may be on the disk, or not
                with part.open("ab") as stream:
                    stream.write(b"half a li")
            continue
        break
    assert kills >= 2
    assert notices == 13
    read = gzip.decompress(output.read_bytes()) if name.endswith(".gz") else output.read_bytes()
    assert read == expected(lines)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_command_goes_on_and_writes_the_bytes_of_an_unbroken_job(
    tiny_bundle_folder: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--format", "jsonl", "--batch-tokens", 2, "--n-best", 2, "--max-source-length", 8, "--long", "truncate"]
    whole = tmp_path / "whole.jsonl"
    assert call(tiny_bundle_folder, source, "-o", whole, *options).exit_code == 0
    output = tmp_path / "out.jsonl"
    original = PartialOutput.write
    stops = iter([7, 1, 3])
    left = next(stops)

    def write(self: PartialOutput, answer: Answer) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        original(self, answer)

    monkeypatch.setattr(PartialOutput, "write", write)
    for stop in range(3):
        result = call(tiny_bundle_folder, source, "-o", output, "--resume", *options)
        assert result.exit_code == 130
        assert "stopped; the same command goes on with" in result.stderr
        left = next(stops, 1000) if stop < 2 else 1000
        assert not output.exists()
    result = call(tiny_bundle_folder, source, "-o", output, "--resume", "--strict", *options)
    assert result.exit_code == 1, "lines were cut, before the stops too"
    assert "of 11 lines were translated already" in result.stderr
    assert output.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_process_that_is_killed_goes_on(
    tiny_bundle_folder: Path, source: Path, tmp_path: Path, signum: signal.Signals, devices: int
) -> None:
    source.write_bytes(source.read_bytes() * 60)
    command = [sys.executable, "-m", "seq2seq", "translate", str(tiny_bundle_folder), str(source)]
    command += ["--batch-tokens", "5", "--format", "jsonl"]
    assert subprocess.run([*command, "-o", str(tmp_path / "whole")], check=False).returncode == 0
    output = tmp_path / "out"
    command += ["-o", str(output), "--resume", "--devices", str(devices), "--device", "cpu"]
    kills = 0
    while not output.exists():
        process = subprocess.Popen(command)
        journal = tmp_path / "out.part.json"
        before = journal.read_text() if journal.exists() else ""
        while process.poll() is None and (not journal.exists() or journal.read_text() == before):
            time.sleep(0.01)
        if kills < 3 and process.poll() is None:
            time.sleep(random.random() / 5)
            process.send_signal(signum)
            kills += 1
        process.wait()
    assert kills == 3
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()


def begun(output: Path, lines: list[Request], stop: int) -> None:
    """A job that has been stopped after some lines."""
    with PartialOutput(output, OPTIONS) as partial:
        for answer in itertools.islice(answers(partial.remaining(lines, "in.txt"), 1, 2), stop):
            partial.write(answer)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"models": ["5678"]}, r"models was \['1234'\], is \['5678'\]"),
        ({"decode": {"beam_size": 5, "seed": 1}}, "decode.beam_size was 4, is 5"),
    ],
)
def test_other_models_and_options_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    begun(tmp_path / "out", [Request("a"), Request("b"), Request("c")], 2)
    with pytest.raises(ValueError, match=f"begun with another model or other options: {said}; give the same ones"):
        PartialOutput(tmp_path / "out", OPTIONS | changes)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a", "x", "c"], "the first 2 lines of in.txt, or what other files say about them, have changed"),
        (["a"], "in.txt has 1 lines, but 2 have been translated already"),
    ],
)
def test_an_input_that_begins_otherwise_is_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    begun(tmp_path / "out", [Request("a"), Request("b"), Request("c")], 2)
    with pytest.raises(ValueError, match=said):
        go_on(tmp_path / "out", [Request(line) for line in lines], 2)
    assert (tmp_path / "out.part").exists()


def test_a_prefix_that_has_changed_is_refused(tmp_path: Path) -> None:
    begun(tmp_path / "out", [Request("a"), Request("b")], 2)
    with pytest.raises(ValueError, match="or what other files say about them, have changed"):
        go_on(tmp_path / "out", [Request("a"), Request("b", prefix="c")], 2)


def test_a_job_that_was_complete_is_not_done_again(
    tiny_bundle_folder: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.txt"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert call(tiny_bundle_folder, source, "-o", output, "--resume").exit_code == 130
    written = output.read_bytes()
    monkeypatch.setattr("seq2seq.cli.translate_job.load_engine", lambda *_, **__: pytest.fail("loaded"))
    result = call(tiny_bundle_folder, source, "-o", output, "--resume")
    assert result.exit_code == 0
    assert "was complete already" in result.stderr
    assert output.read_bytes() == written
    assert not list(tmp_path.glob("*.part*"))


def test_files_that_are_not_its_own_are_left_alone(tmp_path: Path) -> None:
    part, journal = tmp_path / "out.part", tmp_path / "out.part.json"
    part.write_bytes(b"mine\n")
    with pytest.raises(ValueError, match=r"out\.part exists without its journal"):
        PartialOutput(tmp_path / "out", OPTIONS)
    journal.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged"):
        PartialOutput(tmp_path / "out", OPTIONS)
    journal.write_text(json.dumps({"version": 2, "options": {}}), encoding="utf-8")
    with pytest.raises(ValueError, match="has version 2, expected 1"):
        PartialOutput(tmp_path / "out", OPTIONS)
    assert part.read_bytes() == b"mine\n"


def test_a_part_that_is_too_short_is_refused(tmp_path: Path) -> None:
    begun(tmp_path / "out", [Request("a"), Request("b")], 2)
    (tmp_path / "out.part").write_bytes(b"A\n")
    with (
        pytest.raises(ValueError, match="has 2 bytes, expected at least the 8"),
        PartialOutput(tmp_path / "out", OPTIONS),
    ):
        pass


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with (
        PartialOutput(tmp_path / "out", OPTIONS),
        pytest.raises(ValueError, match="another process is writing"),
        PartialOutput(tmp_path / "out", OPTIONS),
    ):
        pass


def test_what_is_no_file_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a regular file"):
        PartialOutput("/dev/null", OPTIONS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resume"], "--resume goes on with a file that is read and one that is written"),
        (["--resume", "-o", "out", "--interactive"], "leave --interactive out"),
    ],
)
def test_a_job_that_cannot_go_on_is_refused(tiny_bundle_folder: Path, source: Path, arguments, said) -> None:
    result = call(tiny_bundle_folder, source, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_drawing_by_ctranslate2_cannot_go_on(tiny_bundle_folder: Path, source: Path, tmp_path: Path) -> None:
    options = ["--backend", "ctranslate2", "--temperature", 1, "--resume", "-o", tmp_path / "out"]
    result = call(shutil.copytree(tiny_bundle_folder, tmp_path / "bundle"), source, *options)
    assert result.exit_code == 1
    assert "so that --resume cannot go on with them" in result.stderr


def test_a_job_that_was_refused_leaves_nothing_and_may_begin_with_other_options(
    tiny_bundle_folder: Path, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.txt"
    result = call(tiny_bundle_folder, source, "-o", output, "--resume", "--shortlist")
    assert result.exit_code == 1
    assert "the bundle has none" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    assert call(tiny_bundle_folder, source, "-o", output, "--resume").exit_code == 0
    assert output.read_bytes().count(b"\n") == len(LINES)


def test_what_a_job_left_that_was_killed_before_its_first_lines_is_passed_over(tmp_path: Path) -> None:
    lines = [Request("a"), Request("b")]
    partial = PartialOutput(tmp_path / "out", OPTIONS)
    partial.__enter__()  # and no exit, as of a process that is killed
    partial._stream.close()
    partial.part.write_bytes(b"half a li")
    assert {path.name for path in tmp_path.iterdir()} == {"out.part", "out.part.json"}
    with PartialOutput(tmp_path / "out", {**OPTIONS, "decode": {"beam_size": 9}}) as other:
        for answer in answers(other.remaining(lines, "in.txt"), 1, 1):
            other.write(answer)
        other.finish()
    assert (tmp_path / "out").read_bytes() == expected(lines)


def test_lines_that_are_safe_are_kept_whatever_comes(tmp_path: Path) -> None:
    lines = [Request(text) for text in "abcd"]
    with pytest.raises(Killed), PartialOutput(tmp_path / "out", OPTIONS) as partial:  # noqa: PT012
        for number, answer in enumerate(answers(partial.remaining(lines, "in.txt"), 1, 2), start=1):
            if number == 4:
                raise Killed
            partial.write(answer)
    assert (partial.lines, partial.committed) == (3, 2)
    with pytest.raises(ValueError, match=r"begun with another model or other options: decode\.beam_size was 4, is 9"):
        PartialOutput(tmp_path / "out", {**OPTIONS, "decode": {"beam_size": 9, "seed": 1}})
