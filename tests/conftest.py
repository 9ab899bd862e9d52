"""Texts that bite, and small corpora. Tests run two at a time on two cores, so torch gets one thread each."""

import copy
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start, too

import pytest
import torch

from seq2seq.bundle import Bundle, save_bundle
from seq2seq.config import ModelConfig, TokenizerConfig, Tying
from seq2seq.models import build_model
from seq2seq.text.tokenizer_training import train_tokenizer

torch.set_num_threads(1)

# each on a line of its own; together they hold everything that line readers are known to stumble over
_NASTY = [
    "",
    " ",
    "\t",
    "\u3000",
    "\u00a0",
    "\u200b",
    "a lone\rcarriage return",
    "line\u2028separator",
    "paragraph\u2029separator",
    "next\u0085line",
    "vertical\vtab",
    "form\ffeed",
    "file\x1cgroup\x1drecord\x1eseparators",
    "nul\0inside",
    '"',
    "NA",
    "null",
    "nan",
    "</s> and <unk> and <pad>",
    "family 👨‍👩‍👧‍👦 and flag 🏳️‍🌈",
    "caf\u00e9",
    "cafe\u0301",
    "שלום עולם مرحبا",
    "x" * 5000,
    "." * 400,
    "no newline at the end",
]


@dataclass(frozen=True)
class NastyText:
    """A file's bytes and the lines that the package must read from them."""

    content: bytes
    lines: list[str]


@pytest.fixture
def nasty_text() -> NastyText:
    """All nasty lines in one file: a BOM first, one line ended by CRLF, none at the end."""
    lines = ["byte-order mark first", *_NASTY[:6], "ended by CRLF", *_NASTY[6:]]
    content = "\ufeff" + "\n".join(lines).replace("ended by CRLF", "ended by CRLF\r")
    return NastyText(content.encode(), lines)


@pytest.fixture
def nasty_file(nasty_text: NastyText, tmp_path: Path) -> Path:
    """The nasty text as a file."""
    path = tmp_path / "nasty.txt"
    path.write_bytes(nasty_text.content)
    return path


@pytest.fixture
def uneven_pairs() -> list[tuple[str, str]]:
    """13 pairs of 1 to 30 words, so that no batch of 2, 3, 4 or 8 comes out even."""
    lengths = [1, 30, 2, 17, 5, 3, 23, 8, 1, 11, 4, 14, 6]
    return [
        (
            " ".join(f"wort{(7 * row + place) % 19}" for place in range(length)),
            " ".join(f"word{(7 * row + place) % 19}" for place in range(max(1, length - row % 3))),
        )
        for row, length in enumerate(lengths)
    ]


@pytest.fixture
def uneven_corpus(uneven_pairs: list[tuple[str, str]], tmp_path: Path) -> tuple[Path, Path]:
    """The uneven pairs as two files, source and target."""
    paths = tmp_path / "uneven.src", tmp_path / "uneven.tgt"
    for side, path in enumerate(paths):
        path.write_text("".join(pair[side] + "\n" for pair in uneven_pairs), encoding="utf-8", newline="\n")
    return paths


@pytest.fixture
def copy_corpus(tmp_path: Path) -> tuple[Path, Path]:
    """200 lines of 1 to 6 of eight words, and the same again: a tiny model learns to copy them in seconds."""
    words = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]
    lines = [
        " ".join(words[(row * row + row // 8 + 3 * place) % 8] for place in range(1 + row % 6)) for row in range(200)
    ]
    paths = tmp_path / "copy.src", tmp_path / "copy.tgt"
    for path in paths:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return paths


@pytest.fixture(scope="session")
def tiny_lines() -> list[str]:
    """200 lines of 1 to 11 words with sentence-final punctuation, and three of Chinese."""
    words = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "owl", "pig", "ram", "yak"]
    words += ["läuft", "schläft", "sieht", "und", "der", "die", "das", "3", "17"]
    lines = [
        " ".join(words[(row * row + 5 * place + row // 7) % 21] for place in range(1 + row % 11)) + ".!?。"[row % 4]
        for row in range(200)
    ]
    return [*lines, *["我们看见猫。你好！"] * 3]


@pytest.fixture(scope="session")
def tiny_bundle(tiny_lines: list[str]) -> Bundle:
    """A random model in float64, scaled so that some of its translations end early and others reach their limit.

    The vocabulary of 61 pieces is rounded up to 64 rows. Shared by all tests: leave it as it is.
    """
    tokenizer, _ = train_tokenizer(tiny_lines, TokenizerConfig(vocab_size=61, byte_fallback=False))
    config = ModelConfig(16, 2, 24, 2, 2, tying=Tying.none, vocab_multiple=8)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).double().eval()
        model.output.mul_(2)
        model.output[tokenizer.special.eos].mul_(3)
        for weight in model.decoder.layers.parameters():
            if weight.dim() > 1:
                weight.mul_(1.5)
    return Bundle(model, config, tokenizer, tokenizer, languages=("de", "en"))


@pytest.fixture(scope="session")
def tiny_bundle_folder(tiny_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model on disk, in float32."""
    folder = tmp_path_factory.mktemp("tiny") / "bundle"
    model = copy.deepcopy(tiny_bundle.model).float()
    save_bundle(dataclasses.replace(tiny_bundle, model=model), folder)
    return folder
