from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.search.constraints import Constraints, Phrase, Spelling, WordPieces
from seq2seq.search.progress import Progress
from seq2seq.search.rules import Rows

EOS = 2
A, B, C, D, E = 3, 4, 5, 6, 7


def phrase(*spellings: Sequence[int]) -> Phrase:
    """One of these, wherever it stands."""
    return tuple(Spelling(tuple(pieces)) for pieces in spellings)


def whole(*pieces: int) -> Phrase:
    """Whole words only."""
    return (Spelling(pieces, whole_start=True, whole_end=True),)


def alone(wanted: list[Phrase], *, ordered: bool = False, words: WordPieces | None = None) -> Constraints:
    return Constraints([wanted], [EOS], ordered=ordered, words=words)


def mets(constraints: Constraints, ids: list[int]) -> list[int]:
    """What the hypothesis has after none, one, two of its pieces and so on."""
    return [constraints.met(0, ids[:length]) for length in range(len(ids) + 1)]


def wanted(constraints: Constraints, ids: list[int], sentence: int = 0) -> list[int]:
    return constraints.wanted(rows(ids, sentence))[0]


def rows(ids: list[int], sentence: int = 0) -> Rows:
    return Rows(torch.tensor([sentence]), torch.tensor([ids], dtype=torch.long))


def may_end(constraints: Constraints, ids: list[int], sentence: int = 0) -> bool:
    log_probs = torch.zeros(1, 8)
    constraints(rows(ids, sentence), log_probs)
    assert int(log_probs.isinf().sum()) <= 1
    return bool(log_probs[0, EOS] == 0)


def test_it_can_be_asked_as_the_progress_of_a_beam() -> None:
    assert isinstance(alone([phrase([A])]), Progress)


def test_pieces_count_as_they_come_and_those_of_a_phrase_that_breaks_off_are_lost() -> None:
    one = alone([phrase([A, B, C])])
    assert mets(one, [A, B, D, A, B, C, D]) == [0, 1, 2, 0, 1, 2, 3, 3]
    assert one.total(0) == 3
    assert [may_end(one, [A, B, C, D][:length]) for length in range(5)] == [False, False, False, True, True]


def test_a_phrase_that_breaks_off_may_have_begun_again_inside_itself() -> None:
    one = alone([phrase([A, A, B])])
    assert mets(one, [A, A, A, B]) == [0, 1, 2, 2, 3]
    assert wanted(one, [A, A]) == [A, B]


def test_phrases_that_have_begun_are_followed_together_and_the_longest_counts() -> None:
    two = alone([phrase([A, B, C]), phrase([B, D])])
    assert mets(two, [A, B, D, A, B, C]) == [0, 1, 2, 2, 3, 4, 5]
    assert wanted(two, [A, B]) == [A, B, C, D]
    assert wanted(two, [A, B, D]) == [A]


def test_one_phrase_inside_another_comes_with_it() -> None:
    two = alone([phrase([A, B]), phrase([B])])
    assert mets(two, [A, B]) == [0, 1, 3]
    assert mets(two, [B, A, B]) == [0, 1, 2, 3]
    shared = alone([phrase([A]), phrase([A, B])])
    assert mets(shared, [A, B]) == [0, 2, 3]
    assert not may_end(shared, [A])


def test_in_order_one_phrase_begins_behind_the_end_of_the_one_before() -> None:
    two = alone([phrase([A, B]), phrase([B])], ordered=True)
    assert mets(two, [B, A, B, B]) == [0, 0, 1, 2, 3]
    assert wanted(two, [A]) == [A, B]
    assert wanted(two, [A, B]) == [B]
    assert not may_end(two, [B, A, B])
    assert may_end(two, [A, B, C, B])


def test_a_phrase_that_is_given_twice_comes_at_two_places_that_do_not_overlap() -> None:
    for ordered in (False, True):
        twice = alone([phrase([A, A]), phrase([A, A])], ordered=ordered)
        assert twice.total(0) == 4
        assert mets(twice, [A, A, A, A]) == [0, 1, 2, 3, 4]
        assert may_end(twice, [A, A, C, A, A])
        assert not may_end(twice, [A, A, A])


def test_one_spelling_of_several_is_enough_and_the_longest_is_what_a_phrase_counts() -> None:
    either = alone([phrase([A, B, C], [D]), phrase([E])])
    assert either.total(0) == 4
    assert mets(either, [A, B, D]) == [0, 1, 2, 3]
    assert mets(either, [D, E]) == [0, 3, 4]
    assert wanted(either, []) == [A, D, E]
    assert wanted(either, [A]) == [A, B, D, E]
    assert wanted(either, [A, B, C]) == [E]


WORDS = WordPieces(opening={A, B, C}, continuing={C, D})


