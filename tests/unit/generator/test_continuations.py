"""Texts from pieces: spaces, characters of several byte pieces, stop strings across the borders of pieces."""

import itertools

import pytest

from seq2seq.config import TokenizerConfig
from seq2seq.generator.continuations import UNKNOWN, Continuation
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.tokenizer_training import train_tokenizer


@pytest.fixture(scope="module")
def words(tiny_lines: list[str]) -> Tokenizer:
    """Pieces that begin with the mark of a space, and bytes for other characters."""
    return train_tokenizer(tiny_lines, TokenizerConfig(vocab_size=300))[0]


def going_on(tokenizer: Tokenizer, prompt: str, *stop: str) -> Continuation:
    return Continuation(tokenizer, tokenizer.prompt(prompt), stop)


def test_the_space_before_the_first_word_is_kept_after_a_prompt_and_not_at_the_beginning(words):
    ids = words.encode("ant bee")
    assert words.decode_text(ids) == "ant bee"
    assert going_on(words, "der").whole(ids) == " ant bee"
    assert going_on(words, "").whole(ids) == "ant bee"


def test_a_prompt_that_ends_inside_a_character_is_completed(words):
    *most, last = words.encode("€")
    prompt = [*words.encode("ant"), *most]
    assert UNKNOWN in words.decode_text(prompt)
    assert Continuation(words, prompt, []).whole([last, *words.encode("bee")]) == "€ bee"


def test_half_a_character_is_not_settled(words):
    ids = words.encode("ant€猫 bee")
    growing = going_on(words, "")
    told = [growing.settled(ids[:n]) for n in range(len(ids) + 1)]
    assert {UNKNOWN} & set("".join(map(growing.whole, (ids[:n] for n in range(len(ids)))))), "nothing was cut in half"
    assert not any(UNKNOWN in text for text in told)
    assert all(after.startswith(before) for before, after in itertools.pairwise(told))
    assert told[-1] == "ant€猫 bee"


def test_bytes_that_never_become_a_character_are_settled_by_what_follows_them(words):
    first = words.encode("€")[-3]
    ids = [first, *words.encode("ant")]
    growing = going_on(words, "")
    assert growing.settled(ids[:1]) == ""
    assert growing.settled(ids) == f"{UNKNOWN} ant"


def test_a_character_that_the_limit_cut_is_left_out_and_one_that_the_model_left_is_not(words):
    ids = words.encode("ant€")[:-1]
    assert going_on(words, "").final(ids, cut=True) == "ant"
    assert going_on(words, "").final(ids, cut=False).startswith(f"ant{UNKNOWN}")


@pytest.mark.parametrize(("stop", "at"), [("b", 5), ("nt b", 5), ("ee", 7), ("bee c", 9), ("ant bee cat", 11)])
def test_a_stop_string_is_found_in_the_step_that_completes_it_wherever_pieces_end(tiny_writer, stop, at):
    tokenizer = tiny_writer.target_tokenizer
    ids = [id_ for letter in "ant bee cat" for id_ in tokenizer.encode(letter)]
    assert len(ids) == 11
    stopping = going_on(tokenizer, "der ", stop)
    assert [stopping.stops(ids[:n]) for n in range(12)] == [n >= at for n in range(12)]
    assert stopping.final(ids[:at], cut=True) == "ant bee cat"[: "ant bee cat".index(stop)]


def test_a_stop_string_inside_a_piece_ends_the_text_before_it(words):
    (ant,) = [id_ for id_ in words.encode("ant") if words.pieces([id_]) == ["▁ant"]] or [None]
    ids = [ant] if ant is not None else words.encode("ant")
    assert going_on(words, "der", "n").final(ids, cut=False) == " a"


def test_a_stop_string_in_the_prompt_or_across_its_end_stops_nothing(tiny_writer):
    tokenizer = tiny_writer.target_tokenizer
    assert not going_on(tokenizer, "ant be", "bee", "ant").stops(tokenizer.encode("e cat"))


def test_what_may_become_a_stop_string_is_held_back_and_given_when_it_does_not(tiny_writer):
    tokenizer = tiny_writer.target_tokenizer
    growing = going_on(tokenizer, "", "bbc", "ca")
    ids = tokenizer.encode("abbbec")
    assert [growing.settled(ids[:n]) for n in range(7)] == ["", "a", "a", "a", "ab", "abbbe", "abbbe"]
    assert growing.final(ids, cut=False) == "abbbec"


def test_of_several_stop_strings_the_first_in_the_text_counts(tiny_writer):
    tokenizer = tiny_writer.target_tokenizer
    assert going_on(tokenizer, "", "cat", "bee", "\n").final(tokenizer.encode("ant bee\ncat"), cut=False) == "ant "
    assert going_on(tokenizer, "", "cat", "bee", "\n").settled(tokenizer.encode("ant bee\ncat")) == "ant "
