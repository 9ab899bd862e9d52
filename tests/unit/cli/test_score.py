import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seq2seq.cli.app import app
from seq2seq.translator import Translator

SOURCES = ["der ant läuft!", "", "die cat.", "owl"]
TARGETS = ["die bee.", "", "das 3 hen", ""]


def call(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["score", *map(str, arguments)], input=stdin)


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "s.txt", SOURCES), write(tmp_path / "t.txt", TARGETS)


def rows(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout_bytes.decode().split("\n")[:-1]


def test_a_log_probability_a_line_blank_lines_too_and_a_summary_on_stderr(tiny_bundle_folder, files):
    result = call(tiny_bundle_folder, *files)
    expected = Translator.load(tiny_bundle_folder, "cpu").score(SOURCES, TARGETS)
    assert [float(row) for row in rows(result)] == pytest.approx([pair.log_prob for pair in expected], abs=1e-5)
    assert rows(result)[1] == "0.000000"
    pieces = sum(len(pair.ids) for pair in expected)
    total = sum(pair.log_prob for pair in expected)
    assert f"4 translations, {pieces} pieces, log-probability {total:.3f}" in result.stderr
    assert "perplexity" in result.stderr


def test_per_token_shows_each_piece_with_its_share(tiny_bundle_folder, files):
    for row in rows(call(tiny_bundle_folder, *files, "--per-token")):
        total, _, pieces = row.partition("\t")
        values = [float(piece.rpartition("=")[2]) for piece in pieces.split(" ") if piece]
        assert sum(values) == pytest.approx(float(total), abs=1e-4)
        assert pieces == "" or pieces.split(" ")[-1].startswith("</s>=")


def test_jsonl_says_the_same(tiny_bundle_folder, files):
    options = ["--penalty-form", "power", "--length-penalty", 1, "--format", "jsonl"]
    for number, row in enumerate(rows(call(tiny_bundle_folder, *files, *options, "--per-token")), start=1):
        record = json.loads(row)
        assert (record["line"], record["text"]) == (number, TARGETS[number - 1])
        assert record["num_tokens"] == len(record["ids"]) == len(record["tokens"]) == len(record["token_log_probs"])
        assert record["log_prob"] == pytest.approx(sum(record["token_log_probs"]), abs=1e-9)
        assert record["score"] == pytest.approx(record["log_prob"] / max(1, record["num_tokens"]), abs=1e-9)
    short = json.loads(rows(call(tiny_bundle_folder, *files, "--format", "jsonl"))[0])
    assert sorted(short) == ["line", "log_prob", "num_tokens", "score", "text"]


def test_unequal_files_are_refused_naming_both_counts(tiny_bundle_folder, files, tmp_path):
    other = write(tmp_path / "five.txt", [*TARGETS, "owl"])
    result = call(tiny_bundle_folder, files[0], other)
    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    assert f"{files[0]} has 4 lines but {other} has 5; expected the same number" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s.txt"], "give SOURCE and TARGET"),
        ([], "give SOURCE and TARGET"),
        (["s.txt", "--jsonl", "-"], "--jsonl has both sides, but s.txt was given too"),
    ],
)
def test_one_way_to_give_the_text_is_asked_for(tiny_bundle_folder, arguments, message):
    result = call(tiny_bundle_folder, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        "owl",
        "[]",
        '{"line": 1}',
        '{"line": 1, "source_ids": [[2]], "translations": [{"text": "x", "ids": "2"}]}',
        '{"line": 1, "source_ids": [[true]], "translations": []}',
        '{"line": 1e400, "source_ids": [], "translations": []}',
        pytest.param("[" * 100_000, id="nested too deeply"),
    ],
)
def test_json_lines_from_elsewhere_are_refused_by_line(tiny_bundle_folder, line):
    good = '{"line": 1, "source_ids": [], "translations": [{"text": "", "ids": []}]}'
    result = call(tiny_bundle_folder, "--jsonl", "-", stdin=f"{good}\n{line}\n".encode())
    assert result.exit_code == 1
    assert "line 2 is not what `seq2seq translate --format jsonl` writes" in result.stderr


def test_ids_that_do_not_fit_the_source_sequences_are_refused(tiny_bundle_folder):
    record = {"line": 9, "source_ids": [[5, 2], [6, 2]], "translations": [{"text": "x", "ids": [5, 2]}]}
    result = call(tiny_bundle_folder, "--jsonl", "-", stdin=json.dumps(record).encode())
    assert result.exit_code == 1
    assert "line 9 has 2 source sequences, but ids for 1" in result.stderr
