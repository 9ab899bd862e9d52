"""A scripted model: logits from a table over histories, and a state that remembers every selection."""

from collections.abc import Callable

import pytest
import torch

PAD, BOS, EOS = 0, 1, 2
Score = Callable[[int, tuple[int, ...]], torch.Tensor]


class Histories:
    """What each row was fed (BOS first) and for which sentence; `selections` records the calls of `select`."""

    def __init__(
        self,
        rows: list[tuple[int, tuple[int, ...]]],
        sentences: list[int],
        selections: list[tuple[list[int], list[int]]],
    ) -> None:
        self.rows = rows
        self.sentences = sentences
        self.selections = selections

    def select(self, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None) -> "Histories":
        self.selections.append((rows.tolist(), sentences.tolist()))
        going = [self.sentences[place] for place in sentences.tolist()]
        kept = Histories([self.rows[row] for row in rows.tolist()], going, self.selections)
        if places is None:
            assert len(kept.rows) % len(going) == 0
            places = torch.arange(len(going)).repeat_interleave(len(kept.rows) // len(going))
        assert [sentence for sentence, _ in kept.rows] == [going[place] for place in places.tolist()]
        assert sorted(set(places.tolist())) == list(range(len(going)))
        return kept


class Scripted:
    """A step function: the logits of a row are `score(sentence, pieces fed so far)`."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.num_rows: list[int] = []

    def start(self, sentences: list[int]) -> Histories:
        return Histories([(sentence, ()) for sentence in sentences], list(sentences), [])

    def __call__(self, tokens: torch.Tensor, state: Histories) -> tuple[torch.Tensor, Histories]:
        assert len(tokens) == len(state.rows)
        self.num_rows.append(len(tokens))
        fed = tokens[:, 0].tolist()
        rows = [(sentence, (*old, new)) for (sentence, old), new in zip(state.rows, fed, strict=True)]
        return torch.stack([self.score(*row) for row in rows]), Histories(rows, state.sentences, state.selections)


def random_score(
    seed: int,
    vocab_size: int = 11,
    *,
    spread: float = 2.0,
    decimals: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> Score:
    """Logits drawn for each sentence and history; few decimals make many of them equal."""

    def score(sentence: int, fed: tuple[int, ...]) -> torch.Tensor:
        code = seed * 1_009 + sentence
        for piece in fed:
            code = (code * 1_000_003 + piece + 1) % (2**61)
        drawn = torch.randn(vocab_size, generator=torch.Generator().manual_seed(code), dtype=torch.float64) * spread
        return (drawn if decimals is None else drawn.round(decimals=decimals)).to(dtype)

    return score


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted


@pytest.fixture
def random_scores() -> Callable[..., Score]:
    return random_score
