"""Cases I3, I5, I6, I7 and I8 as far as no model is needed: lines of text, from files to ids."""

import io
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.corpus.parallel import fingerprint, read_parallel
from seq2seq.text.lines import count_lines, read_lines, write_lines
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer

SEPARATORS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"]
"""What str.splitlines takes for line ends, LF aside."""


def corpus(num_lines: int, letters: str = "abdefghiklmnoprstuäöüß", seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    words = ["".join(draw.choices(letters, k=draw.randint(2, 6))) for _ in range(80)]
    return [" ".join(draw.choices(words, k=draw.randint(2, 8))) + f" {n}." for n in range(num_lines)]


def write(path: Path, lines: list[str], end: str = "\n", last_end: bool = True) -> Path:
    text = end.join(lines) + (end if last_end else "")
    path.write_bytes(text.encode())
    return path


def wc(path: Path) -> int:
    return int(subprocess.run(["wc", "-l", path], capture_output=True, check=True).stdout.split()[0])


def test_i3_as_many_lines_as_wc_counts_for_data_loading_and_tokenizer_training(tmp_path):
    lines = [f"{line}{separator}tail" for line in corpus(60) for separator in SEPARATORS]
    source, target = write(tmp_path / "s", lines), write(tmp_path / "t", lines)
    assert len("\n".join(lines).splitlines()) > len(lines)  # the fault that this case is about
    assert wc(source) == count_lines(source) == len(read_lines(source)) == len(lines)
    assert read_parallel(source, target).source == lines
    assert read_parallel(source, target).num_lines == wc(source)
    _, report = train_tokenizer(read_lines(source), TokenizerConfig(vocab_size=350))
    assert (report.num_lines, report.num_used) == (wc(source), wc(source))
    assert fingerprint([source])[str(source)]["lines"] == wc(source)


def test_i3_separators_stay_inside_the_text_on_the_way_back_to_a_file(tmp_path):
    lines = [f"a{separator}b" for separator in SEPARATORS]
    write_lines(tmp_path / "out", lines)
    assert wc(tmp_path / "out") == len(lines)
    assert read_lines(tmp_path / "out") == lines


def test_i5_unequal_files_are_refused_naming_the_place(tmp_path):
    lines = corpus(10)
    source, target = write(tmp_path / "ten.src", lines), write(tmp_path / "nine.trg", lines[:4] + lines[5:])
    with pytest.raises(ValueError, match=r"ten\.src has 10 lines but .*nine\.trg has 9; expected the same") as told:
        read_parallel(source, target)
    assert "first look shifted near line 5" in str(told.value)


def test_i5_a_missing_last_line_feed_takes_no_line_away_and_adds_none(tmp_path):
    lines = corpus(9)
    source = write(tmp_path / "s", lines)
    target = write(tmp_path / "t", lines, last_end=False)
    assert read_parallel(source, target).num_lines == 9
    ten = write(tmp_path / "ten", [*lines, "one more"])
    with pytest.raises(ValueError, match=r"ten has 10 lines but .*t has 9; .*look parallel up to line 9"):
        read_parallel(ten, target)


def test_i5_the_place_is_named_within_a_few_lines_in_a_longer_text(tmp_path):
    lines = corpus(500)
    source, target = write(tmp_path / "s", lines[:56] + lines[57:]), write(tmp_path / "t", lines)
    with pytest.raises(ValueError, match=r"first look shifted near line 5[678], where .*t seems to have a line too m"):
        read_parallel(source, target)


def test_i6_windows_line_ends_change_nothing(tmp_path):
    lines = [*corpus(300), "", "last"]
    unix = write(tmp_path / "unix", lines), write(tmp_path / "unix.t", lines)
    windows = write(tmp_path / "windows", lines, "\r\n"), write(tmp_path / "windows.t", lines, "\r\n", last_end=False)
    assert read_parallel(*unix) == read_parallel(*windows)
    config = TokenizerConfig(vocab_size=350)
    from_unix, _ = train_tokenizer(read_lines(unix[0]), config)
    from_windows, _ = train_tokenizer(read_lines(windows[0]), config)
    assert from_unix.model == from_windows.model
    assert all("\r" not in piece for piece in from_windows.pieces(range(350)))


LOCALE_SCRIPT = """
import locale, sys
assert not sys.flags.utf8_mode
assert locale.getpreferredencoding(False).lower() not in ("utf-8", "utf8"), locale.getpreferredencoding(False)
from seq2seq.config import TokenizerConfig
from seq2seq.corpus.parallel import read_parallel
from seq2seq.text.lines import read_lines, write_bytes, write_lines
from seq2seq.text.tokenizer_training import train_tokenizer
lines = read_parallel("train.de", "train.zh").source
tokenizer, _ = train_tokenizer(lines + read_lines("train.zh"), TokenizerConfig(vocab_size=400))
write_bytes("trained.model", tokenizer.model)
write_lines("again.de", [tokenizer.decode(tokenizer.encode(line)) for line in lines])
write_lines("vocabulary", tokenizer.export_vocabulary())
"""


def test_i7_text_is_utf8_whatever_the_locale(tmp_path):
    write(tmp_path / "train.de", corpus(200))
    write(tmp_path / "train.zh", corpus(200, letters="我你他们是在有大学中国人山水火", seed=2))
    environment = {**os.environ, "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, "-W", "error", "-c", LOCALE_SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "again.de").read_bytes() == (tmp_path / "train.de").read_bytes()
    here, _ = train_tokenizer(corpus(200) + read_lines(tmp_path / "train.zh"), TokenizerConfig(vocab_size=400))
    assert (tmp_path / "trained.model").read_bytes() == here.model
    assert read_lines(tmp_path / "vocabulary") == list(here.export_vocabulary())


def awkward_tokenizer() -> SentencePieceTokenizer:
    """A tokenizer some of whose pieces contain tab, CR, U+2028 and the like (its text is not normalised)."""
    awkward = ["\t", "\r", "\u2028", "\x85", "\x0c", "\xa0", "\\"]
    text = [f"{line}{character}{line}" for line in corpus(40) for character in awkward]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, vocab_size=350, pad_id=0, bos_id=1, eos_id=2, unk_id=3,
        byte_fallback=True, normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    return SentencePieceTokenizer.from_bytes(model.getvalue())


def test_i8_the_exported_vocabulary_has_whole_lines_whatever_the_pieces_contain(tmp_path):
    tokenizer = awkward_tokenizer()
    pieces = tokenizer.pieces(range(350))
    assert {character for character in "\t\r\u2028\x85\x0c" if any(character in piece for piece in pieces)} >= set(
        "\r\u2028\x0c"
    )
    write_lines(tmp_path / "vocabulary", tokenizer.export_vocabulary())
    text = (tmp_path / "vocabulary").read_bytes().decode()
    rows = [line.split("\t") for line in text.splitlines()]
    assert wc(tmp_path / "vocabulary") == len(rows) == 350
    assert all(len(row) == 3 and int(row[0]) == number for number, row in enumerate(rows))
    unescaped = [row[1].encode("latin-1", "backslashreplace").decode("unicode_escape") for row in rows]
    assert unescaped == pieces


def test_i8_ids_come_from_the_model_and_blank_lines_do_no_harm(tmp_path):
    tokenizer = awkward_tokenizer()
    (tmp_path / "t.model").write_bytes(tokenizer.model)
    (tmp_path / "t.vocab").write_text("nonsense\n\n", encoding="utf-8")
    (tmp_path / "t.vocab.txt").write_text("nonsense\n\n", encoding="utf-8")
    lines = ["a\tb", "c\rd", "e\u2028f", "", " "]
    assert SentencePieceTokenizer.load(tmp_path / "t.model").encode_batch(lines) == tokenizer.encode_batch(lines)
    for line in lines[:3]:
        assert tokenizer.decode(tokenizer.encode(line)) == line


@pytest.mark.parametrize("kind", TokenizerKind)
def test_i8_training_on_awkward_and_blank_lines_works(kind):
    lines = [line for text in corpus(60) for line in (text + "\ttab", text + "\rcr", text + "\u2028x", "", text + "\0")]
    tokenizer, report = train_tokenizer(lines, TokenizerConfig(kind=kind, vocab_size=330))
    assert (report.num_lines, report.num_blank, report.num_used) == (300, 60, 240)
    assert len(tokenizer.encode_batch(lines)) == 300
