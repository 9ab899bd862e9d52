"""Options of text generation."""

from dataclasses import dataclass, field

from seq2seq.config.checks import TOO_LARGE, positive, require
from seq2seq.config.choices import PenaltyForm


@dataclass(frozen=True)
class GenerateConfig:
    """How a language model goes on from a prompt. Lengths are in pieces.

    Without a temperature the most probable text is looked for: greedily, or with a beam. With one, texts are drawn.
    """

    max_new_pieces: int = 256
    """A text ends after so many pieces beyond its prompt, if it has not ended before."""
    beam_size: int = 1
    """Texts kept for each prompt; 1 is greedy search."""
    penalty_form: PenaltyForm = PenaltyForm.power
    """Which divisor makes the texts of a beam comparable that end after different lengths."""
    length_penalty: float = 1.0
    """Exponent p of the divisor: larger favours longer texts, negative shorter ones, 0 neither."""
    temperature: float = 0.0
    """0 draws nothing. 1 draws by the model's probabilities, less makes probable pieces still more probable."""
    top_k: int | None = None
    """Draw from the k most probable pieces; null draws from all."""
    top_p: float = 1.0
    """Draw from the most probable pieces that together have this probability; 1 draws from all."""
    min_p: float = 0.0
    """Draw from the pieces that are at least so probable beside the best one; 0 draws from all."""
    repetition_penalty: float = 1.0
    """Logits of pieces that were there already, the prompt's too, are divided by this (negative ones multiplied)."""
    num_samples: int = 1
    """Texts drawn for each prompt."""
    seed: int = 1
    """Seed of the draws. With it, the number of the prompt and that of the sample decide what is drawn."""
    stop: list[str] = field(default_factory=list)
    """A text ends where one of these comes; it is not part of the text."""
    batch_tokens: int = 8192
    """Pieces of prompts and their continuations decoded at once, each sample and beam counted."""

    def __post_init__(self) -> None:
        for name in ("max_new_pieces", "beam_size", "num_samples", "batch_tokens", "repetition_penalty"):
            positive(name, getattr(self, name))
        require(
            abs(self.length_penalty) <= 20,
            f"length_penalty={self.length_penalty} is not between -20 and 20; 1 is usual, 0 is off",
        )
        require(
            0 <= self.temperature < TOO_LARGE,
            f"temperature={self.temperature} is negative or too large; 0 draws nothing, 0.7 to 1 is usual",
        )
        if self.top_k is not None:
            positive("top_k", self.top_k)
        require(0 < self.top_p <= 1, f"top_p={self.top_p} is not above 0 and at most 1; 0.9 is usual, 1 is off")
        require(0 <= self.min_p <= 1, f"min_p={self.min_p} is not between 0 and 1; 0.05 is usual, 0 is off")
        require(0 <= self.seed < 2**32, f"seed={self.seed} is out of range; choose 0 <= seed < {2**32}")
        for string in self.stop:
            require(
                isinstance(string, str) and string != "",
                f"stop has {string!r}, expected strings of at least one character",
            )
        self._check_together()

    def _check_together(self) -> None:
        """Refuse options of which one makes another mean nothing."""
        require(
            self.beam_size == 1 or self.temperature == 0,
            f"beam_size={self.beam_size} looks for the most probable text, temperature={self.temperature} draws one; "
            "choose beam_size=1 or temperature=0",
        )
        drawing = {"top_k": None, "top_p": 1.0, "min_p": 0.0, "num_samples": 1}
        for name, off in drawing.items():
            value = getattr(self, name)
            require(
                value == off or self.temperature > 0,
                f"{name}={value} is for texts that are drawn, but with temperature=0 nothing is; give a temperature "
                "above 0, such as 1",
            )
