import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from typer.testing import CliRunner, Result

from seq2seq.cli import UsageError
from seq2seq.cli.engines import EngineOptions
from seq2seq.cli.evaluate import evaluate
from seq2seq.config import DecodeConfig
from seq2seq.evaluation.metrics import corpus_scores
from seq2seq.translator import Candidate, Request, Translation
from seq2seq.translator.batches import Part
from seq2seq.translator.line_translator import LineTranslator

app = typer.Typer()
app.command()(evaluate)

HYPOTHESES = ["The cat sat on the mat.", "A dog barks at night.", ""]
REFERENCES = ["The cat sat on a mat.", "A dog barked at night.", "Nobody came."]


def call(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


@pytest.fixture
def hypothesis(tmp_path: Path) -> Path:
    return write(tmp_path / "mine.txt", HYPOTHESES)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return write(tmp_path / "reference.txt", REFERENCES)


class UpperCase(LineTranslator):
    """Stands in for a model: its target language is upper case, and it has no room for a whole 'zwei'."""

    loaded: ClassVar[list[tuple[str, str]]] = []
    settings: ClassVar[list[DecodeConfig]] = []

    def __init__(self) -> None:
        pass

    def _search(self, parts: Sequence[Part], decode: DecodeConfig) -> list[list[Candidate]]:
        raise NotImplementedError

    def windows(
        self,
        lines: Iterable[str | Request],
        decode: DecodeConfig | None = None,
        *,
        read_ahead: bool = True,
        first: int = 1,
        on_notice: Callable[[str], None] = print,
    ) -> Iterator[Iterator[Translation]]:
        assert read_ahead
        yield (
            self._answer(number, line.text)
            for number, line in enumerate(lines, start=first)
            if isinstance(line, Request)
        )

    def _answer(self, number: int, text: str) -> Translation:
        notice = f"line {number} was split" if text == "long" else None
        candidate = Candidate(text.upper(), 0.0, 0.0, (), (), (), text == "zwei")
        return Translation(number, text, (), (candidate,), notice)


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch, tiny_bundle_folder: Path, tmp_path: Path) -> type[UpperCase]:
    """The stand-in for the model of a folder `bundle`, which has a config.json alone."""
    config = json.loads((tiny_bundle_folder / "config.json").read_bytes())
    config |= {"source_lang": "en", "target_lang": "zh", "decode": {"beam_size": 7, "n_best": 3}}
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def load(model: str, engine: EngineOptions, decode: DecodeConfig, **_: bool) -> UpperCase:
        UpperCase.loaded.append((model, engine.device))
        UpperCase.settings.append(decode)
        return UpperCase()

    monkeypatch.setattr("seq2seq.cli.translate_job.load_engine", load)
    UpperCase.loaded.clear()
    UpperCase.settings.clear()
    return UpperCase


def test_a_file_is_scored_and_stdout_has_nothing_but_the_result(hypothesis: Path, reference: Path) -> None:
    result = call("--hypothesis", hypothesis, "--reference", reference)
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines() if line[0] != " "] == [
        "BLEU",
        "chrF2++",
        "TER",
        "Scored",
    ]
    assert result.stderr == ""


def test_json_has_the_scores_of_the_python_call(hypothesis: Path, reference: Path) -> None:
    result = call("--hypothesis", hypothesis, "--reference", reference, "--format", "json")
    found = json.loads(result.stdout)
    for score in corpus_scores(HYPOTHESES, [REFERENCES]):
        assert found["scores"][score.metric]["score"] == score.score
        assert found["scores"][score.metric]["signature"] == score.signature
    assert found["counts"] == {"sentences": 3, "reference_sets": 1, "empty_hypotheses": 1}
    assert found["settings"]["hypothesis"] == str(hypothesis)
    assert found["settings"]["references"] == [str(reference)]
    assert found["decode"] is None


def test_metrics_references_and_options_are_passed_on(tmp_path: Path, hypothesis: Path, reference: Path) -> None:
    other = write(tmp_path / "other.txt", ["The cat was on the mat.", "At night a dog barks.", "No one came."])
    result = call(
        *("--hypothesis", hypothesis, "--reference", reference, "--reference", other, "--metric", "chrf"),
        *("--metric", "bleu", "--lowercase", "--tokenize", "intl", "--confidence", "--resamples", "10"),
        *("--format", "json", "--paired", other),
    )
    found = json.loads(result.stdout)
    assert list(found["scores"]) == ["chrf", "bleu"]
    signature = found["scores"]["bleu"]["signature"]
    assert signature.startswith("nrefs:2|bs:10|seed:")
    assert "case:lc" in signature
    assert "tok:intl" in signature
    assert found["scores"]["bleu"]["confidence"]["num_resamples"] == 10
    assert set(found["paired"]) == {"chrf", "bleu"}


