"""Which pieces translate which, learned from parallel text alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seq2seq.shapes import Float, Int

Pair = tuple[Sequence[int], Sequence[int]]
"""Ids of a segment and of its translation, without BOS and EOS."""

MAX_PIECES = 512
"""Pairs with a longer side are passed over: their links would be many and say little."""

MAX_LINKS = 1 << 20
"""Links, of each piece to each one of the other side, that are counted at once."""

MAX_ENTRIES = 20_000_000
"""Pairs of pieces that are kept while a corpus is read; 16 bytes each, and as much again while they are sorted."""


@dataclass(frozen=True)
class TranslationTable:
    """Probabilities that one piece stands for another, as far as they are not 0."""

    num_targets: int
    """Pieces on the target side."""
    keys: Int[np.ndarray, " N"]
    """source * num_targets + target, ascending."""
    probabilities: Float[np.ndarray, " N"]
    """Of the target piece, given the source piece."""
    target_counts: Int[np.ndarray, " V"]
    """How often each target piece stands in the corpus."""
    num_pairs: int
    """Pairs that were learned from."""
    passed_over: int
    """Pairs that were not, blank on one side or too long."""

    def best(self, num_sources: int, count: int) -> Int[np.ndarray, "S K"]:
        """For each source piece the `count` most probable target pieces, best first, filled up with -1."""
        sources, targets = np.divmod(self.keys, self.num_targets)
        order = np.lexsort((targets, -self.probabilities, sources))
        sources = sources[order]
        ranks = np.arange(len(order)) - np.searchsorted(sources, sources)
        kept = (ranks < count) & (sources < num_sources)
        table = np.full((num_sources, count), -1, dtype=np.int32)
        table[sources[kept], ranks[kept]] = targets[order][kept]
        return table


def learn_table(
    pairs: Callable[[], Iterable[Pair]], num_sources: int, num_targets: int, *, passes: int
) -> TranslationTable:
    """The translation table of a corpus, which is read `passes` times and never kept.

    Source:
        Brown et al. 1993, "The mathematics of statistical machine translation", section 4.1: model 1, by expectation
        maximisation, with its empty source word. All start equal, so the first pass counts links alone. Deviation: of a
        corpus with very many pairs of pieces the rarest ones of each source piece are left out (`MAX_ENTRIES`).

    Args:
        pairs: Gives the corpus from its beginning, every time it is called.
        num_sources: Pieces on the source side.
        num_targets: Pieces on the target side.
        passes: At least 1; 5 are usual.

    Raises:
        ValueError: if no pair has pieces on both sides.
    """
    assert passes >= 1
    counts = _Counts(num_sources, num_targets)
    usable, passed_over = 0, 0
    for block in _blocks(pairs(), num_sources):
        counts.add(block)
        usable, passed_over = usable + block.num_pairs, passed_over + block.passed_over
    if usable == 0:
        raise ValueError(
            f"none of {passed_over} pairs has 1 to {MAX_PIECES} pieces on both sides; expected parallel text"
        )
    keys, expected = counts.result()
    probabilities = _normalized(keys, expected, num_sources, num_targets)
    for _ in range(passes - 1):
        expected = np.zeros(len(keys))
        for block in _blocks(pairs(), num_sources):
            _expect(block, keys, probabilities, num_targets, expected)
        probabilities = _normalized(keys, expected, num_sources, num_targets)
    return TranslationTable(num_targets, keys, probabilities, counts.target_counts, usable, passed_over)


@dataclass(frozen=True)
class _Block:
    """Some pairs, as links of each target piece to each source piece of its pair, the empty one too."""

    sources: Int[np.ndarray, " L"]
    """Source piece of each link."""
    targets: Int[np.ndarray, " L"]
    """Target piece of each link."""
    places: Int[np.ndarray, " L"]
    """Which of the block's target pieces, counted through, the link is of."""
    target_ids: Int[np.ndarray, " T"]
    """The block's target pieces."""
    num_pairs: int
    passed_over: int

    @staticmethod
    def of(pairs: Sequence[Pair], empty: int, passed_over: int) -> "_Block":
        """The links of pairs; `empty` is the number of the empty source word, which each source ends with."""
        lengths = np.array([len(source) + 1 for source, _ in pairs], dtype=np.int64)
        flat = np.array([id_ for source, _ in pairs for id_ in (*source, empty)], dtype=np.int64)
        target_ids = np.array([id_ for _, target in pairs for id_ in target], dtype=np.int64)
        pair_of = np.repeat(np.arange(len(pairs)), [len(target) for _, target in pairs])
        fan = lengths[pair_of]  # links of each target piece
        places = np.repeat(np.arange(len(target_ids)), fan)
        within = np.arange(len(places)) - np.repeat(np.cumsum(fan) - fan, fan)
        starts = (np.cumsum(lengths) - lengths)[pair_of]
        return _Block(flat[starts[places] + within], target_ids[places], places, target_ids, len(pairs), passed_over)


