"""What a translator answers."""

from dataclasses import dataclass

Weights = tuple[tuple[float, ...], ...]
"""For each target piece its weights over the source pieces."""

Links = tuple[tuple[int, int], ...]
"""Pairs of a number on the source side and one on the target side, counted from 0, in ascending order."""


@dataclass(frozen=True)
class Candidate:
    """One way to translate a line."""

    text: str
    """The translation: one line, a line feed or carriage return that the pieces spell replaced by a space."""
    score: float
    """`log_prob` over the length penalty. Of a split line: the sum over its parts."""
    log_prob: float
    """Sum of `token_log_probs`, in nats."""
    tokens: tuple[str, ...]
    """The pieces, the closing EOS included. Of a split line: those of all parts, each closed by EOS."""
    ids: tuple[int, ...]
    """Ids of `tokens`."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each piece, given the ones before and the source, in nats; with `decode.shortlist` among the
    pieces of the sentence's shortlist."""
    hit_limit: bool
    """Whether the end was forced because the translation had reached its maximum length."""
    utility: float | None = None
    """Where `mbr` chooses: how much all candidates together are like it (0 to 100). Of a split line: the sum over its
    parts."""
    alignment: Weights | None = None
    """Soft alignment, if it was asked for: for each of `tokens` the attention that the position which predicts it pays
    to each source piece, EOS included; rows sum to 1. Of a split line: over the pieces of all parts, one after another,
    0 outside a piece's own part."""
    piece_links: Links | None = None
    """Hard alignment: for each of `tokens` but EOS the source piece with the largest weight, and its own place."""
    word_links: Links | None = None
    """The same between words: places in ``source.split()`` and ``text.split()``; of a language without spaces those of
    pieces."""

    @property
    def merit(self) -> float:
        """What candidates are ranked by: the utility where there is one, else the score."""
        return self.score if self.utility is None else self.utility


NOTHING = Candidate("", 0.0, 0.0, (), (), (), False)
"""The only candidate of a line that has nothing to translate."""


@dataclass(frozen=True)
class Translation:
    """What became of one line. The attributes of its best candidate can be read from it directly."""

    line: int
    """Number of the line in the input, counted from 1."""
    source: str
    """The line."""
    source_ids: tuple[tuple[int, ...], ...]
    """What the model was given, EOS included: one sequence, more if the line was split, none if it is blank."""
    candidates: tuple[Candidate, ...]
    """Distinct translations, best first: at least one, at most `n_best`. Drawn ones as they were drawn."""
    notice: str | None
    """Set if the line was too long: what has been done about it, with its number."""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text

    @property
    def score(self) -> float:
        """Score of the best candidate."""
        return self.candidates[0].score

    @property
    def log_prob(self) -> float:
        """Log-probability of the best candidate, in nats."""
        return self.candidates[0].log_prob

    @property
    def tokens(self) -> tuple[str, ...]:
        """Pieces of the best candidate."""
        return self.candidates[0].tokens

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of the best candidate."""
        return self.candidates[0].ids

    @property
    def token_log_probs(self) -> tuple[float, ...]:
        """Log-probability of each piece of the best candidate, in nats."""
        return self.candidates[0].token_log_probs

    @property
    def hit_limit(self) -> bool:
        """Whether the best candidate's end was forced."""
        return self.candidates[0].hit_limit


@dataclass(frozen=True)
class ScoredPair:
    """How probable a given translation is."""

    log_prob: float
    """Sum of `token_log_probs`, in nats."""
    score: float
    """`log_prob` over the length penalty."""
    tokens: tuple[str, ...]
    """The pieces that were scored, the closing EOS included."""
    ids: tuple[int, ...]
    """Ids of `tokens`."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each piece, given the ones before and the source, in nats."""
