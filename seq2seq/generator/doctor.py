"""Whether one language model goes on from a text the same in every way that must make no difference."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from seq2seq.bundle import Bundle
from seq2seq.config import GenerateConfig
from seq2seq.generator.generator import Generator
from seq2seq.generator.results import Generation
from seq2seq.generator.scoring import Window, forced
from seq2seq.models.twins import in_float64, uncached
from seq2seq.search.agreement import Answer, Answers, Check, exact_checks

BEAM_SIZE = 4
"""Unless another is given: a beam is what can go wrong."""

MAX_NEW = 24
"""Pieces that are added to each prompt."""


def checks(bundle: Bundle, prompts: Sequence[str], beam_size: int = BEAM_SIZE) -> list[Check]:
    """The checks of a language model's bundle, in the order in which they are made.

    Args:
        bundle: The model and its tokenizer.
        prompts: Text to go on from.
        beam_size: Of the search for what comes next.

    Raises:
        ValueError: if it is no language model, or does not fit its tokenizer.
    """
    ways = Ways(bundle, prompts, beam_size)
    must = [
        ("text alone against batch", ("alone", "in a batch"), Ways.alone),
        ("cache off against on", ("no cache", "cache"), Ways.no_cache),
        ("search score against forced", ("search", "forced"), Ways.forced),
    ]
    return exact_checks(ways, must, ways.precise, bundle.model.output.dtype)


class Ways:
    """The ways to go on from the same prompts with one model.

    Args:
        bundle: The model and its tokenizer.
        prompts: Text to go on from.
        beam_size: Of the search.
    """

    def __init__(self, bundle: Bundle, prompts: Sequence[str], beam_size: int) -> None:
        self._bundle, self._prompts = bundle, list(prompts)
        self._config = GenerateConfig(max_new_pieces=MAX_NEW, beam_size=beam_size)
        self._generator = Generator(bundle)

    @cached_property
    def batched(self) -> list[Generation]:
        """What all prompts at once give: what the other ways are compared with."""
        return self._generated(self._generator, self._prompts)

    def precise(self) -> "Ways | None":
        """The same ways in float64; None where the model is so already, or its device cannot."""
        model = in_float64(self._bundle.model)
        return (
            None if model is None else Ways(replace(self._bundle, model=model), self._prompts, self._config.beam_size)
        )

    def alone(self) -> Answers:
        """Each prompt by itself."""
        found = [self._generated(self._generator, [prompt])[0] for prompt in self._prompts]
        return answers(found), answers(self.batched)

    def no_cache(self) -> Answers:
        """The same search with a model that reads everything again at each step."""
        bare = Generator(replace(self._bundle, model=uncached(self._bundle.model)))
        return answers(self._generated(bare, self._prompts)), answers(self.batched)

    def forced(self) -> Answers:
        """The log-probability that the search reports, and that of the same pieces read at once."""
        windows = [Window(at, (*one.prompt_ids, *one.ids), len(one.ids)) for at, one in enumerate(self.batched)]
        scored = forced(self._bundle, windows)
        own = answers(self.batched)
        return own, [replace(one, score=sum(values)) for one, values in zip(own, scored, strict=True)]

    def _generated(self, generator: Generator, prompts: Sequence[str]) -> list[Generation]:
        return generator.generate(prompts, self._config, on_notice=_unheard)


def answers(found: Sequence[Generation]) -> list[Answer]:
    """What was found, with its log-probability."""
    return [Answer(line, one.text, one.log_prob) for line, one in enumerate(found, start=1)]


def _unheard(notice: str) -> None:
    """Nothing: that the model has no positions for more does not matter here."""
