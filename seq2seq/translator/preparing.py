"""Lines made ready for the model: cut into pieces, checked, and if they are too long, into parts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig, ModelConfig
from seq2seq.text.lines import is_blank
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translator.batches import Part, SourceLine
from seq2seq.translator.long_lines import fit, longest_source, longest_target
from seq2seq.translator.phrases import room_for_phrases
from seq2seq.translator.request import Request


@dataclass(frozen=True)
class Preparation:
    """Makes lines ready for a model, which itself is not needed for that.

    Attributes:
        source_tokenizer: Cuts lines into pieces.
        target_tokenizer: Cuts given targets and beginnings of translations into pieces.
        model_configs: Know how long a line and its translation may be; several for an ensemble.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    model_configs: tuple[ModelConfig, ...]

    @classmethod
    def of(cls, *bundles: Bundle) -> "Preparation":
        """For the bundles' models, which have one pair of tokenizers."""
        configs = tuple(bundle.model_config for bundle in bundles)
        return cls(bundles[0].source_tokenizer, bundles[0].target_tokenizer, configs)

    def encode(self, line: str) -> list[int]:
        """Source pieces without EOS; none if there is nothing to translate."""
        return [] if is_blank(line) else self.source_tokenizer.encode(line)

    def prepare(self, number: int, request: Request, decode: DecodeConfig) -> SourceLine:
        """The line as the model is given it.

        Raises:
            ValueError: if it is too long and `decode.long_lines` is error, it is cut into parts of which it is not said
                which one its target or phrases mean, these do not fit into `max_length`, or phrases cannot be asked for
                as `room_for_phrases` says.
        """
        ids = self.encode(request.text)
        if not ids:
            return SourceLine(number, request.text, (), None)
        longest = _smallest(map(longest_source, self.model_configs))
        pieces, notice = fit(ids, self.source_tokenizer, decode, number, longest)
        forced = request.target is not None
        prefix = request.target if request.target is not None else request.prefix
        prefix_ids = () if is_blank(prefix) else tuple(self.target_tokenizer.encode(prefix))
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
        eos, front = self.source_tokenizer.special.eos, self.source_tokenizer.front(ids)
        starts = accumulate((len(piece) - front for piece in pieces[1:]), initial=len(pieces[0]))
        parts = []
        for piece, start in zip(pieces, [0, *starts], strict=False):
            given, phrases = (prefix_ids, request.phrases) if start == 0 else ((), ())
            source = (*piece, eos)
            positions = _smallest(longest_target(one, len(source)) for one in self.model_configs)
            if positions is not None and len(given) >= positions:
                raise ValueError(
                    f"the {'target' if forced else 'prefix'} of line {number} has {len(given)} pieces, the model's "
                    f"learned positions have room for {positions - 1} and EOS behind this source; shorten the text"
                )
            room = room_for_phrases(
                self.target_tokenizer,
                decode,
                phrases,
                prefix=given,
                longest=_smallest([positions, decode.max_length]),
                line=number,
            )
            parts.append(
                Part(
                    number,
                    source,
                    prefix=given,
                    phrases=phrases,
                    forced=forced and start == 0,
                    text=request.text,
                    first=start,
                    repeated=front if start else 0,
                    positions=positions,
                    room=room,
                )
            )
        return SourceLine(number, request.text, tuple(parts), notice)


def _smallest(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def numbered(lines: Iterable[str | Request], numbers: Sequence[int] | None = None) -> Iterator[tuple[int, Request]]:
    """Line numbers, counted from 1 unless given, and lines.

    Raises:
        ValueError: if a line is neither text nor a request.
    """
    for at, line in enumerate(lines):
        number = numbers[at] if numbers is not None else at + 1
        if not isinstance(line, (str, Request)):
            raise ValueError(f"line {number} is {line!r:.40}, expected a string or a Request")
        yield number, Request(line) if isinstance(line, str) else line
