import dataclasses

import pytest

from seq2seq.config import DecodeConfig, LongLines, PenaltyForm
from seq2seq.translator import Translator
from seq2seq.translator.diagnosis import greedy_errors, is_plain, reference_errors, sweep

LINES = ["der ant läuft!", "", "die cat sieht das yak und den owl.", "17 elk", "gnu und hen sieht die 3 ram!"]
DECODE = DecodeConfig(beam_size=4, max_length=12, min_length_factor=0.0, length_penalty=1.0)


@pytest.fixture(scope="module")
def translator(tiny_bundle) -> Translator:
    return Translator(tiny_bundle)


def test_a_reference_that_greedy_search_has_missed_is_a_search_error_of_it(translator):
    greedy = dataclasses.replace(DECODE, beam_size=1, length_penalty=0.0)
    wide = translator.translate(LINES, dataclasses.replace(greedy, beam_size=12))
    answers = translator.translate(LINES, greedy)
    better = [at for at, (one, two) in enumerate(zip(wide, answers, strict=True)) if one.score > two.score + 1e-3]
    assert better, "the model has search errors"
    references = [answer.text for answer in wide]
    errors = reference_errors(translator, answers, references, greedy)
    assert errors.num_compared == sum(bool(text) for text in references)
    assert {rival.place for rival in errors.rivals} <= set(better)
    scores = translator.score(LINES, references, greedy)
    for rival in errors.rivals:
        assert rival.score == pytest.approx(scores[rival.place].score)
        assert rival.score > rival.found_score == answers[rival.place].score
        assert rival.text == references[rival.place] != answers[rival.place].text


def test_answers_that_greedy_search_would_have_bettered_are_search_errors(translator):
    listed = translator.translate(LINES, dataclasses.replace(DECODE, beam_size=4, n_best=4))
    greedy = translator.translate(LINES, dataclasses.replace(DECODE, beam_size=1))
    worst = [dataclasses.replace(answer, candidates=answer.candidates[-1:]) for answer in listed]
    expected = [
        at
        for at, (one, two) in enumerate(zip(greedy, worst, strict=True))
        if one.score > two.score + 1e-3 and one.text != two.text
    ]
    errors = greedy_errors(translator, worst, DECODE)
    assert expected
    assert [rival.place for rival in errors.rivals] == expected
    assert errors.num_compared == 4


def test_a_search_that_has_found_the_best_has_no_errors(translator):
    answers = translator.translate(LINES, DECODE)
    assert not reference_errors(translator, answers, [answer.text for answer in answers], DECODE).rivals


def test_references_that_are_longer_than_translations_may_be_are_not_compared(translator):
    answers = translator.translate(LINES, DECODE)
    references = ["ant bee cat dog elk fox gnu hen owl pig ram yak", "", "", "bee", ""]
    assert reference_errors(translator, answers, references, DECODE).num_compared == 1


@pytest.mark.parametrize("form", [PenaltyForm.power, PenaltyForm.gnmt, PenaltyForm.none])
def test_a_sweep_gives_what_each_search_by_itself_gives(translator, form):
    decode = dataclasses.replace(DECODE, penalty_form=form)
    told = []
    points = list(sweep(translator.bundle, LINES, decode, [1, 3, 5], [0.0, 0.2, 0.4, 1.0], told.append))
    assert [(one.beam_size, one.length_penalty) for one in points[:5]] == [
        *((1, exponent) for exponent in (0.0, 0.2, 0.4, 1.0)),
        (3, 0.0),
    ]
    used = PenaltyForm.gnmt if form is PenaltyForm.none else form
    for one in points:
        options = dataclasses.replace(
            decode, beam_size=one.beam_size, penalty_form=used, length_penalty=one.length_penalty
        )
        assert one.texts == [answer.text for answer in translator.translate(LINES, options)]
    assert [one.num_searched for one in points[:4]] == [5, 0, 0, 0]
    assert sum(one.num_searched for one in points[4:]) < 8 * len(LINES), "some were told from another search"
    assert told == [5] * 12


def test_penalties_far_apart_and_options_that_change_scores_are_searched_one_by_one(translator):
    far = list(sweep(translator.bundle, LINES, DECODE, [2], [0.0, 1.0]))
    assert [one.num_searched for one in far] == [5, 5]
    rules = dataclasses.replace(DECODE, no_repeat_ngram=1)
    points = list(sweep(translator.bundle, LINES, rules, [2], [0.9, 1.0]))
    assert [one.num_searched for one in points] == [5, 5]
    options = dataclasses.replace(rules, beam_size=2, length_penalty=0.9)
    assert points[0].texts == [answer.text for answer in translator.translate(LINES, options)]


def test_lines_in_several_parts_are_swept_too(translator):
    lines = ["der ant läuft. die cat schläft. das yak sieht.", "owl"]
    decode = dataclasses.replace(DECODE, max_source_length=8, long_lines=LongLines.split)
    points = list(sweep(translator.bundle, lines, decode, [3], [0.8, 1.0]))
    for one in points:
        options = dataclasses.replace(decode, beam_size=3, length_penalty=one.length_penalty)
        expected = translator.translate(lines, options, on_notice=lambda notice: None)
        assert len(expected[0].source_ids) > 1
        assert one.texts == [answer.text for answer in expected]


def test_plain_are_options_that_neither_change_scores_nor_forbid():
    assert is_plain(DecodeConfig(patience=1.0, beam_size=3, max_length=9))
    for changes in ({"no_repeat_ngram": 2}, {"min_length": 2}, {"coverage_penalty": 0.1}, {"forbidden": ["a"]}):
        assert not is_plain(DecodeConfig(**changes))
