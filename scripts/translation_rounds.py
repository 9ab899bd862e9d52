"""Rounds of translating: which engines there are, in which modes, and what is compared with what."""

import argparse
import importlib.util
import shlex
import shutil
import subprocess
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import measuring
import translation_engines as engines
from translation_engines import Search

WARMUP_LINES = 4
BATCHES_ALONE = ("hugging_face", "_workers")
"""Ends of the names of engines that are not measured line by line."""
PEERS = {"ctranslate2": "ctranslate2", "hugging_face": "transformers"}
"""Peers, and the packages that they are."""


@dataclass(frozen=True)
class Ratio:
    """Our figure over another's."""

    name: str
    mode: str
    other: str
    engine: str = "ours"
    other_mode: str | None = None

    @property
    def figure(self) -> str:
        """What is compared."""
        return "milliseconds_per_sentence" if self.mode.startswith("single") else "sentences_per_second"


class Plan:
    """Who translates what.

    Args:
        args: The options.
        lines: Source text.
        folder: Where converted models go.
    """

    def __init__(self, args: argparse.Namespace, lines: list[str], folder: Path) -> None:
        self.args, self.lines, self.folder = args, lines, folder
        self.beam = f"beam{args.beam_size}"
        self.wanted: dict[str, engines.Wanted] = {}
        self.missing: dict[str, str] = {}
        self.searches = {
            f"{how}_{name}": Search(beam_size, args.max_length, how == "single", own_rule)
            for how in ("batch", "single")
            for name, beam_size, own_rule in (
                (self.beam, args.beam_size, False),
                (f"{self.beam}_own_stop", args.beam_size, True),
                ("greedy", 1, False),
            )
        }
        self._choose()

    def _choose(self) -> None:
        """Find out which engines can be had."""
        args = self.args
        modules = engines.Ours(args.model, args.threads, args.device, args.batch_tokens)
        ours = replace(modules, compiled=backend_of(args.model) == "aoti")
        self.wanted["ours"] = ours
        if ours.compiled:
            self.wanted["modules"] = modules
        else:
            self.missing["modules"] = "they are what is measured as ours; give a bundle with compiled code"
        if (Path(args.model) / "shortlist.safetensors").exists():
            self.wanted["shortlist"] = replace(ours, shortlist=True)
        else:
            self.missing["shortlist"] = "the bundle has no shortlist; make one with seq2seq data shortlist"
        try:
            check_int8(args.device)
        except ValueError as error:
            self.missing["int8"] = str(error)
        else:
            self.wanted["int8"] = replace(modules, compute="int8")
        self._choose_ctranslate2()
        if self._has("hugging_face", "hugging_face"):
            folder = args.hugging_face or self._converted("hugging_face", None)
            if folder is not None:
                self.wanted["hugging_face"] = engines.HuggingFace(folder, args.threads, args.peer_batch)

    def _choose_ctranslate2(self) -> None:
        """CTranslate2 by itself in two precisions, and in one of them by way of this package."""
        args = self.args
        for name, kind in (("ctranslate2", "float32"), ("ctranslate2_int8", "int8")):
            folder = self._converted(name, kind) if self._has(name, "ctranslate2") else None
            if folder is not None:
                self.wanted[name] = engines.CTranslate2(folder, args.threads, kind, args.peer_batch)
                self.wanted[f"{name}_workers"] = replace(self.wanted[name], workers=True)
        if "ctranslate2_int8" in self.missing:
            self.missing["backend_int8"] = self.missing["ctranslate2_int8"]
            return
        # a copy, as conversions are kept beside the bundle
        bundle = shutil.copytree(args.model, self.folder / "bundle", ignore=shutil.ignore_patterns("ctranslate2"))
        self.wanted["backend_int8"] = engines.Backend(str(bundle), args.threads)

    def _has(self, name: str, peer: str) -> bool:
        """Whether an engine is to be measured and can be; if not, the reason is noted."""
        package = PEERS[peer]
        if peer not in self.args.peers:
            self.missing[name] = f"--peers does not name {peer}"
        elif importlib.util.find_spec(package) is None:
            self.missing[name] = f"the package {package} is not installed"
        elif self.args.device != "cpu":
            self.missing[name] = "peers are measured on the CPU; give --device cpu"
        return name not in self.missing

    def _converted(self, name: str, kind: str | None) -> str | None:
        """The folder of a peer's model, made of the bundle; None if there cannot be one, with the reason noted."""
        folder = str(self.folder / name)
        try:
            measuring.in_fresh_process(convert, self.args.model, folder, kind)
        except ValueError as error:
            self.missing[name] = str(error)
            return None
        return folder

    def ratios(self) -> list[Ratio]:
        """What is compared with what."""
        beam = self.beam
        found = [
            Ratio(f"ratio_{how}_{name}", f"{how}_{name}", "ctranslate2", other_mode=f"{how}_{other}")
            for how in ("batch", "single")
            for name, other in ((beam, beam), ("greedy", "greedy"), (f"{beam}_own_stop", beam))
        ]
        found += [
            Ratio(f"ratio_modules_{how}_{name}", f"{how}_{name}", "ctranslate2", engine="modules")
            for how in ("batch", "single")
            for name in (beam, "greedy")
        ]
        for name, backend in ((beam, "ratio_backend_int8"), ("greedy", "ratio_backend_int8_greedy")):
            found += [
                Ratio(backend, f"batch_{name}", "ctranslate2_int8", engine="backend_int8"),
                Ratio(f"{backend}_workers", f"batch_{name}", "ctranslate2_int8_workers", engine="backend_int8"),
                Ratio(f"ratio_workers_{name}", f"batch_{name}", "ctranslate2_workers"),
                Ratio(f"ratio_shortlist_{name}", f"batch_{name}", "ctranslate2", engine="shortlist"),
                Ratio(f"ratio_int8_{name}", f"batch_{name}", "ctranslate2", engine="int8"),
                Ratio(f"ratio_hugging_face_{name}", f"batch_{name}", "hugging_face"),
            ]
        peers = dict.fromkeys(["joeynmt", *(name for name, _ in self.args.peer_command)])
        return [*found, *(Ratio(f"ratio_{name}_{beam}", f"batch_{beam}", name) for name in peers)]

    def modes_of(self, engine: str) -> list[str]:
        """The modes in which an engine is measured."""
        if engine == "ours":
            return list(self.searches)
        return [
            mode
            for mode in self.searches
            if "own_stop" not in mode and not (engine.endswith(BATCHES_ALONE) and mode.startswith("single"))
        ]

    def lines_of(self, mode: str) -> list[str]:
        """What is translated in a mode."""
        return self.lines[: self.args.one_by_one] if mode.startswith("single") else self.lines