def test_a_phrase_is_lost_again_where_its_last_word_goes_on() -> None:
    one = alone([whole(A, B)], words=WORDS)
    assert mets(one, [A, B, C, A, B, E]) == [0, 1, 2, 0, 0, 0, 0]  # the second A goes on with the word of C
    assert mets(one, [A, B, D, A, B, E]) == [0, 1, 2, 0, 1, 2, 2]
    assert may_end(one, [A, B])
    assert not may_end(one, [A, B, C])
    assert mets(one, [A, B, EOS]) == [0, 1, 2, 2]


def test_a_phrase_does_not_begin_inside_a_word_and_is_not_wanted_there() -> None:
    one = alone([(Spelling((A, B), whole_start=True), Spelling((E, A, B)))], words=WORDS)
    assert mets(one, [C, A, B]) == [0, 0, 0, 0]
    assert wanted(one, [C]) == [E]
    assert wanted(one, [D]) == [A, E]
    assert wanted(one, []) == [A, E]
    assert mets(one, [C, E, A, B]) == [0, 0, 1, 2, 3]


def test_a_phrase_that_ends_in_whole_words_need_not_be_followed_where_it_does_not_ask_for_that() -> None:
    loose = alone([(Spelling((A, B)),)], words=WORDS)
    assert mets(loose, [A, B, C]) == [0, 1, 2, 2]


def test_the_next_phrase_may_begin_with_the_piece_that_confirms_the_one_before() -> None:
    for ordered in (False, True):
        two = alone([whole(A), (Spelling((E, B), whole_end=True),)], words=WORDS, ordered=ordered)
        assert wanted(two, [A]) == [E]
        assert mets(two, [A, E, B]) == [0, 1, 2, 3]
        assert mets(two, [A, C, E, B]) == [0, 1, 0, int(not ordered), 2 * int(not ordered)]


def test_the_rest_is_told_in_the_shortest_spellings() -> None:
    two = alone([phrase([A, B, C], [D]), phrase([E, A]), phrase([E, A])])
    found = [two.shortest_rest(0, ids) for ids in ([], [D], [A], [A, B], [A, B, C], [E], [D, E])]
    assert found == [5, 4, 5, 5, 4, 4, 3]
    assert two.shortest_rest(0, [D, E, A]) == 2
    assert two.shortest_rest(0, [E, A, D, E, A]) == 0
    two = alone([whole(A, B), whole(C, A, A)], ordered=True)
    assert [two.shortest_rest(0, ids) for ids in ([C], [A], [A, B], [A, B, C])] == [5, 4, 3, 2]


def test_where_everything_is_there_the_end_is_wanted() -> None:
    one = alone([whole(A)], words=WORDS)
    assert wanted(one, [A]) == wanted(one, [A, E]) == [EOS]
    assert wanted(one, [A, C]) == []  # inside a word no phrase begins, and it may not end


def test_sentences_are_held_to_their_own_phrases_and_one_without_to_none() -> None:
    three = Constraints([[phrase([A])], [], [phrase([B, C])]], [EOS, D])
    batch = Rows(torch.tensor([0, 0, 1, 2, 2]), torch.tensor([[A, B], [B, C], [A, B], [A, B], [B, C]]))
    log_probs = torch.zeros(5, 8)
    three(batch, log_probs)
    forbidden = torch.zeros(5, 8, dtype=torch.bool)
    forbidden[1, [EOS, D]] = forbidden[3, [EOS, D]] = True
    assert torch.equal(log_probs.isinf(), forbidden)
    assert three.wanted(batch) == [[EOS], [A], [], [B, C], [EOS]]
    assert [three.met(sentence, [A, B]) for sentence in range(3)] == [1, 0, 1]
    assert [three.total(sentence) for sentence in range(3)] == [1, 0, 2]


def test_nothing_is_forbidden_where_no_sentence_has_phrases() -> None:
    assert may_end(Constraints([[], []], [EOS]), [A], sentence=1)


def occurrences(one: Phrase, ids: Sequence[int], words: WordPieces) -> list[tuple[int, int]]:
    """Where the phrase stands in a hypothesis that ends here, by its definition."""
    found = []
    for spelling in one:
        for start in range(len(ids) - len(spelling.pieces) + 1):
            end = start + len(spelling.pieces)
            if tuple(ids[start:end]) != spelling.pieces:
                continue
            joined_before = spelling.whole_start and start > 0 and ids[start - 1] in words.opening
            joined_behind = spelling.whole_end and end < len(ids) and ids[end] in words.continuing
            if not joined_before and not joined_behind:
                found.append((start, end))
    return found


def most_apart(places: Sequence[tuple[int, int]], behind: int = 0) -> int:
    """How many of the places can be chosen that do not overlap, by trying all."""
    return max((1 + most_apart(places, end) for start, end in places if start >= behind), default=0)


def in_order(found: Sequence[Sequence[tuple[int, int]]], behind: int = 0) -> bool:
    """Whether a place can be chosen in each list, one behind the other, by trying all."""
    return not found or any(in_order(found[1:], end) for start, end in found[0] if start >= behind)


