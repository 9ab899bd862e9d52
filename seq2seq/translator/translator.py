"""Bundles that translate: lines of text in, lines of text out, N for N and in order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from seq2seq.bundle import Bundle, load_bundle
from seq2seq.config import Average, Compute, DecodeConfig, Utility
from seq2seq.models import Ensemble, Transformer
from seq2seq.models.decoding import prepare_for_decoding
from seq2seq.models.ensemble import normalized
from seq2seq.models.quantized import check_machine, compute_in, multiplies_alone
from seq2seq.nn.device import evaluation, find_device
from seq2seq.nn.host_memory import keep_freed_memory
from seq2seq.search.hypotheses import Hypothesis
from seq2seq.text.lines import is_blank
from seq2seq.translator.alignments import Aligner, check_alignment
from seq2seq.translator.batches import Part, SourceLine
from seq2seq.translator.bundle_check import check_ensemble
from seq2seq.translator.compiled_package import check_compiled, use_compiled
from seq2seq.translator.line_translator import LineTranslator
from seq2seq.translator.mbr import by_utility
from seq2seq.translator.preparing import Preparation
from seq2seq.translator.results import Candidate, ScoredPair
from seq2seq.translator.scoring import score_ids
from seq2seq.translator.searching import search
from seq2seq.translator.shortlists import check_shortlist
from seq2seq.translator.side_by_side import side_by_side
from seq2seq.translator.utility import measure


class Translator(LineTranslator):
    """Translates lines, and scores given translations, with the model of a bundle, or with several as one.

    A line's answer does not depend on the lines around it, up to rounding. Lines with nothing to see in them, or that
    the tokenizer's normalisation leaves nothing of, have an empty translation, which the model is not asked for.

    Args:
        bundle: Model, tokenizers and default options. The model may be one in training: its mode is restored after
            each call, and its current weights are used. Several bundles are an ensemble, whose models are put into
            evaluation mode; it has the default options of the first.
        device: Where to move the model; None leaves it where it is.
        weights: Of an ensemble: how much each bundle counts; only their ratios matter. None lets all count alike.
        average: Of an ensemble: what the mean is taken of.
        details: Whether translations come with scores and log-probabilities. Without them a greedy search is faster;
            its scores and log-probabilities are NaN then, and those of pieces are missing.

    Raises:
        ValueError: if it is a language model, model and tokenizers do not fit together, there is no such device, the
            bundles of an ensemble have different tokenizers, or weights do not fit.
    """

    def __init__(
        self,
        bundle: Bundle | Sequence[Bundle],
        device: str | torch.device | None = None,
        *,
        weights: Sequence[float] | None = None,
        average: Average = Average.probability,
        details: bool = True,
    ) -> None:
        self.bundles = (bundle,) if isinstance(bundle, Bundle) else tuple(bundle)
        check_ensemble(self.bundles)
        if weights is not None:
            weights = normalized(weights, len(self.bundles))
        self.bundle = self.bundles[0]
        super().__init__(Preparation.of(*self.bundles), self.bundle.decode, self.bundle.languages[1])
        models = [one.model if device is None else one.model.to(find_device(device)) for one in self.bundles]
        self._aligner = Aligner(self.bundle)
        self._details = details
        self.model: Transformer | Ensemble = models[0] if len(models) == 1 else Ensemble(models, weights, average)

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        device: str | torch.device = "auto",
        *,
        compute: Compute = Compute.float32,
        weights: Sequence[float] | None = None,
        average: Average = Average.probability,
        decode: DecodeConfig | None = None,
        compiled: bool = False,
        details: bool = True,
    ) -> "Translator":
        """The translator of the bundle at `path`, or of the ensemble of several. Their models are for decoding only.

        On a CPU the process keeps the memory that tensors leave behind from now on, for the next ones.

        Args:
            path: A folder as `seq2seq train` writes it, or several of them.
            device: "cpu", "cuda", "cuda:1", "mps", or "auto" for a GPU when there is one.
            compute: The numbers that the model multiplies by its weights in; the commands' --compute. int8 and bfloat16
                are for CPUs, and make batches faster; int8 takes less memory too.
            weights: Of an ensemble: how much each bundle counts; only their ratios matter. None lets all count alike.
            average: Of an ensemble: what the mean is taken of.
            decode: Search options in the place of the (first) bundle's own.
            compiled: Whether to decode by the compiled code in the bundle; the commands' --backend aoti. It runs with
                the rights of this process.
            details: Whether translations come with scores and log-probabilities, as above.

        Raises:
            FileNotFoundError: if `path` is not a bundle.
            ValueError: if its parts do not fit together, bundles do not fit each other, there is no such device, this
                machine does not compute so, or compiled code is missing, not for this machine or not for the options.
        """
        if compiled:
            check_compiled(device, compute, decode)
            device = "cpu"
        check_machine(compute)
        if torch.device(find_device(device)).type == "cpu":
            keep_freed_memory(threads=True)
        paths = [path] if isinstance(path, (str, Path)) else path
        bundles = [load_bundle(one, find_device(device)) for one in paths]
        for bundle in bundles:
            compute_in(bundle.model, compute)
            prepare_for_decoding(bundle.model)
        if compiled:
            for bundle, one in zip(bundles, paths, strict=True):
                use_compiled(bundle, one)
        if decode is not None:
            bundles[0] = replace(bundles[0], decode=decode)
        return cls(bundles, weights=weights, average=average, details=details)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.output.device

    def score(
        self, sources: Sequence[str], targets: Sequence[str], decode: DecodeConfig | None = None
    ) -> list[ScoredPair]:
        """The log-probability of each target as the translation of its source.

        The text is split into pieces by the tokenizer, closed by EOS. A search may have found the same text in other
        pieces: `score_ids` scores exactly those. A pair that is blank on both sides has log-probability 0.

        Args:
            sources: Source text.
            targets: A translation for each.
            decode: Length penalty, longest source and batch size; None takes the bundle's.

        Raises:
            ValueError: if a side is a single string, the numbers of lines differ, a source is longer than
                `max_source_length`, a pair longer than learned positions allow, or the model's log-probabilities are
                NaN.
        """
        if isinstance(sources, str) or isinstance(targets, str):
            raise ValueError(
                "sources and targets are lists of strings, got one string; write score([source], [target])"
            )
        if len(sources) != len(targets):
            raise ValueError(f"got {len(sources)} sources and {len(targets)} targets; give one target for each source")
        decode = decode or self.decode
        left, right = [], []
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
            source_ids, target_ids = self.preparation.encode(source), self.bundle.target_tokenizer.encode(target)
            target_ids = [] if is_blank(target) else target_ids
            if len(source_ids) >= decode.max_source_length:
                raise ValueError(
                    f"line {number} has {len(source_ids) + 1} source pieces, max_source_length is "
                    f"{decode.max_source_length}; raise it, or score what translate has written with --format jsonl"
                )
            nothing = not source_ids and not target_ids
            left.append([*source_ids, self.bundle.source_tokenizer.special.eos])
            right.append([] if nothing else [*target_ids, self.bundle.target_tokenizer.special.eos])
        return self.score_ids(left, right, decode)

    def score_ids(
        self,
        source_ids: Sequence[Sequence[int]],
        target_ids: Sequence[Sequence[int]],
        decode: DecodeConfig | None = None,
    ) -> list[ScoredPair]:
        """The log-probability of target pieces, as search reports it (up to rounding).

        Args:
            source_ids: What the model is given, EOS included, as in `Translation.source_ids`.
            target_ids: The pieces to score, as in `Candidate.ids`: a closing EOS counts only if it is there.
            decode: Length penalty and batch size; None takes the bundle's.

        Raises:
            ValueError: if the numbers of sequences differ, a source is empty, an id is outside its vocabulary, a pair
                is longer than learned positions allow, or the model's log-probabilities are NaN.
        """
        return score_ids(self.model, self.bundles, source_ids, target_ids, decode or self.decode)

    def _search_all(self, batches: Sequence[Sequence[Part]], decode: DecodeConfig) -> Iterator[list[list[Candidate]]]:
        """The candidates of each batch; several at once on a CPU.

        Not in training, where the mode is changed, nor where a product changes how others are computed.
        """
        if self.device.type != "cpu" or self.model.training or multiplies_alone(self.model):
            yield from super()._search_all(batches, decode)
        else:
            yield from side_by_side(lambda parts: self._search(parts, decode), batches)

    def _search(self, parts: Sequence[Part], decode: DecodeConfig) -> list[list[Candidate]]:
        """The candidates of a batch."""
        alike = None if decode.mbr is Utility.none else measure(decode.mbr, self.bundle.languages[1])
        with evaluation(self.model):
            found = search(self.model, self.bundle, parts, decode, self._text, scored=self._details)
        candidates = [[self._candidate(hypothesis) for hypothesis in hypotheses] for hypotheses in found]
        if decode.replace_unknown:
            candidates = self._aligner.with_unknown_replaced(parts, candidates, decode)
        if alike is not None:
            candidates = [by_utility(own, alike, drawn=decode.draws)[: decode.n_best] for own in candidates]
        return self._aligner.with_alignments(parts, candidates, decode) if decode.alignments else candidates

    def _check(self, decode: DecodeConfig) -> None:
        check_alignment(self.bundle.model_config, decode)
        check_shortlist(self.bundle, decode)

    def _finish(
        self, source: SourceLine, candidates: tuple[Candidate, ...], decode: DecodeConfig
    ) -> tuple[Candidate, ...]:
        return self._aligner.of_line(source, candidates, decode)

    def _text(self, ids: Sequence[int]) -> str:
        """The pieces as one line."""
        return self.bundle.target_tokenizer.decode(ids).replace("\n", " ").replace("\r", " ")

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        return Candidate(
            text=self._text(hypothesis.ids),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            tokens=tuple(self.bundle.target_tokenizer.pieces(hypothesis.ids)),
            ids=hypothesis.ids,
            token_log_probs=hypothesis.token_log_probs,
            hit_limit=hypothesis.hit_limit,
        )
