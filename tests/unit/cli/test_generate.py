import gzip
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seq2seq.cli.app import app
from seq2seq.cli.generate import Format, converse, run
from seq2seq.config import GenerateConfig
from seq2seq.generator import Generator

PROMPTS = ["der ant", "", "die cat und", "o"]
NEW = 7


def call(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["generate", *map(str, arguments)], input=stdin)


def rows(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes.endswith(b"\n")
    return result.stdout_bytes.decode().split("\n")[:-1]


def one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")


@pytest.fixture(scope="module")
def generator(tiny_writer_folder: Path) -> Generator:
    return Generator.load(tiny_writer_folder, "cpu")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_bytes("".join(line + "\n" for line in PROMPTS).encode())
    return path


def test_a_file_of_prompts_gives_a_line_each_and_nothing_else(tiny_writer_folder, generator, prompts):
    result = call(tiny_writer_folder, prompts, "--max-new", NEW)
    expected = generator.generate(PROMPTS, GenerateConfig(max_new_pieces=NEW))
    assert rows(result) == [one_line(one.text) for one in expected]
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input_is_read_when_no_file_is_named(tiny_writer_folder, prompts, arguments):
    found = call(tiny_writer_folder, *arguments, "--max-new", NEW, stdin=prompts.read_bytes())
    assert rows(found) == rows(call(tiny_writer_folder, prompts, "--max-new", NEW))


def test_samples_come_in_order_and_the_same_again_for_the_same_seed(tiny_writer_folder, generator, prompts):
    options = ["--max-new", NEW, "--temperature", 1, "--samples", 3, "--seed", 4]
    first = rows(call(tiny_writer_folder, prompts, *options))
    config = GenerateConfig(max_new_pieces=NEW, temperature=1.0, num_samples=3, seed=4)
    assert first == [one_line(one.text) for one in generator.generate(PROMPTS, config)]
    assert len(first) == 12
    assert rows(call(tiny_writer_folder, prompts, *options, "--batch-tokens", 1)) == first
    assert rows(call(tiny_writer_folder, prompts, *options[:-1], 5)) != first


def test_line_feeds_in_a_text_do_not_break_its_line(tiny_writer_folder, prompts):
    options = ["--max-new", 12, "--temperature", 3, "--samples", 2]
    records = [json.loads(row) for row in rows(call(tiny_writer_folder, prompts, *options, "--format", "jsonl"))]
    assert any("\n" in record["text"] for record in records), "nothing was tested"
    assert rows(call(tiny_writer_folder, prompts, *options)) == [one_line(record["text"]) for record in records]


def test_jsonl_holds_all_that_was_found(tiny_writer_folder, generator, prompts):
    options = ["--max-new", NEW, "--beam", 3, "--repetition-penalty", 1.5, "--stop", "p", "--stop", "nn"]
    config = GenerateConfig(max_new_pieces=NEW, beam_size=3, repetition_penalty=1.5, stop=["p", "nn"])
    records = [json.loads(row) for row in rows(call(tiny_writer_folder, prompts, *options, "--format", "jsonl"))]
    for record, one in zip(records, generator.generate(PROMPTS, config), strict=True):
        assert (record["number"], record["sample"], record["prompt"]) == (one.number, one.sample, one.prompt)
        assert (record["text"], record["ended"], record["notice"]) == (one.text, one.ended.name, None)
        assert record["prompt_ids"] == list(one.prompt_ids)
        assert (record["tokens"], record["ids"]) == (list(one.tokens), list(one.ids))
        assert record["token_log_probs"] == pytest.approx(list(one.token_log_probs), abs=1e-4)
        assert record["log_prob"] == pytest.approx(one.log_prob, abs=1e-4)


def test_a_single_prompt_gives_its_text_as_it_is(tiny_writer_folder, generator, tmp_path):
    options = ["--max-new", 12, "--temperature", 3, "--samples", 2]
    config = GenerateConfig(max_new_pieces=12, temperature=3.0, num_samples=2)
    texts = [one.text for one in generator.generate(["ant\nbee"], config)]
    assert any("\n" in text for text in texts), "nothing was tested"
    result = call(tiny_writer_folder, "--prompt", "ant\nbee", *options)
    assert result.stdout_bytes.decode() == "\n---\n".join(texts) + "\n"
    whole, output = tmp_path / "whole.txt", tmp_path / "out.txt.gz"
    whole.write_bytes(b"ant\nbee\n")
    assert call(tiny_writer_folder, whole, "--whole-file", *options).stdout_bytes == result.stdout_bytes
    assert call(tiny_writer_folder, "--whole-file", *options, stdin=b"ant\r\nbee").stdout_bytes == result.stdout_bytes
    written = call(tiny_writer_folder, "--prompt", "ant\nbee", *options, "-o", output)
    assert (written.exit_code, written.stdout_bytes) == (0, b"")
    assert gzip.decompress(output.read_bytes()) == result.stdout_bytes
    records = rows(call(tiny_writer_folder, whole, "--whole-file", *options, "--format", "jsonl"))
    assert [json.loads(record)["text"] for record in records] == texts


def test_the_prompt_stands_in_front_where_that_is_wanted(tiny_writer_folder, prompts):
    plain = rows(call(tiny_writer_folder, prompts, "--max-new", NEW))
    both = rows(call(tiny_writer_folder, prompts, "--max-new", NEW, "--with-prompt"))
    assert both == [prompt + text for prompt, text in zip(PROMPTS, plain, strict=True)]
    single = call(tiny_writer_folder, "--prompt", PROMPTS[0], "--max-new", NEW, "--with-prompt")
    assert rows(single) == both[:1]


def test_prompts_typed_at_a_terminal_are_answered_one_by_one_as_the_text_is_written(
    generator, monkeypatch, capfdbinary
):
    """Each answer is written in parts before the next line is read."""
    events: list[bytes] = []

    class Typed(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            events.append(b"read")
            return super().readline(-1 if size is None else size)

    class Screen(io.BytesIO):
        def write(self, text: bytes) -> int:  # type: ignore[override]
            events.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Typed("ant\nowl €\n".encode())))
    screen = io.TextIOWrapper(Screen())
    monkeypatch.setattr(sys, "stdout", screen)
    config = GenerateConfig(max_new_pieces=12, temperature=1.0)
    converse(generator, config, with_prompt=False)
    expected = generator.generate(["ant", "owl €"], config)
    assert sum(event == b"read" for event in events) == 3
    answers = b"\0".join(events).split(b"read")
    assert [answer.replace(b"\0", b"").decode() for answer in answers] == [
        "",
        *(one.text + "\n" for one in expected),
        "",
    ]
    assert max(answer.count(b"\0") for answer in answers) > 3, "nothing came in parts"


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("ahead", [True, False])
def test_i13_without_reading_ahead_each_prompt_is_answered_before_the_next_one_is_read(
    generator, monkeypatch, form, ahead
):
    events: list[str] = []

    def prompts() -> Iterator[str]:
        for prompt in PROMPTS[:2]:
            events.append("read")
            yield prompt

    class Out(io.BytesIO):
        def write(self, text: bytes) -> int:  # type: ignore[override]
            events.append("written")
            return len(text)

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Out()))
    config = GenerateConfig(max_new_pieces=2, batch_tokens=1000)
    run(generator, prompts(), None, config, form, with_prompt=False, read_ahead=ahead)
    assert events == (["read", "read", "written", "written"] if ahead else ["read", "written"] * 2)


