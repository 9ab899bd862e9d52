import dataclasses

import pytest

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig
from seq2seq.search.vocabulary import Vocabulary
from seq2seq.text.spelling import spellings
from seq2seq.translator import Request
from seq2seq.translator.batches import Part
from seq2seq.translator.phrases import batch_constraints, phrase_ids, room_for_phrases
from seq2seq.translator.preparing import Preparation


@pytest.fixture
def room(tiny_bundle: Bundle):
    """What `room_for_phrases` says of line 7."""

    def room(*phrases: str, prefix: str = "", longest: int | None = None, **options: object) -> int:
        tokenizer = tiny_bundle.target_tokenizer
        return room_for_phrases(
            tokenizer,
            dataclasses.replace(DecodeConfig(), **options),
            phrases,
            prefix=tokenizer.encode(prefix),
            longest=longest,
            line=7,
        )

    return room


def size(bundle: Bundle, *texts: str) -> int:
    """Pieces of the shortest spellings."""
    return sum(len(bundle.target_tokenizer.encode(text)) for text in texts)


def largest(bundle: Bundle, text: str) -> int:
    """Pieces of the longest spelling: word by word in small pieces."""
    return max(len(one.ids) for one in spellings(bundle.target_tokenizer, text))


def test_phrases_need_their_pieces_but_for_those_that_the_prefix_has(room, tiny_bundle):
    assert room() == 0
    ant, yak_und = largest(tiny_bundle, "ant"), largest(tiny_bundle, "yak und")
    assert room("ant") == ant > size(tiny_bundle, "ant")
    assert room("ant", "yak und") == ant + yak_und
    assert room("ant", "yak und", prefix="der ant") == yak_und
    assert room("ant", prefix="der ant") == 0
    assert room("ant|yak und") == yak_und


def test_greedy_search_and_draws_are_refused_with_phrases(room):
    with pytest.raises(
        ValueError, match=r"line 7 has phrases .* but beam_size=1; choose temperature=0 and a beam_size"
    ):
        room("ant", beam_size=1)
    with pytest.raises(ValueError, match=r"line 7 has phrases .* but temperature=0\.7; choose temperature=0"):
        room("ant", beam_size=1, temperature=0.7)
    assert room(beam_size=1) == 0


def test_a_phrase_that_cannot_be_spelt_is_refused_with_its_line(room):
    with pytest.raises(ValueError, match="line 7: 'Ω' has characters that the target tokenizer has no pieces for"):
        room("ant", "yak|Ω")


def test_a_phrase_that_forbidden_words_rule_out_is_refused(room):
    with pytest.raises(
        ValueError, match=r"line 7: phrase 'yak und ant', .* has 'ant' in it, which forbidden rules out"
    ):
        room("yak und ant", forbidden=["bee", "ant"])
    assert room("yak und ant|yak", forbidden=["ant"]) > 0
    assert room("ants", forbidden=["ant"]) > 0


def test_a_phrase_that_repeats_what_must_not_come_twice_is_refused(room, tiny_bundle):
    assert size(tiny_bundle, "ant und") == 2
    with pytest.raises(
        ValueError, match=r"phrase 'und ant und ant und', .* contain, repeats a sequence of 2 pieces, which"
    ):
        room("und ant und ant und", no_repeat_ngram=2)
    assert room("ant und ant und", no_repeat_ngram=2) > 0  # written as a, n, t at first
    with pytest.raises(ValueError, match=r"phrase 'yak\.', .* contain twice, repeats a sequence of 1 pieces, which"):
        room("yak.", "und", "yak.", no_repeat_ngram=1)
    assert room("ant und", "yak", "ant und", no_repeat_ngram=2) > 0  # the second time as a, n, t
    assert room("ant und", "ant und", no_repeat_ngram=3) > 0


def test_a_phrase_that_the_prefix_has_is_let_pass_as_the_prefix_is(room):
    assert room("ant", prefix="yak ant", forbidden=["ant"], no_repeat_ngram=1) == 0
    with pytest.raises(ValueError, match="which forbidden rules out"):
        room("ant", prefix="yak ants", forbidden=["ant"])


