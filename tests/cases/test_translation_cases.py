"""Cases that show in whole translations: I1, I2, I3, I7, I11, I12, I13, I15, B1, B2, S4, S6, V8, V9."""

import dataclasses
import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import sacrebleu
from typer.testing import CliRunner, Result

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.cli.app import app
from seq2seq.config import DecodeConfig, LongLines, TokenizerConfig
from seq2seq.text.lines import count_lines, read_lines, write_lines
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.translator import Request, Translator

EXACT = 1e-9
"""Tolerance in float64."""

START = 60.0
"""Seconds that a process may take to import torch on a busy machine."""


def call(command: str, *arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [command, *map(str, arguments)], input=stdin)


def rows(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes.endswith(b"\n")
    return result.stdout_bytes.decode().split("\n")[:-1]


@pytest.fixture
def translator(tiny_bundle: Bundle) -> Translator:
    return Translator(dataclasses.replace(tiny_bundle, decode=DecodeConfig(max_length_factor=0.5, beam_size=3)))


@pytest.fixture
def thirteen(tiny_lines: list[str]) -> list[str]:
    """13 different lines of 1 to 11 words, in no order of length."""
    return [tiny_lines[place] for place in (4, 21, 0, 8, 13, 2, 9, 12, 5, 1, 18, 7, 14)]


def test_i1_empty_lines_keep_their_place(tiny_bundle_folder: Path) -> None:
    options = ["--min-length", 4, "--batch-tokens", 12]
    found = rows(call("translate", tiny_bundle_folder, *options, stdin=b"\ndie cat.\n\nder owl.\n\n"))
    assert [bool(row) for row in found] == [False, True, False, True, False]
    assert found[1::2] == rows(call("translate", tiny_bundle_folder, *options, stdin=b"die cat.\nder owl.\n"))


@pytest.mark.parametrize("n_best", [1, 3])
def test_i2_lines_of_white_space_are_empty_and_the_model_is_not_called(
    tiny_bundle_folder: Path, monkeypatch: pytest.MonkeyPatch, n_best: int
) -> None:
    monkeypatch.setattr("seq2seq.models.EncoderDecoder.start", lambda *_: pytest.fail("the model was called"))
    text = " \n\t\n\u3000\n\u200b\n\n"
    found = rows(call("translate", tiny_bundle_folder, "--n-best", n_best, stdin=text.encode()))
    assert found == [""] * 5 * n_best


def test_i3_as_many_lines_out_as_wc_counts_in(tiny_bundle_folder: Path, nasty_file: Path, tmp_path: Path) -> None:
    separators = tmp_path / "separators.txt"
    separators.write_bytes("ant\u2028bee\x85cat\fdog\x1celk\x1d\x1e\u2029\vowl\rpig\n".encode() * 3)
    for source in (separators, nasty_file):
        output = tmp_path / "out.txt"
        options = ["--beam", 1, "--max-length", 8, "--max-source-length", 6000]
        assert call("translate", tiny_bundle_folder, source, "-o", output, *options).exit_code == 0
        no_last_end = not source.read_bytes().endswith(b"\n")
        assert output.read_bytes().count(b"\n") == source.read_bytes().count(b"\n") + no_last_end
        assert len(output.read_bytes().decode().split("\n")) - 1 == count_lines(source) == count_lines(output)


def test_i6_windows_line_ends_give_the_same_translations(tiny_bundle_folder: Path) -> None:
    lines = ["die cat.", "", "der owl", " ", "17 elk."]
    unix, windows = ((end.join(lines) + end).encode() for end in ("\n", "\r\n"))
    options = ["--max-length", 9, "--format", "jsonl"]
    assert rows(call("translate", tiny_bundle_folder, *options, stdin=windows)) == rows(
        call("translate", tiny_bundle_folder, *options, stdin=unix)
    )


def test_i7_utf8_in_and_out_whatever_the_locale(tiny_bundle_folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "größe.txt"
    source.write_bytes("ant!\ndas yak läuft und schläft.\n我们看见猫。\n".encode())
    options = ["--min-length", "4"]  # the random model would rather say nothing
    expected = rows(call("translate", tiny_bundle_folder, source, *options))
    assert not "".join(expected).isascii()
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "seq2seq", "translate", str(tiny_bundle_folder), *options]
    piped = subprocess.run(command, input=source.read_bytes(), capture_output=True, env=environment, check=False)
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert piped.stdout.decode().split("\n")[:-1] == expected
    output = tmp_path / "übersetzt.txt"
    filed = subprocess.run(
        [*command, str(source), "-o", str(output)], capture_output=True, env=environment, check=False
    )
    assert (filed.returncode, filed.stderr, filed.stdout) == (0, b"", b"")
    assert output.read_bytes() == piped.stdout


@pytest.mark.parametrize("batch_tokens", [1, 10, 50, 4096])
def test_i11_thirteen_lines_in_thirteen_lines_out(
    tiny_bundle_folder: Path, thirteen: list[str], batch_tokens: int
) -> None:
    text = "".join(line + "\n" for line in thirteen).encode()
    options = ["--batch-tokens", batch_tokens, "--beam", 2, "--max-length", 9, "--format", "jsonl"]
    found = [json.loads(row) for row in rows(call("translate", tiny_bundle_folder, *options, stdin=text))]
    assert [record["line"] for record in found] == list(range(1, 14))
    assert [record["source"] for record in found] == thirteen


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_i11_thirteen_lines_at_any_number_of_lines_a_batch(
    translator: Translator, thirteen: list[str], size: int
) -> None:
    greedy = dataclasses.replace(translator.bundle.decode, beam_size=1, max_length=9)
    chunks = [thirteen[start : start + size] for start in range(0, 13, size)]
    assert sum(len(translator.translate(chunk, greedy)) for chunk in chunks) == 13


def test_i12_a_line_that_is_too_long_does_not_shift_the_others(tiny_bundle_folder: Path) -> None:
    lines = ["die cat.", "der dog sieht das pig und die gnu. Der owl schläft.", "owl", "", "17 elk."]
    text = "".join(line + "\n" for line in lines).encode()
    free = rows(call("translate", tiny_bundle_folder, "--max-length", 9, stdin=text))
    for choice in ("truncate", "split"):
        options = ["--max-length", 9, "--max-source-length", 8, "--long", choice, "--batch-tokens", 9]
        result = call("translate", tiny_bundle_folder, *options, stdin=text)
        found = rows(result)
        assert len(found) == 5
        assert [found[place] for place in (0, 2, 3, 4)] == [free[place] for place in (0, 2, 3, 4)]
        assert "line 2 has" in result.stderr
        assert "1 of 5 lines were too long" in result.stderr
    options = ["--max-length", 9, "--max-source-length", 8, "--long", "error"]
    result = call("translate", tiny_bundle_folder, *options, stdin=text)
    assert result.exit_code == 1
    assert result.stdout_bytes.decode().split("\n")[:-1] == free[:1]
    assert "line 2 has" in result.stderr


def test_i12_a_line_cut_short_is_translated_as_what_is_left_of_it(translator: Translator) -> None:
    cut = dataclasses.replace(translator.bundle.decode, max_source_length=4, long_lines=LongLines.truncate)
    long, short = translator.translate(["der die das und der", "der die das"], cut, on_notice=lambda _: None)
    assert long.source_ids == short.source_ids
    assert long.ids == short.ids
    assert long.notice == "line 1 has 6 pieces, max_source_length is 4: the last 2 pieces were dropped"


def test_i13_in_a_pipe_each_answer_is_flushed_before_the_next_line_is_read(tiny_bundle_folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "seq2seq",
        "translate",
        str(tiny_bundle_folder),
        "--interactive",
        "--max-length",
        "9",
    ]
    lines = ["die cat.", "", "owl"]
    expected = rows(call("translate", *command[4:], stdin="".join(line + "\n" for line in lines).encode()))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for line, answer in zip(lines, expected, strict=True):
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], START)
            assert ready, f"no answer to {line!r} within {START} seconds"
            assert process.stdout.readline().decode() == answer + "\n"
        process.stdin.close()
        assert process.wait(START) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_i13_at_a_terminal_each_line_is_answered_without_being_asked_to(tiny_bundle_folder: Path) -> None:
    (expected,) = rows(call("translate", tiny_bundle_folder, "--max-length", 9, stdin=b"die cat.\n"))
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "seq2seq", "translate", str(tiny_bundle_folder), "--max-length", "9"]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        os.write(ours, b"die cat.\n")
        ready, _, _ = select.select([process.stdout], [], [], START)
        assert ready, f"no answer within {START} seconds"
        assert process.stdout.readline().decode() == expected + "\n"
        os.write(ours, b"\x04")
        assert process.wait(START) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(ours)
        os.close(theirs)


