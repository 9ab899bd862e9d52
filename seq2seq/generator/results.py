"""What a generator answers."""

import math
from dataclasses import dataclass
from enum import Enum


class Ended(Enum):
    """Why a text is over: the model ended it, a stop string came, or it had as many pieces as were allowed."""

    eos = "eos"
    stop = "stop"
    limit = "limit"


@dataclass(frozen=True)
class Generation:
    """One continuation of one prompt."""

    number: int
    """Number of the prompt in the input, counted from 1."""
    sample: int
    """Which of the prompt's continuations this is, counted from 1."""
    prompt: str
    """The prompt."""
    prompt_ids: tuple[int, ...]
    """What the model was given."""
    text: str
    """The continuation alone, with its line feeds, up to a stop string. A character that the limit cut is left out."""
    tokens: tuple[str, ...]
    """All pieces produced, with the closing EOS, or with those of the stop string."""
    ids: tuple[int, ...]
    """Ids of `tokens`."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each piece, given the prompt and the pieces before, in nats: the model's own, whatever
    temperature, filters and penalties have decided by."""
    log_prob: float
    """Sum of `token_log_probs`, in nats."""
    ended: Ended
    """Why it is over."""
    notice: str | None
    """Set if it ends before it is as long as asked for because the model has learned no more positions."""


@dataclass(frozen=True)
class ScoredText:
    """How probable a given text is."""

    text: str
    """The text."""
    log_prob: float
    """Sum of `token_log_probs`, in nats."""
    tokens: tuple[str, ...]
    """The pieces that were scored, the closing EOS included if it was asked for."""
    ids: tuple[int, ...]
    """Ids of `tokens`."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each piece, given those before, in nats."""
    num_bytes: int
    """Bytes of the text in UTF-8."""
    num_characters: int
    """Unicode code points of the text."""
    notice: str | None
    """Set if the text was longer than the model can be given at once: how it was read."""

    @property
    def perplexity(self) -> float:
        """Per piece."""
        return perplexity(self.log_prob, len(self.ids))

    @property
    def byte_perplexity(self) -> float:
        """Per byte of the text, whatever its pieces: comparable between vocabularies."""
        return perplexity(self.log_prob, self.num_bytes)

    @property
    def character_perplexity(self) -> float:
        """Per character of the text, whatever its pieces."""
        return perplexity(self.log_prob, self.num_characters)


def perplexity(log_prob: float, count: int) -> float:
    """The inverse of the geometric mean of the probability of `count` units; 1 for none."""
    nats = -log_prob / count if count else 0.0
    return math.exp(nats) if nats < 700 else math.inf
