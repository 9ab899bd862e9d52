"""Small objects that change how probable pieces are: each edits what a step's pieces are worth, in place.

They are rules as those of `rules`, to be used in two places. `RepetitionPenalty` looks at the sign of a logit, so it
edits logits, before they are normalised (the `edits` of a search). The others do not mind a constant that is added to
all pieces of a row, so they edit the log-probabilities that are left after all limits have been kept (the `filters` of
`sampling`). Each gives what the logits processor of `transformers` of the same name gives for the same numbers.
"""

from collections.abc import Sequence

import torch

from seq2seq.search.rules import Rows, Rule
from seq2seq.shapes import Float, Int, Tensor


class RepetitionPenalty:
    """Makes pieces less probable that the prompt or the hypothesis has already, however often.

    Source:
        Keskar et al. 2019 (CTRL), arXiv:1909.05858, section 4.1, divides the logit of such a piece by the penalty.
        Deviation, as everywhere: a negative logit is multiplied instead, for dividing would make it more probable.

    Args:
        penalty: Above 1 discourages repetition, below 1 encourages it.
        prompts: For each sentence the pieces before its hypotheses, which count too; None if there are none.
    """

    def __init__(self, penalty: float, prompts: Sequence[Sequence[int]] | None = None) -> None:
        self._penalty = penalty
        self._prompts: Int[Tensor, "B P"] | None = None
        if prompts is not None:
            longest = max(map(len, prompts), default=0)
            # filled up with a piece that counts anyway
            filled = [[*prompt, *[prompt[0]] * (longest - len(prompt))] for prompt in prompts if len(prompt)]
            assert len(filled) == len(prompts), "every prompt has a piece"
            self._prompts = torch.tensor(filled, dtype=torch.long).view(len(prompts), longest)

    def __call__(self, rows: Rows, logits: Float[Tensor, "R V"]) -> None:
        """Penalise the pieces that each row has."""
        pieces = rows.ids if self._prompts is None else torch.cat([self._prompts[rows.sentences], rows.ids], dim=1)
        pieces = pieces.to(logits.device)
        values = logits.gather(1, pieces)
        values = torch.where(values < 0, values * self._penalty, values / self._penalty)
        logits.scatter_(1, pieces, values)


class PiecePenalty:
    """Takes nats off the logit of one piece, such as the unknown one.

    Used as an edit of logits the chances of all other pieces grow together by what that one loses. As a hypothesis'
    log-probabilities are reported as the model gives them, the penalty shows in its score alone.

    Args:
        piece: Its number.
        nats: What it costs.
    """

    def __init__(self, piece: int, nats: float) -> None:
        self._piece = piece
        self._nats = nats

    def __call__(self, rows: Rows, logits: Float[Tensor, "R V"]) -> None:
        """Penalise the piece in every row."""
        logits[:, self._piece] -= self._nats


class Temperature:
    """Divides by the temperature: below 1 sharpens the distribution, above 1 flattens it.

    Source:
        Ackley et al. 1985, "A learning algorithm for Boltzmann machines", equation 5.
    """

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Scale every row."""
        log_probs.div_(self._temperature)


class TopK:
    """Leaves the k most probable pieces, and those that are as probable as the last of them.

    Source:
        Fan et al. 2018, arXiv:1805.04833, section 5.4. Deviation: ties, which the paper does not speak of, all stay.
    """

    def __init__(self, k: int) -> None:
        self._k = k

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid what is worse than the k-th best piece of its row."""
        last = log_probs.topk(min(self._k, log_probs.shape[1]), dim=-1).values[:, -1:]
        log_probs.masked_fill_(log_probs < last, -torch.inf)


class TopP:
    """Leaves the smallest set of most probable pieces whose probabilities add up to p; at least one.

    Source:
        Holtzman et al. 2020, arXiv:1904.09751, section 3.1, equation 2 (nucleus sampling).
    """

    def __init__(self, p: float) -> None:
        self._p = p

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid the pieces before which the better ones have p already."""
        values, order = log_probs.sort(dim=-1, descending=True, stable=True)
        probabilities = values.softmax(-1)
        ahead = probabilities.cumsum(-1) - probabilities
        beyond = ahead >= self._p
        beyond[:, 0] = False
        log_probs.masked_fill_(beyond.scatter(1, order, beyond), -torch.inf)


class MinP:
    """Leaves the pieces that are at least p times as probable as the best one of their row.

    Source:
        Nguyen et al. 2024, arXiv:2407.01082, section 3.
    """

    def __init__(self, p: float) -> None:
        self._p = p

    def __call__(self, rows: Rows, log_probs: Float[Tensor, "R V"]) -> None:
        """Forbid what is too improbable beside the best."""
        probabilities = log_probs.softmax(-1)
        log_probs.masked_fill_(probabilities < self._p * probabilities.amax(-1, keepdim=True), -torch.inf)


def draw_filters(temperature: float, top_k: int | None, top_p: float, min_p: float) -> list[Rule]:
    """What is done to the probabilities before a piece is drawn, in the order in which `transformers` does it.

    Args:
        temperature: Above 0; 1 is off.
        top_k: None is off.
        top_p: 1 is off.
        min_p: 0 is off.
    """
    rules: list[Rule] = []
    if temperature != 1:
        rules.append(Temperature(temperature))
    if top_k is not None:
        rules.append(TopK(top_k))
    if top_p < 1:
        rules.append(TopP(top_p))
    if min_p > 0:
        rules.append(MinP(min_p))
    return rules