def test_i13_a_reader_that_goes_away_ends_it_quietly(tiny_bundle_folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "seq2seq",
        "translate",
        str(tiny_bundle_folder),
        "--beam",
        "1",
        "--max-length",
        "4",
    ]
    process = subprocess.Popen(
        [*command, "--interactive"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate(b"die cat.\n" * 20, timeout=START)
    assert (process.returncode, stderr) == (0, b"")


SIX = "Der ant läuft. Die bee schläft! Das yak sieht die gnu. Sieht der owl? Und das pig schläft. Die cat sieht."


def test_i15_a_line_of_six_sentences_is_never_cut_silently(tiny_bundle_folder: Path, translator: Translator) -> None:
    num_pieces = len(translator.bundle.source_tokenizer.encode(SIX)) + 1
    text = f"owl\n{SIX}\n".encode()
    options = ["--max-source-length", 20, "--long", "truncate", "--max-length", 9]
    for strict, code in (([], 0), (["--strict"], 1)):
        result = call("translate", tiny_bundle_folder, *options, *strict, stdin=text)
        assert result.exit_code == code
        assert result.stdout_bytes.count(b"\n") == 2
        dropped = num_pieces - 20
        assert (
            f"line 2 has {num_pieces} pieces, max_source_length is 20: the last {dropped} pieces were dropped"
            in result.stderr
        )
        assert "1 of 2 lines were too long" in result.stderr
    assert call("translate", tiny_bundle_folder, "--strict", "--max-length", 9, stdin=text).exit_code == 0


def test_i15_every_sentence_of_a_split_line_is_translated(translator: Translator) -> None:
    decode = dataclasses.replace(translator.bundle.decode, max_source_length=24, long_lines=LongLines.split)
    sentences = [
        sentence.strip() + end
        for sentence, end in zip(SIX[:-1].replace("!", ".").replace("?", ".").split("."), ".!.?..", strict=True)
    ]
    assert " ".join(sentences) == SIX
    (whole,) = translator.translate([SIX], decode, on_notice=lambda _: None)
    parts = translator.translate(sentences, decode)
    assert whole.source_ids == tuple(part.source_ids[0] for part in parts)
    assert whole.text == " ".join(part.text for part in parts if part.text)


def test_b1_translations_do_not_depend_on_the_batch(translator: Translator, thirteen: list[str]) -> None:
    alone = {line: translator.translate([line])[0] for line in thirteen}
    for order in (thirteen, sorted(thirteen, key=len)):
        for size in (2, 5, 13):
            for start in range(0, 13, size):
                for answer in translator.translate(order[start : start + size]):
                    expected = alone[answer.source]
                    assert (answer.text, answer.ids) == (expected.text, expected.ids)
                    assert answer.score == pytest.approx(expected.score, abs=EXACT)
                    assert answer.token_log_probs == pytest.approx(expected.token_log_probs, abs=EXACT)


def test_b2_a_neighbour_changes_nothing_and_scores_are_finite(translator: Translator) -> None:
    line = "der ant läuft!"
    (alone,) = translator.translate([line])
    for neighbour in ("und " * 30, "", "owl", line):
        answer, _ = translator.translate([line, neighbour])
        assert answer.ids == alone.ids
        assert answer.score == pytest.approx(alone.score, abs=EXACT)
        assert answer.score > float("-inf")
        scored, _ = translator.score([line, neighbour], ["die bee", ""])
        assert scored.log_prob == pytest.approx(translator.score([line], ["die bee"])[0].log_prob, abs=EXACT)


@pytest.mark.parametrize("options", [[], ["--long", "split", "--max-source-length", 9]], ids=["whole", "split"])
def test_s4_score_gives_the_log_probability_that_translate_has_printed(
    tiny_bundle_folder: Path, tmp_path: Path, thirteen: list[str], options: list[object]
) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    write_lines(source, [*thirteen[:6], "", "owl", "die cat."])
    made = call("translate", tiny_bundle_folder, source, "-o", output, "--format", "jsonl", "--n-best", 3, *options)
    assert made.exit_code == 0
    records = [json.loads(line) for line in read_lines(output)]
    expected = [candidate for record in records for candidate in record["translations"]]
    assert {candidate["hit_limit"] for candidate in expected} == {True, False}
    assert any(len(record["source_ids"]) > 1 for record in records) is bool(options)
    scored = [
        json.loads(row)
        for row in rows(call("score", tiny_bundle_folder, "--jsonl", output, "--format", "jsonl", "--per-token"))
    ]
    for found, candidate in zip(scored, expected, strict=True):
        assert (found["text"], found["ids"], found["tokens"]) == (
            candidate["text"],
            candidate["ids"],
            candidate["tokens"],
        )
        assert found["log_prob"] == pytest.approx(candidate["log_prob"], abs=1e-4)  # float32
        assert found["score"] == pytest.approx(candidate["score"], abs=1e-4)


def test_s4_text_that_is_split_as_search_found_it_scores_the_same(translator: Translator, thirteen: list[str]) -> None:
    tokenizer = translator.bundle.target_tokenizer
    answers = [
        (answer.source, candidate)
        for answer in translator.translate(thirteen, dataclasses.replace(translator.bundle.decode, n_best=3))
        for candidate in answer.candidates
        if [*tokenizer.encode(candidate.text), tokenizer.special.eos] == list(candidate.ids)
    ]
    assert answers
    pairs = translator.score([source for source, _ in answers], [candidate.text for _, candidate in answers])
    for pair, (_, candidate) in zip(pairs, answers, strict=True):
        assert pair.log_prob == pytest.approx(candidate.log_prob, abs=EXACT)
        assert pair.score == pytest.approx(candidate.score, abs=EXACT)


def test_s6_prefixes_of_some_lines_are_treated_as_if_each_line_were_alone(translator: Translator) -> None:
    lines = ["der ant läuft!", "die cat.", "17 elk sieht und das yak schläft?", "owl"]
    prefixes = ["die bee", "", "das 3 hen owl", ""]
    decode = dataclasses.replace(translator.bundle.decode, n_best=3)
    asked = [Request(line, prefix=prefix) for line, prefix in zip(lines, prefixes, strict=True)]
    together = translator.translate(asked, decode)
    for answer, line, prefix in zip(together, asked, prefixes, strict=True):
        (alone,) = translator.translate([line], decode)
        assert [candidate.ids for candidate in answer.candidates] == [candidate.ids for candidate in alone.candidates]
        ids = translator.bundle.target_tokenizer.encode(prefix)
        for candidate, other in zip(answer.candidates, alone.candidates, strict=True):
            assert list(candidate.ids[: len(ids)]) == ids
            assert candidate.score == pytest.approx(other.score, abs=EXACT)


def test_v8_another_tokenizer_is_refused_before_decoding(
    tiny_bundle_folder: Path, tiny_lines: list[str], tmp_path: Path
) -> None:
    own = load_bundle(tiny_bundle_folder).source_tokenizer
    for vocab_size in (61, 62):
        changed = [*tiny_lines, *(["neue Wörter mit x, y und z"] * (vocab_size - 60))]
        other, _ = train_tokenizer(changed, TokenizerConfig(vocab_size=vocab_size, byte_fallback=False))
        folder = tmp_path / str(vocab_size)
        shutil.copytree(tiny_bundle_folder, folder)
        (folder / "source.spm").write_bytes(other.model)
        result = call("translate", folder, stdin=b"owl\n")
        assert (result.exit_code, result.stdout_bytes) == (1, b"")
        assert f"it has {vocab_size} pieces and SHA-256 {other.sha256[:12]}" in result.stderr
        assert f"expected 61 pieces and {own.sha256[:12]}" in result.stderr


def test_v9_training_evaluate_and_sacrebleu_on_the_raw_files_give_one_number(
    tiny_bundle_folder: Path, thirteen: list[str], tmp_path: Path
) -> None:
    from seq2seq.training.validation import RawText, ValidationBleu

    folder = tmp_path / "bundle"
    bundle = dataclasses.replace(
        load_bundle(tiny_bundle_folder),
        languages=("de", "zh"),
        decode=DecodeConfig(beam_size=1, min_length=4, max_length=25),
    )
    save_bundle(bundle, folder)
    source, reference, output = tmp_path / "s.txt", tmp_path / "r.txt", tmp_path / "o.txt"
    lines = thirteen[:5]
    assert call("translate", folder, write(source, lines), "-o", output).exit_code == 0
    hypotheses = read_lines(output)
    references = [f"{line} \U0001f600 \u4f60" for line in hypotheses]  # an emoji is outside the vocabulary
    write(reference, references)
    report = json.loads(
        "".join(rows(call("evaluate", folder, "--source", source, "--reference", reference, "--format", "json")))
    )
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh").score
    assert 0 < expected < 100
    assert report["scores"]["bleu"]["score"] == pytest.approx(expected, abs=1e-4)
    validation = ValidationBleu(
        Translator(bundle), RawText(lines, references), bundle.decode, "zh", 0, tmp_path / "samples.jsonl"
    )
    validation.on_validation_epoch_end(_fake("Trainer"), _fake("LightningModule"))
    assert validation.last_bleu == pytest.approx(expected, abs=1e-4)


def write(path: Path, lines: list[str]) -> Path:
    write_lines(path, lines)
    return path


def _fake(name: str) -> Any:
    import pytorch_lightning

    return MagicMock(spec=getattr(pytorch_lightning, name), loggers=[], global_step=1)
