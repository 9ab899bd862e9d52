import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

from seq2seq.config import DecodeConfig, LongLines, Utility
from seq2seq.translator import Candidate, Request, Translator
from seq2seq.translator import utility as utility_module
from seq2seq.translator.mbr import by_utility
from seq2seq.translator.utility import chrf

LINES = ["der ant läuft!", "", "17 elk sieht und das yak schläft?", "owl"]


def candidate(text: str, score: float) -> Candidate:
    return Candidate(text, score, 2 * score, (text,), (2,), (2 * score,), False)


def letters(texts: Sequence[str]) -> np.ndarray:
    """How many letters of each text stand in the other too: 0 to 100."""
    return np.array([[100.0 * len(set(one) & set(other)) / 4 for other in texts] for one in texts])


def test_found_candidates_count_by_their_scores_renormalised():
    found = [candidate("abcd", math.log(0.4)), candidate("abcx", math.log(0.3)), candidate("abxy", math.log(0.1))]
    ranked = by_utility(found, letters, drawn=False)
    assert [one.text for one in ranked] == ["abcd", "abcx", "abxy"]
    expected = [(0.4 * 100 + 0.3 * 75 + 0.1 * 50), (0.4 * 75 + 0.3 * 100 + 0.1 * 75), (0.4 * 50 + 0.3 * 75 + 0.1 * 100)]
    assert [one.utility for one in ranked] == pytest.approx([value / 0.8 for value in expected])
    assert [dataclasses.replace(one, utility=None) for one in ranked] == found


def test_the_best_score_is_not_taken_if_the_others_agree_on_something_else():
    found = [candidate("wxyz", math.log(0.3)), candidate("abcd", math.log(0.25)), candidate("abce", math.log(0.25))]
    assert [one.text for one in by_utility(found, letters, drawn=False)] == ["abcd", "abce", "wxyz"]


def test_very_low_scores_do_not_vanish():
    found = [candidate("abcd", -4000.0), candidate("abxy", -4000.0 + math.log(3))]
    assert [one.utility for one in by_utility(found, letters, drawn=False)] == pytest.approx([87.5, 62.5])


def test_drawn_candidates_count_as_often_as_they_were_drawn_and_come_once():
    drawn = [candidate(text, -9.0) for text in ("wxyz", "abcd", "wxyz", "abce", "wxyz", "abcf")]
    ranked = by_utility(drawn, letters, drawn=True)
    assert [one.text for one in ranked] == ["wxyz", "abcd", "abce", "abcf"]
    assert [one.utility for one in ranked] == pytest.approx([50.0, 250 / 6, 250 / 6, 250 / 6])
    assert by_utility(drawn[1:4], letters, drawn=True)[0].text == "abcd"


def test_scores_of_drawn_candidates_do_not_matter():
    drawn = [candidate("abcd", -1.0), candidate("wxyz", -50.0), candidate("wxyz", -50.0)]
    assert by_utility(drawn, letters, drawn=True)[0].text == "wxyz"


def test_of_equally_useful_candidates_the_one_found_first_goes_first():
    found = [candidate("abcd", -2.0), candidate("efgh", -2.0), candidate("ijkl", -2.0)]
    for order in (found, found[::-1]):
        assert [one.text for one in by_utility(order, letters, drawn=True)] == [one.text for one in order]


def test_an_empty_candidate_is_never_preferred_however_probable_it_is():
    found = [candidate("", math.log(0.9)), candidate("a dog", math.log(0.1))]
    assert [(one.text, one.utility) for one in by_utility(found, chrf, drawn=False)] == [
        ("a dog", pytest.approx(10.0)),
        ("", 0.0),
    ]


def decode(**changes: object) -> DecodeConfig:
    return dataclasses.replace(DecodeConfig(beam_size=5, max_length=12, mbr=Utility.chrf), **changes)


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 1, "temperature": 1.0, "num_candidates": 9}, {"num_candidates": 3}]
)
def test_the_translator_gives_the_candidate_of_highest_utility(tiny_bundle, options):
    wanted = decode(**options)
    translator = Translator(tiny_bundle)
    all_found = dataclasses.replace(wanted, mbr=Utility.none, num_candidates=None, n_best=wanted.num_found)
    for answer, found in zip(translator.translate(LINES, wanted), translator.translate(LINES, all_found), strict=True):
        if not answer.source:
            assert answer.candidates[0].utility is None
            continue
        assert len(answer.candidates) == 1
        shares = [1.0 if wanted.draws else math.exp(one.score) for one in found.candidates]
        metric = CHRF()
        expected = {
            one.text: sum(
                share * metric.sentence_score(one.text, [other.text]).score
                for share, other in zip(shares, found.candidates, strict=True)
            )
            / sum(shares)
            for one in found.candidates
        }
        assert answer.candidates[0].utility == pytest.approx(max(expected.values()), abs=1e-9)
        assert expected[answer.text] == pytest.approx(max(expected.values()), abs=1e-9)


@pytest.mark.parametrize("options", [{}, {"beam_size": 1, "temperature": 1.0, "num_candidates": 8}])
def test_the_first_translation_is_the_same_however_many_are_asked_for(tiny_bundle, options):
    translator = Translator(tiny_bundle)
    for utility in (Utility.chrf, Utility.bleu):
        many = translator.translate(LINES[:2], decode(n_best=4, mbr=utility, **options))
        for fewer in (1, 2):
            few = translator.translate(LINES[:2], decode(n_best=fewer, mbr=utility, **options))
            assert [one.candidates for one in few] == [one.candidates[:fewer] for one in many]
        utilities = [one.utility for one in many[0].candidates]
        assert utilities == sorted(utilities, reverse=True)
        assert len({one.text for one in many[0].candidates}) == len(many[0].candidates) > 1


def test_of_a_split_line_utilities_add_up_and_decide(tiny_bundle):
    first, second = "der ant läuft!", "Die cat und das yak."
    split = decode(max_source_length=12, long_lines=LongLines.split, n_best=3)
    translator = Translator(tiny_bundle)
    (whole,) = translator.translate([f"{first} {second}"], split, on_notice=lambda _: None)
    parts = translator.translate([first, second], split)
    assert len(whole.source_ids) >= 2
    assert whole.source_ids == parts[0].source_ids + parts[1].source_ids
    assert whole.candidates[0].utility == pytest.approx(sum(part.candidates[0].utility for part in parts))
    assert whole.ids == parts[0].ids + parts[1].ids


def test_a_forced_target_is_its_own_only_candidate(tiny_bundle):
    (answer,) = Translator(tiny_bundle).translate([Request("owl", target="die bee")], decode())
    assert answer.text == "die bee"
    assert answer.candidates[0].utility == pytest.approx(100)


def test_bleu_is_counted_in_the_words_of_the_bundles_target_language(tiny_bundle, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "seq2seq.translator.translator.measure", lambda *what: asked.append(what) or utility_module.measure(*what)
    )
    chinese = dataclasses.replace(tiny_bundle, languages=("de", "zh"))
    Translator(chinese).translate(["owl"], decode(mbr=Utility.bleu))
    assert asked == [(Utility.bleu, "zh")]
