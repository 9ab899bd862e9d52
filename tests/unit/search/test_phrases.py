"""Which pieces are forbidden behind which text. The parity tests compare with all sequences enumerated."""

import math

import pytest
import torch

from seq2seq.search import SearchLimits
from seq2seq.search.phrases import START, ForbiddenPhrases, PhrasePieces, SpelledPieces
from seq2seq.search.rules import Rows
from seq2seq.text.phrase_automaton import PhraseAutomaton

PIECES = ["", "", "", "", " cat", "s", " ca", "t", ".", " the cat", " ", " dog cat dog", "\u732b", "\u0301"]
EOS = 2
V = len(PIECES) + 3
"""More outputs than pieces, as padded output matrices have."""


def number(piece: str) -> int:
    return PIECES.index(piece)


def forbidden(
    rows: list[list[str]], phrases: list[str], *, max_length: int = 9, cautious: bool = False
) -> list[list[str]]:
    """The pieces that are forbidden behind each row, <end> for EOS."""
    limits = SearchLimits(1, EOS, (0, 1), [0], [max_length])
    rule = ForbiddenPhrases(
        PhrasePieces(PhraseAutomaton(phrases), SpelledPieces([*map(str.encode, PIECES)])), limits, cautious=cautious
    )
    values = torch.zeros(len(rows), V)
    for length in range(len(rows[0]) + 1):  # as a search does, piece by piece
        values = torch.zeros(len(rows), V)
        ids = torch.tensor([[number(piece) for piece in row[:length]] for row in rows], dtype=torch.long)
        rule(Rows(torch.zeros(len(rows), dtype=torch.long), ids.view(len(rows), length)), values)
    assert values[values.isfinite()].unique().tolist() in ([0.0], [])
    return [["<end>" if at == EOS else PIECES[at] for at in row.isinf().nonzero()[:, 0].tolist()] for row in values]


BEHIND_CAT = ["<end>", " cat", " ca", ".", " the cat", " ", " dog cat dog", "\u732b"]


def test_what_would_end_the_word_is_forbidden_behind_its_letters_in_whatever_pieces() -> None:
    assert forbidden([[" cat"], [" the cat"]], ["cat"]) == [BEHIND_CAT, BEHIND_CAT]
    assert forbidden([[" ca", "t"], [" cat", "s"], ["t", " "]], ["cat"]) == [
        BEHIND_CAT,
        [" dog cat dog"],
        [" dog cat dog"],
    ]


def test_a_piece_that_has_the_whole_phrase_inside_is_forbidden_everywhere() -> None:
    assert forbidden([[]], ["cat"]) == [[" dog cat dog"]]
    assert forbidden([[]], ["the cat"]) == [[]]


def test_a_phrase_of_several_words_is_found_across_pieces_and_spaces() -> None:
    assert forbidden([[" the cat", " "], [" cat", " "]], ["cat s"]) == [[], []]
    behind = forbidden([[" cat", " ", " ", "s"]], ["cat s"])
    assert behind == [BEHIND_CAT]


def test_a_mark_belongs_to_its_letter_and_chinese_needs_no_spaces() -> None:
    assert "\u0301" not in forbidden([[" cat"]], ["cat"])[0]
    assert forbidden([["\u732b"]], ["\u732b"]) == [["", "", "<end>", *PIECES[3:]]]  # so it is not begun
    assert "\u732b" in forbidden([["t"]], ["\u732b"])[0]


def test_in_the_end_pieces_are_forbidden_behind_which_a_hypothesis_could_not_end_in_time() -> None:
    late = [" cat", " the cat"]
    assert forbidden([["."]], ["cat"], max_length=4) == [[" dog cat dog"]]
    assert forbidden([["."]], ["cat"], max_length=3) == [sorted([*late, " dog cat dog"], key=PIECES.index)]
    assert forbidden([["."]], ["cat"], max_length=2) == [[]]  # only EOS is left, and may come


