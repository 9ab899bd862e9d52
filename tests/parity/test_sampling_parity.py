"""The warpers give what the logits processors of `transformers` give for the same numbers. float64, exact places."""

import pytest
import torch

from seq2seq.search import MinP, RepetitionPenalty, Rule, Temperature, TopK, TopP
from seq2seq.search.rules import Rows

processors = pytest.importorskip("transformers.generation.logits_process")

R, V = 5, 37
PROMPTS = [[3, 4, 3], [9], [1, 2, 36, 0], [5, 5, 5, 5], [11, 12]]


def logits(seed: int, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(R, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread


def history(seed: int, length: int) -> torch.Tensor:
    return torch.randint(0, V, (R, length), generator=torch.Generator().manual_seed(seed))


def ours(rules: list[Rule], ids: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    edited = values.clone()
    for rule in rules:
        rule(Rows(torch.arange(R), ids), edited)
    return edited


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(got.isfinite(), expected.isfinite())
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("rule", "name", "value"),
    [
        (Temperature(0.3), "TemperatureLogitsWarper", 0.3),
        (Temperature(2.5), "TemperatureLogitsWarper", 2.5),
        (TopK(1), "TopKLogitsWarper", 1),
        (TopK(7), "TopKLogitsWarper", 7),
        (TopK(99), "TopKLogitsWarper", 99),
        (TopP(0.01), "TopPLogitsWarper", 0.01),
        (TopP(0.6), "TopPLogitsWarper", 0.6),
        (TopP(0.95), "TopPLogitsWarper", 0.95),
        (MinP(0.02), "MinPLogitsWarper", 0.02),
        (MinP(0.5), "MinPLogitsWarper", 0.5),
        (MinP(1.0), "MinPLogitsWarper", 1.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_warper_equals_the_one_of_transformers_on_logits_and_on_log_probabilities(
    rule: Rule, name: str, value: float, seed: int
) -> None:
    theirs = getattr(processors, name)(value)
    ids = history(seed, 4)
    for values in (logits(seed), logits(seed, 0.1), logits(seed).log_softmax(-1), logits(seed).round(decimals=0)):
        if values.unique().numel() < values.numel() and name == "TopPLogitsWarper":
            continue  # of equally probable pieces theirs keeps whichever its sort puts last
        assert_same(ours([rule], ids, values), theirs(ids, values.clone()))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.6, 1.0, 1.3, 5.0])
@pytest.mark.parametrize("length", [0, 1, 6])
def test_the_repetition_penalty_equals_theirs_row_by_row_the_prompt_counted(
    seed: int, penalty: float, length: int
) -> None:
    ids, values = history(seed, length), logits(seed)
    got = ours([RepetitionPenalty(penalty, PROMPTS)], ids, values)
    theirs = processors.RepetitionPenaltyLogitsProcessor(penalty)
    for row, prompt in enumerate(PROMPTS):
        whole = torch.cat([torch.tensor(prompt), ids[row]])[None]
        assert_same(got[row : row + 1], theirs(whole, values[row : row + 1].clone()))


@pytest.mark.parametrize("seed", range(6))
def test_all_of_them_in_a_row_leave_the_same_distribution(seed: int) -> None:
    """The penalty on logits, then the filters on log-probabilities; theirs are all on logits."""
    ids, values = history(seed, 5), logits(seed, 1.5)
    edited = ours([RepetitionPenalty(1.2, [row[:1].tolist() for row in ids])], ids, values).log_softmax(-1)
    got = ours([Temperature(0.8), TopK(20), TopP(0.9), MinP(0.05)], ids, edited).softmax(-1)
    theirs = values.clone()
    for processor in (
        processors.RepetitionPenaltyLogitsProcessor(1.2),
        processors.TemperatureLogitsWarper(0.8),
        processors.TopKLogitsWarper(20),
        processors.TopPLogitsWarper(0.9),
        processors.MinPLogitsWarper(0.05),
    ):
        theirs = processor(ids, theirs)
    assert_same(got, theirs.softmax(-1))
    assert 1 < int((got > 0).sum(-1).min()) < 20, "the filters must have had something to do"
