import dataclasses
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from seq2seq.bundle import load_bundle
from seq2seq.cli import doctor as command
from seq2seq.cli import doctor_processes
from seq2seq.cli.app import app
from seq2seq.cli.doctor import choose
from seq2seq.cli.doctor_processes import two_processes
from seq2seq.nn.cache import DecoderState
from seq2seq.search.agreement import Answer, Answers, Check, NotApplicableError, Outcome, compare, examine
from seq2seq.translator.doctor import searched

LINES = ["der ant läuft!", "", "die cat.", "17 elk sieht"]
MUST = [
    "line alone against batch",
    "padding",
    "batch size",
    "cache off against on",
    "beam 1 against greedy",
    "n-best 1 against n",
    "search score against forced",
    "1 against 2 processes",
]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check that starts other processes, which takes seconds."""

    def run(*arguments: object) -> Answers:
        raise NotApplicableError("left out in this test")

    monkeypatch.setattr(doctor_processes, "two_processes", run)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(line + "\n" for line in LINES), encoding="utf-8", newline="\n")
    return path


@pytest.mark.usefixtures("one_process")
def test_a_sound_model_ends_with_exit_code_0_and_a_table_of_all_checks(tiny_bundle_folder, source):
    result = call(tiny_bundle_folder, source, "--beam-size", 2)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [line.split("  ")[1].strip() for line in result.stdout.split("\n") if " equal " in line]
    assert rows[:7] == MUST[:7]
    assert "1 against 2 processes: not applicable: left out in this test" in result.stdout
    assert result.stdout.endswith("Everything that must agree does.\n")


@pytest.mark.usefixtures("one_process")
def test_a_fault_ends_with_exit_code_1_and_is_shown_with_its_line_and_both_texts(
    tiny_bundle_folder, source, monkeypatch
):
    right = DecoderState.select

    def forgetful(
        self: DecoderState, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None
    ) -> DecoderState:
        if places is not None:  # all go on from the first of their sentence, whichever they continue
            rows = torch.stack([rows[places == place].min() for place in places])
        return right(self, rows, sentences, places)

    monkeypatch.setattr(DecoderState, "select", forgetful)
    result = call(tiny_bundle_folder, source, "--format", "json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert (data["ok"], data["lines"], data["file"]) == (False, 4, str(source))
    found = {check["check"]: check for check in data["checks"]}
    broken = found["cache off against on"]
    assert (broken["result"], broken["must_agree"], broken["compared"]) == ("differs", True, 16)
    assert broken["differ"] > 0
    assert broken["first"]["line"] in (1, 3, 4)
    assert len(set(broken["first"]["texts"])) == 2 or len(set(broken["first"]["scores"])) == 2
    assert "in float64" in broken["note"]
    result = call(tiny_bundle_folder, source)
    assert result.exit_code == 1
    assert "cache off against on: first in line " in result.stdout
    assert "  no cache  -" in result.stdout
    assert f"of {len(found)} checks failed: " in result.stdout


@pytest.mark.usefixtures("one_process")
def test_without_a_file_random_lines_are_tried(tiny_bundle_folder):
    result = call(tiny_bundle_folder, "--lines", 3, "--beam-size", 2, "--format", "json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert (data["file"], data["lines"]) == (None, 3)


def test_a_language_model_is_checked_with_what_it_adds(tiny_writer_folder, source):
    result = call(tiny_writer_folder, source, "--lines", 2, "--format", "json", "--beam-size", 2)
    assert result.exit_code == 0, result.output
    found = {check["check"]: check["result"] for check in json.loads(result.stdout)["checks"]}
    assert found == {
        "text alone against batch": "equal",
        "cache off against on": "equal",
        "search score against forced": "equal",
    }


def test_two_processes_translate_as_one(tiny_bundle_folder):
    bundle = load_bundle(tiny_bundle_folder)
    found = two_processes(bundle, str(tiny_bundle_folder), LINES, searched(bundle.decode, 3))
    comparison = compare(found)
    assert (comparison.num_answers, comparison.differences) == (4, [])
    assert len({answer.score for answer in found[1]}) == 4


def test_why_two_processes_could_not_translate_is_told(tiny_bundle_folder, tmp_path):
    bundle = load_bundle(tiny_bundle_folder)
    with pytest.raises(ValueError, match=r"two processes could not translate: error: .*no_bundle is not a bundle"):
        two_processes(bundle, str(tmp_path / "no_bundle"), LINES, searched(bundle.decode))


def test_a_bundle_that_draws_by_itself_is_not_given_to_two_processes(tiny_bundle, tmp_path):
    decode = dataclasses.replace(tiny_bundle.decode, beam_size=1, temperature=1.0)
    (check,) = (
        one
        for one in choose(dataclasses.replace(tiny_bundle, decode=decode), str(tmp_path), LINES, None)
        if one.name == "1 against 2 processes"
    )
    finding = examine(check)
    assert finding.outcome is Outcome.not_applicable
    assert "own options draw" in finding.note


def test_long_texts_are_shown_around_the_place_where_they_part(capsys):
    same = "x" * 100
    pair = [Answer(7, same + "A" + same, -1.0)], [Answer(7, same + "B" + same, -2.0)]
    command.show([examine(Check("name", ("one", "other"), lambda: pair))], LINES)
    out = capsys.readouterr().out
    assert "name: first in line 7, scores 1 apart" in out
    part = "…" + "x" * 30 + "A" + "x" * 29 + "…"
    assert f"  one    -1.000000  {part}" in out
    assert "1 of 1 checks failed: name" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--lines", "0"], 2, "--lines 0 is not positive; give at least 1"),
        (["--beam-size", "0"], 2, "--beam-size 0 is not positive; give at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused(tiny_bundle_folder, arguments, code, message):
    result = call(tiny_bundle_folder, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_an_empty_file_is_refused(tiny_bundle_folder, tmp_path):
    path = tmp_path / "empty.txt"
    path.write_bytes(b"")
    result = call(tiny_bundle_folder, path)
    assert result.exit_code == 1
    assert "is empty; expected text, one sentence a line" in result.stderr
