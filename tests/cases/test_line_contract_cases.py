"""I2, I3, I7, I11, I12 under every option: N lines in, N (or n times N) lines out, each in its place."""

import gzip
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from seq2seq.bundle import load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.text.lines import is_blank, read_lines
from seq2seq.translator.terminology import Terminology

SHORT = ["--max-length", "4", "--max-source-length", "40", "--long", "truncate"]

CT2 = ["--backend", "ctranslate2", "--penalty-form", "none"]

OPTIONS: dict[str, list[str]] = {
    "greedy": ["--beam", "1"],
    "beam": ["--beam", "3", "--patience", "1"],
    "sampling": ["--temperature", "1", "--top-k", "9"],
    "minimum Bayes risk": ["--mbr", "chrf"],
    "minimum Bayes risk of draws": ["--mbr", "bleu", "--temperature", "0.8", "--num-candidates", "3"],
    "constraints": ["--forbid", "owl", "--no-repeat-ngram", "2", "--coverage-penalty", "0.1"],
    "unknown words": ["--beam", "1", "--replace-unknown"],
    "small batches": ["--batch-tokens", "50"],
    "split": ["--long", "split"],
    "one by one": ["--interactive", "--beam", "1"],
    "ensemble": ["--ensemble", "other"],
    "shortlist": ["--shortlist"],
    "terms": ["--terms", "terms.tsv", "--beam", "6"],
    "phrases": ["--phrases", "phrases.txt", "--beam", "6"],
    "ctranslate2": ["--backend", "ctranslate2", "--beam", "1"],
    "ctranslate2, beam": [*CT2, "--beam", "3", "--penalty-form", "power"],
    "ctranslate2, sampling": [*CT2, "--temperature", "0.8"],
}

TWO: dict[str, list[str]] = {
    "beam": ["--beam", "3", "--patience", "1"],
    "sampling": ["--temperature", "0.8"],
    "minimum Bayes risk": ["--mbr", "chrf", "--beam", "4"],
    "minimum Bayes risk of draws": ["--mbr", "bleu", "--temperature", "0.8", "--num-candidates", "4"],
    "constraints": [*OPTIONS["constraints"], "--beam", "3"],
    "small batches": ["--beam", "3", "--batch-tokens", "50"],
    "split": ["--beam", "3", "--long", "split"],
    "one by one": ["--interactive", "--beam", "3"],
    "one by one, sampling": ["--interactive", "--temperature", "0.8"],
    "ensemble": ["--beam", "3", "--ensemble", "other", "--weights", "2,1"],
    "ensemble, sampling": ["--temperature", "0.8", "--ensemble", "other"],
    "shortlist": ["--beam", "3", "--shortlist"],
    "shortlist, sampling": ["--temperature", "0.8", "--shortlist"],
    "terms": OPTIONS["terms"],
    "phrases": OPTIONS["phrases"],
    "ctranslate2": [*CT2, "--beam", "3"],
    "ctranslate2, sampling": [*CT2, "--temperature", "0.8"],
    "ctranslate2, power of the length": [*CT2, "--beam", "3", "--penalty-form", "power", "--min-length", "1"],
    "ctranslate2, minimum Bayes risk": [*CT2, "--beam", "4", "--mbr", "chrf"],
    "ctranslate2, split": [*CT2, "--beam", "3", "--long", "split"],
    "ctranslate2, one by one": [*CT2, "--beam", "3", "--interactive"],
    "ctranslate2, one by one, sampling": [*CT2, "--temperature", "0.8", "--interactive"],
}
"""Ways to two translations of each line."""

TWO_OF_SIX = ["--n-best", "2", "--min-length", "2", *SHORT, "--max-length", "6"]
"""Two translations of each line, hardly one of them empty."""

TERMS = {"NA": "cat", "null": "owl", "family": "pig", "caf\u00e9": "gnu", "\u05e9\u05dc\u05d5\u05dd": "ram", "b": "elk"}


def call(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["translate", *map(str, arguments)], input=stdin)


