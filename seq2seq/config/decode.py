"""Options of the search for translations."""

from dataclasses import dataclass

from seq2seq.config.checks import TOO_LARGE, positive, require
from seq2seq.config.choices import LongLines, PenaltyForm


@dataclass(frozen=True)
class DecodeConfig:
    """How translations are searched for. Lengths are in target pieces and count the closing EOS."""

    beam_size: int = 4
    """Hypotheses kept for each sentence; 1 is greedy search."""
    n_best: int = 1
    """Translations returned for each sentence, at most `beam_size`."""
    penalty_form: PenaltyForm = PenaltyForm.gnmt
    """Which divisor normalises for length."""
    length_penalty: float = 0.6
    """Exponent p of the divisor: larger favours longer translations, negative shorter ones, 0 neither."""
    min_length: int = 1
    """EOS is not allowed before this many pieces."""
    max_length: int | None = None
    """No translation is longer than this, whatever the source."""
    max_length_factor: float = 2.0
    """The limit is factor * source length + offset, ..."""
    max_length_offset: int = 10
    """... and the source length counts its EOS too."""
    min_length_factor: float = 0.0
    """EOS is not allowed before factor * source length pieces either."""
    max_source_length: int = 1024
    """Source lines with more pieces than this are treated as `long_lines` says."""
    long_lines: LongLines = LongLines.error
    """What becomes of longer source lines."""
    batch_tokens: int = 4096
    """Source pieces translated at once, padding and beams not counted."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "max_length_factor", "max_source_length", "batch_tokens", "min_length"):
            positive(name, getattr(self, name))
        require(
            self.n_best <= self.beam_size,
            f"n_best={self.n_best} is more than beam_size={self.beam_size}; choose a beam at least as large",
        )
        require(self.min_length_factor >= 0, f"min_length_factor={self.min_length_factor} is negative")
        require(
            abs(self.length_penalty) <= 20,
            f"length_penalty={self.length_penalty} is not between -20 and 20; 0.6 to 1 is usual, 0 is off",
        )
        require(
            1 <= self.max_length_offset < TOO_LARGE, f"max_length_offset={self.max_length_offset} must be at least 1"
        )
        require(
            self.min_length_factor <= self.max_length_factor,
            f"min_length_factor={self.min_length_factor} is more than max_length_factor={self.max_length_factor}",
        )
        if self.max_length is not None:
            require(
                self.max_length >= self.min_length,
                f"max_length={self.max_length} is less than min_length={self.min_length}",
            )