def test_the_hypothesis_can_come_from_standard_input(reference: Path) -> None:
    result = call(
        *("--hypothesis", "-", "--reference", reference, "--format", "json"),
        stdin="\r\n".join(HYPOTHESES).encode() + b"\r\n",
    )
    (bleu,) = corpus_scores(HYPOTHESES, [REFERENCES], metrics=["bleu"])
    assert json.loads(result.stdout)["scores"]["bleu"]["score"] == bleu.score


def test_only_line_feeds_end_a_line_so_that_odd_characters_shift_nothing(tmp_path: Path) -> None:
    lines = ["one\u2028two\x0cthree four", "five\x85six seven"]
    hypothesis, reference = write(tmp_path / "h", lines), write(tmp_path / "r", lines)
    found = json.loads(call("--hypothesis", hypothesis, "--reference", reference, "--format", "json").stdout)
    assert found["counts"]["sentences"] == 2
    assert found["scores"]["ter"]["score"] == 0.0


def test_tokenised_text_is_warned_about_on_stderr_and_in_json(tmp_path: Path, reference: Path) -> None:
    pieces = write(tmp_path / "pieces", ["▁The ▁cat", "▁A ▁dog", "▁No"])
    result = call("--hypothesis", pieces, "--reference", reference, "--format", "json")
    assert result.exit_code == 0
    assert f"warning: {pieces} looks tokenised: 3 of 3 lines have SentencePiece pieces" in result.stderr
    assert len(json.loads(result.stdout)["warnings"]) == 1


@pytest.mark.parametrize("side", ["hypothesis", "reference"])
def test_tokenised_text_is_refused_under_strict(tmp_path: Path, hypothesis: Path, reference: Path, side: str) -> None:
    files = {"hypothesis": hypothesis, "reference": reference}
    files[side] = write(tmp_path / "spaced", ["The cat .", "A dog .", "No ."])
    result = call("--hypothesis", files["hypothesis"], "--reference", files["reference"], "--strict")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert isinstance(result.exception, ValueError)
    assert "looks tokenised" in str(result.exception)
    assert "--strict" in str(result.exception)


def test_unequal_files_are_refused_with_both_names_and_counts(tmp_path: Path, hypothesis: Path) -> None:
    short = write(tmp_path / "short", REFERENCES[:2])
    result = call("--hypothesis", hypothesis, "--reference", short)
    assert isinstance(result.exception, ValueError)
    assert f"{short} has 2 lines, but {hypothesis} has 3" in str(result.exception)
    assert result.exit_code == 1


def test_an_empty_file_is_refused(tmp_path: Path, reference: Path) -> None:
    result = call("--hypothesis", write(tmp_path / "empty", []), "--reference", reference)
    assert "empty is empty; expected one sentence a line" in str(result.exception)


def test_an_unknown_metric_is_refused(hypothesis: Path, reference: Path) -> None:
    result = call("--hypothesis", hypothesis, "--reference", reference, "--metric", "blue")
    assert "unknown metric 'blue'; did you mean 'bleu'" in str(result.exception)


def test_a_model_translates_the_source_and_its_decode_settings_are_printed(
    tmp_path: Path, translator: type[UpperCase]
) -> None:
    source = write(tmp_path / "source", ["ein haus", "", "zwei"])
    reference = write(tmp_path / "ref", ["EIN HAUS", "", "DREI"])
    output = tmp_path / "out.txt"
    result = call(
        *("bundle", "--source", source, "--reference", reference, "--output", output, "--device", "cpu"),
        *("--beam-size", 5, "--length-penalty", 1.5, "--penalty-form", "power", "--long", "split"),
        *("--batch-tokens", 99, "--format", "json", "--target-lang", "en"),
    )
    assert result.exit_code == 0, result.exception
    assert output.read_text(encoding="utf-8") == "EIN HAUS\n\nZWEI\n"
    assert translator.loaded == [("bundle", "cpu")]
    found = json.loads(result.stdout)
    assert found["scores"]["ter"]["score"] == pytest.approx(100 / 3)
    assert (found["decode"]["beam_size"], found["decode"]["length_penalty"]) == (5, 1.5)
    assert (found["decode"]["penalty_form"], found["decode"]["long_lines"]) == ("power", "split")
    assert (found["decode"]["n_best"], found["decode"]["batch_tokens"]) == (1, 99)
    assert translator.settings[0].beam_size == 5


