"""One step of any search: what the model is to a search, and the best next pieces of every row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch

from seq2seq.search.hypotheses import SearchLimits
from seq2seq.search.rules import Rows, Rule
from seq2seq.shapes import Bool, Float, Int, Tensor

# typing.Self would do if the checks of annotations in the tests understood it in methods.
Same = TypeVar("Same")


@runtime_checkable
class SearchState(Protocol):
    """What a step function remembers of the pieces fed so far. A value: an old state is not used again."""

    def select(
        self: Same, rows: Int[Tensor, " R"], sentences: Int[Tensor, " B"], places: Int[Tensor, " R"] | None = None
    ) -> Same:
        """The state after the search has chosen which hypotheses go on. All indices are on the CPU.

        Args:
            rows: For each new row the old row that it continues; a row that stays where it is need not be moved.
            sentences: For each sentence that goes on its old place in the batch. A place that comes more than once
                makes several sentences of one, which then go their own ways.
            places: For each new row the new place of its sentence. None: rows are sentence by sentence, the beam
                fastest, and equally many of each.
        """
        ...


State = TypeVar("State", bound=SearchState)

StepFunction = Callable[[Int[Tensor, "R 1"], State], tuple[Float[Tensor, "R V"], State]]
"""Takes the last piece of every row (`SearchLimits.starts` at first) and gives the logits of the next one, which the
search may write over."""


@runtime_checkable
class Estimates(Protocol):
    """What stands for the logits of a step where only the best piece of each row is wanted."""

    values: Tensor
    """[R, V], on the CPU: roughly the logits. Rules may write -inf."""

    def best(self) -> Int[np.ndarray, "R 1"] | None:
        """The piece with the best logit of each row, of those whose value is not -inf; of equally good ones the lowest.

        None if the estimates are too rough to tell. They are used up.
        """
        ...

    def logits(self) -> Float[Tensor, "R V"]:
        """The logits themselves, nothing forbidden in them."""
        ...


EstimateFunction = Callable[[Int[Tensor, "R 1"], State], tuple[Estimates | Tensor, State]]
"""As a `StepFunction`, but gives estimates, or logits where it has none."""


@runtime_checkable
class Ranking(Protocol):
    """What a beam search asks of rows of logits. Without one they are asked of torch and NumPy, on any device."""

    def norm(self, logits: Float[Tensor, "R V"]) -> Float[np.ndarray, "R 1"]:
        """The logarithm of the sum of exponentials of each row.

        Raises:
            ValueError: if it is NaN.
        """
        ...

    def top(self, logits: Float[Tensor, "R V"], count: int) -> Int[np.ndarray, "R n"]:
        """The `count` best pieces of each row (all, if there are fewer), best first; of equally good ones the lower id.

        Where fewer pieces are above -inf, the rest are any others.
        """
        ...


@dataclass(frozen=True)
class Scores:
    """What the pieces after every row are worth. Log-probabilities are worked out only for those that are asked for.

    Attributes:
        logits: What the search goes by: edited, and -inf where a rule forbids a piece; float32 or float64.
        norm: [R, 1], what makes log-probabilities of them, over the whole row, before anything was forbidden.
        own: The model's logits; None where nothing has been edited or forbidden in them that could be asked for.
        own_norm: Likewise.
    """

    logits: Tensor
    norm: np.ndarray
    own: Tensor | None = None
    own_norm: np.ndarray | None = None

    @property
    def edited(self) -> bool:
        """Whether the search goes by something else than what the model gives."""
        return self.own is not None

    def log_probs(self, pieces: Int[np.ndarray, "R n"]) -> Float[np.ndarray, "R n"]:
        """What the search goes by, of the given pieces of each row, in nats, in float64."""
        return _normalised(self.logits, self.norm, pieces)

    def own_log_probs(self, pieces: Int[np.ndarray, "R n"]) -> Float[np.ndarray, "R n"]:
        """What the model gives to pieces that are allowed."""
        if self.own is None or self.own_norm is None:
            return self.log_probs(pieces)
        return _normalised(self.own, self.own_norm, pieces)


def _normalised(
    logits: Float[Tensor, "R V"], norm: Float[np.ndarray, "R 1"], pieces: Int[np.ndarray, "R n"]
) -> Float[np.ndarray, "R n"]:
    """Log-probabilities of pieces, on the CPU, in float64."""
    found: np.ndarray = chosen(logits, pieces) - norm
    return found


def chosen(logits: Float[Tensor, "R V"], pieces: Int[np.ndarray, "R n"]) -> Float[np.ndarray, "R n"]:
    """The logits of the given pieces of each row, on the CPU."""
    if logits.device.type == "cpu":
        return picked(logits.numpy(), pieces)
    found: np.ndarray = logits.gather(1, torch.from_numpy(pieces).to(logits.device)).cpu().numpy()
    return found


def in_floats(logits: Float[Tensor, "R V"], limits: SearchLimits) -> Float[Tensor, "R V"]:
    """A model's logits in float32 (float64 as they are).

    Raises:
        ValueError: if an id of `limits` lies outside the model's outputs.
    """
    limits.check_vocab_size(logits.shape[-1])
    return logits if logits.dtype is torch.float64 else logits.float()


def next_scores(
    step: StepFunction[State],
    tokens: Int[Tensor, "R 1"],
    state: State,
    *,
    rows: Rows,
    rules: Sequence[Rule],
    edits: Sequence[Rule] = (),
    limits: SearchLimits,
    ranking: Ranking | None = None,
) -> tuple[Scores, State]:
    """What every row's next piece is worth, and the new state.

    Log-probabilities are normalised over the whole row before the rules, in float32 (float64 for float64 logits), after
    the `edits` of the logits.

    Raises:
        ValueError: if an id of `limits` lies outside the model's outputs, or a logit is NaN.
    """
    logits, state = step(tokens, state)
    logits = in_floats(logits, limits)
    norm_of = _norm if ranking is None else ranking.norm
    own, own_norm = (logits.clone(), norm_of(logits)) if edits else (None, None)
    for edit in edits:
        edit(rows, logits)
    norm = norm_of(logits)
    for rule in rules:
        rule(rows, logits)
    return Scores(logits, norm, own, own_norm), state


FEW_LOGITS = 65536
"""Up to so many logits NumPy, which has no threads, sums them up sooner than torch, whose calls cost more."""


def _norm(logits: Float[Tensor, "R V"]) -> Float[np.ndarray, "R 1"]:
    """The logarithm of the sum of exponentials of each row, in float64, on the CPU.

    Raises:
        ValueError: if it is NaN.
    """
    norm: np.ndarray
    if logits.device.type != "cpu":
        norm = _stable_norm(logits)
    elif logits.numel() <= FEW_LOGITS:
        norm = _log_sum_exp(logits.numpy())
    else:
        norm = _norm_of_many(logits)
    check_numbers(norm)
    return norm.astype(np.float64)


def check_numbers(values: Float[np.ndarray, "*shape"]) -> None:
    """Refuse what a broken model gives.

    Raises:
        ValueError: if one of the values is NaN.
    """
    if np.isnan(values).any():
        raise ValueError(
            "the model's log-probabilities are NaN, expected numbers; look for NaN or infinite weights, or overflow "
            "in half precision"
        )


def _log_sum_exp(logits: Float[np.ndarray, "R V"]) -> Float[np.ndarray, "R 1"]:
    """The logarithm of the sum of exponentials of each row, whatever their range; NaN where one is infinite, or all
    are minus infinity."""
    with np.errstate(invalid="ignore"):  # infinity less infinity
        highest = logits.max(axis=1, keepdims=True)
        norm: np.ndarray = np.log(np.exp(logits - highest).sum(axis=1, keepdims=True)) + highest
    return norm


LOWEST, HIGHEST = -87.0, 80.0
"""Between these float32 logits can be exponentiated as they are: their sum does not overflow, and no term is subnormal,
which would take a hundred times as long."""

SUMS = 1e-25, 1e35
"""Between these a sum of exponentials has lost nothing of its precision."""

AT_ONCE = 2**18
"""Exponentials that stay in a core's own cache until they are summed up."""


