"""What translates in a benchmark: this package and its peers, each loaded once in a process of its own.

Every engine is given text and gives text back, so the time of its tokenizer counts. All of them search alike: scores
are log-probabilities over length, a translation has up to `most_pieces` pieces, and a sentence is done when as many
hypotheses have ended as the beam is wide.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import measuring

if TYPE_CHECKING:
    from seq2seq.config import DecodeConfig


@dataclass(frozen=True)
class Search:
    """How lines are translated."""

    beam_size: int
    most_pieces: int
    alone: bool = False
    """One line at a time."""
    own_rule: bool = False
    """By the model's own options but for the size of the beam: this package goes on until nothing better can come."""


@dataclass(frozen=True)
class Answer:
    """A translation, and how many pieces it has, EOS included."""

    text: str
    num_tokens: int


class Engine(Protocol):
    """Something that translates."""

    device: str

    def translate(self, lines: Sequence[str], search: Search) -> list[Answer]:
        """One answer for each line."""
        ...


@dataclass(frozen=True)
class Ours:
    """This package's own engine.

    With all pieces or those of the bundle's shortlist; in float32 or other numbers; by compiled code or by modules.
    """

    bundle: str
    threads: int
    device: str = "cpu"
    batch_tokens: int | None = None
    shortlist: bool = False
    compute: str = "float32"
    compiled: bool = False

    def load(self) -> Engine:
        import torch

        from seq2seq.config import Compute
        from seq2seq.translator import Translator

        torch.set_num_threads(self.threads)
        compute = Compute[self.compute]
        # scores are wanted of no engine
        translator = Translator.load(self.bundle, self.device, compute=compute, compiled=self.compiled, details=False)
        return _Own(translator, self)


@dataclass(frozen=True)
class Backend:
    """CTranslate2 by way of this package, as `seq2seq translate --backend ctranslate2` does it."""

    bundle: str
    threads: int
    compute: str = "int8"

    def load(self) -> Engine:
        return _Backend(self)


@dataclass(frozen=True)
class CTranslate2:
    """CTranslate2, driven directly, on a folder that `seq2seq convert --to ctranslate2` writes."""

    folder: str
    threads: int
    compute_type: str = "float32"
    batch_lines: int = 64
    workers: bool = False
    """Whether each thread translates batches of its own; otherwise all work on one."""

    def load(self) -> Engine:
        return _Driven(self)


@dataclass(frozen=True)
class HuggingFace:
    """`generate` of the package transformers on a Hugging Face folder."""

    folder: str
    threads: int
    batch_lines: int = 64

    def load(self) -> Engine:
        return _Generate(self)


class _Own:
    """This package's translator."""

    def __init__(self, translator: Any, wanted: Ours) -> None:
        self.translator, self.wanted = translator, wanted
        self.device = str(translator.device)

    def translate(self, lines: Sequence[str], search: Search) -> list[Answer]:
        decode = self.options(search)
        jobs = [[line] for line in lines] if search.alone else [list(lines)]
        found = [answer for job in jobs for answer in self.translator.translate(job, decode)]
        return [Answer(answer.text, len(answer.ids)) for answer in found]

    def options(self, search: Search) -> "DecodeConfig":
        """What is wanted, in the options of this package."""
        own = self.translator.bundle.decode
        tokens = self.wanted.batch_tokens or own.batch_tokens
        if search.own_rule:
            return replace(own, beam_size=search.beam_size, n_best=1, batch_tokens=tokens)
        return replace(our_options(search), batch_tokens=tokens, shortlist=self.wanted.shortlist)


def our_options(search: Search) -> "DecodeConfig":
    """The search that all engines have in common, in the options of this package."""
    from seq2seq.config import DecodeConfig, PenaltyForm

    return DecodeConfig(
        beam_size=search.beam_size,
        penalty_form=PenaltyForm.power,
        length_penalty=1.0,
        patience=1.0 if search.beam_size > 1 else None,
        min_length=2,  # one piece and EOS, as others have it
        max_length=search.most_pieces,
        max_length_factor=float(search.most_pieces),
    )


class _Backend:
    """CTranslate2 by way of this package; for single lines it is set up otherwise."""

    device = "cpu"

    def __init__(self, wanted: Backend) -> None:
        self.wanted = wanted
        self.engines = {False: self._engine(alone=False)}

    def _engine(self, alone: bool) -> Any:
        from seq2seq.translator.ctranslate2_engine import CTranslate2Engine

        return CTranslate2Engine.load(
            self.wanted.bundle,
            our_options(Search(1, 2)),
            compute=self.wanted.compute,
            device="cpu",
            threads=self.wanted.threads,
            one_by_one=alone,
            details=False,
        )

    def translate(self, lines: Sequence[str], search: Search) -> list[Answer]:
        if search.alone not in self.engines:
            self.engines[search.alone] = self._engine(search.alone)
        # with a beam it refuses another minimum, which would divide the probability of ending at once among the rest
        engine, decode = self.engines[search.alone], replace(our_options(search), min_length=1)
        jobs = [[line] for line in lines] if search.alone else [list(lines)]
        return [Answer(found.text, len(found.ids)) for job in jobs for found in engine.translate(job, decode)]