def test_the_bundles_settings_and_target_language_are_used_unless_others_are_given(
    tmp_path: Path, translator: type[UpperCase]
) -> None:
    source = write(tmp_path / "source", ["一"])
    reference = write(tmp_path / "ref", ["一"])
    result = call("bundle", "--source", source, "--reference", reference)
    assert "tok:zh" in result.stdout
    assert "Decode    beam_size=7 n_best=1 " in result.stdout


def test_everything_is_checked_before_the_model_starts(tmp_path: Path, translator: type[UpperCase]) -> None:
    source = write(tmp_path / "source", ["a", "b"])
    short, spaced = write(tmp_path / "short", ["a"]), write(tmp_path / "spaced", ["a b .", "c ."])
    for arguments, problem in [
        (("--reference", short), "short has 1 lines"),
        (("--reference", source, "--metric", "blue"), "unknown metric"),
        (("--reference", source, "--tokenize", "13b"), "unknown BLEU tokenizer"),
        (("--reference", spaced, "--strict"), "looks tokenised"),
        (("--reference", source, "--beam-size", "0"), "beam_size=0 is not positive"),
    ]:
        result = call("bundle", "--source", source, *arguments)
        assert problem in str(result.exception)
    assert translator.settings == []


def test_notices_of_the_translator_are_told_and_kept(tmp_path: Path, translator: type[UpperCase]) -> None:
    source = write(tmp_path / "source", ["long", "zwei"])
    result = call("bundle", "--source", source, "--reference", source, "--format", "json")
    notices = [
        "line 1 was split",
        "1 of 2 translations were ended at their length limit (max_length)",
    ]
    assert json.loads(result.stdout)["warnings"] == notices
    assert result.stderr.splitlines() == [f"warning: {notice}" for notice in notices]


def test_every_search_option_reaches_the_model(tmp_path: Path, translator: type[UpperCase]) -> None:
    source = write(tmp_path / "source", ["a"])
    options = {
        "beam_size": 3,
        "length_penalty": 0.25,
        "min_length": 2,
        "max_length": 44,
        "min_length_factor": 0.5,
        "max_length_factor": 1.5,
        "max_length_offset": 6,
        "max_source_length": 77,
        "batch_tokens": 555,
    }
    words = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), value)]
    result = call("bundle", "--source", source, "--reference", source, *words)
    assert result.exit_code == 0, result.exception
    assert translator.settings == [DecodeConfig(n_best=1, **options)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--reference", "r"), "give either --hypothesis FILE .* got neither"),
        (("bundle", "--hypothesis", "h", "--reference", "r"), "got both"),
        (("--hypothesis", "h"), "--reference is missing"),
        (("bundle", "--reference", "r"), "a model needs text to translate; give --source FILE"),
        (("--hypothesis", "h", "--reference", "r", "--beam-size", "3"), "beam_size: only of use with a model"),
        (("--hypothesis", "h", "--reference", "r", "--device", "cpu"), "device: only of use with a model"),
        (
            ("--hypothesis", "h", "--reference", "r", "--output", "o", "--threads", "2"),
            "output, threads: only of use with a model",
        ),
        (("--hypothesis", "-", "--reference", "-"), r"standard input \(-\) can be read only once, but stands for 2"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(arguments: tuple[str, ...], problem: str) -> None:
    result = call(*arguments)
    assert isinstance(result.exception, UsageError)
    with pytest.raises(UsageError, match=problem):
        raise result.exception


def test_an_output_that_cannot_be_written_is_refused_before_a_model_is_loaded(reference, tmp_path, monkeypatch):
    monkeypatch.setattr("seq2seq.cli.translate_job.load_engine", lambda *_: pytest.fail("loaded"))
    result = call("bundle", "--source", reference, "--reference", reference, "-o", tmp_path / "nowhere" / "out")
    assert result.exit_code == 1
    assert "there is no folder" in str(result.exception)


def test_a_missing_file_is_reported_by_name(hypothesis: Path) -> None:
    result = call("--hypothesis", hypothesis, "--reference", "nowhere.txt")
    assert isinstance(result.exception, FileNotFoundError)
    assert "no such file: nowhere.txt" in str(result.exception)
