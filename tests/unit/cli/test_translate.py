import dataclasses
import gzip
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from seq2seq.cli.app import app
from seq2seq.cli.line_progress import LineProgress
from seq2seq.cli.search_options import chosen
from seq2seq.cli.translate_output import as_text
from seq2seq.config import DecodeConfig, Utility
from seq2seq.translator import Candidate, Translation, Translator

LINES = ["der ant läuft!", "", "die cat.", "owl"]


def call(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["translate", *map(str, arguments)], input=stdin)


@pytest.fixture(scope="module")
def expected(tiny_bundle_folder: Path) -> list[Translation]:
    return Translator.load(tiny_bundle_folder, "cpu").translate(LINES)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_bytes("".join(line + "\n" for line in LINES).encode())
    return path


def rows(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes.endswith(b"\n")
    return result.stdout_bytes.decode().split("\n")[:-1]


def test_a_file_goes_to_standard_output_and_nothing_but_translations_does(tiny_bundle_folder, source, expected):
    result = call(tiny_bundle_folder, source)
    assert rows(result) == [answer.text for answer in expected]
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input_is_read_when_no_file_is_named(tiny_bundle_folder, source, expected, arguments):
    found = rows(call(tiny_bundle_folder, *arguments, stdin=source.read_bytes()))
    assert found == [answer.text for answer in expected]


def test_compressed_files_in_and_out(tiny_bundle_folder, source, expected, tmp_path):
    packed, output = tmp_path / "more.gz", tmp_path / "out.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    result = call(tiny_bundle_folder, packed, "-o", output)
    assert (result.exit_code, result.stdout_bytes) == (0, b"")
    assert gzip.decompress(output.read_bytes()).decode() == "".join(answer.text + "\n" for answer in expected)


def test_a_job_that_fails_leaves_the_old_output_file_as_it_was(tiny_bundle_folder, source, tmp_path):
    output = tmp_path / "out.txt"
    output.write_bytes(b"old\n")
    result = call(tiny_bundle_folder, source, "-o", output, "--max-source-length", 3)
    assert result.exit_code == 1
    assert "line 1 has 5 pieces, max_source_length is 3" in result.stderr
    assert output.read_bytes() == b"old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_n_best_gives_so_many_rows_for_each_line_and_scores_stand_in_front(tiny_bundle_folder, source):
    plain = rows(call(tiny_bundle_folder, source, "--n-best", 3))
    scored = [row.split("\t") for row in rows(call(tiny_bundle_folder, source, "--n-best", 3, "--scores"))]
    assert len(plain) == len(scored) == 12
    assert [row[2] for row in scored] == plain
    assert scored[3:6] == [["0.000000", "0.000000", ""], ["-inf", "-inf", ""], ["-inf", "-inf", ""]]
    for line in (0, 2, 3):
        values = [float(row[0]) for row in scored[3 * line : 3 * line + 3]]
        assert values == sorted(values, reverse=True)


def test_rows_that_make_up_the_number_are_empty():
    answer = Translation(1, "x", ((2,),), (Candidate("y", -1.5, -2.0, (), (), (), False),), None)
    assert as_text(answer, 3, scores=False) == ["y", "", ""]
    assert as_text(answer, 3, scores=True) == ["-1.500000\t-2.000000\ty", "-inf\t-inf\t", "-inf\t-inf\t"]


def test_jsonl_holds_all_that_was_found(tiny_bundle_folder, source, expected):
    records = [json.loads(row) for row in rows(call(tiny_bundle_folder, source, "--format", "jsonl", "--n-best", 2))]
    wide = Translator.load(tiny_bundle_folder, "cpu").translate(LINES, _decode(tiny_bundle_folder, n_best=2))
    for record, answer in zip(records, wide, strict=True):
        assert record["line"] == answer.line
        assert record["source"] == answer.source
        assert record["source_ids"] == [list(part) for part in answer.source_ids]
        assert record["notice"] is None
        for found, candidate in zip(record["translations"], answer.candidates, strict=True):
            assert found["text"] == candidate.text
            assert found["tokens"] == list(candidate.tokens)
            assert found["ids"] == list(candidate.ids)
            assert found["hit_limit"] is candidate.hit_limit
            assert found["score"] == pytest.approx(candidate.score, abs=1e-4)
            assert found["log_prob"] == pytest.approx(candidate.log_prob, abs=1e-4)
            assert found["token_log_probs"] == pytest.approx(list(candidate.token_log_probs), abs=1e-4)


def _decode(folder: Path, **changes: object):
    return dataclasses.replace(Translator.load(folder, "cpu").bundle.decode, **changes)


def test_every_search_option_reaches_the_search(tiny_bundle_folder, source, monkeypatch):
    seen = []
    original = Translator.windows

    def windows(self, lines, **options):
        seen.append((self.decode, options["read_ahead"]))
        return original(self, lines, **options)

    monkeypatch.setattr(Translator, "windows", windows)
    options = [
        *["--beam", 7, "--n-best", 2, "--penalty-form", "power", "--length-penalty", -0.25, "--min-length", 2],
        *["--max-length", 9, "--min-length-factor", 0.5, "--max-length-factor", 1.25, "--max-length-offset", 3],
        *["--max-source-length", 77, "--long", "truncate", "--batch-tokens", 55, "--device", "cpu", "--interactive"],
    ]
    rows(call(tiny_bundle_folder, source, *options))
    changes = {"beam_size": 7, "n_best": 2, "length_penalty": -0.25, "min_length": 2, "max_length": 9}
    changes |= {"min_length_factor": 0.5, "max_length_factor": 1.25, "max_length_offset": 3, "max_source_length": 77}
    decode, read_ahead = seen[0]
    assert {name: getattr(decode, name) for name in changes} == changes
    assert (decode.penalty_form.name, decode.long_lines.name, decode.batch_tokens) == ("power", "truncate", 55)
    assert read_ahead is False


def test_every_other_option_of_decoding_reaches_the_search(tiny_bundle_folder, source, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("seq2seq.cli.translate_job.load_engine", lambda *told, **_: seen.append(told[2]) or stop())
    monkeypatch.setattr("seq2seq.cli.translate.check_lines", lambda *_: None)  # these phrases are ruled out

    def stop():
        raise ValueError("seen")

    (tmp_path / "words").write_text("gnu\n\nfox hen\n", encoding="utf-8")
    options = [
        *["--patience", 1.5, "--coverage-penalty", 0.25, "--no-repeat-ngram", 3, "--repetition-penalty", 1.25],
        *["--forbid", "owl", "--forbid", "pig", "--forbid-file", tmp_path / "words", "--unknown-penalty", 0.5],
        *["--forbid-unknown", "--replace-unknown", "--seed", 9, "--mbr", "bleu", "--num-candidates", 3, "--beam", 3],
        *["--alignment-layer", 1, "--alignment-head", 2, "--format", "jsonl", "--alignments", "--shortlist"],
        *["--phrases", source, "--ordered"],
    ]
    call(tiny_bundle_folder, source, *options)
    call(tiny_bundle_folder, source, "--temperature", 0.5, "--top-k", 7, "--top-p", 0.75, "--min-p", 0.125)
    changes = {"patience": 1.5, "coverage_penalty": 0.25, "no_repeat_ngram": 3, "repetition_penalty": 1.25}
    changes |= {"forbidden": ["owl", "pig", "gnu", "fox hen"], "unknown_penalty": 0.5, "forbid_unknown": True}
    changes |= {"replace_unknown": True, "seed": 9, "mbr": Utility.bleu, "num_candidates": 3, "beam_size": 3}
    changes |= {"alignment_layer": 1, "alignment_head": 2, "alignments": True, "shortlist": True}
    changes |= {"ordered_phrases": True}
    own = _decode(tiny_bundle_folder)
    drawing = {"temperature": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.125, "beam_size": 1}
    assert seen == [dataclasses.replace(own, **changes), dataclasses.replace(own, **drawing)]
    tried = {field.name for field in dataclasses.fields(DecodeConfig)} - changes.keys() - drawing.keys()
    assert tried == set(TRIED_ABOVE)


TRIED_ABOVE = [
    *["n_best", "penalty_form", "length_penalty", "min_length", "max_length", "max_length_factor", "max_length_offset"],
    *["min_length_factor", "max_source_length", "long_lines", "batch_tokens"],
]


def test_what_the_bundle_alone_says_is_given_up_where_it_has_no_use():
    decode = DecodeConfig(beam_size=5, patience=1.0, coverage_penalty=0.2)
    assert chosen(decode, {"beam_size": 1}) == DecodeConfig(beam_size=1)
    assert chosen(decode, {"temperature": 1.0}) == DecodeConfig(beam_size=1, temperature=1.0)
    drawing = DecodeConfig(beam_size=1, temperature=1.0, top_k=5, top_p=0.9, min_p=0.1)
    assert chosen(drawing, {"temperature": 0.0, "beam_size": 3}) == DecodeConfig(beam_size=3)
    with pytest.raises(ValueError, match=r"patience=2\.0 is for beams"):
        chosen(decode, {"beam_size": 1, "patience": 2.0})


def test_an_ensemble_of_a_model_with_itself_translates_as_the_model(tiny_bundle_folder, source):
    alone = [json.loads(row) for row in rows(call(tiny_bundle_folder, source, "--format", "jsonl"))]
    options = ["--ensemble", tiny_bundle_folder, "--weights", "3,1", "--format", "jsonl"]
    together = [json.loads(row) for row in rows(call(tiny_bundle_folder, source, *options))]
    for one, other in zip(alone, together, strict=True):
        assert one["translations"][0]["text"] == other["translations"][0]["text"]
        assert one["translations"][0]["score"] == pytest.approx(other["translations"][0]["score"], abs=1e-4)


def test_word_alignments_come_in_the_format_of_pharaoh(tiny_bundle_folder, source):
    records = [json.loads(row) for row in rows(call(tiny_bundle_folder, source, "--format", "jsonl", "--alignments"))]
    found = rows(call(tiny_bundle_folder, source, "--format", "pharaoh"))
    expected = [" ".join(f"{a}-{b}" for a, b in record["translations"][0]["word_links"]) for record in records]
    assert found == expected
    assert any(found)
    weights = records[0]["translations"][0]["alignment"]
    assert [sum(row) for row in weights] == pytest.approx(
        [1.0] * len(records[0]["translations"][0]["tokens"]), abs=1e-5
    )


def test_terms_and_phrases_stand_in_the_translations(tiny_bundle_folder, source, tmp_path):
    (tmp_path / "terms").write_text("cat\tyak\n", encoding="utf-8")
    (tmp_path / "phrases").write_text("\n\n\npig\then\n", encoding="utf-8")
    options = ["--terms", tmp_path / "terms", "--phrases", tmp_path / "phrases", "--ordered", "--beam", 8]
    found = rows(call(tiny_bundle_folder, source, *options))
    assert "yak" in found[2]
    assert found[3].index("pig") < found[3].index("hen")


def test_threads_are_set(tiny_bundle_folder, source, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    rows(call(tiny_bundle_folder, source, "--threads", 3, "--beam", 1))
    assert asked == [3]


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (["--scores", "--format", "jsonl"], "--scores is for --format text, got jsonl; jsonl always has the scores", 2),
        (["--threads", "0"], "--threads 0 is not positive; give at least 1", 2),
        (["--threads", "100000"], "--threads 100000 is more than 1024; give at most the number of CPU cores", 2),
        (["--beam", "2", "--n-best", "3"], "n_best=3 is more than beam_size=2", 1),
        (["--device", "gpu"], "device=gpu is not known", 1),
        (["--weights", "1,2"], "--weights is for models that predict together; give --ensemble BUNDLE too", 2),
        (["--average", "log_probability"], "--average is for models that predict together", 2),
        (["--ensemble", "x", "--weights", "1;2"], "--weights 1;2 is not a list of numbers; expected such as 2,1,1", 2),
        (["--compute", "int16"], "--compute int16 is for --backend ctranslate2", 2),
        (["--ordered"], "--ordered is for --phrases FILE", 2),
        (["--prefixes", "-"], "standard input (-) is the text to translate; name a file for --prefixes", 2),
        (["--alignments"], "--alignments is for --format jsonl", 2),
        (["--alignment-layer", "1"], "--alignment-layer says whose attention aligns, but nothing is aligned", 2),
        (["--alignment-head", "2"], "--alignment-head says whose attention aligns, but nothing is aligned", 2),
        (["--shortlist"], "a shortlist is wanted, but the bundle has none", 1),
        (["--forbid-file", os.devnull], "/dev/null has no word in it; expected words to forbid", 1),
    ],
)
def test_options_that_make_no_sense_are_refused(tiny_bundle_folder, source, options, message, code):
    result = call(tiny_bundle_folder, source, *options)
    assert (result.exit_code, result.stdout_bytes) == (code, b"")
    assert message in result.stderr


def test_missing_files_and_models_are_named(tiny_bundle_folder, source, tmp_path):
    result = call(tiny_bundle_folder, tmp_path / "inn.txt")
    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    assert f"did you mean {source}" in result.stderr
    result = call(tmp_path, source)
    assert result.exit_code == 1
    assert "is not a bundle" in result.stderr


def test_bytes_that_are_not_utf8_end_the_job_after_the_lines_before_them(tiny_bundle_folder, expected):
    result = call(tiny_bundle_folder, stdin=LINES[0].encode() + b"\n\xff\xfe\nowl\n")
    assert result.exit_code == 1
    assert result.stdout_bytes.decode() == expected[0].text + "\n"
    assert "standard input: line 2 is not UTF-8" in result.stderr


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_appears_at_a_terminal_when_the_job_takes_long(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("seq2seq.cli.line_progress.PATIENCE", -1.0)
    progress = LineProgress(["a", "b", "c"], wanted=True)
    assert list(progress.follow("xyz")) == ["x", "y", "z"]
    progress.print("a notice [with brackets]")
    progress.stop()
    assert progress.done == 3
    assert "translating" in screen.getvalue()
    assert "3/3" in screen.getvalue()
    assert "a notice [with brackets]\n" in screen.getvalue().replace("\r", "")


@pytest.mark.parametrize(("wanted", "patience"), [(False, -1.0), (True, 1000.0)])
def test_no_bar_for_a_short_job_or_in_the_middle_of_results(monkeypatch, wanted, patience):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("seq2seq.cli.line_progress.PATIENCE", patience)
    progress = LineProgress(["a"], wanted=wanted)
    assert list(progress.follow("x")) == ["x"]
    progress.print("a notice")
    progress.stop()
    assert screen.getvalue() == "a notice\n"


def test_a_phrase_with_an_empty_alternative_is_named_by_its_line(tiny_bundle_folder, source, tmp_path):
    (tmp_path / "phrases").write_text("\n\npig|\n\n", encoding="utf-8")
    result = call(tiny_bundle_folder, source, "--phrases", tmp_path / "phrases")
    assert result.exit_code == 1
    assert f"line 3 of {source}: phrase 'pig|' has an empty alternative" in result.stderr


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[str, bytes], Path]]:
    """Makes pipes that a thread writes to, once."""
    threads = []

    def make(name: str, content: bytes) -> Path:
        path = tmp_path / name
        os.mkfifo(path)
        thread = threading.Thread(target=path.write_bytes, args=[content], daemon=True)
        thread.start()
        threads.append(thread)
        return path

    yield make
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("output", [True, False])
def test_a_pipe_is_read_once_and_every_line_of_it_translated(tiny_bundle_folder, source, expected, pipe, output):
    text = source.read_bytes()
    place = source.with_name("out")
    read = pipe("pipe", text)
    prefixes = pipe("prefixes", b"\n" * len(LINES))
    result = call(tiny_bundle_folder, read, "--prefixes", prefixes, *(["-o", place] if output else []))
    found = place.read_text("utf-8").split("\n")[:-1] if output else rows(result)
    assert result.exit_code == 0
    assert found == [translation.text for translation in expected]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_cannot_be_gone_on_with(tiny_bundle_folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = call(tiny_bundle_folder, tmp_path / "pipe", "-o", tmp_path / "out", "--resume")
    assert (result.exit_code, result.stdout_bytes) == (2, b"")
    assert "give INPUT, no pipe, and -o OUTPUT" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("resume", [True, False])
def test_an_input_that_changes_meanwhile_is_told_and_nothing_is_written(
    tiny_bundle_folder, source, monkeypatch, resume
):
    monkeypatch.setattr("seq2seq.cli.translate_inputs.count_lines", lambda name: len(LINES) + 2)
    output = source.with_name("out")
    result = call(tiny_bundle_folder, source, "-o", output, *(["--resume"] if resume else []))
    assert result.exit_code == 1
    assert f"{source} had {len(LINES) + 2} lines left to translate when this began, and {len(LINES)} came" in (
        result.stderr
    )
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--phrases", "elk hen"], "phrase 'elk hen', which the translation must contain, has 'hen' in it"),
        (["--terms", "cat\thens hen"], "phrase 'hens hen', which the translation must contain, has 'hen' in it"),
        (["--prefixes", "owl owl owl owl owl"], "the prefix of line 42 has"),
        (["--force", "owl owl owl owl owl"], "the target of line 42 has"),
        (["--backend", "ctranslate2", "--prefixes", "owl"], "--prefixes are left out of the scores"),
        (["--long", "error", "--max-source-length", "2"], "line 42 has 3 pieces, max_source_length is 2"),
    ],
)
def test_lines_that_contradict_the_options_are_told_before_anything_is_decoded(
    tiny_bundle_folder, tmp_path, monkeypatch, options, message
):
    monkeypatch.setattr(Translator, "_search", lambda *_: pytest.fail("decoded"))
    (tmp_path / "in").write_text("owl\n" * 41 + "die cat\n", encoding="utf-8")
    if options[-2] in ("--phrases", "--prefixes", "--force"):
        (tmp_path / "beside").write_text("\n" * 41 + options[-1] + "\n", encoding="utf-8")
        options = [*options[:-1], tmp_path / "beside"]
    elif options[0] == "--terms":
        (tmp_path / "beside").write_text(options[1] + "\n", encoding="utf-8")
        options = ["--terms", tmp_path / "beside"]
    others = ["--forbid", "hen", "--max-length", 5, "--batch-tokens", 2, "--penalty-form", "power"]
    result = call(tiny_bundle_folder, tmp_path / "in", "--device", "cpu", *others, *options)
    assert (result.exit_code, result.stdout_bytes) in ((1, b""), (2, b""))
    assert message in result.stderr


