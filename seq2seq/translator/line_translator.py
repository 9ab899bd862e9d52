"""Lines in, their translations out, N for N and in order, whatever finds the translations."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

from seq2seq.config import DecodeConfig, Utility
from seq2seq.translator.batches import READ_AHEAD, Part, SourceLine, part_batches, take
from seq2seq.translator.long_lines import join
from seq2seq.translator.preparing import Preparation, numbered
from seq2seq.translator.request import Request
from seq2seq.translator.results import NOTHING, Candidate, Translation
from seq2seq.translator.word_numbers import is_spaced

_log = logging.getLogger(__name__)


class LineTranslator(ABC):
    """Reads lines ahead, fills batches, and puts the answers together in the order of the lines.

    Args:
        preparation: Makes lines ready for the model.
        decode: Search options unless others are given.
        language: Code of the target language, if it is known.
    """

    def __init__(self, preparation: Preparation, decode: DecodeConfig, language: str | None) -> None:
        self.preparation, self.decode = preparation, decode
        self._between = " " if is_spaced(language) else ""

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
        decode = decode or self.decode
        self._check(decode)
        sources = [self.preparation.prepare(*line, decode) for line in numbered(lines, numbers)]
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
        for window in self.windows(lines, decode, read_ahead=read_ahead, on_notice=on_notice):
            yield from window

    def windows(
        self,
        lines: Iterable[str | Request],
        decode: DecodeConfig | None = None,
        *,
        read_ahead: bool = True,
        first: int = 1,
        on_notice: Callable[[str], None] = _log.warning,
    ) -> Iterator[Iterator[Translation]]:
        """What `stream` gives, in groups: the translations of lines that were read together, which are translated so.

        Each group must be used up before the next one. Starting anew with the line after a group, called by its number
        in `first`, gives the same answers to the last bit.

        Args:
            lines: As in `stream`.
            decode: As in `stream`.
            read_ahead: As in `stream`; otherwise each line is a group.
            first: Number of the first line.
            on_notice: As in `stream`.

        Raises:
            ValueError: as in `stream`.
        """
        if isinstance(lines, str):
            raise ValueError("lines is an iterable of strings, got one string; write stream([text])")
        decode = decode or self.decode
        self._check(decode)
        sources = (self.preparation.prepare(first - 1 + number, line, decode) for number, line in numbered(lines))
        while True:
            window, error = take(sources, READ_AHEAD * decode.batch_tokens if read_ahead else 1)
            yield self._translate(window, decode, on_notice)
            if error is not None:
                raise error
            if not window:
                return

    def _translate(
        self, sources: Sequence[SourceLine], decode: DecodeConfig, on_notice: Callable[[str], None]
    ) -> Iterator[Translation]:
        """Translations in order, each as soon as possible."""
        parts = [part for source in sources for part in source.parts]
        batches = part_batches(parts, decode.batch_tokens)
        answered = zip(
            batches, self._search_all([[parts[at] for at in batch] for batch in batches], decode), strict=True
        )
        done: dict[int, list[Candidate]] = {}
        first = 0
        for source in sources:
            own = range(first, first + len(source.parts))
            first = own.stop
            while not all(place in done for place in own):
                batch, candidates = next(answered)
                done.update(zip(batch, candidates, strict=True))
            if source.notice is not None:
                on_notice(source.notice)
            in_step = decode.draws and decode.mbr is Utility.none
            found = join(
                [done.pop(place) for place in own], between=self._between, n_best=decode.n_best, in_step=in_step
            )
            found = self._finish(source, found or (NOTHING,), decode)
            source_ids = tuple(part.source for part in source.parts)
            yield Translation(source.number, source.text, source_ids, found, source.notice)

    def _search_all(self, batches: Sequence[Sequence[Part]], decode: DecodeConfig) -> Iterator[list[list[Candidate]]]:
        """The candidates of each batch, in their order, as soon as they are known."""
        for batch in batches:
            yield self._search(batch, decode)

    def _check(self, decode: DecodeConfig) -> None:
        """Refuse options that the model or the engine cannot follow, before anything is decoded.

        Raises:
            ValueError: if there are such options.
        """
        del decode  # a subclass knows

    def _finish(
        self, source: SourceLine, candidates: tuple[Candidate, ...], decode: DecodeConfig
    ) -> tuple[Candidate, ...]:
        """The candidates of a line, its parts together, with what can only be told of a whole line."""
        del source, decode
        return candidates

    @abstractmethod
    def _search(self, parts: Sequence[Part], decode: DecodeConfig) -> list[list[Candidate]]:
        """The candidates of a batch, best first."""