def _blocks(pairs: Iterable[Pair], empty: int) -> Iterator[_Block]:
    """The corpus in blocks of up to about `MAX_LINKS` links."""
    held: list[Pair] = []
    links, passed_over = 0, 0
    for source, target in pairs:
        if not (0 < len(source) <= MAX_PIECES and 0 < len(target) <= MAX_PIECES):
            passed_over += 1
            continue
        held.append((source, target))
        links += (len(source) + 1) * len(target)
        if links >= MAX_LINKS:
            yield _Block.of(held, empty, passed_over)
            held, links, passed_over = [], 0, 0
    yield _Block.of(held, empty, passed_over)


class _Counts:
    """What the first pass expects of each pair of pieces, in a table that grows."""

    def __init__(self, num_sources: int, num_targets: int) -> None:
        self._num_sources, self._num_targets = num_sources, num_targets
        self._tables: list[tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"]]] = [
            (np.zeros(0, dtype=np.int64), np.zeros(0))
        ]
        self.target_counts = np.zeros(num_targets, dtype=np.int64)

    def add(self, block: _Block) -> None:
        """Count a block in: each target piece stands for each source piece of its pair alike."""
        keys, inverse = np.unique(block.sources * self._num_targets + block.targets, return_inverse=True)
        fan = np.bincount(block.places, minlength=len(block.target_ids))
        self._tables.append((keys, np.bincount(inverse, 1 / fan[block.places], len(keys))))
        self.target_counts += np.bincount(block.target_ids, minlength=self._num_targets)
        # sorting all that there is for each block would take longer than counting
        if sum(len(keys) for keys, _ in self._tables[1:]) > max(4 * MAX_LINKS, len(self._tables[0][0])):
            self._merge()

    def result(self) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """Keys in ascending order, and what is expected of each."""
        self._merge()
        return self._tables[0]

    def _merge(self) -> None:
        """Make one table of all, of the best entries of each source piece if there are too many."""
        keys, inverse = np.unique(np.concatenate([keys for keys, _ in self._tables]), return_inverse=True)
        values = np.bincount(inverse, np.concatenate([values for _, values in self._tables]), len(keys))
        if len(keys) > MAX_ENTRIES:
            sources = keys // self._num_targets
            order = np.lexsort((-values, sources))
            ranks = np.arange(len(order)) - np.searchsorted(sources, sources)
            kept = np.sort(order[ranks < MAX_ENTRIES // (2 * (self._num_sources + 1))])
            keys, values = keys[kept], values[kept]
        self._tables = [(keys, values)]


def _expect(
    block: _Block,
    keys: Int[np.ndarray, " N"],
    probabilities: Float[np.ndarray, " N"],
    num_targets: int,
    expected: Float[np.ndarray, " N"],
) -> None:
    """Add to `expected` how often each pair of pieces stands in the block, as far as the probabilities tell."""
    wanted = block.sources * num_targets + block.targets
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    weights = np.where(keys[at] == wanted, probabilities[at], 0.0)
    totals = np.bincount(block.places, weights, len(block.target_ids))[block.places]
    share = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    expected += np.bincount(at, share, len(keys))


def _normalized(
    keys: Int[np.ndarray, " N"], expected: Float[np.ndarray, " N"], num_sources: int, num_targets: int
) -> Float[np.ndarray, " N"]:
    """Probabilities of target pieces given each source piece, the empty one too."""
    sources = keys // num_targets
    totals = np.bincount(sources, expected, num_sources + 1)[sources]
    probabilities: Float[np.ndarray, " N"] = np.divide(expected, totals, out=np.zeros_like(expected), where=totals > 0)
    return probabilities
