"""Whether one model translates the same in every way that must make no difference."""

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from seq2seq.bundle import Bundle
from seq2seq.config import Compute, DecodeConfig, LongLines, PenaltyForm, Utility
from seq2seq.interop.ctranslate2 import export_ctranslate2
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.quantized import compute_in
from seq2seq.models.transformer import Transformer
from seq2seq.models.twins import in_float64, uncached
from seq2seq.nn.device import evaluation
from seq2seq.search.agreement import Answer, Answers, Check, NotApplicableError, exact_checks
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.translator.batches import length_limits, pad
from seq2seq.translator.compiled_package import use_compiled
from seq2seq.translator.ctranslate2_conversion import library
from seq2seq.translator.ctranslate2_engine import CTranslate2Engine
from seq2seq.translator.ctranslate2_options import check_options
from seq2seq.translator.long_lines import longest_target
from seq2seq.translator.results import Translation
from seq2seq.translator.translator import Translator

NEIGHBOUR = 3
"""The long neighbour has so many times as many pieces as the longest line."""

SMALLER = 4
"""Small batches have room for one so-many-th of the pieces of all lines."""


def checks(bundle: Bundle, lines: Sequence[str], decode: DecodeConfig | None = None) -> list[Check]:
    """The checks of a bundle that translates, in the order in which they are made.

    Args:
        bundle: The model and its tokenizers.
        lines: Source text to try it with.
        decode: Search options, as `searched` gives them; None: from the bundle's.

    Raises:
        ValueError: if it does not translate, or its parts do not fit together.
    """
    ways = Ways(bundle, lines, decode or searched(bundle.decode))
    must = [
        ("line alone against batch", ("alone", "in a batch"), Ways.alone),
        ("padding", ("beside a long line", "in a batch"), Ways.padded),
        ("batch size", ("small batches", "in a batch"), Ways.small_batches),
        ("cache off against on", ("no cache", "cache"), Ways.no_cache),
        ("beam 1 against greedy", ("plain loop", "beam 1"), Ways.greedy),
        ("n-best 1 against n", ("n-best 1", "n-best n"), Ways.n_best),
        ("search score against forced", ("search", "forced"), Ways.forced),
    ]
    found = exact_checks(ways, must, ways.precise, bundle.model.output.dtype)
    return [
        *found,
        Check("bfloat16", ("float32", "bfloat16"), lambda: ways.rounded(Compute.bfloat16), must_agree=False),
        Check("int8", ("float32", "int8"), lambda: ways.rounded(Compute.int8), must_agree=False),
        Check("whole model in bfloat16", ("float32", "bfloat16"), ways.half, must_agree=False),
        Check("torch against CTranslate2", ("torch", "CTranslate2"), ways.ctranslate2, must_agree=False),
    ]


