"""The divisor that makes log-probabilities of short and long hypotheses comparable."""

from dataclasses import dataclass

from seq2seq.config import PenaltyForm


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
        if self.form is PenaltyForm.none:
            return 1.0
        base = (5.0 + length) / 6.0 if self.form is PenaltyForm.gnmt else float(length)
        return float(base**self.exponent)

    def best_possible(self, log_prob: float, next_length: int, max_length: int) -> float:
        """The highest score that any completion of a live hypothesis can reach.

        More pieces only lower a log-probability, and the divisor is monotone in the length, so no completion beats
        today's log-probability over the divisor at one of the two ends. The sign of the exponent does not matter.

        Args:
            log_prob: Log-probability so far, in nats, at most 0.
            next_length: Pieces of the shortest completion.
            max_length: Pieces of the longest completion.
        """
        return max(log_prob / self(next_length), log_prob / self(max_length))