@pytest.mark.parametrize(
    ("typed", "options", "ahead"), [(False, [], True), (False, ["--interactive"], False), (True, [], False)]
)
def test_who_types_prompts_or_asks_for_it_is_answered_at_once(tiny_writer_folder, monkeypatch, typed, options, ahead):
    seen = []
    monkeypatch.setattr("seq2seq.cli.generate.at_terminal", lambda: typed)
    monkeypatch.setattr("seq2seq.cli.generate.run", lambda *_, read_ahead: seen.append(read_ahead))
    assert call(tiny_writer_folder, "--format", "jsonl", *options, stdin=b"").exit_code == 0
    assert seen == [ahead]


def test_a_conversation_is_for_a_terminal_whose_answers_go_to_the_screen(tiny_writer_folder, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("seq2seq.cli.generate.converse", lambda *arguments: asked.append(arguments))
    call(tiny_writer_folder, stdin=b"")
    assert asked == []
    monkeypatch.setattr("seq2seq.cli.generate.at_terminal", lambda: True)
    call(tiny_writer_folder, "-o", tmp_path / "out.txt", stdin=b"")
    call(tiny_writer_folder, "--format", "jsonl", stdin=b"")
    assert asked == []
    call(tiny_writer_folder, stdin=b"")
    assert len(asked) == 1


def test_every_option_reaches_the_generator(tiny_writer_folder, prompts, monkeypatch):
    seen = []
    monkeypatch.setattr(Generator, "generate_each", lambda self, lines, config, **_: seen.append(config) or iter([]))
    options = [
        *["--max-new", 9, "--penalty-form", "gnmt", "--length-penalty", 0.5, "--temperature", 0.7, "--top-k", 8],
        *["--top-p", 0.9, "--min-p", 0.1, "--repetition-penalty", 1.1, "--samples", 2, "--seed", 3, "--stop", "x"],
        *["--batch-tokens", 77],
    ]
    assert call(tiny_writer_folder, prompts, *options).exit_code == 0
    assert to_compare(seen[0]) == {
        "max_new_pieces": 9,
        "beam_size": 1,
        "length_penalty": 0.5,
        "temperature": 0.7,
        "top_k": 8,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "num_samples": 2,
        "seed": 3,
        "stop": ["x"],
        "batch_tokens": 77,
    }
    assert seen[0].penalty_form.name == "gnmt"
    assert call(tiny_writer_folder, prompts).exit_code == 0
    assert seen[1] == GenerateConfig()


def to_compare(config: GenerateConfig) -> dict[str, object]:
    return {name: value for name, value in vars(config).items() if name != "penalty_form"}


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_counts_the_samples_of_all_prompts_when_the_job_takes_long(generator, monkeypatch, tmp_path):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("seq2seq.cli.line_progress.PATIENCE", -1.0)
    config = GenerateConfig(max_new_pieces=2, temperature=1.0, num_samples=3)
    run(generator, PROMPTS, str(tmp_path / "out.txt"), config, Format.text, with_prompt=False)
    assert "writing" in screen.getvalue()
    assert "/12" in screen.getvalue()


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (["--prompt", "x", "--whole-file"], "--prompt is the prompt itself; leave the file of prompts and", 2),
        (["p.txt", "--prompt", "x"], "--prompt is the prompt itself", 2),
        (["--with-prompt", "--format", "jsonl"], "--with-prompt is for --format text; jsonl always has the prompt", 2),
        (["--threads", "0"], "--threads 0 is not positive", 2),
        (
            ["--beam", "4", "--temperature", "1"],
            "beam_size=4 looks for the most probable text, temperature=1.0 draws",
            1,
        ),
        (["--samples", "2"], "num_samples=2 is for texts that are drawn, but with temperature=0 nothing is", 1),
        (["--top-p", "1.5"], "top_p=1.5 is not above 0 and at most 1", 1),
        (["--device", "gpu"], "device=gpu is not known", 1),
        (["missing.txt"], "no such file: missing.txt", 1),
    ],
)
def test_options_that_make_no_sense_are_refused(tiny_writer_folder, options, message, code):
    result = call(tiny_writer_folder, *options, stdin=b"")
    assert (result.exit_code, result.stdout_bytes) == (code, b"")
    assert message in result.stderr


