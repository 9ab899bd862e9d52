"""The divisor that makes log-probabilities of short and long hypotheses comparable."""

from dataclasses import dataclass

import numpy as np

from seq2seq.config import PenaltyForm
from seq2seq.shapes import Float, Int


@dataclass(frozen=True)
class LengthPenalty:
    """Divisor of a hypothesis' log-probability, a monotone function of its length.

    A length counts the generated pieces, a forced prefix and the closing EOS included. A positive exponent favours
    long hypotheses, a negative one short ones, and 0 compares plain log-probabilities.

    Source:
        Wu et al. 2016, arXiv:1609.08144, equation 14: ``lp(Y) = (5 + |Y|)^a / (5 + 1)^a`` is the form ``gnmt``,
        without the coverage term. The form ``power`` is ``|Y|^a``; with exponent 1 it gives the mean per piece.
    """

    form: PenaltyForm = PenaltyForm.none
    exponent: float = 0.0

    def __call__(self, length: int) -> float:
        """The divisor for a hypothesis of `length` pieces, EOS included."""
        return float(self.divisors(np.array([[length]]))[0, 0])

    def divisors(self, lengths: Int[np.ndarray, "B n"]) -> Float[np.ndarray, "B n"]:
        """The divisor for each length."""
        if self.form is PenaltyForm.none:
            return np.ones(lengths.shape)
        bases = (5.0 + lengths) / 6.0 if self.form is PenaltyForm.gnmt else lengths.astype(np.float64)
        found: np.ndarray = bases**self.exponent
        return found

    def best_possible(
        self,
        log_probs: Float[np.ndarray, "B M"],
        next_lengths: Int[np.ndarray, "B 1"],
        max_lengths: Int[np.ndarray, "B 1"],
    ) -> Float[np.ndarray, "B M"]:
        """The highest score that any completion of each live hypothesis can reach.

        More pieces only lower a log-probability, and the divisor is monotone in the length, so no completion beats
        today's log-probability over the divisor at one of the two ends. The sign of the exponent does not matter.

        Args:
            log_probs: Log-probabilities so far, in nats, at most 0.
            next_lengths: Pieces of the shortest completion.
            max_lengths: Pieces of the longest completion.
        """
        best: np.ndarray = np.maximum(log_probs / self.divisors(next_lengths), log_probs / self.divisors(max_lengths))
        return best
