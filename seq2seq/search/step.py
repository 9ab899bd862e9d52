"""One step of any search: what the model is to a search, and the best next pieces of every row."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import torch

from seq2seq.search.hypotheses import SearchLimits
from seq2seq.search.rules import Rows, Rule
from seq2seq.shapes import Float, Int, Tensor

# typing.Self would do if the checks of annotations in the tests understood it in methods.
Same = TypeVar("Same")


@runtime_checkable
class SearchState(Protocol):
    """What a step function remembers of the pieces fed so far. A value: an old state is not used again."""

    def select(self: Same, rows: Int[Tensor, " R"], sentences: Int[Tensor, " B"]) -> Same:
        """The state after the search has chosen which hypotheses go on.

        Args:
            rows: For each new row the old row that it continues. Rows are sentence by sentence, the beam fastest, and
                every sentence has equally many; how many may change from call to call.
            sentences: For each sentence that goes on its old place in the batch.
        """
        ...


State = TypeVar("State", bound=SearchState)

StepFunction = Callable[[Int[Tensor, "R 1"], State], tuple[Float[Tensor, "R V"], State]]
"""Takes the last piece of every row (BOS at first) and gives the logits of the next one."""


def next_log_probs(
    step: StepFunction[State],
    tokens: Int[Tensor, "R 1"],
    state: State,
    *,
    rows: Rows,
    rules: Sequence[Rule],
    limits: SearchLimits,
) -> tuple[Float[Tensor, "R V"], State]:
    """Log-probabilities of every row's next piece, -inf where a rule forbids it.

    Normalised over the whole row before the rules, in float32 (float64 for float64 logits).

    Raises:
        ValueError: if an id of `limits` lies outside the model's outputs.
    """
    logits, state = step(tokens, state)
    limits.check_vocab_size(logits.shape[-1])
    dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
    log_probs = torch.log_softmax(logits, dim=-1, dtype=dtype)
    for rule in rules:
        rule(rows, log_probs)
    return log_probs, state


def top_pieces(log_probs: Float[Tensor, "R V"], count: int) -> tuple[Float[Tensor, "R n"], Int[Tensor, "R n"]]:
    """The `count` best next pieces of every row (all, if there are fewer), on the CPU, log-probabilities in float64.

    Best first; of equally good pieces the lower id comes first, and is the one kept, on every device.

    Raises:
        ValueError: if a log-probability is NaN.
    """
    count = min(count, log_probs.shape[1])
    # One more than asked for shows whether the choice of the last one was arbitrary.
    found, found_ids = log_probs.topk(min(count + 1, log_probs.shape[1]), dim=-1)
    values, ids = found.cpu(), found_ids.cpu()
    if values.isnan().any():
        raise ValueError(
            "the model's log-probabilities are NaN, expected numbers; look for NaN or infinite weights, or overflow "
            "in half precision"
        )
    if values.shape[1] > count:
        tied = ((values[:, count] == values[:, count - 1]) & (values[:, count] > -torch.inf)).nonzero()[:, 0]
        values, ids = values[:, :count].contiguous(), ids[:, :count].contiguous()
        if len(tied):
            ids[tied] = _lowest_ids(log_probs[tied.to(log_probs.device)], values[tied].to(log_probs.device)).cpu()
            values[tied] = log_probs[tied.to(log_probs.device)[:, None], ids[tied].to(log_probs.device)].cpu()
    if (values[:, 1:] == values[:, :-1]).any():
        ids, order = ids.sort(dim=-1)
        values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
        ids = ids.gather(1, order)
    return values.double(), ids


def _lowest_ids(log_probs: Float[Tensor, "N V"], best: Float[Tensor, "N n"]) -> Int[Tensor, "N n"]:
    """The n best ids of each row in ascending order, the lowest ones where the last of `best` is shared by more."""
    last = best[:, -1:]
    shared = log_probs == last
    room = (best == last).sum(dim=-1, keepdim=True)
    chosen = (log_probs > last) | (shared & (shared.cumsum(dim=-1) <= room))
    return chosen.nonzero()[:, 1].view(best.shape)