class Ways:
    """The ways to translate the same lines with one model.

    Args:
        bundle: The model and its tokenizers.
        lines: Source text.
        decode: Search options, as `searched` gives them.
    """

    def __init__(self, bundle: Bundle, lines: Sequence[str], decode: DecodeConfig) -> None:
        self.decode = decode
        self._translator = Translator(bundle)
        self._bundle = bundle
        self._lines = list(lines)

    @cached_property
    def batched(self) -> list[Translation]:
        """What translating all lines at once gives: what the other ways are compared with."""
        return self._translated(self._lines, self.decode)

    @cached_property
    def listed(self) -> list[Translation]:
        """The same with all that the beam holds."""
        return self._translated(self._lines, self._n_best)

    @property
    def _n_best(self) -> DecodeConfig:
        return replace(self.decode, n_best=self.decode.beam_size)

    def _beam(self, found: Sequence[Translation]) -> list[Answer]:
        """As many answers for each line as the beam has places, best first; empty ones where fewer were found."""
        rows = []
        for line, answer in enumerate(found, start=1):
            own = [Answer(line, candidate.text, candidate.score) for candidate in answer.candidates]
            rows += own + [Answer(line, "", 0.0)] * (self.decode.beam_size - len(own))
        return rows

    def precise(self) -> "Ways | None":
        """The same ways in float64; None where the model is so already, or its device cannot."""
        model = in_float64(self._bundle.model)
        return None if model is None else Ways(replace(self._bundle, model=model), self._lines, self.decode)

    def alone(self) -> Answers:
        """Each line by itself, as in `Translator.translate([line])`."""
        found = [self._translated([line], self.decode)[0] for line in self._lines]
        return answers(found), answers(self.batched)

    def padded(self) -> Answers:
        """All lines in one batch with a line that is much longer, so that nearly everything is padding."""
        lines = [*self._lines, self._neighbour()]
        decode = replace(self.decode, batch_tokens=sum(map(self._num_pieces, lines)) + 16 * len(lines))
        return answers(self._translated(lines, decode)[:-1]), answers(self.batched)

    def small_batches(self) -> Answers:
        """Batches of a few lines."""
        room = sum(map(self._num_pieces, self._lines)) // SMALLER
        decode = replace(self.decode, batch_tokens=max(1, room))
        return answers(self._translated(self._lines, decode)), answers(self.batched)

    def no_cache(self) -> Answers:
        """The same search, all of its beam, with a model that reads all target pieces again at each step.

        The coverage penalty is left out, for it needs the attention that a cached step leaves behind.
        """
        decode = replace(self._n_best, coverage_penalty=0.0)
        bare = Translator(replace(self._bundle, model=uncached(self._bundle.model)))
        cached = self.listed if decode == self._n_best else self._translated(self._lines, decode)
        return self._beam(bare.translate(self._lines, decode, on_notice=_unheard)), self._beam(cached)

    def greedy(self) -> Answers:
        """Line by line, piece by piece: the best next piece after a forward pass over all before it.

        Options that change what may be produced, or how it is compared, are left out, for the loop knows none of them.
        """
        decode = replace(plain(self.decode), beam_size=1)
        found = self._translated(self._lines, decode)
        return [self._loop(line, answer, decode) for line, answer in enumerate(found, start=1)], answers(found)

    def n_best(self) -> Answers:
        """The first of several translations is the one that is found when one is asked for."""
        return answers(self.batched), answers(self.listed)

    def forced(self) -> Answers:
        """The log-probability that the search reports, and that of the same pieces read at once."""
        sources, targets, own = [], [], []
        for line, answer in enumerate(self.listed, start=1):
            for candidate in answer.candidates if answer.source_ids else ():
                sources.append(answer.source_ids[0])
                targets.append(candidate.ids)
                own.append(Answer(line, candidate.text, candidate.log_prob))
        scored = self._translator.score_ids(sources, targets, self.decode)
        return own, [replace(one, score=pair.log_prob) for one, pair in zip(own, scored, strict=True)]

    def half(self) -> Answers:
        """The whole model in bfloat16, as on a GPU."""
        if self._bundle.model.output.dtype is torch.bfloat16:
            raise NotApplicableError("the model is in bfloat16 itself")
        return self._coarse(copy.deepcopy(self._bundle.model).bfloat16())

    def rounded(self, compute: Compute) -> Answers:
        """Products with rounded weights, as `Translator.load(compute=compute)` has them."""
        model = copy.deepcopy(self._bundle.model).float()
        try:
            compute_in(model, compute)
        except ValueError as reason:
            raise NotApplicableError(str(reason)) from reason
        return self._coarse(model)

    def _coarse(self, model: Transformer) -> Answers:
        other = Translator(replace(self._bundle, model=model))
        return answers(self.batched), answers(other.translate(self._lines, self.decode, on_notice=_unheard))

    def compiled(self, path: str | Path, *, alone: bool) -> Answers:
        """By the compiled code of the bundle at `path`: each line by itself, or all at once.

        Raises:
            ValueError: if there is none for this machine.
        """
        if self.decode.coverage_penalty:
            raise NotApplicableError("compiled code does not show the attention that the coverage penalty goes by")
        bundle = replace(self._bundle, model=copy.deepcopy(self._bundle.model).float().cpu())
        use_compiled(bundle, path)
        other = Translator(bundle)
        lines = [[line] for line in self._lines] if alone else [self._lines]
        found = [one for some in lines for one in other.translate(some, self.decode, on_notice=_unheard)]
        return answers(self.batched), answers(found)

    def ctranslate2(self) -> Answers:
        """The engine CTranslate2 in float32, from a conversion in a temporary folder.

        It has no penalty of the form `gnmt`, in whose place `power` stands on both sides.
        """
        bundle, decode = self._bundle, self.decode
        if decode.penalty_form is PenaltyForm.gnmt:
            decode = replace(decode, penalty_form=PenaltyForm.power)
        tokenizers = bundle.source_tokenizer, bundle.target_tokenizer
        try:
            if not isinstance(bundle.model, EncoderDecoder):
                raise NotApplicableError("the backend ctranslate2 is for encoder-decoders, this model is one stack")
            package = library()
            check_options(decode)
            with tempfile.TemporaryDirectory(prefix="seq2seq-") as folder:
                export_ctranslate2(replace(bundle, model=copy.deepcopy(bundle.model).float()), f"{folder}/model")
                engine = package.Translator(f"{folder}/model", device="cpu", compute_type="float32")
                other = CTranslate2Engine(engine, tokenizers, bundle.model_config, decode, bundle.languages[1])
                found = other.translate(self._lines, decode, on_notice=_unheard)
        except ValueError as reason:  # an option or a part that it does not have, or the package is missing
            raise NotApplicableError(str(reason)) from reason
        own = self.batched if decode == self.decode else self._translated(self._lines, decode)
        return answers(own), answers(found)

    def _translated(self, lines: Sequence[str], decode: DecodeConfig) -> list[Translation]:
        return self._translator.translate(lines, decode, on_notice=_unheard)

    def _num_pieces(self, line: str) -> int:
        return len(self._bundle.source_tokenizer.encode(line)) + 1

    def _neighbour(self) -> str:
        """A line that is much longer than all others, unless the model can be given none: it is cut then."""
        longest = max(self._lines, key=self._num_pieces, default="")
        return " ".join([longest] * NEIGHBOUR)

    def _loop(self, line: int, answer: Translation, decode: DecodeConfig) -> Answer:
        """What greedy search is by its definition, for the source of an answer."""
        if not answer.source_ids:
            return Answer(line, "", 0.0)
        source, model, tokenizer = answer.source_ids[0], self._bundle.model, self._bundle.target_tokenizer
        special = tokenizer.special
        least, most = length_limits(decode, len(source), 0, longest_target(self._bundle.model_config, len(source)))
        never = sorted({special.pad, special.bos} - {special.eos})
        ids, total = [special.bos], 0.0
        with evaluation(model):
            src, src_valid = pad([source], special.pad, model.output.device)
            while ids[-1] != special.eos or len(ids) == 1:
                logits = model(src, src_valid, torch.tensor([ids], device=src.device))[0, -1].cpu()
                log_probs = logits.log_softmax(
                    -1, dtype=torch.float64 if logits.dtype is torch.float64 else torch.float32
                )
                allowed = log_probs.clone()
                allowed[never], allowed[tokenizer.vocab_size :] = -torch.inf, -torch.inf
                if len(ids) < least:
                    allowed[special.eos] = -torch.inf
                ids.append(special.eos if len(ids) == most else int(allowed.argmax()))
                total += float(log_probs[ids[-1]])
        text = tokenizer.decode(ids[1:]).replace("\r", " ")
        penalty = LengthPenalty(decode.penalty_form, decode.length_penalty)
        return Answer(line, text, total / penalty(len(ids) - 1))