def written(*arguments: object, stdin: bytes | None = None) -> list[str]:
    """The rows on standard output, which only LF ends."""
    result = call(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    *rows, after = result.stdout_bytes.decode().split("\n")
    assert after == ""
    return rows


def pairs(rows: Sequence[str]) -> list[list[str]]:
    """The rows two by two."""
    assert len(rows) % 2 == 0
    return [list(rows[place : place + 2]) for place in range(0, len(rows), 2)]


@pytest.fixture(scope="module")
def bundle(tiny_bundle_folder: Path, tiny_lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of its own, in which conversions and a shortlist are kept. Beside it is another with like tokenizers."""
    folder = Path(shutil.copytree(tiny_bundle_folder, tmp_path_factory.mktemp("lines") / "bundle"))
    other = load_bundle(folder)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for parameter in other.model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    save_bundle(replace(other, provenance={}), folder.with_name("other"))
    train = folder.with_name("train.txt")
    train.write_text("".join(line + "\n" for line in tiny_lines), encoding="utf-8")
    options = ["--source", train, "--target", train, "--candidates", "4", "--frequent", "9"]
    made = CliRunner().invoke(app, ["data", "shortlist", str(folder), *map(str, options)])
    assert made.exit_code == 0, made.output
    return folder


def phrases(lines: Sequence[str]) -> list[str]:
    """What the translation of each line must have: of some lines something, also where they are blank."""
    return [("owl", "pig", "", "")[len(line) % 4] for line in lines]


@pytest.fixture
def beside(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], None]:
    """Goes to the bundle's folder, where it writes the files that options name, for some lines of input."""
    monkeypatch.chdir(bundle.parent)

    def write(lines: Sequence[str]) -> None:
        texts = {"phrases.txt": phrases(lines), "terms.tsv": [f"{term}\t{word}" for term, word in TERMS.items()]}
        for name, rows in texts.items():
            Path(name).write_bytes("".join(row + "\n" for row in rows).encode())

    return write


def records(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(output)]


def without_library(options: Sequence[str]) -> None:
    """Leave the test out where the backend is not there."""
    if "ctranslate2" in options:
        pytest.importorskip("ctranslate2", reason="the extra `interop` is not installed")


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_i3_i12_every_nasty_line_keeps_its_place(bundle, beside, nasty_file, nasty_text, tmp_path, options) -> None:
    without_library(options)
    beside(nasty_text.lines)
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


@pytest.mark.parametrize("options", TWO.values(), ids=TWO)
def test_i2_n_best_has_n_rows_for_each_nasty_line(bundle, beside, nasty_file, nasty_text, tmp_path, options) -> None:
    without_library(options)
    beside(nasty_text.lines)
    output = tmp_path / "out.jsonl"
    assert call(bundle, nasty_file, "-o", output, "--format", "jsonl", *TWO_OF_SIX, *options).exit_code == 0
    rows = written(bundle, nasty_file, *TWO_OF_SIX, *options)
    assert len(rows) == 2 * len(nasty_text.lines)
    assert sum(any(own) for own in pairs(rows)) >= 18  # of those that are not blank
    for line, record, own in zip(nasty_text.lines, records(output), pairs(rows), strict=True):
        assert record["source"] == line
        texts = [one["text"] for one in record["translations"]]
        assert own == [*texts, *[""] * (2 - len(texts))]
        if is_blank(line):
            assert texts == [""]
        elif "--temperature" in options and "--mbr" not in options:
            assert len(texts) == 2
        else:
            assert len(set(texts)) == len(texts) > 0


@pytest.mark.parametrize("name", [name for name, options in TWO.items() if "--temperature" not in options])
def test_i12_lines_in_reverse_have_their_rows_in_reverse(bundle, beside, nasty_text, tmp_path, name) -> None:
    without_library(TWO[name])
    found = []
    for lines in (nasty_text.lines, nasty_text.lines[::-1]):
        beside(lines)
        source = tmp_path / "in.txt"
        source.write_bytes("\n".join(lines).encode())
        found.append(pairs(written(bundle, source, *TWO_OF_SIX, *TWO[name])))
    assert found[0] == found[1][::-1]
    assert len({tuple(own) for own in found[0]}) > 9


@pytest.mark.parametrize("backend", ["torch", "ctranslate2"])
def test_i2_draws_come_in_their_order_and_as_often_as_they_are_drawn(
    bundle, beside, nasty_file, nasty_text, tmp_path, backend
) -> None:
    options = [*SHORT, "--temperature", "0.8", "--top-k", "3", "--min-length", "2", "--backend", backend]
    without_library(options)
    beside(nasty_text.lines)
    output = tmp_path / "out.jsonl"
    assert call(bundle, nasty_file, "-o", output, "--format", "jsonl", "--n-best", 2, *options).exit_code == 0
    drawn = [record["translations"] for record in records(output) if not is_blank(record["source"])]
    assert {len(own) for own in drawn} == {2}
    assert any(first["ids"] == second["ids"] for first, second in drawn)
    assert any(first["log_prob"] < second["log_prob"] for first, second in drawn)
    assert any(first["log_prob"] > second["log_prob"] for first, second in drawn)
    rows = written(bundle, nasty_file, "--n-best", 2, *options)
    if backend == "torch":  # a draw goes by the numbers of its line and of itself
        assert written(bundle, nasty_file, "--n-best", 1, *options) == rows[::2]
        three = written(bundle, nasty_file, "--n-best", 3, *options)
        assert [three[0::3], three[1::3]] == [rows[0::2], rows[1::2]]
    else:  # all draws come from one source, so that two of a line are those of two lines
        twice = tmp_path / "twice.txt"
        twice.write_bytes("".join(f"{line}\n{line}\n" for line in nasty_text.lines).encode())
        assert written(bundle, twice, "--n-best", 1, *options) == rows


@pytest.mark.parametrize("name", ["beam", "sampling", "shortlist", "ctranslate2", "ctranslate2, sampling"])
def test_i2_scores_stand_before_each_row_of_each_nasty_line(bundle, beside, nasty_file, nasty_text, name) -> None:
    without_library(TWO[name])
    beside(nasty_text.lines)
    plain = pairs(written(bundle, nasty_file, *TWO_OF_SIX, *TWO[name]))
    scored = pairs(written(bundle, nasty_file, *TWO_OF_SIX, *TWO[name], "--scores"))
    for line, own, other in zip(nasty_text.lines, plain, scored, strict=True):
        fields = [row.split("\t") for row in other]
        assert [text for _, _, text in fields] == own
        numbers = [[float(score), float(log_prob)] for score, log_prob, _ in fields]
        if is_blank(line):
            assert numbers == [[0.0, 0.0], [-math.inf, -math.inf]]
        else:
            assert all(log_prob < 0 for _, log_prob in numbers)
            assert math.isfinite(numbers[0][1])


@pytest.mark.parametrize("name", ["one by one", "one by one, sampling", "ctranslate2, one by one"])
def test_i13_i2_lines_on_standard_input_have_the_rows_of_a_file(bundle, beside, nasty_file, nasty_text, name) -> None:
    without_library(TWO[name])
    beside(nasty_text.lines)
    rows = written(bundle, *TWO_OF_SIX, *TWO[name], stdin=nasty_text.content)
    assert rows == written(bundle, nasty_file, *TWO_OF_SIX, *TWO[name])
    together = [option for option in TWO[name] if option != "--interactive"]
    assert rows == written(bundle, nasty_file, *TWO_OF_SIX, *together)


@pytest.mark.parametrize("option", ["--terms", "--phrases"])
def test_i12_terms_and_phrases_are_those_of_their_own_lines(bundle, beside, nasty_file, nasty_text, option) -> None:
    beside(nasty_text.lines)
    options = [*TWO_OF_SIX, "--beam", "6"]
    plain = pairs(written(bundle, nasty_file, *options))
    found = pairs(written(bundle, nasty_file, *options, *TWO[option.strip("-")]))
    terms = [" ".join(Terminology(TERMS).phrases(line)) for line in nasty_text.lines]
    wanted = phrases(nasty_text.lines) if option == "--phrases" else terms
    assert sum(word != "" for word in wanted) >= 6
    for line, word, own, free in zip(nasty_text.lines, wanted, found, plain, strict=True):
        if word == "" or is_blank(line):
            assert own == free
        else:
            assert all(word in row for row in own)


def test_i12_word_alignments_stay_within_their_lines(bundle, nasty_file, nasty_text, tmp_path) -> None:
    options = [*TWO_OF_SIX, "--beam", "3"]
    output = tmp_path / "out.jsonl"
    assert call(bundle, nasty_file, "-o", output, "--format", "jsonl", "--alignments", *options).exit_code == 0
    rows = pairs(written(bundle, nasty_file, "--format", "pharaoh", *options))
    assert len(rows) == len(nasty_text.lines)
    for line, record, own in zip(nasty_text.lines, records(output), rows, strict=True):
        texts = [one["text"] for one in record["translations"]]
        for row, text in zip(own, [*texts, ""], strict=False):
            assert re.fullmatch(r"(\d+-\d+( \d+-\d+)*)?", row)
            assert bool(row) == bool(text.strip())
            for link in row.split():
                source, target = map(int, link.split("-"))
                assert source < len(line.split())
                assert target < len(text.split())
        assert own[: len(texts)] == [
            " ".join(f"{a}-{b}" for a, b in one["word_links"]) for one in record["translations"]
        ]


def test_i3_a_shortlist_is_learned_from_every_nasty_line(bundle, nasty_file, nasty_text, tmp_path) -> None:
    options = ["--source", nasty_file, "--target", nasty_file, "-o", tmp_path / "shortlist"]
    result = CliRunner().invoke(app, ["data", "shortlist", str(bundle), *map(str, options)])
    assert result.exit_code == 0, result.output
    left_out = sum(is_blank(line) or len(line) == 5000 for line in nasty_text.lines)
    assert f"{len(nasty_text.lines) - left_out} pairs ({left_out} blank on a side or too long)" in result.stderr


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
@pytest.mark.parametrize(
    "more", [[], ["--n-best", "3", "--scores"], ["--temperature", "1", "--format", "jsonl"], [*CT2, "--n-best", "2"]]
)
def test_i7_i11_devices_write_the_nasty_lines_of_one_process(bundle, nasty_file, more) -> None:
    without_library(more)
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