def test_a_phrase_that_nothing_can_go_on_from_is_not_begun() -> None:
    pieces = PhrasePieces(PhraseAutomaton(["a"]), SpelledPieces([b"", b"", b"", b"a", b" ", b"."]))
    view = pieces.view(START)
    assert (view.forbidden.tolist(), view.late.tolist(), view.needed.tolist()) == ([], [3], [2.0])  # "aa", EOS
    twice = PhrasePieces(PhraseAutomaton(["a", "aa"]), SpelledPieces([b"", b"", b"", b"a", b" "]))
    assert twice.view(START).needed.tolist() == [3.0]  # "aaa", EOS
    never = PhrasePieces(PhraseAutomaton(["a"]), SpelledPieces([b"", b"", b"", b"a a", b" a", b" "]))
    assert never.view(START).late.tolist() == [4]
    assert never.view(START).needed.tolist() == [math.inf]


def test_caution_takes_the_end_of_a_piece_for_the_end_of_the_word() -> None:
    late = sorted([" cat", " the cat", " dog cat dog"], key=PIECES.index)
    assert forbidden([["."]], ["cat"], cautious=True) == [late]
    assert forbidden([[" ca"]], ["cat"], cautious=True) == [sorted([*late, "t"], key=PIECES.index)]
    assert forbidden([[" ca"]], ["cats"], cautious=True) == [[]]


def test_bytes_of_a_character_are_put_together() -> None:
    bird = "\u732b".encode()
    spelled = [b"", b"", b"", bird[:1], bird[1:2], bird[2:], b"a", bird[1:] + b"a", b""]
    pieces = PhrasePieces(PhraseAutomaton(["\u732b"]), SpelledPieces(spelled))
    state = START
    for piece in (3, 8, 4):  # the piece between spells nothing
        assert pieces.view(state).may_end
        state = pieces.after(state, piece)
    assert pieces.view(state).late.tolist() == [5]
    assert pieces.view(state).forbidden.tolist() == []
    whole = pieces.view(pieces.after(state, 5))
    assert not whole.may_end
    assert whole.forbidden.tolist() == [4, 5, 6, 7]  # a first byte alone tells nothing yet
    assert pieces.view(pieces.after(START, 3)).forbidden.tolist() == [7]
    broken = pieces.after(state, 6)
    assert pieces.view(broken).may_end


def test_bytes_that_turn_out_to_be_no_character_end_a_word() -> None:
    bird = "\u732b".encode()
    pieces = PhrasePieces(PhraseAutomaton(["a"]), SpelledPieces([b"", b"", b"", b"a", b"b", bird[:1], bird[1:]]))
    begun = pieces.after(pieces.after(START, 3), 5)
    assert not pieces.view(begun).may_end
    assert pieces.view(begun).forbidden.tolist() == [3, 4, 5, 6]
    assert pieces.after(begun, 4) == pieces.after(pieces.after(START, 5), 4)


@pytest.mark.parametrize("cautious", [False, True])
def test_a_row_is_told_by_its_pieces_alone_in_whatever_order_rows_come(cautious: bool) -> None:
    limits = SearchLimits(1, EOS, (0, 1), [0, 0], [9, 9])
    pieces = PhrasePieces(PhraseAutomaton(["cat"]), SpelledPieces([*map(str.encode, PIECES)]))
    rule = ForbiddenPhrases(pieces, limits, cautious=cautious)
    ids = torch.tensor([[4, 5, 6], [10, 10, 4], [6, 7, 5]])
    expected = torch.zeros(3, V)
    for row in range(3):
        alone = torch.zeros(1, V)
        ForbiddenPhrases(pieces, limits, cautious=cautious)(Rows(torch.tensor([0]), ids[row : row + 1]), alone)
        expected[row] = alone[0]
    rule(Rows(torch.tensor([0, 1]), ids[[1, 0], :2]), torch.zeros(2, V))
    for order in ([0, 1, 2], [2, 0, 1]):
        values = torch.zeros(3, V)
        rule(Rows(torch.tensor([0, 1, 1]), ids[order]), values)
        assert torch.equal(values, expected[order])