def contains_all(wanted: list[Phrase], ids: Sequence[int], words: WordPieces, *, ordered: bool) -> bool:
    if ordered:
        return in_order([occurrences(one, ids, words) for one in wanted])
    return all(most_apart(occurrences(one, ids, words)) >= wanted.count(one) for one in wanted)


PIECES = st.integers(3, 5)
# Plain values, made into phrases inside the tests: the checks of annotations draw random numbers of their own.
SPELLINGS = st.tuples(st.lists(PIECES, min_size=1, max_size=3), st.booleans(), st.booleans())
PHRASES = st.lists(st.lists(SPELLINGS, min_size=1, max_size=2), min_size=1, max_size=3)
SETS = st.tuples(st.frozensets(PIECES), st.frozensets(PIECES))
Drawn = list[list[tuple[list[int], bool, bool]]]


def made(drawn: Drawn) -> list[Phrase]:
    return [tuple(Spelling(tuple(pieces), start, end) for pieces, start, end in one) for one in drawn]


@settings(max_examples=60, deadline=None)
@given(drawn=PHRASES, repeated=st.booleans(), ids=st.lists(PIECES, max_size=8), sets=SETS, ordered=st.booleans())
def test_a_hypothesis_may_end_if_and_only_if_it_contains_the_phrases(
    drawn: Drawn, repeated: bool, ids: list[int], sets: tuple[frozenset[int], frozenset[int]], ordered: bool
) -> None:
    wanted, words = made([*drawn, drawn[0]] if repeated else drawn), WordPieces(*sets)
    constraints = alone(wanted, words=words, ordered=ordered)
    for length in range(len(ids) + 1):
        so_far = ids[:length]
        complete = contains_all(wanted, so_far, words, ordered=ordered)
        assert may_end(constraints, so_far) == complete
        assert (constraints.met(0, so_far) == constraints.total(0)) == complete
        assert 0 <= constraints.met(0, so_far) <= constraints.total(0)


@settings(max_examples=40, deadline=None)
@given(drawn=PHRASES, ids=st.lists(PIECES, max_size=6), sets=SETS, ordered=st.booleans())
def test_whatever_piece_gives_a_hypothesis_more_is_wanted(
    drawn: Drawn, ids: list[int], sets: tuple[frozenset[int], frozenset[int]], ordered: bool
) -> None:
    constraints = alone(made(drawn), words=WordPieces(*sets), ordered=ordered)
    had = constraints.met(0, ids)
    more = {piece for piece in (3, 4, 5) if constraints.met(0, [*ids, piece]) > had}
    assert more <= set(constraints.wanted(rows(ids))[0])


@settings(max_examples=40, deadline=None)
@given(drawn=PHRASES, ids=st.lists(PIECES, max_size=6), sets=SETS, ordered=st.booleans())
def test_there_is_always_a_wanted_piece_that_gives_more_if_phrases_may_begin_anywhere(
    drawn: Drawn, ids: list[int], sets: tuple[frozenset[int], frozenset[int]], ordered: bool
) -> None:
    opening, continuing = sets
    words = WordPieces(opening, continuing - {pieces[0] for one in drawn for pieces, *_ in one})
    phrases = made([[(pieces, False, end) for pieces, _, end in one] for one in drawn])
    constraints = alone(phrases, words=words, ordered=ordered)
    had = constraints.met(0, ids)
    assert had == constraints.total(0) or any(
        constraints.met(0, [*ids, piece]) > had for piece in wanted(constraints, ids)
    )


def test_what_a_word_that_goes_on_would_cost_is_not_counted_twice() -> None:
    two = alone([whole(A), (Spelling((A, D), whole_end=True),)], words=WORDS)
    assert mets(two, [A, D, E, A]) == [0, 1, 2, 2, 3]
    assert mets(two, [A, E, A, D]) == [0, 1, 1, 2, 3]


@settings(max_examples=25, deadline=None)
@given(drawn=PHRASES, ids=st.lists(PIECES, max_size=8), sets=SETS)
def test_what_a_hypothesis_has_does_not_depend_on_what_was_asked_before(
    drawn: Drawn, ids: list[int], sets: tuple[frozenset[int], frozenset[int]]
) -> None:
    wanted, words = made(drawn), WordPieces(*sets)
    asked = alone(wanted, words=words)
    grown = mets(asked, ids)
    assert grown == [alone(wanted, words=words).met(0, ids[:length]) for length in range(len(ids) + 1)]
    assert list(reversed([asked.met(0, ids[:length]) for length in range(len(ids), -1, -1)])) == grown


@pytest.mark.parametrize("wanted", [[()], [(Spelling(()),)]])
def test_a_phrase_without_pieces_is_a_bug(wanted: list[Phrase]) -> None:
    with pytest.raises(AssertionError, match="has"):
        alone(wanted)
