"""A batch of prompts continued: all pieces of the prompts are read at once, then comes a piece a step."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from seq2seq.bundle import Bundle
from seq2seq.config import GenerateConfig
from seq2seq.corpus.batching import lengths_mask, pad
from seq2seq.generator.continuations import Continuation
from seq2seq.generator.prompts import Item
from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.search import (
    Hypothesis,
    LengthPenalty,
    RepetitionPenalty,
    Rule,
    SearchLimits,
    beam_search,
    random_source,
)
from seq2seq.search.greedy import best_piece
from seq2seq.search.sampling import Draw
from seq2seq.search.single import Grown, complete, grow
from seq2seq.search.warpers import draw_filters


class Decoding:
    """What the search is asked for, for a batch of prompts.

    Args:
        bundle: Of a language model.
        items: The prompts, and which of their samples is wanted.
        config: How to go on from them.
    """

    def __init__(self, bundle: Bundle, items: Sequence[Item], config: GenerateConfig) -> None:
        assert isinstance(bundle.model, DecoderOnly)
        self._model = bundle.model
        self._pad = bundle.target_tokenizer.special.pad
        self._items = items
        self._config = config
        prompts = [prompt for prompt, _ in items]
        self.continuations = [Continuation(bundle.target_tokenizer, prompt.ids, config.stop) for prompt in prompts]
        special = bundle.target_tokenizer.special
        self.limits = SearchLimits(
            bos=special.bos,
            eos=special.eos,
            suppressed=suppressed(bundle),
            min_lengths=[0] * len(items),
            max_lengths=[prompt.limit for prompt in prompts],
            starts=[prompt.ids[-1] for prompt in prompts],
            other_ends=bundle.target_tokenizer.stop,
            open_end=True,
        )
        self._edits: list[Rule] = []
        if config.repetition_penalty != 1:
            self._edits = [RepetitionPenalty(config.repetition_penalty, [prompt.ids for prompt in prompts])]

    def run(self) -> list[Hypothesis]:
        """One hypothesis for each item."""
        if self._config.beam_size == 1:
            return complete(self.steps())
        beams = beam_search(
            self._model.step,
            self._read(),
            self.limits,
            beam_size=self._config.beam_size,
            n_best=1,
            penalty=LengthPenalty(self._config.penalty_form, self._config.length_penalty),
            edits=self._edits,
            stop=self._stops if self._config.stop else None,
            device=self._model.output.device,
        )
        return [best for (best,) in beams]

    def steps(self) -> Iterator[list[Grown]]:
        """What each step adds, without a beam."""
        sources = [random_source(self._config.seed, prompt.number, number) for prompt, number in self._items]
        return grow(
            self._model.step,
            self._read(),
            self.limits,
            Draw(self._filters(), sources) if self._config.temperature > 0 else best_piece,
            edits=self._edits,
            stop=self._stops if self._config.stop else None,
            device=self._model.output.device,
        )

    def _filters(self) -> list[Rule]:
        """What is done to the probabilities before a piece is drawn."""
        config = self._config
        return draw_filters(config.temperature, config.top_k, config.top_p, config.min_p)

    def _read(self) -> Any:  # the state of the model at hand: `models.twins` has another one
        """The state after all but the last piece of each prompt; a prompt with several samples is read once."""
        places: dict[tuple[int, ...], int] = {}
        rows = [places.setdefault(prompt.ids[:-1], len(places)) for prompt, _ in self._items]
        device = self._model.output.device
        ids, valid = pad(list(places), self._pad), lengths_mask([*map(len, places)])
        _, state = self._model.prefill(ids.to(device), valid.to(device))
        if rows == list(range(len(places))):
            return state
        wanted = torch.tensor(rows, device=device)
        return state.select(wanted, wanted)

    def _stops(self, place: int, ids: tuple[int, ...]) -> bool:
        return self.continuations[place].stops(ids)


def suppressed(bundle: Bundle) -> tuple[int, ...]:
    """Ids that are never produced: rows of the output matrix that no piece has, and padding and BOS.

    An imported vocabulary may have none of the latter, and name other pieces in their place; all of its pieces may
    come, as they may with the library that it comes from.
    """
    tokenizer = bundle.target_tokenizer
    special = tokenizer.special
    own = {special.pad, special.bos} if tokenizer.format == "sentencepiece" else set()
    unwanted = own - {special.eos, *tokenizer.stop}
    return (*sorted(unwanted), *range(tokenizer.vocab_size, len(bundle.model.output)))
