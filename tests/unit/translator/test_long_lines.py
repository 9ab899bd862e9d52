import itertools
from unittest.mock import Mock

import pytest

from seq2seq.config import DecodeConfig, LongLines
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translator.long_lines import fit, join, longest_source, longest_target, sentence_starts, split
from seq2seq.translator.results import Candidate


def decode(limit: int, choice: LongLines) -> DecodeConfig:
    return DecodeConfig(max_source_length=limit, long_lines=choice)


def pieces(text: str) -> list[str]:
    """A piece for every character, words marked as SentencePiece marks them."""
    marked = "\u2581" + text.replace(" ", " \u2581")
    return [piece for word in marked.split(" ") for piece in (word[:2], *word[2:])]


def parts(text: str, limit: int) -> list[str]:
    """The text of each part, and none of its pieces lost."""
    found = pieces(text)
    ids = list(range(len(found)))
    cut = split(ids, found, limit)
    assert [id_ for part in cut for id_ in part] == ids
    assert all(1 <= len(part) <= limit for part in cut)
    return ["".join(found[id_] for id_ in part).replace("\u2581", " ").strip() for part in cut]


def sentences(text: str) -> list[str]:
    found = pieces(text)
    starts = [0, *sentence_starts(found), len(found)]
    return ["".join(found[a:b]).replace("\u2581", " ").strip() for a, b in itertools.pairwise(starts)]


@pytest.fixture
def tokenizer(tiny_bundle):
    return tiny_bundle.source_tokenizer


@pytest.mark.parametrize("choice", list(LongLines))
def test_a_line_at_the_limit_eos_counted_is_left_alone(tokenizer, choice):
    ids = tokenizer.encode("der die das")
    assert fit(ids, tokenizer, decode(len(ids) + 1, choice), 7) == ([ids], None)


def test_a_longer_line_is_refused_with_its_number_its_length_and_the_choices(tokenizer):
    ids = tokenizer.encode("der die das")
    message = (
        r"line 7 has 4 pieces, max_source_length is 3; raise it, or choose long_lines=truncate or long_lines=split"
    )
    with pytest.raises(ValueError, match=message):
        fit(ids, tokenizer, decode(3, LongLines.error), 7)


def test_a_truncated_line_loses_its_end_and_the_notice_says_how_much(tokenizer):
    ids = tokenizer.encode("der die das und")
    cut, notice = fit(ids, tokenizer, decode(3, LongLines.truncate), 7)
    assert cut == [ids[:2]]
    assert notice == "line 7 has 5 pieces, max_source_length is 3: the last 2 pieces were dropped"


def test_a_split_line_keeps_all_its_pieces_and_the_notice_says_in_how_many_parts(tokenizer):
    ids = tokenizer.encode("der die das und die")
    cut, notice = fit(ids, tokenizer, decode(3, LongLines.split), 7)
    assert cut == [ids[:2], ids[2:4], ids[4:]]
    assert notice == "line 7 has 6 pieces, max_source_length is 3: translated in 3 parts"


@pytest.mark.parametrize("choice", list(LongLines))
def test_a_limit_without_room_beside_eos_is_refused(tokenizer, choice):
    with pytest.raises(ValueError, match="max_source_length=1 leaves no room beside EOS; give at least 2"):
        fit([5], tokenizer, decode(1, choice), 1)


def test_every_sentence_becomes_a_part_even_where_two_would_fit():
    assert parts("Ant sat. Bee ran! Cat hid?", 15) == ["Ant sat.", "Bee ran!", "Cat hid?"]


def test_a_sentence_beyond_the_limit_is_cut_between_words():
    assert parts("One. And two three four five.", 9) == ["One.", "And two", "three four", "five."]


def test_a_word_beyond_the_limit_is_cut_inside():
    assert parts("a " + "b" * 10, 4) == ["a", "bbbb", "bbbb", "bb"]


def test_a_hard_cut_does_not_fall_inside_a_character_that_is_spelled_in_bytes():
    found = ["\u2581", "a", "<0xE7>", "<0x8C>", "<0xAB>", "<0xE7>", "<0x8C>", "<0xAB>"]
    assert split(list(range(8)), found, 4) == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert split(list(range(8)), found, 2) == [[0, 1], [2, 3], [4], [5, 6], [7]]  # no room for a whole one


