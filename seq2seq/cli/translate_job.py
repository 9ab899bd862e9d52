"""A job of translating: what every process that shares in it must know, and what comes of a line."""

from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from seq2seq.cli.engines import EngineOptions, load_engine
from seq2seq.cli.translate_output import Format, Rows
from seq2seq.config import DecodeConfig, ModelConfig, from_dict, to_dict

if TYPE_CHECKING:
    from seq2seq.translator import Request, Translation
    from seq2seq.translator.line_translator import LineTranslator
    from seq2seq.translator.preparing import Preparation


@dataclass(frozen=True)
class Answer:
    """What came of a line."""

    rows: list[str]
    """What is written."""
    notice: str | None
    """What has been done about a line that was too long."""
    hit_limit: bool
    """Whether the end of the best translation was forced."""
    ends_window: bool = False
    """Whether all lines that were read together with this one, or before it, have been answered."""


Answers = Generator[Answer, None, None]
"""Answers to lines in their order. Closing it ends whatever still works on them."""


@dataclass(frozen=True)
class Job:
    """How lines are translated and written."""

    model: str
    """The bundle."""
    engine: EngineOptions
    """Where and by what is computed."""
    decode: DecodeConfig
    """How translations are searched for: every option."""
    rows: Rows
    """How they are written."""

    @property
    def models(self) -> tuple[str, ...]:
        """The bundle, and those of an ensemble beside it."""
        return (self.model, *(self.engine.ensemble or []))

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "model": self.model,
            "engine": to_dict(self.engine),
            "decode": to_dict(self.decode),
            "rows": {**asdict(self.rows), "format_": self.rows.format_.name},
        }

    @classmethod
    def read(cls, plain: dict[str, Any]) -> "Job":
        """What `plain` has written."""
        return cls(
            plain["model"],
            from_dict(EngineOptions, plain["engine"]),
            from_dict(DecodeConfig, plain["decode"]),
            Rows(**{**plain["rows"], "format_": Format[plain["rows"]["format_"]]}),
        )

    def preparation(self) -> "Preparation":
        """What makes lines ready for the models, of which only the options are read."""
        from seq2seq.bundle import load_tokenizers, read_config
        from seq2seq.translator.preparing import Preparation

        configs = [from_dict(ModelConfig, read_config(model)["model"], where="model.") for model in self.models]
        return Preparation(*load_tokenizers(self.model), tuple(configs))

    def load(self, *, one_by_one: bool = False) -> "LineTranslator":
        """What translates, in this process; with `one_by_one` it is to answer single lines soon."""
        details = self.rows.scores or self.rows.format_ is not Format.text
        return load_engine(self.model, self.engine, self.decode, one_by_one=one_by_one, details=details)

    def answers(self, lines: "Iterable[Request]", *, read_ahead: bool = True, first: int = 1) -> Answers:
        """The answers to all lines, in their order, by as many processes as the options say.

        Args:
            lines: The input from line `first` on.
            read_ahead: Whether lines are read before those before them are answered.
            first: Number of the first line.

        Raises:
            ValueError: if the model cannot be loaded, or for what `LineTranslator.stream` refuses.
            FileNotFoundError: if there is no bundle.
        """
        if self.engine.devices > 1:
            from seq2seq.cli.translate_devices import shared_answers

            return shared_answers(self, lines, first=first)
        from seq2seq.cli.translate_ranks import is_one_of_several, led_answers

        if is_one_of_several():
            return led_answers(self, lines, first=first)
        return answers_here(self.load(one_by_one=not read_ahead), self.rows, lines, read_ahead=read_ahead, first=first)


def answer(translation: "Translation", rows: Rows) -> Answer:
    """What is written of a translation."""
    return Answer(rows(translation), translation.notice, translation.hit_limit)


def answers_here(
    engine: "LineTranslator", rows: Rows, lines: "Iterable[Request]", *, read_ahead: bool = True, first: int = 1
) -> Answers:
    """The answers to all lines, in their order, found in this process.

    Args:
        engine: What translates.
        rows: What is written of each.
        lines: The input from line `first` on.
        read_ahead: Whether lines are read before those before them are answered.
        first: Number of the first line.
    """
    for window in engine.windows(lines, read_ahead=read_ahead, first=first, on_notice=_not_told):
        held: Answer | None = None
        for translation in window:
            if held is not None:
                yield held
            held = answer(translation, rows)
        if held is not None:
            yield replace(held, ends_window=True)


def _not_told(notice: str) -> None:
    """Nobody: the answer to the line has the notice."""
