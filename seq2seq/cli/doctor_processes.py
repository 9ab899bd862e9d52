"""The translations of two processes, which must be those of one."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from seq2seq.search.agreement import Answer, Answers, NotApplicableError
from seq2seq.text.lines import write_lines

if TYPE_CHECKING:
    from seq2seq.bundle import Bundle
    from seq2seq.config import DecodeConfig


def two_processes(bundle: "Bundle", path: str, lines: Sequence[str], decode: "DecodeConfig") -> Answers:
    """What `seq2seq translate --devices 2` finds, and what one process does with the same batches.

    Args:
        bundle: As it is in this process.
        path: Where it was read from.
        lines: Source text.
        decode: Search options; but for the beam they are the bundle's own.

    Raises:
        ValueError: if the other processes fail, with what they say.
    """
    import torch

    from seq2seq.translator import Translator

    translator = Translator(bundle)
    device = translator.device.type
    if device == "cuda" and torch.cuda.device_count() < 2:
        raise NotApplicableError("there is one GPU, and two processes take two")
    if device == "mps":
        raise NotApplicableError("there is one GPU of kind mps, and two processes take two")
    with TemporaryDirectory(prefix="seq2seq-") as folder:
        file = Path(folder) / "lines.txt"
        # small batches, so that each process gets some; what ends a file must not end the line
        write_lines(file, lines)
        batch_tokens = max(1, sum(len(bundle.source_tokenizer.encode(line)) + 1 for line in lines) // 4)
        command = [sys.executable, "-m", "seq2seq", "translate", path, str(file), "--devices", "2"]
        command += ["--format", "jsonl", "--n-best", "1", "--beam-size", str(decode.beam_size), "--long", "truncate"]
        command += ["--device", device, "--threads", str(2 * torch.get_num_threads())]
        command += ["--batch-tokens", str(batch_tokens)]
        done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"two processes could not translate: {done.stderr.decode(errors='replace').strip()}")
    rows = [json.loads(row)["translations"][0] for row in done.stdout.decode().split("\n")[:-1]]
    own = translator.translate(lines, _small(decode, batch_tokens), on_notice=lambda notice: None)
    return (
        [Answer(line, one.text, one.score) for line, one in enumerate(own, start=1)],
        [Answer(line, row["text"], row["score"]) for line, row in enumerate(rows, start=1)],
    )


def _small(decode: "DecodeConfig", batch_tokens: int) -> "DecodeConfig":
    from dataclasses import replace

    return replace(decode, batch_tokens=batch_tokens)
