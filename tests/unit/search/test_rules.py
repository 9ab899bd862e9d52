import torch

from seq2seq.search import SearchLimits
from seq2seq.search.rules import Behind, ForcedPrefix, MaxLength, MinLength, Rows, Suppressed, build_rules

CPU = torch.device("cpu")


def limits(prefixes: list[list[int]] | None = None) -> SearchLimits:
    return SearchLimits(1, 2, (0, 1, 10), min_lengths=[3, 1], max_lengths=[5, 3], prefixes=prefixes)


def rows(length: int) -> Rows:
    """Sentence 0, 0, 1, with `length` pieces each."""
    return Rows(torch.tensor([0, 0, 1]), torch.full((3, length), 7))


def allowed(log_probs: torch.Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero()[:, 0].tolist() for row in log_probs]


def fresh() -> torch.Tensor:
    return torch.randn(3, 11, generator=torch.Generator().manual_seed(5), dtype=torch.float64).log_softmax(-1)


def test_suppressed_ids_are_forbidden_in_every_row_and_the_others_untouched() -> None:
    log_probs = fresh()
    Suppressed(limits().suppressed, CPU)(rows(1), log_probs)
    assert allowed(log_probs) == [list(range(2, 10))] * 3
    assert torch.equal(log_probs[:, 2:10], fresh()[:, 2:10])


def test_eos_is_forbidden_only_in_sentences_that_are_still_too_short() -> None:
    for length, forbidden in ((1, [True, True, False]), (2, [False, False, False])):
        log_probs = fresh()
        MinLength(limits())(rows(length), log_probs)
        assert log_probs[:, 2].isinf().tolist() == forbidden
        assert int(log_probs.isinf().sum()) == sum(forbidden)


def test_only_eos_is_left_in_sentences_at_their_limit_with_its_own_log_probability() -> None:
    log_probs = fresh()
    MaxLength(limits())(rows(2), log_probs)
    assert allowed(log_probs) == [list(range(11)), list(range(11)), [2]]
    assert torch.equal(log_probs[:, 2], fresh()[:, 2])


def test_inside_a_prefix_only_its_next_piece_is_left() -> None:
    rule = ForcedPrefix(limits(prefixes=[[4, 5], [6]]))
    for length, expected in ((0, [[4], [4], [6]]), (1, [[5], [5], list(range(11))]), (2, [list(range(11))] * 3)):
        log_probs = fresh()
        rule(rows(length), log_probs)
        assert allowed(log_probs) == expected
        assert log_probs[0, expected[0][0]] == fresh()[0, expected[0][0]]


def test_all_rules_together_leave_what_each_of_them_leaves() -> None:
    for length, expected in ((0, [[4], [4], list(range(2, 10))]), (1, [list(range(3, 10))] * 2 + [list(range(2, 10))])):
        log_probs = fresh()
        for rule in build_rules(limits(prefixes=[[4], []]), CPU):
            rule(rows(length), log_probs)
        assert allowed(log_probs) == expected


def test_a_rule_behind_what_is_forced_spares_as_many_pieces_of_each_sentence_as_it_is_told() -> None:
    seen = []

    def forbid_all(rows: Rows, log_probs: torch.Tensor) -> None:
        seen.append(rows.length)
        log_probs.fill_(-torch.inf)

    rule = Behind(forbid_all, [1, 3])
    for length, expected in ((0, [True, True, True]), (1, [False, False, True]), (3, [False] * 3)):
        log_probs = fresh()
        rule(rows(length), log_probs)
        assert log_probs.isfinite().all(dim=1).tolist() == expected
        assert torch.equal(log_probs[log_probs.isfinite()], fresh()[log_probs.isfinite()])
    assert seen == [0, 1, 3]
