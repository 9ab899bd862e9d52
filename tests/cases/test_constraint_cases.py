"""Phrases that translations must contain, line by line: S6 of the list of cases."""

import dataclasses

import numpy as np
import pytest

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig
from seq2seq.corpus.shortlist import Shortlist
from seq2seq.text.words import find_whole
from seq2seq.translator import Request, Terminology, Translation, Translator

LINES = [
    Request("der ant läuft!", phrases=("yak", "elk und")),
    Request("die cat sieht 17 gnu und die owl.", prefix="das owl"),
    Request("17 elk sieht und das yak schläft?"),
    Request("owl", prefix="der bee", phrases=("bee und cat|ram", "3")),
]


@pytest.fixture
def translator(tiny_bundle: Bundle) -> Translator:
    return Translator(tiny_bundle)


def decode(**changes: object) -> DecodeConfig:
    return dataclasses.replace(DecodeConfig(beam_size=4, max_length_factor=1.0, max_length_offset=4), **changes)


def assert_kept(request: Request, answer: Translation) -> None:
    """Each candidate starts with the prefix and contains the phrases."""
    for candidate in answer.candidates:
        assert candidate.text.startswith(request.prefix)
        for phrase in request.phrases:
            assert any(find_whole(candidate.text, text) >= 0 for text in phrase.split("|"))


def assert_same(one: Translation, other: Translation) -> None:
    assert [candidate.ids for candidate in one.candidates] == [candidate.ids for candidate in other.candidates]
    for left, right in zip(one.candidates, other.candidates, strict=True):
        assert left.score == pytest.approx(right.score, abs=1e-9)
        assert left.token_log_probs == pytest.approx(right.token_log_probs, abs=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"n_best": 3},
        {"beam_size": 2, "ordered_phrases": True, "patience": 1.0},
        {"coverage_penalty": 0.2},
        {"n_best": 2, "no_repeat_ngram": 3, "repetition_penalty": 1.3, "forbidden": ["hen"]},
    ],
    ids=str,
)
def test_s6_each_line_of_a_batch_keeps_its_own_phrases_and_prefix_as_if_alone(translator, options):
    asked = decode(**options)
    together = translator.translate(LINES, asked)
    for number, (request, answer) in enumerate(zip(LINES, together, strict=True), start=1):
        assert_kept(request, answer)
        (alone,) = translator.translate([request], asked, numbers=[number])
        assert_same(answer, alone)


def test_s6_the_order_of_the_lines_changes_nothing(translator):
    expected = translator.translate(LINES, decode())
    for order in [(3, 2, 1, 0), (1, 3, 0, 2)]:
        found = translator.translate([LINES[place] for place in order], decode())
        for place, answer in zip(order, found, strict=True):
            assert_same(answer, expected[place])


def test_s6_a_line_without_phrases_is_translated_as_in_a_batch_without_any(translator):
    plain = [dataclasses.replace(request, phrases=()) for request in LINES]
    without, mixed = translator.translate(plain, decode()), translator.translate(LINES, decode())
    for place in (1, 2):
        assert_same(mixed[place], without[place])
    for place in (0, 3):
        assert mixed[place].text != without[place].text


def test_s6_phrases_come_in_order_where_that_is_asked_for(translator):
    wanted = ("owl", "ant", "hen", "owl")
    (answer,) = translator.translate(
        [Request("die cat", phrases=wanted)], decode(ordered_phrases=True, n_best=3, beam_size=8)
    )
    for candidate in answer.candidates:
        at = 0
        for phrase in wanted:
            found = find_whole(candidate.text[at:], phrase)
            assert found >= 0
            at += found + len(phrase)


def test_s6_terms_of_each_line_are_translated_as_the_terminology_says(translator):
    terms = Terminology({"ant": "yak", "die cat": "hen elk", "owl": "gnu|pig"})
    texts = ["der ant läuft!", "die cat sieht 17 gnu und die owl.", "17 elk sieht"]
    requests = [Request(text, phrases=terms.phrases(text)) for text in texts]
    assert [request.phrases for request in requests] == [("yak",), ("hen elk", "gnu|pig"), ()]
    for request, answer in zip(requests, translator.translate(requests, decode()), strict=True):
        assert_kept(request, answer)


def test_s6_phrases_are_found_where_translations_are_chosen_from_a_shortlist(tiny_bundle):
    tokenizer = tiny_bundle.target_tokenizer
    few = np.arange(20, 40, dtype=np.int32)
    shortlist = Shortlist(
        num_targets=tokenizer.vocab_size,
        candidates=np.full((tokenizer.vocab_size, 1), -1, dtype=np.int32),
        same=np.full(tokenizer.vocab_size, -1, dtype=np.int32),
        frequent=few,
        always=np.arange(4, dtype=np.int32),
        sha256=(tokenizer.sha256, tokenizer.sha256),
    )
    assert not {*tokenizer.encode("yak"), *tokenizer.encode("elk und")} <= {*few.tolist()}
    translator = Translator(dataclasses.replace(tiny_bundle, shortlist=shortlist))
    asked = decode(shortlist=True)
    for number, (request, answer) in enumerate(zip(LINES, translator.translate(LINES, asked), strict=True), start=1):
        assert_kept(request, answer)
        assert_same(answer, translator.translate([request], asked, numbers=[number])[0])


def test_s6_phrases_are_refused_before_anything_is_translated(translator, monkeypatch):
    monkeypatch.setattr(translator.model, "start", lambda *_: pytest.fail("the model was called"))
    with pytest.raises(ValueError, match="line 2: 'Ω' has characters that the target tokenizer has no pieces for"):
        translator.translate(["der ant", Request("owl", phrases=("Ω",))], decode())
    with pytest.raises(ValueError, match=r"line 1 has phrases .* but beam_size=1"):
        translator.translate(LINES, decode(beam_size=1))
    with pytest.raises(ValueError, match="line 1 has phrases that take 3 pieces, with EOS its translation needs 4"):
        translator.translate(LINES, decode(max_length=3))