def backend_of(bundle: str) -> str:
    """What is measured as ours, in the words of `--backend`: the bundle's compiled code, if it has any."""
    from seq2seq.translator.compiled_package import is_compiled

    return "aoti" if is_compiled(bundle) else "torch"


def check_int8(device: str) -> None:
    """Refuse a machine on which this package does not compute with 8-bit integers.

    Raises:
        ValueError: saying why.
    """
    from seq2seq.config import Compute
    from seq2seq.models.quantized import check_machine

    if device != "cpu":
        raise ValueError("compute=int8 is for CPUs; give --device cpu")
    check_machine(Compute.int8)


def convert(bundle: str, folder: str, kind: str | None) -> None:
    """Write a bundle for CTranslate2 in some precision, or, without one, for Hugging Face.

    Raises:
        ValueError: if that program has no such model.
    """
    from seq2seq.bundle import load_bundle
    from seq2seq.config import Architecture

    loaded = load_bundle(bundle)
    if loaded.model_config.architecture is not Architecture.encoder_decoder:
        raise ValueError("only encoder-decoders are compared with other programs here")
    if kind is None:
        from seq2seq.interop import export_hugging_face

        export_hugging_face(loaded, folder)
        return
    from seq2seq.interop.ctranslate2 import export_ctranslate2

    export_ctranslate2(loaded, folder, kind)
    if not (Path(folder) / "source.spm").exists():
        raise ValueError("the tokenizer is not SentencePiece's, which is what CTranslate2 is driven with here")


@dataclass
class Round:
    """What one round found, by engine."""

    startup: dict[str, float]
    figures: dict[str, dict[str, dict[str, float]]]
    texts: dict[str, dict[str, list[str]]]
    device: str = ""


def one_round(plan: Plan, backwards: bool) -> Round:
    """All engines in turn, in each mode; backwards in every other round, so that none always comes after the same."""
    found = Round({}, defaultdict(dict), defaultdict(dict))
    order = list(plan.wanted)[:: -1 if backwards else 1]
    with ExitStack() as stack:
        workers = {}
        for name in order:
            workers[name] = stack.enter_context(measuring.Worker())
            found.startup[name], device = workers[name].call(engines.load, plan.wanted[name], time.time())
            if name == "ours":
                found.device = device
        for mode, search in plan.searches.items():
            for name in order:
                if mode in plan.modes_of(name):
                    timed = workers[name].call(
                        engines.translate, plan.wanted[name], plan.lines_of(mode), search, WARMUP_LINES
                    )
                    found.figures[name][mode], found.texts[name][mode] = timed.figures, timed.texts
    for name, command in plan.args.peer_command:
        mode = f"batch_{plan.beam}"
        found.figures[name][mode], found.texts[name][mode] = by_command(name, command, plan.lines)
    return found


def by_command(name: str, command: str, lines: list[str]) -> tuple[dict[str, float], list[str]]:
    """What a program translates, and how fast, not counting what it takes for the first line.

    Raises:
        ValueError: if it fails, or gives more or fewer lines.
    """
    took = []
    for some in (lines[:1], lines):
        started = time.perf_counter(), measuring.children_cpu_seconds()
        done = subprocess.run(
            shlex.split(command), input="\n".join(some) + "\n", capture_output=True, encoding="utf-8", check=False
        )
        ended = time.perf_counter(), measuring.children_cpu_seconds()
        texts = done.stdout.splitlines()
        if done.returncode != 0 or len(texts) != len(some):
            raise ValueError(
                f"--peer-command {name} gave {len(texts)} lines for {len(some)} and ended with {done.returncode}: "
                f"{done.stderr.strip()[-300:]}"
            )
        took.append((ended[0] - started[0], ended[1] - started[1]))
    seconds = max(took[1][0] - took[0][0], 1e-9)
    number = max(len(lines) - 1, 1)
    figures = {
        "sentences_per_second": number / seconds,
        "milliseconds_per_sentence": 1000 * seconds / number,
        "cpu_seconds": took[1][1] - took[0][1],
        "first_line_seconds": took[0][0],
    }
    return figures, texts
