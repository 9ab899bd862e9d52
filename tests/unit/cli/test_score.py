import copy
import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from seq2seq.bundle import save_bundle
from seq2seq.cli.app import app
from seq2seq.cli.score import Scored, as_text, summary
from seq2seq.cli.score_texts import as_json as text_as_json
from seq2seq.generator import Generator, ScoredText
from seq2seq.translator import ScoredPair, Translator

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
    assert f"4 translations, {pieces} pieces, log-probability {total:.4f}" in result.stderr
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


TEXTS = ["der ant läuft!", "", "owl"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write(tmp_path / "texts.txt", TEXTS)


def test_a_language_model_scores_each_line_and_tells_perplexity_by_piece_byte_and_character(tiny_writer_folder, texts):
    result = call(tiny_writer_folder, texts)
    expected = Generator.load(tiny_writer_folder, "cpu").score(TEXTS)
    assert [float(row) for row in rows(result)] == pytest.approx([one.log_prob for one in expected], abs=1e-5)
    total = sum(one.log_prob for one in expected)
    assert (len(expected[0].ids), expected[0].num_bytes, expected[0].num_characters) == (14, 15, 14)
    assert result.stderr == (
        f"3 texts, 17 pieces, log-probability {total:.4f}; a piece: {total / 17:.4f}, perplexity "
        f"{math.exp(-total / 17):.4f}; a byte: {total / 18:.4f}, perplexity {math.exp(-total / 18):.4f}; "
        f"a character: {total / 17:.4f}, perplexity {math.exp(-total / 17):.4f}\n"
    )


def test_a_whole_file_is_one_text_with_its_line_feeds(tiny_writer_folder, texts):
    (row,) = rows(call(tiny_writer_folder, texts, "--whole-file", "--count-end"))
    (expected,) = Generator.load(tiny_writer_folder, "cpu").score(["".join(t + "\n" for t in TEXTS)], count_end=True)
    assert float(row) == pytest.approx(expected.log_prob, abs=1e-5)
    assert rows(call(tiny_writer_folder, "-", "--whole-file", "--count-end", stdin=texts.read_bytes())) == [row]


def test_scored_texts_as_jsonl_and_by_piece(tiny_writer_folder, texts):
    records = [json.loads(row) for row in rows(call(tiny_writer_folder, texts, "--format", "jsonl", "--per-token"))]
    expected = Generator.load(tiny_writer_folder, "cpu").score(TEXTS)
    for line, (record, one) in enumerate(zip(records, expected, strict=True), start=1):
        assert (record["line"], record["text"], record["notice"]) == (line, one.text, None)
        assert (record["num_tokens"], record["num_bytes"]) == (len(one.ids), one.num_bytes)
        assert record["ids"] == list(one.ids)
        assert record["token_log_probs"] == pytest.approx(list(one.token_log_probs), abs=1e-5)
        assert record["perplexity"] == pytest.approx(one.perplexity, rel=1e-5)
        assert record["byte_perplexity"] == pytest.approx(one.byte_perplexity, rel=1e-5)
        assert record["character_perplexity"] == pytest.approx(one.character_perplexity, rel=1e-5)
    (row,) = rows(call(tiny_writer_folder, "-", "--whole-file", "--per-token", stdin=b"a\tb\n"))
    pieces = [piece.rpartition("=")[0] for piece in row.split("\t")[1].split(" ")]
    assert pieces[0] == "a"
    assert pieces[-1] == "\\n"


def test_a_text_that_is_read_in_windows_is_told(tiny_writer_folder, texts):
    result = call(tiny_writer_folder, texts, "--context", 8)
    assert "seq2seq: line 1: a text of 14 pieces was read in windows of 8 that overlap by half\n" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["t.txt", "u.txt"], "TARGET is for models that translate, and this one is a language model; leave it out"),
        (["--jsonl", "-"], "--jsonl is for models that translate"),
        (["t.txt", "--penalty-form", "gnmt"], "--penalty-form is for models that translate"),
        (["t.txt", "--length-penalty", "1"], "--length-penalty is for models that translate"),
        (["t.txt", "--max-source-length", "9"], "--max-source-length is for models that translate"),
        ([], "give one file of texts, a line each; - is standard input"),
    ],
)
def test_what_only_translations_have_is_refused_for_a_language_model(tiny_writer_folder, options, message):
    result = call(tiny_writer_folder, *options)
    assert (result.exit_code, result.stdout_bytes) == (2, b"")
    assert message in result.stderr


@pytest.mark.parametrize("option", ["--whole-file", "--count-end", "--context=9"])
def test_what_only_texts_have_is_refused_for_translations(tiny_bundle_folder, files, option):
    result = call(tiny_bundle_folder, *files, option)
    assert (result.exit_code, result.stdout_bytes) == (2, b"")
    name = option.partition("=")[0]
    assert f"{name} is for language models, and this one translates; leave it out" in result.stderr


def test_pieces_that_would_break_a_row_are_written_out():
    pair = ScoredPair(-3.0, -3.0, ("▁a", "\n", "\t", "b\rc"), (4, 5, 6, 7), (-1.0, -0.5, -0.5, -1.0))
    row = as_text(Scored(1, "a", pair), per_token=True)
    assert row == "-3.000000\t▁a=-1.000000 \\n=-0.500000 \\t=-0.500000 b\\rc=-1.000000"


def test_a_perplexity_beyond_all_numbers_is_infinite():
    pair = ScoredPair(-1600.0, -1600.0, ("a", "b"), (4, 5), (-800.0, -800.0))
    assert summary([Scored(1, "ab", pair)]).endswith("-800.0000 a piece, perplexity inf")


@pytest.mark.parametrize("options", [[], ["--format", "jsonl"], ["--per-token"]])
def test_a_broken_model_ends_the_command_without_a_row(tiny_bundle, files, tmp_path, options):
    model = copy.deepcopy(tiny_bundle.model).float()
    with torch.no_grad():
        model.output.fill_(torch.nan)
    save_bundle(dataclasses.replace(tiny_bundle, model=model), tmp_path / "broken")
    record = json.dumps({"line": 1, "source_ids": [[5, 2]], "translations": [{"text": "x", "ids": [5, 2]}]})
    for given, stdin in ((files, None), (("--jsonl", "-"), record.encode())):
        result = call(tmp_path / "broken", *given, *options, stdin=stdin)
        assert (result.exit_code, result.stdout_bytes) == (1, b"")
        assert "the model's log-probabilities are NaN, expected numbers; look for NaN or infinite" in result.stderr


def test_a_perplexity_beyond_all_numbers_is_null_in_json():
    found = ScoredText("ab", -1600.0, ("a", "b"), (4, 5), (-800.0, -800.0), 2, 2, None)
    record = json.loads(text_as_json(1, found, per_token=False), parse_constant=pytest.fail)
    assert (record["perplexity"], record["log_prob"]) == (None, -1600.0)
