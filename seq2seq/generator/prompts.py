"""Prompts on their way to the model: encoded, measured against its positions, put into batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seq2seq.bundle import Bundle
from seq2seq.config import GenerateConfig, PositionKind
from seq2seq.corpus.batching import token_batches


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model is given it."""

    number: int
    """Counted from 1."""
    text: str
    """As given."""
    ids: tuple[int, ...]
    """At least one."""
    limit: int
    """Most pieces of a continuation."""
    notice: str | None
    """Why that is less than what was asked for; to be told if the text gets so long."""


Item = tuple[Prompt, int]
"""A prompt, and which of its samples is wanted, counted from 1."""


def prepare(number: int, text: str, ids: Sequence[int], bundle: Bundle, config: GenerateConfig) -> Prompt:
    """The prompt with the longest continuation that the model has positions for, up to what is asked for.

    Raises:
        ValueError: if there is no piece, more than the model has positions, or one outside the vocabulary.
    """
    vocab_size = bundle.target_tokenizer.vocab_size
    if not ids:
        raise ValueError(f"prompt {number} has no pieces; give at least one, such as BOS")
    outside = [id_ for id_ in ids if not 0 <= id_ < vocab_size]
    if outside:
        raise ValueError(
            f"prompt {number} has ids {outside[:5]} outside the vocabulary of {vocab_size} pieces; use the tokenizer "
            "that the model was trained with"
        )
    limit, notice = config.max_new_pieces, None
    positions = num_positions(bundle)
    if positions is not None:
        if len(ids) > positions:
            raise ValueError(
                f"prompt {number} has {len(ids)} pieces, but the model has learned {positions} positions; shorten it"
            )
        room = positions - len(ids) + 1  # the last piece of a text is never read
        if room < limit:
            notice = (
                f"the text of prompt {number} was cut after {room} new pieces, not {limit}: the prompt has {len(ids)}, "
                f"and the model has learned {positions} positions"
            )
            limit = room
    return Prompt(number, text, tuple(ids), limit, notice)


def num_positions(bundle: Bundle) -> int | None:
    """Pieces that the model can read at once; None for as many as one likes."""
    config = bundle.model_config
    return config.max_positions if config.positions is PositionKind.learned else None


def batches(prompts: Sequence[Prompt], config: GenerateConfig) -> Iterator[list[tuple[int, Item]]]:
    """Every sample of every prompt once, with its place in the order of the answers.

    Those of similar length come together; a batch with an early prompt comes early. A batch is larger than
    `batch_tokens` only if one continuation alone is.
    """
    items = [(prompt, sample) for prompt in prompts for sample in range(1, config.num_samples + 1)]
    lengths = [(len(prompt.ids) + prompt.limit) * config.beam_size for prompt, _ in items]
    budget = max(config.batch_tokens, *lengths, 1)
    for batch in sorted(token_batches(lengths, lengths, budget, shuffle=False), key=min):
        yield [(place, items[place]) for place in sorted(batch)]