def _norm_of_many(logits: Float[Tensor, "R V"]) -> Float[np.ndarray, "R 1"]:
    """The logarithm of the sum of exponentials of each row, on the CPU.

    Mostly the highest one need not be taken off first, which saves two passes over memory. The first row tells whether
    that is to be tried, each row's sum whether it was right.
    """
    if not (logits[0].amin().item() > LOWEST and logits[0].amax().item() < HIGHEST):
        return _stable_norm(logits)
    num_rows = max(1, AT_ONCE // logits.shape[1])
    terms = torch.empty_like(logits[:num_rows])
    sums = logits.new_empty(len(logits))
    for part, own in zip(torch.split(logits, num_rows), torch.split(sums, num_rows), strict=True):
        torch.sum(torch.exp(part, out=terms[: len(part)]), -1, out=own)
    lost = ((sums < SUMS[0]) | ~(sums < SUMS[1])).nonzero()[:, 0]
    norm = sums.log_().unsqueeze(1).numpy()
    if len(lost):
        norm[lost.numpy()] = _stable_norm(logits[lost])
    return norm


def _stable_norm(logits: Float[Tensor, "R V"]) -> Float[np.ndarray, "R 1"]:
    """The same, whatever the range, on any device: what torch.logsumexp does, with one pass less over memory."""
    top = logits.amax(-1, keepdim=True)
    norm: np.ndarray = (logits - top).exp_().sum(-1, keepdim=True).log_().add_(top).cpu().numpy()
    return norm


def top_pieces(logits: Float[Tensor, "R V"], count: int) -> Int[np.ndarray, "R n"]:
    """The `count` best next pieces of every row (all, if there are fewer), best first.

    Of equally good pieces the lower id comes first, and is the one kept, on every device.
    """
    if count == 1:
        # torch takes fifteen times as long, and does not say which of several equal ones it gives
        best: np.ndarray = logits.cpu().numpy().argmax(axis=1)[:, None]
        return best
    count = min(count, logits.shape[1])
    # One more than asked for shows whether the choice of the last one was arbitrary.
    values, ids = _topk(logits, min(count + 1, logits.shape[1]))
    if (values[:, 1:] == values[:, :-1]).any():
        values, ids = _settle_ties(logits, values, ids, count)
    return np.ascontiguousarray(ids[:, :count])


def _settle_ties(
    logits: Float[Tensor, "R V"], values: Float[np.ndarray, "R m"], ids: Int[np.ndarray, "R m"], count: int
) -> tuple[Float[np.ndarray, "R n"], Int[np.ndarray, "R n"]]:
    """Of equally good pieces the ones with the lowest ids, these first, where `values` has up to `count` + 1 a row."""
    if values.shape[1] > count:
        tied = np.flatnonzero((values[:, count] == values[:, count - 1]) & (values[:, count] > -np.inf))
        values, ids = values[:, :count].copy(), ids[:, :count].copy()
        if len(tied):
            whole = logits[torch.from_numpy(tied).to(logits.device)].cpu().numpy()
            lowest = _lowest_ids(whole, values[tied])
            values[tied], ids[tied] = picked(whole, lowest), lowest
    order = np.lexsort((ids, -values), axis=1)
    return picked(values, order), picked(ids, order)


Value = TypeVar("Value", bound=np.generic)


def picked(
    values: "np.ndarray[Any, np.dtype[Value]]", places: Int[np.ndarray, "R n"]
) -> "np.ndarray[Any, np.dtype[Value]]":
    """The values at the given places of each row, [R, n]: what `np.take_along_axis` gives, in a third of its time."""
    found: np.ndarray[Any, np.dtype[Value]] = values[np.arange(len(values))[:, None], places]
    return found


STRIPES = 16


def _topk(logits: Float[Tensor, "R V"], count: int) -> tuple[Float[np.ndarray, "R n"], Int[np.ndarray, "R n"]]:
    """The same values as `torch.topk` and their ids, on the CPU, in a third of its time there.

    The vocabulary is read as a table of 16 lines and as many columns as that takes. The best `count` pieces lie in the
    `count` columns with the highest maxima (or in the remainder behind the table), so only those are searched.
    """
    num_rows, num_columns = logits.shape[0], logits.shape[1] // STRIPES
    if num_columns < 2 * count or logits.device.type != "cpu":
        found = logits.topk(count, dim=-1)
        return found.values.cpu().numpy(), found.indices.cpu().numpy()
    inside = logits[:, : STRIPES * num_columns].view(num_rows, STRIPES, num_columns)
    columns = np.argpartition(inside.amax(dim=1).numpy(), num_columns - count, axis=1)[:, num_columns - count :]
    searched = inside.gather(2, torch.from_numpy(columns)[:, None, :].expand(-1, STRIPES, -1)).flatten(1).numpy()
    if logits.shape[1] > STRIPES * num_columns:
        searched = np.concatenate([searched, logits[:, STRIPES * num_columns :].numpy()], axis=1)
    places = np.argpartition(searched, searched.shape[1] - count, axis=1)[:, searched.shape[1] - count :]
    values = picked(searched, places)
    order = np.argsort(-values, axis=1)
    values, places = picked(values, order), picked(places, order)
    in_table = places < STRIPES * count
    column = picked(columns, places % count)
    behind = places - STRIPES * count + STRIPES * num_columns
    return values, np.where(in_table, places // count * num_columns + column, behind)


def _lowest_ids(whole: Float[np.ndarray, "N V"], best: Float[np.ndarray, "N n"]) -> Int[np.ndarray, "N n"]:
    """The n best ids of each row in ascending order, the lowest ones where the last of `best` is shared by more."""
    last = best[:, -1:]
    shared = whole == last
    room = (best == last).sum(axis=-1, keepdims=True)
    chosen = (whole > last) | (shared & (shared.cumsum(axis=-1) <= room))
    lowest: np.ndarray = chosen.nonzero()[1].reshape(best.shape)
    return lowest


def is_end(pieces: Int[np.ndarray, "*shape"], limits: SearchLimits) -> Bool[np.ndarray, "*shape"]:
    """Which pieces end a hypothesis."""
    if len(limits.ends) > 1:
        return np.isin(pieces, limits.ends)
    ended: np.ndarray = pieces == limits.eos  # many times faster
    return ended


def move_into(parents: Int[np.ndarray, " R2"], num_old: int) -> Int[np.ndarray, " R2"]:
    """For each hypothesis that goes on the row that it is given, 0 to R2 - 1, so that few rows of a state move.

    The first that continues a row stays in it; others take what is free. If there are more than before, all are moved,
    and stand in the order of `parents`.

    Args:
        parents: For each hypothesis the row that it continues, sentence by sentence.
        num_old: Rows so far.
    """
    count = len(parents)
    if count > num_old:
        return np.arange(count)
    first = np.full(num_old, -1, dtype=np.int64)  # of the hypotheses that continue an old row
    first[parents[::-1]] = np.arange(count - 1, -1, -1)  # the last of equal indices is what is kept
    stays = np.flatnonzero(first[:count] >= 0)
    rows = np.full(count, -1, dtype=np.int64)
    rows[first[stays]] = stays
    rows[rows < 0] = np.flatnonzero(first[:count] < 0)
    return rows