@pytest.mark.parametrize("drawn", [True, False])
def test_a_line_without_any_translation_is_named_with_all_that_leaves_none(tiny_bundle_folder, tmp_path, drawn):
    (tmp_path / "in").write_text("owl\n\nder dog sieht die cat und der ant läuft\nant\n", encoding="utf-8")
    (tmp_path / "beside").write_text("\n\nelk\n\n", encoding="utf-8")
    # the third line alone needs more pieces than there are
    options = ["--no-repeat-ngram", 1, "--min-length-factor", 9, "--max-length-factor", 40]
    if drawn:
        options += ["--prefixes", tmp_path / "beside", "--temperature", 1, "--n-best", 3]
        said = "line 3 has no translation: nothing may come next that agrees with min_length_factor=9.0, "
        said += "no_repeat_ngram=1, its prefix; take one of them back\n"
    else:
        options += ["--phrases", tmp_path / "beside", "--beam", 3]
        said = "line 3 has no translation among the 3 hypotheses of its beam: nothing may come next that agrees with "
        said += "min_length_factor=9.0, no_repeat_ngram=1, the phrases ['elk']; take one of them back, or raise beam"
    result = call(tiny_bundle_folder, tmp_path / "in", "--device", "cpu", *options, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert said in result.stderr
    assert not (tmp_path / "out").exists()
