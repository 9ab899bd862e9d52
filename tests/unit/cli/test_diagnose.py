import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seq2seq.bundle import save_bundle
from seq2seq.cli.app import app
from seq2seq.cli.diagnose import choose_lines
from seq2seq.cli.diagnose_advice import advice
from seq2seq.cli.diagnose_report import Diagnosis, Line, Swept, as_text
from seq2seq.config import DecodeConfig, PenaltyForm
from seq2seq.evaluation import corpus_scores
from seq2seq.translator import Translator
from seq2seq.translator.diagnosis import Rival, SearchErrors
from seq2seq.translator.faults import Fault

SOURCES = ["der ant läuft!", "die cat sieht das yak.", "", "17 elk", "gnu und hen"]
REFERENCES = ["the ant runs!", "the cat sees the yak.", "", "17 elk", "gnu and hen"]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["diagnose", *map(str, arguments)])


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    for name, lines in (("s.txt", SOURCES), ("r.txt", REFERENCES)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    return ["--src", tmp_path / "s.txt", "--ref", tmp_path / "r.txt"]


SMALL = ["--beams", "1,2", "--penalties", "0.6,1"]


def test_bleu_the_sweep_and_the_faults_are_those_of_the_translations(tiny_bundle_folder, files):
    result = call(tiny_bundle_folder, *files, *SMALL, "--format", "json", "--beam-size", 2)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    data = json.loads(result.stdout)
    translator = Translator.load(tiny_bundle_folder, "cpu")
    decode = dataclasses.replace(translator.bundle.decode, beam_size=2)
    answers = translator.translate(SOURCES, decode)
    (bleu,) = corpus_scores([answer.text for answer in answers], [REFERENCES], metrics=["bleu"])
    assert (data["bleu"]["score"], data["bleu"]["signature"]) == (bleu.score, bleu.signature)
    assert (data["lines"], data["decode"]["beam_size"], data["penalty_form"]) == (5, 2, "gnmt")
    assert [(one["beam_size"], one["length_penalty"]) for one in data["sweep"]] == [
        *((1, 0.6), (1, 1.0)),
        *((2, 0.6), (2, 1.0)),
    ]
    assert data["sweep"][2]["bleu"] == bleu.score
    assert data["search_errors"]["greedy"]["compared"] == data["search_errors"]["reference"]["compared"] == 4
    assert data["faults"]["hit_limit"]["lines"] == [answer.line for answer in answers if answer.hit_limit]
    assert data["faults"]["empty"]["lines"] == [
        answer.line for answer in answers if answer.line != 3 and not answer.text
    ]
    assert data["advice"]


def test_the_text_has_all_sections_and_the_picture_is_written(tiny_bundle_folder, files, tmp_path):
    figure = tmp_path / "sweep.svg"
    result = call(tiny_bundle_folder, *files, *SMALL, "--lines", 3, "--figure", figure)
    assert result.exit_code == 0, result.output
    for heading in ("Search errors", "Translations that look wrong", "BLEU and length ratio by", "Advice"):
        assert f"\n{heading}" in result.stdout
    assert result.stdout.startswith("3 lines, beam 4, length penalty gnmt 0.6\nBLEU|nrefs:1")
    assert figure.read_bytes().startswith(b"<?xml")
    assert f"seq2seq: wrote {figure}, " in result.stderr


def test_options_that_change_scores_leave_search_errors_out(tiny_bundle, files, tmp_path):
    decode = dataclasses.replace(tiny_bundle.decode, no_repeat_ngram=2)
    save_bundle(dataclasses.replace(tiny_bundle, decode=decode), tmp_path / "bundle")
    result = call(tmp_path / "bundle", *files, "--beams", "2", "--penalties", "1")
    assert result.exit_code == 0, result.output
    assert "Search errors: not looked for, since options change the scores or forbid translations" in result.stdout


def test_a_sample_is_drawn_by_the_seed_and_keeps_the_numbers_of_its_lines(files):
    source, reference = str(files[1]), str(files[3])
    chosen = choose_lines(source, reference, 3, 1)
    assert [line.number for line in chosen] == sorted(line.number for line in chosen)
    assert all(SOURCES[line.number - 1] == line.source for line in chosen)
    assert chosen == choose_lines(source, reference, 3, 1)
    assert any(chosen != choose_lines(source, reference, 3, seed) for seed in range(2, 6))
    assert len(choose_lines(source, reference, 9, 1)) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--lines", "0"], 2, "--lines 0 is out of range; give at least 1"),
        (["--examples", "-1"], 2, "--examples -1 is out of range; give at least 0"),
        (["--beams", "1,two"], 2, "--beams 1,two is not a list of numbers with commas between, such as 1,2,4"),
        (["--beams", "0,2"], 2, "--beams 0,2 has a number that is out of range; give numbers from 1 to 1000"),
        (["--penalties", "nan"], 2, "--penalties nan has a number that is out of range"),
        (["--penalties", "0,50"], 2, "--penalties 0,50 has a number that is out of range; give numbers from -20 to 20"),
        (["--beams", "1,2000"], 2, "--beams 1,2000 has a number that is out of range; give numbers from 1 to 1000"),
        (["--penalties", "-20.5"], 2, "--penalties -20.5 has a number that is out of range"),
        (["--figure", "missing/sweep.png"], 1, "there is no folder"),
        (["--figure", "sweep.txt"], 1, "a picture's name ends in .png, .svg or .pdf"),
    ],
)
def test_what_cannot_be_is_refused(tiny_bundle_folder, files, monkeypatch, arguments, code, message):
    monkeypatch.setattr(Translator, "load", lambda *_: pytest.fail("loaded"))
    result = call(tiny_bundle_folder, *files, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_files_that_do_not_belong_together_or_are_empty_are_refused(tiny_bundle_folder, files, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("one line\n", encoding="utf-8")
    result = call(tiny_bundle_folder, "--src", files[1], "--ref", other)
    assert (result.exit_code, "has 5 lines but" in result.stderr) == (1, True)
    other.write_bytes(b"")
    result = call(tiny_bundle_folder, "--src", other, "--ref", other)
    assert (result.exit_code, "is empty; expected one sentence a line" in result.stderr) == (1, True)


def test_a_language_model_is_refused(tiny_writer_folder, files):
    result = call(tiny_writer_folder, *files)
    assert result.exit_code == 1
    assert "is a language model, which goes on from a text and does not translate" in result.stderr


REFERENCE = ["a b c d e f g h"] * 4


def bleu(text: str) -> object:
    return corpus_scores([text] * 4, [REFERENCE], metrics=["bleu"])[0]


def diagnosis(in_use: str, sweep: dict[tuple[int, float], str], **changes: object) -> Diagnosis:
    decode = DecodeConfig(beam_size=4, length_penalty=0.6, penalty_form=PenaltyForm.power)
    swept = [Swept(size, exponent, bleu(text), 4, 0) for (size, exponent), text in sweep.items()]
    lines = [Line(number, "source", "a b c d e f g h") for number in (3, 5, 8, 9)]
    found = Diagnosis("model", decode, lines, [in_use] * 4, bleu(in_use), {}, {}, swept)
    return dataclasses.replace(found, **changes)


def test_short_translations_are_told_which_penalty_helps_and_how_much():
    found = diagnosis("a b c d e f", {(4, 0.6): "a b c d e f", (4, 1.0): "a b c d e f g h"})
    (first,) = advice(found)
    assert first == (
        "translations are short (length ratio 0.75, brevity penalty 0.72): give --length-penalty 1: BLEU +28.35 on "
        "these lines (71.65 to 100.00), length ratio 1.00; it is the best of 2 settings, so see whether it holds on "
        "other lines"
    )


def test_the_form_of_the_penalty_is_part_of_the_advice_where_none_is_in_use():
    found = diagnosis("a b c d e f", {(4, 0.6): "a b c d e f", (8, 1.0): "a b c d e f g h"})
    found = dataclasses.replace(found, decode=dataclasses.replace(found.decode, penalty_form=PenaltyForm.none))
    assert "give --beam-size 8 --penalty-form gnmt --length-penalty 1: BLEU" in advice(found)[0]


def test_settings_that_gain_nothing_are_not_recommended():
    same = diagnosis("a b c d e f g h", {(4, 0.6): "a b c d e f g h", (8, 0.6): "a b c d e f g h"})
    (first,) = advice(same)
    assert first.startswith("no beam size and length penalty of the sweep is better on these lines than those in use")


def test_larger_beams_that_lose_bleu_are_warned_against():
    found = diagnosis("a b c d e f g h", {(4, 0.6): "a b c d e f g h", (16, 0.6): "a b c d e"})
    assert advice(found)[1] == (
        "larger beams do not help: BLEU falls by 45.12 from beam 4 to beam 16 and translations get shorter, which a "
        "higher length penalty counters; the model gives worse translations higher scores"
    )


def test_it_is_told_whether_the_search_or_the_model_is_to_blame():
    texts = {(4, 0.6): "a b c d e f g h"}
    rival = Rival(2, "better", -0.5, -0.9)
    found = diagnosis("a b c d e f g h", texts, errors={"reference": SearchErrors([rival], 4)})
    assert "in 1 of 4 lines the search has missed the reference, which scores higher" in advice(found)[1]
    report = as_text(found, 1)
    assert "  the reference scores higher in 1 of 4 lines (25.0 %)\n    line 8\n      found  -0.9000  a b c" in report
    found = diagnosis("a b c d e f g h", texts, errors={"reference": SearchErrors([], 4)})
    assert "in 4 of 4 lines the model scores the reference no higher than what was found" in advice(found)[1]


def test_each_fault_has_its_remedy_and_is_shown_with_the_number_of_its_line():
    faults = {Fault.loop: [1, 3], Fault.copy: [], Fault.empty: [0]}
    found = diagnosis("a b c d e f g h", {(4, 0.6): "a b c d e f g h"}, faults=faults)
    assert advice(found)[1:] == [
        "2 lines: the same pieces over and over at the end: --no-repeat-ngram 4 forbids them",
        "1 line: nothing, where the reference is not empty: --min-length 2 forbids empty translations, a higher length "
        "penalty makes them less likely",
    ]
    assert "  the same pieces over and over at the end: 2 of 4 lines (50.0 %)\n    line 5: a b c" in as_text(found, 1)