def test_phrases_that_are_longer_than_the_longest_translation_are_refused(room, tiny_bundle):
    words = size(tiny_bundle, "ant und yak")
    assert room("ant und yak", longest=words + 1) > words
    with pytest.raises(
        ValueError, match=f"line 7 has phrases that take {words} pieces, with EOS its translation needs"
    ):
        room("ant und yak", longest=words)
    with pytest.raises(
        ValueError, match=f"{words} pieces behind its prefix, .* needs {words + 2}, but .* {words + 1};"
    ):
        room("ant und yak", prefix="bee", longest=words + 1)
    assert room("ant", prefix="ant", longest=1) == 0


def test_lines_are_prepared_with_room_for_their_phrases(tiny_bundle):
    preparation = Preparation.of(tiny_bundle)
    decode = DecodeConfig()
    request = Request("der ant", prefix="bee", phrases=("ant", "bee"))
    (part,) = preparation.prepare(1, request, decode).parts
    assert part.room == largest(tiny_bundle, "ant")
    assert part.phrases == request.phrases
    with pytest.raises(
        ValueError, match=r"line 3 has phrases that take \d+ pieces, .* may have only 4; raise max_length"
    ):
        preparation.prepare(
            3, Request("der ant", phrases=("elk und ant ram",)), dataclasses.replace(decode, max_length=4)
        )
    blank = preparation.prepare(3, Request(" ", phrases=("Ω",)), decode)
    assert blank.parts == ()


def part(*phrases: str) -> Part:
    return Part(1, (5, 2), phrases=phrases)


def test_a_batch_without_phrases_has_no_constraints(tiny_bundle):
    assert batch_constraints(tiny_bundle.target_tokenizer, DecodeConfig(), [part(), part()], Vocabulary()) is None


@pytest.mark.parametrize("ordered", [False, True])
def test_the_search_is_told_what_each_sentence_must_contain(tiny_bundle, ordered):
    tokenizer = tiny_bundle.target_tokenizer
    parts = [part("yak", "ant|bee"), part(), part("ant")]
    found = batch_constraints(tokenizer, DecodeConfig(ordered_phrases=ordered), parts, Vocabulary())
    assert found is not None

    def has_all(sentence: int, text: str) -> bool:
        return found.met(sentence, tokenizer.encode(text)) == found.total(sentence)

    assert [has_all(0, text) for text in ("yak ant", "yak und bee.", "ant yak", "yak", "yaks ant")] == [
        True,
        True,
        not ordered,
        False,
        False,
    ]
    assert [has_all(2, text) for text in ("ant", "yak, ant!", "ants", "plant", "!ant?")] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert found.total(1) == 0


def test_with_a_shortlist_the_same_is_told_in_its_numbers(tiny_bundle):
    tokenizer = tiny_bundle.target_tokenizer
    special = tokenizer.special
    texts = ["ants yak", "ant und yak", "yak, ant"]
    needed = phrase_ids(tokenizer, ["ant|bee", "yak"])
    shortlist = sorted({special.eos, special.bos, *needed, *(id_ for text in texts for id_ in tokenizer.encode(text))})
    assert len(shortlist) < tokenizer.vocab_size
    vocabulary = Vocabulary(shortlist)
    parts = [part("ant|bee", "yak")]
    whole = batch_constraints(tokenizer, DecodeConfig(), parts, Vocabulary())
    short = batch_constraints(tokenizer, DecodeConfig(), parts, vocabulary)
    assert whole is not None
    assert short is not None
    for text in texts:
        ids = tokenizer.encode(text)
        numbers = vocabulary.numbers(ids)
        assert numbers is not None
        steps = range(len(ids) + 1)
        assert [short.met(0, numbers[:at]) for at in steps] == [whole.met(0, ids[:at]) for at in steps]


def test_pieces_of_all_alternatives_and_spellings_are_needed(tiny_bundle):
    tokenizer = tiny_bundle.target_tokenizer
    needed = phrase_ids(tokenizer, ["ant|bee", "yak"])
    assert needed >= {*tokenizer.encode("ant"), *tokenizer.encode("bee"), *tokenizer.encode("yak")}
    assert tokenizer.special.unk not in needed