class _Driven:
    """CTranslate2's own interface; it puts the longest lines together by itself, and adds the EOS of the source."""

    def __init__(self, wanted: CTranslate2) -> None:
        import ctranslate2
        import sentencepiece

        self.device, self.batch_lines = "cpu", wanted.batch_lines
        self.engine = ctranslate2.Translator(
            wanted.folder,
            device="cpu",
            compute_type=wanted.compute_type,
            inter_threads=wanted.threads if wanted.workers else 1,
            intra_threads=1 if wanted.workers else wanted.threads,
        )
        self.source, self.target = (
            sentencepiece.SentencePieceProcessor(model_file=str(Path(wanted.folder) / f"{side}.spm"))
            for side in ("source", "target")
        )

    def translate(self, lines: Sequence[str], search: Search) -> list[Answer]:
        pieces = self.source.encode(list(lines), out_type=str)
        answers = []
        for group in [[line] for line in pieces] if search.alone else [pieces]:
            results = self.engine.translate_batch(
                group,
                beam_size=search.beam_size,
                max_batch_size=1 if search.alone else self.batch_lines,
                max_decoding_length=search.most_pieces,
                length_penalty=1,
            )
            for result in results:
                best = result.hypotheses[0]
                answers.append(Answer(self.target.decode(best), len(best) + 1))
        return answers


class _Generate:
    """transformers' generate, with lines of like length in a batch."""

    def __init__(self, wanted: HuggingFace) -> None:
        import torch

        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.set_num_threads(wanted.threads)
        self.device, self.batch_lines = "cpu", wanted.batch_lines
        self.tokenizer = AutoTokenizer.from_pretrained(wanted.folder)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(wanted.folder).eval()

    def translate(self, lines: Sequence[str], search: Search) -> list[Answer]:
        import torch

        ids = self.tokenizer(list(lines))["input_ids"]
        order = sorted(range(len(ids)), key=lambda place: -len(ids[place]))
        size = 1 if search.alone else self.batch_lines
        answers: dict[int, Answer] = {}
        for first in range(0, len(order), size):
            group = order[first : first + size]
            batch = self.tokenizer.pad({"input_ids": [ids[place] for place in group]}, return_tensors="pt")
            with torch.inference_mode():
                found = self.model.generate(
                    **batch,
                    num_beams=search.beam_size,
                    do_sample=False,
                    max_new_tokens=search.most_pieces,
                    length_penalty=1.0,
                    early_stopping=False,
                )
            texts = self.tokenizer.batch_decode(found, skip_special_tokens=True)
            special = torch.tensor(sorted({self.tokenizer.pad_token_id, self.model.config.decoder_start_token_id}))
            lengths = (~torch.isin(found, special)).sum(1).tolist()
            answers |= dict(zip(group, map(Answer, texts, lengths), strict=True))
        return [answers[place] for place in range(len(order))]


Wanted = Ours | Backend | CTranslate2 | HuggingFace

_loaded: dict[Wanted, Engine] = {}
"""What this process has loaded."""


def load(wanted: Wanted, started: float) -> tuple[float, str]:
    """Load an engine into this process, which was started at `started`: seconds until it is ready, and its device."""
    _loaded[wanted] = wanted.load()
    return time.time() - started, _loaded[wanted].device


@dataclass(frozen=True)
class Timed:
    """Lines that this process has translated."""

    figures: dict[str, float]
    texts: list[str]


def translate(wanted: Wanted, lines: Sequence[str], search: Search, warmup: int) -> Timed:
    """Translate by an engine of this process, after the first `warmup` lines have been translated once."""
    engine = _loaded[wanted]
    engine.translate(lines[:warmup], search)
    clock, cpu_clock = time.perf_counter(), time.process_time()
    answers = engine.translate(lines, search)
    seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu_clock
    num_tokens = sum(answer.num_tokens for answer in answers)
    figures = {
        "sentences_per_second": len(answers) / seconds,
        "milliseconds_per_sentence": 1000 * seconds / len(answers),
        "target_tokens_per_second": num_tokens / seconds,
        "target_tokens_per_cpu_second": num_tokens / cpu_seconds,
        "cpu_seconds": cpu_seconds,
        "peak_rss_mb": measuring.peak_rss_mb(),
    }
    return Timed(figures, [answer.text for answer in answers])
