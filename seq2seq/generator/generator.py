"""A bundle that writes: prompts in, their continuations out, N for N and in order."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from seq2seq.bundle import Bundle, load_bundle
from seq2seq.config import GenerateConfig, Task
from seq2seq.generator.decoding import Decoding
from seq2seq.generator.prompts import Item, Prompt, batches, prepare
from seq2seq.generator.results import Ended, Generation, ScoredText
from seq2seq.generator.scoring import score_texts
from seq2seq.nn.device import evaluation, find_device
from seq2seq.search import Hypothesis
from seq2seq.search.single import Grown

READ_AHEAD = 16
"""Batches' worth of pieces that `Generator.generate_each` reads before it sorts by length and decodes."""

_log = logging.getLogger(__name__)


class Generator:
    """Goes on from prompts, and scores given texts, with the language model of a bundle.

    A prompt's answer does not depend on the prompts around it, up to rounding, drawn texts included: they depend on
    seed, number of the prompt, and number of the sample.

    Args:
        bundle: Model and tokenizer. The model may be one in training: its mode is restored after each call, and its
            current weights are used.
        device: Where to move the model; None leaves it where it is.

    Raises:
        ValueError: if the model is one that translates, does not fit its tokenizer, or there is no such device.
    """

    def __init__(self, bundle: Bundle, device: str | torch.device | None = None) -> None:
        _check(bundle)
        self.bundle = bundle
        self.model = bundle.model if device is None else bundle.model.to(find_device(device))
        self.tokenizer = bundle.target_tokenizer

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = "auto") -> "Generator":
        """The generator of the bundle at `path`.

        Args:
            path: A folder as `seq2seq train` writes it.
            device: "cpu", "cuda", "cuda:1", "mps", or "auto" for a GPU when there is one.

        Raises:
            FileNotFoundError: if `path` is not a bundle.
            ValueError: if it translates, its parts do not fit together, or there is no such device.
        """
        return cls(load_bundle(path, find_device(device)))

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.output.device

    def generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        *,
        on_notice: Callable[[str], None] = _log.warning,
    ) -> list[Generation]:
        """The continuations of all prompts in order, `num_samples` for each.

        Args:
            prompts: Text to go on from; "" begins a text.
            config: How; None takes the defaults.
            on_notice: Told of texts that ended before they were as long as asked for, because the model has learned no
                more positions; by default a warning is logged.

        Raises:
            ValueError: if a prompt is longer than the positions that the model has learned; nothing is generated then.
        """
        if isinstance(prompts, str):
            raise ValueError("prompts is a list of strings, got one string; write generate([text])")
        config = config or GenerateConfig()
        prepared = [self._prepare(number, text, config) for number, text in enumerate(prompts, start=1)]
        return list(self._answers(prepared, config, on_notice))

    def generate_ids(self, prompts: Sequence[Sequence[int]], config: GenerateConfig | None = None) -> list[Generation]:
        """The continuations of prompts that are given as pieces, as `generate` gives them.

        Raises:
            ValueError: if a prompt is empty, too long, or has an id outside the vocabulary.
        """
        config = config or GenerateConfig()
        prepared = []
        for number, ids in enumerate(prompts, start=1):
            prompt = prepare(number, "", ids, self.bundle, config)
            prepared.append(Prompt(number, self.tokenizer.decode_text(ids), prompt.ids, prompt.limit, prompt.notice))
        return list(self._answers(prepared, config, _log.warning))

    def generate_each(
        self,
        prompts: Iterable[str],
        config: GenerateConfig | None = None,
        *,
        read_ahead: bool = True,
        on_notice: Callable[[str], None] = _log.warning,
    ) -> Iterator[Generation]:
        """The continuations of any number of prompts, in order, some batches at a time.

        Args:
            prompts: Text to go on from; read as needed.
            config: How; None takes the defaults.
            read_ahead: Read many prompts to batch those of similar length; without it each is answered before the next
                one is read.
            on_notice: As in `generate`.

        Raises:
            ValueError: as in `generate`, after the continuations of the prompts before. So do errors of the iterable.
        """
        if isinstance(prompts, str):
            raise ValueError("prompts is an iterable of strings, got one string; write generate_each([text])")
        config = config or GenerateConfig()
        prepared = (self._prepare(number, text, config) for number, text in enumerate(prompts, start=1))
        while True:
            window, error = _take(prepared, config, READ_AHEAD * config.batch_tokens if read_ahead else 1)
            yield from self._answers(window, config, on_notice)
            if error is not None:
                raise error
            if not window:
                return

    def stream(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        *,
        number: int = 1,
        sample: int = 1,
        on_notice: Callable[[str], None] = _log.warning,
    ) -> Iterator[str]:
        """The text of one continuation as it grows: parts that together are what `generate` gives.

        No part ends inside a character, and nothing is given that might become a stop string. A beam has no text
        before its end, so it gives one part.

        Args:
            prompt: Text to go on from.
            config: How; None takes the defaults.
            number: What number the prompt would have in a list.
            sample: Which of its samples to give.
            on_notice: As in `generate`.

        Raises:
            ValueError: as in `generate`.
        """
        config = config or GenerateConfig()
        return self._stream((self._prepare(number, prompt, config), sample), config, on_notice)

    def score(
        self, texts: Sequence[str], *, context: int | None = None, count_end: bool = False, batch_tokens: int = 8192
    ) -> list[ScoredText]:
        """The log-probability of each text as the beginning of a document.

        A text that is longer than the context is read in windows of that length that overlap by half: each piece is
        scored once, and all but the first ones from at least half a window of text before it.

        Args:
            texts: Whole texts, line feeds included.
            context: Most pieces read at once; None is as many as the model has learned positions, else 1024.
            count_end: Whether the end of the document after the text counts too.
            batch_tokens: Pieces read at once, padding counted.

        Raises:
            ValueError: if `texts` is one string, or the context is out of range.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a list of strings, got one string; write score([text])")
        return score_texts(self.bundle, texts, context=context, count_end=count_end, batch_tokens=batch_tokens)

    def _prepare(self, number: int, text: str, config: GenerateConfig) -> Prompt:
        if not isinstance(text, str):
            raise ValueError(f"prompt {number} is {text!r:.40}, expected a string")
        return prepare(number, text, self.tokenizer.prompt(text), self.bundle, config)

    def _answers(
        self, prompts: Sequence[Prompt], config: GenerateConfig, on_notice: Callable[[str], None]
    ) -> Iterator[Generation]:
        """All continuations in order, each as soon as it and those before it are known."""
        done: dict[int, Generation] = {}
        waiting = iter(batches(prompts, config))
        for place in range(len(prompts) * config.num_samples):
            while place not in done:
                batch = next(waiting)
                found = self._decode([item for _, item in batch], config)
                done.update(zip([at for at, _ in batch], found, strict=True))
            notice = done[place].notice
            if notice is not None:
                on_notice(notice)
            yield done.pop(place)

    def _decode(self, items: Sequence[Item], config: GenerateConfig) -> list[Generation]:
        """The continuations of a batch."""
        decoding = Decoding(self.bundle, items, config)
        with evaluation(self.model):
            found = decoding.run()
        return [self._generation(item, decoding, place, found[place]) for place, item in enumerate(items)]

    def _generation(self, item: Item, decoding: Decoding, place: int, found: Hypothesis) -> Generation:
        prompt, sample = item
        ended = self._ended(found, decoding.limits.ends)
        return Generation(
            number=prompt.number,
            sample=sample,
            prompt=prompt.text,
            prompt_ids=prompt.ids,
            text=_text(decoding, place, found, ended),
            tokens=tuple(self.tokenizer.pieces(found.ids)),
            ids=found.ids,
            token_log_probs=found.token_log_probs,
            log_prob=found.log_prob,
            ended=ended,
            notice=_notice(prompt, ended),
        )

    def _stream(self, item: Item, config: GenerateConfig, on_notice: Callable[[str], None]) -> Iterator[str]:
        if config.beam_size > 1:
            (whole,) = self._answers([item[0]], config, on_notice)
            yield from [whole.text] if whole.text else []
            return
        decoding = Decoding(self.bundle, [item], config)
        with evaluation(self.model):
            steps = decoding.steps()
        ids: list[int] = []
        told = 0
        found: Hypothesis | None = None
        while found is None:
            with evaluation(self.model):  # not around the yield: what is done with the text is no business of ours
                grown: list[Grown] = next(steps)
            ids.append(grown[0].piece)
            found = grown[0].hypothesis
            text = decoding.continuations[0].settled(ids)
            if found is not None:
                ended = self._ended(found, decoding.limits.ends)
                text = _text(decoding, 0, found, ended)
                notice = _notice(item[0], ended)
                if notice is not None:
                    on_notice(notice)
            if len(text) > told:
                yield text[told:]
                told = len(text)

    @staticmethod
    def _ended(found: Hypothesis, ends: Sequence[int]) -> Ended:
        if found.ids[-1] in ends:
            return Ended.eos
        return Ended.limit if found.hit_limit else Ended.stop


def _text(decoding: Decoding, place: int, found: Hypothesis, ended: Ended) -> str:
    ids = found.ids[:-1] if ended is Ended.eos else found.ids
    return decoding.continuations[place].final(ids, cut=ended is Ended.limit)


def _notice(prompt: Prompt, ended: Ended) -> str | None:
    """Told only where the end of the positions was the end of the text."""
    return prompt.notice if ended is Ended.limit else None


def _take(prompts: Iterator[Prompt], config: GenerateConfig, room: int) -> tuple[list[Prompt], Exception | None]:
    """The next prompts, `room` pieces or one more than fits, and the error that ended them early, if one did."""
    taken: list[Prompt] = []
    try:
        for prompt in prompts:
            taken.append(prompt)
            room -= (len(prompt.ids) + prompt.limit) * config.beam_size * config.num_samples
            if room <= 0:
                break
    except Exception as error:  # noqa: BLE001, RUF100  raised again by the caller, after these prompts
        return taken, error
    return taken, None


def _check(bundle: Bundle) -> None:
    """Refuse a model that does not go on from texts, or was not built for its tokenizer.

    Raises:
        ValueError: with the task, or the sizes.
    """
    if bundle.task is not Task.language_model:
        raise ValueError(
            "this bundle is a model that translates, not a language model; use `seq2seq translate`, or a bundle of a "
            "model that was trained on plain text (data=text)"
        )
    vocab_size, rows = bundle.target_tokenizer.vocab_size, len(bundle.model.output)
    if vocab_size > rows:
        raise ValueError(
            f"the tokenizer has {vocab_size} pieces, but the model only {rows} rows; use the tokenizer that it was "
            "trained with"
        )
