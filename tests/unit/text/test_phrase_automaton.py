"""Phrases found character by character, against a plain search through the whole text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.text.phrase_automaton import IN_WORD, OTHER, SPACE, PhraseAutomaton
from seq2seq.text.words import find_whole

TEXT = st.text("ab \t.-猫\u0301é", max_size=10)
PHRASE = st.text("ab .猫\u0301é-", min_size=1, max_size=4).filter(str.strip)


@settings(max_examples=100, deadline=None)
@given(phrases=st.lists(PHRASE, min_size=1, max_size=3), text=TEXT)
def test_a_phrase_is_found_if_and_only_if_it_stands_there_as_whole_words(phrases: list[str], text: str) -> None:
    plain = " ".join(text.split())
    expected = any(find_whole(plain, " ".join(phrase.split())) >= 0 for phrase in phrases)
    assert PhraseAutomaton(phrases).is_in(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a cat", True),
        ("cat", True),
        ("cat's", True),
        ("cats", False),
        ("bobcat", False),
        ("new  york", True),
        ("new yorkers", False),
        ("in newyork", False),
        ("我看见猫了", True),
        ("C++11", True),
        ("ABC++", False),
    ],
)
def test_words_are_whole_as_people_see_them(text: str, expected: bool) -> None:
    assert PhraseAutomaton(["cat", "new york", "猫", "C++"]).is_in(text) is expected


def test_a_hit_is_told_by_the_character_that_shows_that_the_phrase_is_whole() -> None:
    automaton = PhraseAutomaton(["ab"])
    state, hit = automaton.read(0, "ab")
    assert (hit, bool(automaton.whole[state])) == (False, True)
    assert automaton.read(state, "c")[1] is False
    assert [automaton.read(state, text)[1] for text in (" ", ".", "猫")] == [True, True, True]
    further, _ = automaton.read(state, "c")
    assert not automaton.whole[further]


def test_reading_in_parts_is_reading_at_once() -> None:
    automaton = PhraseAutomaton(["a b", "b a"])
    state, found = 0, False
    for part in ("x ", "a", " ", " b", "", "."):
        state, hit = automaton.read(state, part)
        found = found or hit
    assert (state, found) == automaton.read(0, "x a  b.")
    assert found


def test_characters_that_no_phrase_has_are_told_apart_by_what_they_do_to_words() -> None:
    automaton = PhraseAutomaton(["ab"])
    assert [automaton.class_of(character) for character in "x\u0301 \u3000-猫"] == [
        IN_WORD,
        IN_WORD,
        SPACE,
        SPACE,
        OTHER,
        OTHER,
    ]
    assert len({automaton.class_of(character) for character in "abx -"}) == 5
