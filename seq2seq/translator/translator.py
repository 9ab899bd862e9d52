"""A bundle that translates: lines of text in, lines of text out, N for N and in order."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from seq2seq.bundle import Bundle, load_bundle
from seq2seq.config import DecodeConfig
from seq2seq.nn.device import evaluation, find_device
from seq2seq.search.hypotheses import Hypothesis
from seq2seq.text.lines import is_blank
from seq2seq.translator.batches import Part, SourceLine, take, token_batches
from seq2seq.translator.bundle_check import check_bundle
from seq2seq.translator.long_lines import fit, join, longest_source
from seq2seq.translator.request import Request
from seq2seq.translator.results import NOTHING, Candidate, ScoredPair, Translation
from seq2seq.translator.scoring import score_ids
from seq2seq.translator.searching import search

READ_AHEAD = 16
"""Batches' worth of pieces that `Translator.stream` reads before it sorts by length and translates."""

FEW = 8
"""Shorter sources count as so many pieces: what takes the memory is the outputs of a row, however short it is."""

_NO_SPACE = frozenset({"zh", "ja"})
"""Languages that write no space between sentences."""

_log = logging.getLogger(__name__)


class Translator:
    """Translates lines, and scores given translations, with the model of a bundle.

    A line's answer does not depend on the lines around it, up to rounding. Lines with nothing to see in them, or that
    the tokenizer's normalisation leaves nothing of, have an empty translation, which the model is not asked for.

    Args:
        bundle: Model, tokenizers and default options. The model may be one in training: its mode is restored after
            each call, and its current weights are used.
        device: Where to move the model; None leaves it where it is.

    Raises:
        ValueError: if it is a language model, model and tokenizers do not fit together, or there is no such device.
    """

    def __init__(self, bundle: Bundle, device: str | torch.device | None = None) -> None:
        check_bundle(bundle)
        self.bundle = bundle
        self.model = bundle.model if device is None else bundle.model.to(find_device(device))
        language = (bundle.languages[1] or "").lower().replace("_", "-").split("-")[0]
        self._between = "" if language in _NO_SPACE else " "

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = "auto") -> "Translator":
        """The translator of the bundle at `path`.

        Args:
            path: A folder as `seq2seq train` writes it.
            device: "cpu", "cuda", "cuda:1", "mps", or "auto" for a GPU when there is one.

        Raises:
            FileNotFoundError: if `path` is not a bundle.
            ValueError: if its parts do not fit together, or there is no such device.
        """
        return cls(load_bundle(path, find_device(device)))

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.output.device

    def translate(
        self,
        lines: Sequence[str | Request],
        decode: DecodeConfig | None = None,
        *,
        numbers: Sequence[int] | None = None,
        on_notice: Callable[[str], None] = _log.warning,
    ) -> list[Translation]:
        """One translation for each line, in order.

        Args:
            lines: Source text; as a `Request` where more is to be said, such as how the translation starts. That is
                passed over where a line is blank.
            decode: Search options; None takes the bundle's (change some of them with
                `dataclasses.replace(translator.bundle.decode, beam_size=8)`).
            numbers: What each line is called in notices, errors and `Translation.line`; None counts them from 1.
            on_notice: Told of each line that was truncated or split; by default a warning is logged.

        Raises:
            ValueError: if a line is too long and `decode.long_lines` is error (nothing is translated then), a prefix
                does not fit into `max_length`, or there are more or fewer numbers than lines.
        """
        if isinstance(lines, str):
            raise ValueError("lines is a list of strings, got one string; write translate([text])")
        if numbers is not None and len(numbers) != len(lines):
            raise ValueError(f"got {len(numbers)} numbers for {len(lines)} lines; give one for each")
        decode = decode or self.bundle.decode
        sources = [self._prepare(*line, decode) for line in _numbered(lines, numbers)]
        return list(self._translate(sources, decode, on_notice))

    def stream(
        self,
        lines: Iterable[str | Request],
        decode: DecodeConfig | None = None,
        *,
        read_ahead: bool = True,
        on_notice: Callable[[str], None] = _log.warning,
    ) -> Iterator[Translation]:
        """The translations of any number of lines, in order, each as soon as it and all before it are known.

        Args:
            lines: Source text, as in `translate`; read as needed.
            decode: Search options; None takes the bundle's.
            read_ahead: Read some batches' worth of lines before translating, which is much faster. Otherwise each line
                is answered before the next one is read.
            on_notice: Told of each line that was truncated or split; by default a warning is logged.

        Raises:
            ValueError: if `lines` is one string, or a line is too long and `decode.long_lines` is error. That, and
                any error of the iterable itself, comes after the translations of the lines before it.
        """
        if isinstance(lines, str):
            raise ValueError("lines is an iterable of strings, got one string; write stream([text])")
        decode = decode or self.bundle.decode
        sources = (self._prepare(*line, decode) for line in _numbered(lines))
        while True:
            window, error = take(sources, READ_AHEAD * decode.batch_tokens if read_ahead else 1)
            yield from self._translate(window, decode, on_notice)
            if error is not None:
                raise error
            if not window:
                return

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
                `max_source_length`, or a pair longer than learned positions allow.
        """
        if isinstance(sources, str) or isinstance(targets, str):
            raise ValueError(
                "sources and targets are lists of strings, got one string; write score([source], [target])"
            )
        if len(sources) != len(targets):
            raise ValueError(f"got {len(sources)} sources and {len(targets)} targets; give one target for each source")
        decode = decode or self.bundle.decode
        left, right = [], []
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
            source_ids, target_ids = self._encode(source), self.bundle.target_tokenizer.encode(target)
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
            ValueError: if the numbers of sequences differ, a source is empty, an id is outside its vocabulary, or a
                pair is longer than learned positions allow.
        """
        return score_ids(self.bundle, source_ids, target_ids, decode or self.bundle.decode)

    def _encode(self, line: str) -> list[int]:
        """Source pieces without EOS; none if there is nothing to translate."""
        return [] if is_blank(line) else self.bundle.source_tokenizer.encode(line)

    def _prepare(self, number: int, request: Request, decode: DecodeConfig) -> SourceLine:
        """The line as the model is given it."""
        tokenizer = self.bundle.source_tokenizer
        ids = self._encode(request.text)
        if not ids:
            return SourceLine(number, request.text, (), None)
        pieces, notice = fit(ids, tokenizer, decode, number, longest_source(self.bundle.model_config))
        forced = request.target is not None
        prefix = request.target if request.target is not None else request.prefix
        prefix_ids = () if is_blank(prefix) else tuple(self.bundle.target_tokenizer.encode(prefix))
        if decode.max_length is not None and len(prefix_ids) >= decode.max_length:
            raise ValueError(
                f"the {'target' if forced else 'prefix'} of line {number} has {len(prefix_ids)} pieces, max_length="
                f"{decode.max_length} has room for {decode.max_length - 1} and EOS; raise it or shorten the text"
            )
        if len(pieces) > 1 and (forced or request.phrases):
            raise ValueError(
                f"line {number} is translated in {len(pieces)} parts, so that its {'target' if forced else 'phrases'} "
                "cannot be told which part is meant; shorten the line, or raise max_source_length"
            )
        closed = [(*piece, tokenizer.special.eos) for piece in pieces]
        first = Part(number, closed[0], prefix_ids, request.phrases, forced)
        return SourceLine(number, request.text, (first, *(Part(number, later) for later in closed[1:])), notice)

    def _translate(
        self, sources: Sequence[SourceLine], decode: DecodeConfig, on_notice: Callable[[str], None]
    ) -> Iterator[Translation]:
        """Translations in order, each as soon as possible."""
        parts = [part for source in sources for part in source.parts]
        batches = iter(token_batches([max(len(part.source), FEW) for part in parts], decode.batch_tokens))
        done: dict[int, list[Candidate]] = {}
        first = 0
        for source in sources:
            own = range(first, first + len(source.parts))
            first = own.stop
            while not all(place in done for place in own):
                batch = next(batches)
                done.update(zip(batch, self._search([parts[place] for place in batch], decode), strict=True))
            if source.notice is not None:
                on_notice(source.notice)
            found = join([done.pop(place) for place in own], between=self._between, n_best=decode.n_best)
            source_ids = tuple(part.source for part in source.parts)
            yield Translation(source.number, source.text, source_ids, found or (NOTHING,), source.notice)

    def _search(self, parts: Sequence[Part], decode: DecodeConfig) -> list[list[Candidate]]:
        """The candidates of a batch."""
        with evaluation(self.model):
            found = search(self.model, self.bundle, parts, decode, self._text)
        return [[self._candidate(hypothesis) for hypothesis in hypotheses] for hypotheses in found]

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


def _numbered(lines: Iterable[str | Request], numbers: Sequence[int] | None = None) -> Iterator[tuple[int, Request]]:
    """Line numbers and lines."""
    for at, line in enumerate(lines):
        number = numbers[at] if numbers is not None else at + 1
        if not isinstance(line, (str, Request)):
            raise ValueError(f"line {number} is {line!r:.40}, expected a string or a Request")
        yield number, Request(line) if isinstance(line, str) else line