def searched(decode: DecodeConfig, beam_size: int | None = None) -> DecodeConfig:
    """The options for one translation a line that is searched for, not drawn or chosen by risk; long lines are cut.

    Args:
        decode: The options.
        beam_size: Of the search; None is that of the options, or 4 where they are greedy: a beam is what can go wrong.
    """
    if beam_size is None:
        beam_size = decode.beam_size if decode.beam_size > 1 else 4
    if beam_size == 1:
        decode = replace(decode, patience=None, coverage_penalty=0.0)
    return replace(
        decode,
        beam_size=beam_size,
        n_best=1,
        temperature=0.0,
        top_k=None,
        top_p=1.0,
        min_p=0.0,
        mbr=Utility.none,
        num_candidates=None,
        long_lines=LongLines.truncate,
        shortlist=False,
    )


def plain(decode: DecodeConfig) -> DecodeConfig:
    """The options without those that change what may be produced, or how it is compared, besides the lengths."""
    return replace(
        decode,
        patience=None,
        coverage_penalty=0.0,
        no_repeat_ngram=0,
        repetition_penalty=1.0,
        forbidden=[],
        unknown_penalty=0.0,
        forbid_unknown=False,
        replace_unknown=False,
        shortlist=False,
    )


def answers(found: Sequence[Translation]) -> list[Answer]:
    """The best translations of all lines."""
    return [Answer(line, answer.text, answer.score) for line, answer in enumerate(found, start=1)]


def _unheard(notice: str) -> None:
    """Nothing: that a long line was cut does not matter here."""
