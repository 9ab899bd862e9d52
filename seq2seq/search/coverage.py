"""What hypotheses lose that leave a part of the source unattended to."""

from collections.abc import Callable

import numpy as np

from seq2seq.shapes import Float, Tensor


class Coverage:
    """Lowers the score of a hypothesis by how much attention each source piece lacks.

    It is never above 0, so that a search whose stop rule is exact stays so: what a live hypothesis could still reach
    without it is more than it can reach with it.

    Source:
        Wu et al. 2016, arXiv:1609.08144, equation 14: ``beta * sum_i log(min(sum_j p_ij, 1))`` over source pieces i and
        target pieces j, EOS of the target among these. Deviations: EOS of the source does not count, since nothing
        translates it; a sum is taken as at least 1e-38, so that no score is infinite.

    Args:
        weight: beta; more favours hypotheses that attend to everything.
        sums: Takes a state of the search and gives the attention that each row has paid to each source piece so far,
            at least 1 at pieces that do not count.
    """

    def __init__(self, weight: float, sums: Callable[[object], Float[Tensor, "R S"]]) -> None:
        assert weight >= 0, "a bonus is never above 0"
        self._weight, self._sums = weight, sums

    def __call__(self, state: object) -> Float[np.ndarray, " R"]:
        """For each row of the state what its score gains at its end, at most 0."""
        sums = self._sums(state).cpu().double()
        covered: np.ndarray = sums.clamp(1e-38, 1.0).log().sum(1).numpy()
        return self._weight * covered
