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
            sentences: For each sentence that goes on its old place in the batch. A place that comes more than once
                makes several sentences of one, which then go their own ways.
        """
        ...


State = TypeVar("State", bound=SearchState)

StepFunction = Callable[[Int[Tensor, "R 1"], State], tuple[Float[Tensor, "R V"], State]]
"""Takes the last piece of every row (`SearchLimits.starts` at first) and gives the logits of the next one."""


def next_log_probs(
    step: StepFunction[State],
    tokens: Int[Tensor, "R 1"],
    state: State,
    *,
    rows: Rows,
    rules: Sequence[Rule],
    edits: Sequence[Rule] = (),
    limits: SearchLimits,
) -> tuple[Float[Tensor, "R V"], Float[Tensor, "R V"], State]:
    """Log-probabilities of every row's next piece: what the search goes by, what the model gives, and the new state.

    The first are -inf where a rule forbids a piece. They are normalised over the whole row before the rules, in float32
    (float64 for float64 logits), after the `edits` of the logits. Without edits both are one tensor, so only the
    model's values of pieces that are allowed can be relied on.

    Raises:
        ValueError: if an id of `limits` lies outside the model's outputs.
    """
    logits, state = step(tokens, state)
    limits.check_vocab_size(logits.shape[-1])
    dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
    own = torch.log_softmax(logits, dim=-1, dtype=dtype)
    log_probs = own
    if edits:
        edited = logits.to(dtype, copy=True)
        for edit in edits:
            edit(rows, edited)
        log_probs = torch.log_softmax(edited, dim=-1)
    for rule in rules:
        rule(rows, log_probs)
    return log_probs, own, state


def values_at(log_probs: Float[Tensor, "R V"], pieces: Int[Tensor, "R n"]) -> Float[Tensor, "R n"]:
    """The entries of the given pieces of each row, on the CPU, in float64."""
    return log_probs.gather(1, pieces.to(log_probs.device)).cpu().double()


def refuse_nan(values: Float[Tensor, "R n"]) -> None:
    """Refuse log-probabilities that are not numbers.

    Raises:
        ValueError: if one is NaN.
    """
    if values.isnan().any():
        raise ValueError(
            "the model's log-probabilities are NaN, expected numbers; look for NaN or infinite weights, or overflow "
            "in half precision"
        )


def top_pieces(log_probs: Float[Tensor, "R V"], count: int) -> tuple[Float[Tensor, "R n"], Int[Tensor, "R n"]]:
    """The `count` best next pieces of every row (all, if there are fewer), on the CPU, log-probabilities in float64.

    Best first; of equally good pieces the lower id comes first, and is the one kept, on every device.

    Raises:
        ValueError: if a log-probability is NaN.
    """
    count = min(count, log_probs.shape[1])
    # One more than asked for shows whether the choice of the last one was arbitrary.
    found, found_ids = _topk(log_probs, min(count + 1, log_probs.shape[1]))
    values, ids = found.cpu(), found_ids.cpu()
    refuse_nan(values)
    if (values[:, 1:] == values[:, :-1]).any():
        values, ids = _settle_ties(log_probs, values, ids, count)
    return values[:, :count].double().contiguous(), ids[:, :count].contiguous()


def _settle_ties(
    log_probs: Float[Tensor, "R V"], values: Float[Tensor, "R m"], ids: Int[Tensor, "R m"], count: int
) -> tuple[Float[Tensor, "R n"], Int[Tensor, "R n"]]:
    """Of equally good pieces the ones with the lowest ids, these first, where `values` has up to `count` + 1 a row."""
    if values.shape[1] > count:
        tied = ((values[:, count] == values[:, count - 1]) & (values[:, count] > -torch.inf)).nonzero()[:, 0]
        values, ids = values[:, :count].clone(), ids[:, :count].clone()
        if len(tied):
            rows = tied.to(log_probs.device)
            lowest = _lowest_ids(log_probs[rows], values[tied].to(log_probs.device))
            values[tied], ids[tied] = log_probs[rows[:, None], lowest].cpu(), lowest.cpu()
    ids, order = ids.sort(dim=-1)
    values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


NUM_STRIPES = 32


def _topk(log_probs: Float[Tensor, "R V"], count: int) -> tuple[Float[Tensor, "R n"], Int[Tensor, "R n"]]:
    """The same values as `torch.topk`, in two thirds of its time on a CPU.

    The vocabulary is read as a table of 32 lines and as many columns as that takes. The best `count` pieces lie in the
    `count` columns with the highest maxima (or in the remainder behind the table), so only those are searched.
    """
    num_columns = log_probs.shape[1] // NUM_STRIPES
    if num_columns < 4 * count:
        return log_probs.topk(count, dim=-1)
    table = log_probs[:, : NUM_STRIPES * num_columns].view(-1, NUM_STRIPES, num_columns)
    columns = table.amax(dim=1).topk(count, dim=-1, sorted=False).indices
    inside = table.gather(2, columns[:, None, :].expand(-1, NUM_STRIPES, -1)).flatten(1)
    remainder = log_probs[:, NUM_STRIPES * num_columns :]
    values, places = torch.cat([inside, remainder], dim=1).topk(count, dim=-1)
    lines = places.div(count, rounding_mode="floor")
    ids = lines * num_columns + columns.gather(1, places % count)
    behind = places >= inside.shape[1]
    return values, torch.where(behind, places - inside.shape[1] + NUM_STRIPES * num_columns, ids)


def _lowest_ids(log_probs: Float[Tensor, "N V"], best: Float[Tensor, "N n"]) -> Int[Tensor, "N n"]:
    """The n best ids of each row in ascending order, the lowest ones where the last of `best` is shared by more."""
    last = best[:, -1:]
    shared = log_probs == last
    room = (best == last).sum(dim=-1, keepdim=True)
    chosen = (log_probs > last) | (shared & (shared.cumsum(dim=-1) <= room))
    return chosen.nonzero()[:, 1].view(best.shape)
