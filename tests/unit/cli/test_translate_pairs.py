"""Each option of `seq2seq translate` with each other one: both work, or the pair is refused before decoding begins."""

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seq2seq.cli import translate_devices
from seq2seq.cli.app import app
from seq2seq.cli.translate_job import Answer, Answers, Job
from seq2seq.cli.translate_shares import Task, ask_here, deal, windows
from seq2seq.translator import Request, Translator
from seq2seq.translator.ctranslate2_engine import CTranslate2Engine

pytest.importorskip("ctranslate2", reason="the extra `interop` is not installed")

LINES = ["die cat sieht owl.", "", "der ant."]

OPTIONS: dict[str, list[str]] = {
    "beam": ["--beam", "3"],
    "greedy": ["--beam", "1"],
    "n-best": ["--n-best", "2"],
    "penalty": ["--penalty-form", "power", "--length-penalty", "0.8"],
    "patience": ["--patience", "1"],
    "coverage": ["--coverage-penalty", "0.2"],
    "lengths": ["--min-length", "3", "--max-length", "7"],
    "length factors": ["--min-length-factor", "0.2", "--max-length-factor", "0.9", "--max-length-offset", "3"],
    "split": ["--max-source-length", "10", "--long", "split"],
    "truncate": ["--max-source-length", "6", "--long", "truncate"],
    "no-repeat": ["--no-repeat-ngram", "2"],
    "repetition": ["--repetition-penalty", "1.3"],
    "forbid": ["--forbid", "owl"],
    "forbid-file": ["--forbid-file", "words.txt"],
    "unknown-penalty": ["--unknown-penalty", "2"],
    "forbid-unknown": ["--forbid-unknown"],
    "replace-unknown": ["--replace-unknown"],
    "temperature": ["--temperature", "0.8"],
    "top-k": ["--temperature", "1", "--top-k", "5"],
    "top-p": ["--temperature", "1", "--top-p", "0.9"],
    "min-p": ["--temperature", "1", "--min-p", "0.1"],
    "seed": ["--seed", "7"],
    "mbr": ["--mbr", "chrf"],
    "candidates": ["--mbr", "bleu", "--num-candidates", "3"],
    "alignments": ["--format", "jsonl", "--alignments"],
    "pharaoh": ["--format", "pharaoh"],
    "jsonl": ["--format", "jsonl"],
    "scores": ["--scores"],
    "layer": ["--alignment-layer", "2", "--alignment-head", "1", "--replace-unknown"],
    "prefixes": ["--prefixes", "prefixes.txt"],
    "force": ["--force", "targets.txt"],
    "phrases": ["--phrases", "phrases.txt"],
    "ordered": ["--phrases", "phrases.txt", "--ordered"],
    "terms": ["--terms", "terms.tsv"],
    "ensemble": ["--ensemble", "bundle", "--weights", "2,1", "--average", "log_probability"],
    "shortlist": ["--shortlist"],
    "batch-tokens": ["--batch-tokens", "6"],
    "ctranslate2": ["--backend", "ctranslate2", "--penalty-form", "none"],
    "int8": ["--backend", "ctranslate2", "--penalty-form", "none", "--compute", "int8"],
    "rounded": ["--compute", "int8"],
    "devices": ["--devices", "2"],
    "threads": ["--threads", "1"],
    "output": ["-o", "out"],
    "resume": ["-o", "out", "--resume"],
    "interactive": ["--interactive"],
    "strict": ["--strict"],
}


DRAWING = {"temperature", "top-k", "top-p", "min-p"}
PHRASES = {"phrases", "ordered", "terms"}
ENGINE = {"ctranslate2", "int8"}
FREE = {"coverage", "forbid", "forbid-file", "unknown-penalty", "replace-unknown", "layer", "min-p", "alignments"}

REFUSED: dict[str, tuple[set[str], set[str]]] = {
    "looks for the most probable translations": ({"beam"}, DRAWING),
    "n_best=2 is more than beam_size=1": ({"greedy"}, {"n-best"}),
    "patience=1.0 is for beams, but beam_size is 1": ({"patience"}, {"greedy", *DRAWING}),
    "coverage_penalty=0.2 ranks": ({"coverage"}, {"greedy", *DRAWING}),
    "but only one is looked for": ({"greedy"}, {"mbr"}),
    "num_candidates=3 is more than beam_size=1": ({"greedy"}, {"candidates"}),
    "takes a beam whose places are shared out": (PHRASES, {"greedy", *DRAWING}),
    "is not something that CTranslate2 does as this package does it": (ENGINE, {*FREE, "pharaoh", "shortlist"}),
    "shares out their probability among the others": (
        ENGINE,
        {"lengths", "length factors", "no-repeat", "forbid-unknown"},
    ),
    "that are drawn, but not how many": ({"mbr"}, DRAWING),
    "--scores is for --format text": ({"scores"}, {"alignments", "jsonl", "pharaoh"}),
    "--force gives whole translations": ({"force"}, {"prefixes", *PHRASES}),
    "is not something that CTranslate2 does; leave": (ENGINE, PHRASES),
    "--ensemble is not something that CTranslate2 has": (ENGINE, {"ensemble"}),
    "shares out many lines": ({"devices"}, {"interactive"}),
    "leave --interactive out": ({"resume"}, {"interactive"}),
}
"""What is said of pairs of which one is among the first options and one among the second. All others work."""