def test_four_hundred_full_stops_are_cut_wherever_the_limit_is():
    assert parts("." * 400, 150) == ["." * 150, "." * 150, "." * 100]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there. How are you?", ["Hello there.", "How are you?"]),
        ('He said "go." Then he left.', ['He said "go."', "Then he left."]),
        ("Really?! Yes\u2026 No.", ["Really?!", "Yes\u2026", "No."]),
        ("Am 3. Mai kam er.", ["Am 3. Mai kam er."]),
        ("Ein Tier, z. B. Hunde.", ["Ein Tier, z. B. Hunde."]),
        ("Er rief halt! und ging.", ["Er rief halt! und ging."]),
        ("Version 2.0 is out.", ["Version 2.0 is out."]),
        (
            "\u6211\u770b\u89c1\u732b\u3002\u4f60\u597d\uff01\u518d\u89c1\u3002",
            ["\u6211\u770b\u89c1\u732b\u3002", "\u4f60\u597d\uff01", "\u518d\u89c1\u3002"],
        ),
        ("\u4f60\u597d!\u518d\u89c1\u3002", ["\u4f60\u597d!", "\u518d\u89c1\u3002"]),
        (
            "\u300c\u884c\u3053\u3046\u3002\u300d\u3068\u8a00\u3063\u305f\u3002",
            ["\u300c\u884c\u3053\u3046\u3002\u300d", "\u3068\u8a00\u3063\u305f\u3002"],
        ),
        ("a!b?c", ["a!b?c"]),
    ],
)
def test_sentences_end_where_punctuation_says_so(text, expected):
    assert sentences(text) == expected


def candidate(text: str, score: float) -> Candidate:
    return Candidate(text, score, 2 * score, (text,), (len(text),), (2 * score,), text == "limit")


def test_joined_candidates_are_the_best_sums_of_scores():
    first = [candidate("a", -1.0), candidate("b", -4.0)]
    second = [candidate("x", -1.0), candidate("y", -1.5), candidate("limit", -9.0)]
    found = join([first, second], between=" ", n_best=4)
    assert [(best.text, best.score) for best in found] == [("a x", -2.0), ("a y", -2.5), ("b x", -5.0), ("b y", -5.5)]
    assert found[0] == Candidate("a x", -2.0, -4.0, ("a", "x"), (1, 1), (-2.0, -2.0), False)
    assert join([first, second[2:]], between="", n_best=1)[0].hit_limit


def test_joined_candidates_are_distinct_texts_and_empty_ones_leave_no_space():
    first = [candidate("a", -1.0), candidate("", -1.5)]
    second = [candidate("", -1.0), candidate("a", -1.2)]
    found = join([first, second], between=" ", n_best=4)
    assert [(best.text, best.score) for best in found] == [("a", -2.0), ("a a", -2.2), ("", -2.5)]


def test_one_part_stays_as_it_is_and_no_part_gives_nothing():
    only = [candidate("a", -1.0), candidate("b", -4.0)]
    assert join([only], between=" ", n_best=2) == tuple(only)
    assert join([], between=" ", n_best=2) == ()


def test_learned_positions_limit_a_source_and_leave_a_decoder_only_model_room_for_as_much_target(families):
    for positions, source in ((21, 11), (20, 10)):
        alone, apart = (families(name, max_positions=positions) for name in ("gpt2", "multi_query"))
        assert (longest_source(alone), longest_source(apart)) == (source, positions)
        assert (longest_target(alone, source), longest_target(apart, 7)) == (positions - source + 1, positions)
    assert longest_source(families("llama")) is longest_target(families("llama"), 5) is None


@pytest.mark.parametrize("choice", list(LongLines))
def test_a_line_beyond_the_learned_positions_is_treated_as_one_beyond_the_limit(tokenizer, choice):
    ids = tokenizer.encode("der die das und der die")
    assert fit(ids, tokenizer, decode(100, choice), 7, len(ids) + 1) == ([ids], None)
    if choice is LongLines.error:
        message = "line 7 has 7 pieces, the model's learned positions are enough for 4; choose long_lines=truncate"
        with pytest.raises(ValueError, match=message):
            fit(ids, tokenizer, decode(100, choice), 7, 4)
        with pytest.raises(ValueError, match="max_source_length is 3; raise it"):  # the smaller limit is the one told
            fit(ids, tokenizer, decode(3, choice), 7, 4)
        return
    found, notice = fit(ids, tokenizer, decode(100, choice), 7, 4)
    assert max(map(len, found)) <= 3
    assert notice.startswith("line 7 has 7 pieces, the model's learned positions are enough for 4: ")


@pytest.fixture
def coded() -> Tokenizer:
    """Its id 7 is the code of a language; a sentence ends after each third word."""
    made = Mock(spec=Tokenizer)
    made.front.side_effect = lambda ids: int(ids[:1] == [7])
    made.pieces.side_effect = lambda ids: [f"▁Word{'.' if id_ % 3 == 0 else ''}" for id_ in ids]
    return made


def test_the_code_of_a_language_is_in_front_of_every_part(coded):
    decode = DecodeConfig(max_source_length=4, long_lines=LongLines.split)
    parts, notice = fit([7, 10, 11, 12, 13, 14], coded, decode, 1)
    assert parts == [[7, 10, 11], [7, 12], [7, 13, 14]]
    assert notice == "line 1 has 7 pieces, max_source_length is 4: translated in 3 parts"
    assert fit([10, 11, 12, 13], coded, decode, 1)[0] == [[10, 11, 12], [13]]


def test_a_limit_without_room_beside_the_code_of_a_language_is_refused(coded):
    decode = DecodeConfig(max_source_length=2, long_lines=LongLines.split)
    with pytest.raises(ValueError, match="it leaves no room beside the first 1 and EOS, which every part has"):
        fit([7, 10, 11], coded, decode, 1)
