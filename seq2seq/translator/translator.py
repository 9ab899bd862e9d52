"""A bundle that translates: lines of text in, lines of text out, N for N and in order."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from seq2seq.bundle import Bundle, load_bundle
from seq2seq.config import DecodeConfig
from seq2seq.nn.device import evaluation, find_device
from seq2seq.search.beam import beam_search
from seq2seq.search.hypotheses import Hypothesis, SearchLimits
from seq2seq.search.length_penalty import LengthPenalty
from seq2seq.text.lines import is_blank
from seq2seq.translator.batches import SourceLine, length_limits, pad, take, token_batches
from seq2seq.translator.bundle_check import check_bundle
from seq2seq.translator.long_lines import fit, join, longest_source, longest_target
from seq2seq.translator.results import NOTHING, Candidate, ScoredPair, Translation
from seq2seq.translator.scoring import score_ids

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
        special, vocab_size = bundle.target_tokenizer.special, bundle.target_tokenizer.vocab_size
        # Imported models may have one id for EOS and others; what ends a translation must remain possible.
        unwanted = {special.pad, special.bos} - {special.eos}
        self._suppressed = (*sorted(unwanted), *range(vocab_size, len(self.model.output)))
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
        lines: Sequence[str],
        decode: DecodeConfig | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        numbers: Sequence[int] | None = None,
        on_notice: Callable[[str], None] = _log.warning,
    ) -> list[Translation]:
        """One translation for each line, in order.

        Args:
            lines: Source text.
            decode: Search options; None takes the bundle's (change some of them with
                `dataclasses.replace(translator.bundle.decode, beam_size=8)`).
            prefixes: For each line text that its translation starts with, "" for none. Ignored where a line is blank.
            numbers: What each line is called in notices, errors and `Translation.line`; None counts them from 1.
            on_notice: Told of each line that was truncated or split; by default a warning is logged.

        Raises:
            ValueError: if a line is too long and `decode.long_lines` is error (nothing is translated then), a prefix
                does not fit into `max_length`, or there are more or fewer prefixes or numbers than lines.
        """
        if isinstance(lines, str) or isinstance(prefixes, str):
            raise ValueError("lines and prefixes are lists of strings, got one string; write translate([text])")
        if prefixes is not None and len(prefixes) != len(lines):
            raise ValueError(f"got {len(prefixes)} prefixes for {len(lines)} lines; give one for each, '' for none")
        if numbers is not None and len(numbers) != len(lines):
            raise ValueError(f"got {len(numbers)} numbers for {len(lines)} lines; give one for each")
        decode = decode or self.bundle.decode
        sources = [self._prepare(*line, decode) for line in _numbered(lines, prefixes, numbers)]
        return list(self._translate(sources, decode, on_notice))

    def stream(
        self,
        lines: Iterable[str],
        decode: DecodeConfig | None = None,
        *,
        read_ahead: bool = True,
        on_notice: Callable[[str], None] = _log.warning,
    ) -> Iterator[Translation]:
        """The translations of any number of lines, in order, each as soon as it and all before it are known.

        Args:
            lines: Source text; read as needed.
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

    def _prepare(self, number: int, line: str, prefix: str, decode: DecodeConfig) -> SourceLine:
        """The line as the model is given it."""
        tokenizer = self.bundle.source_tokenizer
        ids = self._encode(line)
        if not ids:
            return SourceLine(number, line, (), (), None)
        parts, notice = fit(ids, tokenizer, decode, number, longest_source(self.bundle.model_config))
        prefix_ids = [] if is_blank(prefix) else self.bundle.target_tokenizer.encode(prefix)
        if decode.max_length is not None and len(prefix_ids) >= decode.max_length:
            raise ValueError(
                f"the prefix of line {number} has {len(prefix_ids)} pieces, max_length={decode.max_length} has room "
                f"for {decode.max_length - 1} and EOS; raise it or shorten the prefix"
            )
        closed = tuple((*part, tokenizer.special.eos) for part in parts)
        return SourceLine(number, line, closed, tuple(prefix_ids), notice)

    def _translate(
        self, sources: Sequence[SourceLine], decode: DecodeConfig, on_notice: Callable[[str], None]
    ) -> Iterator[Translation]:
        """Translations in order, each as soon as possible."""
        parts = [(part, source.prefix if at == 0 else ()) for source in sources for at, part in enumerate(source.parts)]
        batches = iter(token_batches([max(len(part), FEW) for part, _ in parts], decode.batch_tokens))
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
            yield Translation(source.number, source.text, source.parts, found or (NOTHING,), source.notice)

    def _search(
        self, parts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], decode: DecodeConfig
    ) -> list[list[Candidate]]:
        """The candidates of a batch of (source ids, target prefix)."""
        special = self.bundle.target_tokenizer.special
        model = self.bundle.model_config
        lengths = [
            length_limits(decode, len(source), len(prefix), longest_target(model, len(source)))
            for source, prefix in parts
        ]
        limits = SearchLimits(
            bos=special.bos,
            eos=special.eos,
            suppressed=self._suppressed,
            min_lengths=[shortest for shortest, _ in lengths],
            max_lengths=[longest for _, longest in lengths],
            prefixes=[list(prefix) for _, prefix in parts],
        )
        filler = self.bundle.source_tokenizer.special.pad
        with evaluation(self.model):
            found = beam_search(
                self.model.step,
                self.model.start(*pad([source for source, _ in parts], filler, self.device)),
                limits,
                beam_size=decode.beam_size,
                n_best=decode.n_best,
                penalty=LengthPenalty(decode.penalty_form, decode.length_penalty),
                identity=self._text,
                device=self.device,
            )
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


def _numbered(
    lines: Iterable[str], prefixes: Sequence[str] | None = None, numbers: Sequence[int] | None = None
) -> Iterator[tuple[int, str, str]]:
    """Line numbers, lines and prefixes."""
    for at, line in enumerate(lines):
        number = numbers[at] if numbers is not None else at + 1
        if not isinstance(line, str):
            raise ValueError(f"line {number} is {line!r:.40}, expected a string")
        yield number, line, prefixes[at] if prefixes is not None else ""