@pytest.fixture(scope="module")
def place(tiny_bundle_folder: Path, tiny_lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle and all files that the options name."""
    folder = tmp_path_factory.mktemp("pairs")
    shutil.copytree(tiny_bundle_folder, folder / "bundle")
    texts = {
        "in.txt": LINES,
        "words.txt": ["gnu", "fox hen"],
        "prefixes.txt": ["owl", "", ""],
        "targets.txt": ["owl pig.", "", "ram"],
        "phrases.txt": ["pig", "", "elk\then"],
        "terms.tsv": ["cat\tyak"],
        "train.txt": tiny_lines[:50],
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    train = str(folder / "train.txt")
    made = CliRunner().invoke(app, ["data", "shortlist", str(folder / "bundle"), "--source", train, "--target", train])
    assert made.exit_code == 0, made.output
    return folder


def through_json(plain: Any) -> Any:
    return json.loads(json.dumps(plain))


def in_this_process(job: Job, lines: Iterable[Request], *, first: int = 1) -> Answers:
    """What several processes do, without the processes: all that they tell one another is told as JSON here too."""
    translate_devices.prepare(job)
    own = dataclasses.replace(job, engine=translate_devices.share(job.engine, 0))
    own = Job.read(through_json(own.plain()))
    ask = ask_here(own.load(), own)

    def told(task: Task) -> list[Answer]:
        found = ask(Task.read(through_json(task.plain())))
        return [Answer(*values) for values in through_json([[one.rows, one.notice, one.hit_limit] for one in found])]

    return deal(windows(job, lines, first), [told])


@pytest.fixture
def decoded(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Who has begun to decode."""
    begun: list[str] = []

    def noting(kind: type[Any], name: str) -> None:
        original = getattr(kind, name)

        def noted(*arguments: Any) -> Any:
            begun.append(kind.__name__)
            return original(*arguments)

        monkeypatch.setattr(kind, name, noted)

    noting(Translator, "_search")
    noting(CTranslate2Engine, "_begin")
    monkeypatch.setattr(translate_devices, "shared_answers", in_this_process)
    monkeypatch.chdir(place)
    yield begun
    for name in ("out", "out.part", "out.part.json"):
        (place / name).unlink(missing_ok=True)


def said_of(first: str, second: str) -> str | None:
    """Why the pair is refused; None if it works."""
    for said, (some, others) in REFUSED.items():
        if (first in some and second in others) or (second in some and first in others):
            return said
    return None


def pairs() -> list[tuple[str, str]]:
    """All pairs of options that are not the same one with other values."""
    return [
        (first, second)
        for first, second in itertools.combinations(OPTIONS, 2)
        if not {word for word in OPTIONS[first] if word.startswith("-")} & set(OPTIONS[second])
    ]


def check(place: Path, decoded: list[str], options: list[str], refused: str | None) -> None:
    """Either so many rows as there are lines, or n times as many, or an error before anything has been decoded."""
    result = CliRunner().invoke(app, ["translate", "bundle", "in.txt", "--device", "cpu", *options])
    if refused is not None:
        assert refused in result.stderr
        assert result.exit_code in (1, 2)
        assert (decoded, result.stdout_bytes) == ([], b"")
        assert not (place / "out").exists()
        return
    assert result.exit_code == 0, result.stderr or repr(result.exception)
    assert decoded
    written = (place / "out").read_bytes() if "-o" in options else result.stdout_bytes
    several = 2 if "--n-best" in options and "jsonl" not in options else 1
    assert written.count(b"\n") == several * len(LINES)
    blank = written.decode().split("\n")[several : 2 * several]
    if {"--scores", "jsonl"} & set(options):
        assert '"translations": [{"text": ""' in blank[0] or blank[0] == "0.000000\t0.000000\t"
    else:
        assert blank == [""] * several


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_works_alone(place: Path, decoded: list[str], name: str) -> None:
    check(place, decoded, OPTIONS[name], None)


@pytest.mark.parametrize("said", REFUSED)
def test_pairs_that_make_no_sense_are_refused_with_a_reason(place: Path, decoded: list[str], said: str) -> None:
    for first, second in pairs():
        if said_of(first, second) == said:
            check(place, decoded, [*OPTIONS[first], *OPTIONS[second]], said)


@pytest.mark.slow
@pytest.mark.parametrize("first", OPTIONS)
def test_all_other_pairs_work(place: Path, decoded: list[str], first: str) -> None:
    for one, other in pairs():
        if one == first and said_of(one, other) is None:
            decoded.clear()
            check(place, decoded, [*OPTIONS[one], *OPTIONS[other]], None)
            for name in ("out", "out.part", "out.part.json"):
                (place / name).unlink(missing_ok=True)
