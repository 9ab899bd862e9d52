import itertools

import pytest
import torch

from seq2seq.config import DecodeConfig
from seq2seq.translator.batches import Part, SourceLine, length_limits, pad, take, token_batches


def test_batches_hold_every_sequence_once_similar_lengths_together_within_the_budget():
    lengths = [9, 1, 30, 4, 4, 2, 17, 8, 3, 5, 23, 1, 6]
    batches = token_batches(lengths, 20)
    assert sorted(itertools.chain(*batches)) == list(range(13))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[place] for place in batch) <= 20
    in_order = sorted(batches, key=lambda batch: lengths[batch[0]])
    assert sorted(lengths) == [lengths[place] for batch in in_order for place in batch]


def test_a_sequence_beyond_the_budget_is_a_batch_by_itself():
    assert token_batches([50, 60], 10) == [[0], [1]]


def test_batches_come_in_the_order_of_their_first_sequences():
    firsts = [min(batch) for batch in token_batches([7, 1, 9, 3, 8, 2], 9)]
    assert firsts == sorted(firsts)
    assert len(firsts) > 3


def test_no_sequence_gives_no_batch():
    assert token_batches([], 10) == []


def line(number: int, *lengths: int) -> SourceLine:
    return SourceLine(number, "", tuple(Part(number, (7,) * length) for length in lengths), None)


def test_lines_are_taken_up_to_the_budget_and_the_rest_is_left():
    lines = iter([line(1, 3), line(2), line(3, 2, 2), line(4, 1)])
    taken, error = take(lines, 8)
    assert ([source.number for source in taken], error) == ([1, 2, 3], None)
    assert next(lines).number == 4


def test_endless_blank_lines_are_not_taken_for_ever():
    taken, _ = take((line(number) for number in itertools.count(1)), 5)
    assert len(taken) == 5


def test_an_error_is_handed_over_with_the_lines_before_it():
    def lines():
        yield line(1, 3)
        raise ValueError("line 2 is bad")

    taken, error = take(lines(), 100)
    assert [source.number for source in taken] == [1]
    assert str(error) == "line 2 is bad"


def test_an_interrupt_is_not_held_back():
    def lines():
        yield line(1, 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(lines(), 100)


def test_padding_stands_on_the_right_and_is_marked():
    ids, real = pad([[4, 2], [5, 6, 7, 2], [2]], 0, torch.device("cpu"))
    assert ids.tolist() == [[4, 2, 0, 0], [5, 6, 7, 2], [2, 0, 0, 0]]
    assert real.tolist() == [[True, True, False, False], [True] * 4, [True, False, False, False]]


@pytest.mark.parametrize(
    ("options", "source_length", "prefix_length", "expected"),
    [
        ({}, 5, 0, (1, 20)),
        ({"max_length_factor": 1.5, "max_length_offset": 1}, 5, 0, (1, 9)),
        ({"max_length": 7}, 5, 0, (1, 7)),
        ({"min_length_factor": 0.5}, 5, 0, (3, 20)),
        ({"min_length_factor": 0.5, "min_length": 4}, 5, 0, (4, 20)),
        ({"min_length": 33}, 5, 0, (33, 33)),
        ({"min_length_factor": 1.9, "max_length": 4}, 5, 0, (4, 4)),
        ({}, 5, 30, (1, 40)),
        ({"max_length": 33}, 5, 30, (1, 33)),
    ],
)
def test_absolute_lengths_win_over_relative_ones(options, source_length, prefix_length, expected):
    assert length_limits(DecodeConfig(**options), source_length, prefix_length) == expected


def test_positions_that_the_model_lacks_win_over_every_option():
    assert length_limits(DecodeConfig(min_length=9), 7, 0, 5) == (5, 5)
    assert length_limits(DecodeConfig(), 7, 0, 100) == length_limits(DecodeConfig(), 7, 0)
