"""I2, I3, I7, I11, I12 under every option: N lines in, N (or n times N) lines out, each in its place."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from seq2seq.cli.app import app
from seq2seq.text.lines import is_blank, read_lines

SHORT = ["--max-length", "4", "--max-source-length", "40", "--long", "truncate"]

OPTIONS: dict[str, list[str]] = {
    "greedy": ["--beam", "1"],
    "beam": ["--beam", "3", "--patience", "1"],
    "sampling": ["--temperature", "1", "--top-k", "9"],
    "minimum Bayes risk": ["--mbr", "chrf"],
    "constraints": ["--forbid", "owl", "--no-repeat-ngram", "2", "--coverage-penalty", "0.1"],
    "small batches": ["--batch-tokens", "50"],
    "split": ["--long", "split"],
    "one by one": ["--interactive", "--beam", "1"],
    "ctranslate2": ["--backend", "ctranslate2", "--beam", "1"],
}


def call(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["translate", *map(str, arguments)], input=stdin)


@pytest.fixture(scope="module")
def bundle(tiny_bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of its own, in which conversions are kept."""
    return Path(shutil.copytree(tiny_bundle_folder, tmp_path_factory.mktemp("lines") / "bundle"))


def records(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(output)]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_i3_i12_every_nasty_line_keeps_its_place(bundle, nasty_file, nasty_text, tmp_path, options) -> None:
    if "ctranslate2" in options:
        pytest.importorskip("ctranslate2", reason="the extra `interop` is not installed")
    output = tmp_path / "out.jsonl"
    result = call(bundle, nasty_file, "-o", output, "--format", "jsonl", *SHORT, *options)
    assert result.exit_code == 0, result.output
    assert output.read_bytes().count(b"\n") == len(nasty_text.lines)
    found = records(output)
    assert [record["line"] for record in found] == list(range(1, len(nasty_text.lines) + 1))
    assert [record["source"] for record in found] == nasty_text.lines
    for record in found:
        if is_blank(record["source"]):
            assert [one["text"] for one in record["translations"]] == [""]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_i2_n_best_has_n_rows_for_each_nasty_line(bundle, nasty_file, nasty_text, tmp_path, options) -> None:
    if {"ctranslate2", "--interactive", "split"} & set(options):
        pytest.skip("beam 1 has one translation, and the long line's parts take long")
    beam = [] if {"--temperature", "--beam"} & set(options) else ["--beam", "3"]
    options = [*options, *beam] if options[:2] != ["--beam", "1"] else ["--beam", "2"]
    output = tmp_path / "out.txt"
    result = call(bundle, nasty_file, "-o", output, "--n-best", 2, *SHORT, *options)
    assert result.exit_code == 0, result.output
    rows = output.read_bytes().decode().split("\n")[:-1]
    assert len(rows) == 2 * len(nasty_text.lines)
    for number, line in enumerate(nasty_text.lines):
        if is_blank(line):
            assert rows[2 * number : 2 * number + 2] == ["", ""]


@pytest.mark.parametrize("name", ["out.txt", "out.gz"])
def test_i3_a_resumed_job_has_the_lines_of_an_unbroken_one(bundle, nasty_file, tmp_path, monkeypatch, name) -> None:
    options = [*SHORT, "--beam", "1", "--batch-tokens", "3"]
    whole, output = tmp_path / "whole.txt", tmp_path / name
    assert call(bundle, nasty_file, "-o", whole, *options).exit_code == 0
    left = 11

    def write(self: Any, answer: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        original(self, answer)

    from seq2seq.cli.translate_resume import PartialOutput

    original = PartialOutput.write
    monkeypatch.setattr(PartialOutput, "write", write)
    assert call(bundle, nasty_file, "-o", output, "--resume", *options).exit_code == 130
    assert 0 < (tmp_path / f"{name}.part").read_bytes().count(b"\n") <= 10
    assert call(bundle, nasty_file, "-o", output, "--resume", *options).exit_code == 0
    found = gzip.decompress(output.read_bytes()) if name.endswith(".gz") else output.read_bytes()
    assert found == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--n-best", "3", "--scores"], ["--temperature", "1", "--format", "jsonl"]])
def test_i7_i11_devices_write_the_nasty_lines_of_one_process(bundle, nasty_file, more) -> None:
    found = []
    for number in (1, 2, 3):
        command = [sys.executable, "-m", "seq2seq", "translate", str(bundle), str(nasty_file), *SHORT, *more]
        command += ["--devices", str(number), "--device", "cpu", "--batch-tokens", "60"]
        done = subprocess.run(command, capture_output=True, check=False, env={"LC_ALL": "C", "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr.decode()
        found.append(done.stdout)
    assert found[0] == found[1] == found[2]


def test_i3_files_of_prefixes_and_targets_go_line_by_line(bundle, nasty_file, nasty_text, tmp_path) -> None:
    prefixes = tmp_path / "prefixes.txt"
    wanted = ["owl" if number % 3 == 0 else "" for number in range(len(nasty_text.lines))]
    prefixes.write_bytes("".join(line + "\n" for line in wanted).encode())
    options = ["--format", "jsonl", *SHORT, "--beam", "1", "--max-length", "9"]
    output = tmp_path / "out.jsonl"
    assert call(bundle, nasty_file, "-o", output, "--prefixes", prefixes, *options).exit_code == 0
    for record, prefix in zip(records(output), wanted, strict=True):
        if not is_blank(record["source"]):
            assert record["translations"][0]["text"].startswith(prefix)
    assert call(bundle, nasty_file, "-o", output, "--force", prefixes, *options).exit_code == 0
    for record, target in zip(records(output), wanted, strict=True):
        assert record["translations"][0]["text"] == ("" if is_blank(record["source"]) else target)


@pytest.mark.parametrize("option", ["--prefixes", "--force", "--phrases"])
@pytest.mark.parametrize(("count", "said"), [(2, "has 2 lines"), (4, "has 4 lines")])
def test_i5_a_file_with_other_lines_than_the_input_is_refused(bundle, tmp_path, option, count, said) -> None:
    source, beside = tmp_path / "in.txt", tmp_path / "beside.txt"
    source.write_bytes(b"die cat.\nowl\nder ant.\n")
    beside.write_bytes(b"pig\n" * count)
    result = call(bundle, source, option, beside)
    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    assert f"{option} {beside} {said}, but {source} has 3" in result.stderr


@pytest.mark.parametrize("option", ["--prefixes", "--force", "--phrases"])
@pytest.mark.parametrize(
    ("count", "said"), [(2, "ends after line 2, but standard input goes on"), (4, "has more lines, but standard input")]
)
def test_i5_a_file_with_other_lines_than_a_stream_is_told_when_it_ends(bundle, tmp_path, option, count, said) -> None:
    beside = tmp_path / "beside.txt"
    beside.write_bytes(b"pig\n" * count)
    result = call(bundle, option, beside, "--max-length", 9, stdin=b"die cat.\nowl\nder ant.\n")
    assert result.exit_code == 1
    assert result.stdout_bytes.count(b"\n") == min(count, 3)
    assert said in result.stderr