def test_a_model_that_translates_is_refused(tiny_bundle_folder, tmp_path, prompts):
    output = tmp_path / "out.txt"
    result = call(tiny_bundle_folder, prompts, "-o", output)
    assert (result.exit_code, output.exists()) == (1, False)
    assert "use `seq2seq translate`" in result.stderr
    assert "is not a bundle" in call(tmp_path, prompts).stderr


def test_bytes_that_are_not_utf8_end_the_job_after_the_prompts_before_them(tiny_writer_folder, generator):
    result = call(tiny_writer_folder, "--max-new", NEW, stdin=b"der ant\n\xff\xfe\nowl\n")
    assert result.exit_code == 1
    (expected,) = generator.generate(["der ant"], GenerateConfig(max_new_pieces=NEW))
    assert result.stdout_bytes.decode() == one_line(expected.text) + "\n"
    assert "standard input: line 2 is not UTF-8" in result.stderr


@pytest.mark.parametrize("jsonl", [[], ["--format", "jsonl"]])
@pytest.mark.parametrize("given", [["--prompt", "der ant"], ["FILE"], ["FILE", "--whole-file"], ["-"]])
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_written(
    tiny_writer_folder, prompts, tmp_path, monkeypatch, given, jsonl
):
    monkeypatch.setattr("seq2seq.cli.generate.load_generator", lambda *_: pytest.fail("loaded"))
    given = [prompts if one == "FILE" else one for one in given]
    result = call(tiny_writer_folder, *given, *jsonl, "-o", tmp_path / "missing" / "out.txt")
    assert result.exit_code == 1
    assert "there is no folder" in result.stderr
