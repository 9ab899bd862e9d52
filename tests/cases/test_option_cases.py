"""S2, S4 and S6 of the list of cases under every option of decoding."""

import pytest

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig, LongLines, PenaltyForm, Utility
from seq2seq.text.words import find_whole
from seq2seq.translator import Candidate, Request, Translation, Translator

EXACT = 1e-9
"""Tolerance in float64."""

LINES = ["der ant läuft!", "17 elk sieht und das yak schläft?", "owl"]

SEARCHED: dict[str, dict[str, object]] = {
    "longer": {"length_penalty": 2.0, "min_length": 4},
    "shorter": {"penalty_form": PenaltyForm.power, "length_penalty": -0.7, "min_length": 3},
    "cut": {"max_length": 4, "min_length_factor": 0.3, "patience": 0.5},
    "forbidding": {"no_repeat_ngram": 2, "forbidden": ["owl", "h", "ant der"], "forbid_unknown": True},
    "changing": {"repetition_penalty": 1.7, "unknown_penalty": 1.5, "min_length": 5},
    "coverage": {"coverage_penalty": 0.3, "min_length": 5},
    "split": {"max_source_length": 4, "long_lines": LongLines.split, "min_length": 3},
    "all": {"no_repeat_ngram": 3, "repetition_penalty": 1.2, "forbidden": ["3"], "coverage_penalty": 0.1},
}
DRAWN: dict[str, dict[str, object]] = {
    "top_k": {"temperature": 0.7, "top_k": 5},
    "top_p_and_min_p": {"temperature": 1.4, "top_p": 0.8, "min_p": 0.01, "seed": 7},
    "with_rules": {"temperature": 1.2, "no_repeat_ngram": 2, "forbidden": ["h"], "repetition_penalty": 1.5},
    "split": {"temperature": 1.0, "max_source_length": 4, "long_lines": LongLines.split},
}
EVERY = [pytest.param(options | {"beam_size": 5}, id=name) for name, options in SEARCHED.items()]
EVERY += [pytest.param(options | {"beam_size": 1}, id=f"drawn_{name}") for name, options in DRAWN.items()]

BY_LENGTH = {"longer", "shorter", "drawn_top_k"}
"""Those that treat lines in no way that others do not."""


@pytest.fixture
def translator(tiny_bundle: Bundle) -> Translator:
    return Translator(tiny_bundle)


def decode(options: dict[str, object], n_best: int) -> DecodeConfig:
    return DecodeConfig(**{"max_length_factor": 0.3, "max_length_offset": 6, "n_best": n_best} | options)


def translate(translator: Translator, lines: list[str | Request], decode: DecodeConfig) -> list[Translation]:
    return translator.translate(lines, decode, on_notice=lambda _: None)


def assert_same(got: list[Candidate], expected: list[Candidate]) -> None:
    assert [one.ids for one in got] == [one.ids for one in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=EXACT)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=EXACT)


@pytest.mark.parametrize("options", EVERY)
def test_s2_fewer_of_the_n_best_are_the_first_of_more_under_every_option(translator, options) -> None:
    most = translate(translator, LINES, decode(options, 5))
    for n_best, some in ((1, LINES[1:2]), (3, LINES[:1])):
        numbers = [LINES.index(line) + 1 for line in some]
        found = translator.translate(some, decode(options, n_best), numbers=numbers, on_notice=lambda _: None)
        for answer, more in zip(found, [most[number - 1] for number in numbers], strict=True):
            # of a split line the n-th is the n-th best of all pairs of the n best of its parts
            if "temperature" in options or len(more.source_ids) == 1 or n_best == 1:
                assert_same(list(answer.candidates), list(more.candidates[:n_best]))
    for answer in most:
        if "temperature" not in options:
            scores = [one.score for one in answer.candidates]
            assert scores == sorted(scores, reverse=True)
            assert len({one.text for one in answer.candidates}) == len(scores)


def test_s2_fewer_of_the_n_best_by_minimum_bayes_risk_are_the_first_of_more(translator) -> None:
    for options in ({"beam_size": 6}, {"beam_size": 1, "temperature": 1.0}):
        options |= {"mbr": Utility.chrf, "num_candidates": 6}
        most = translate(translator, LINES, decode(options, 5))
        for answer, more in zip(translate(translator, LINES, decode(options, 2)), most, strict=True):
            assert_same(list(answer.candidates), list(more.candidates[:2]))


@pytest.mark.parametrize("options", EVERY)
def test_s4_what_is_reported_of_a_translation_is_what_scoring_it_gives_under_every_option(translator, options) -> None:
    config = decode(options, 3)
    for answer in translate(translator, LINES, config):
        if len(answer.source_ids) > 1:
            continue
        ids = [one.ids for one in answer.candidates]
        for one, pair in zip(
            answer.candidates, translator.score_ids([answer.source_ids[0]] * len(ids), ids, config), strict=True
        ):
            assert one.token_log_probs == pytest.approx(pair.token_log_probs, abs=EXACT)
            assert one.log_prob == pytest.approx(pair.log_prob, abs=EXACT)
            # what changes the model's logits or adds to scores makes them other than those of scoring
            changed = {"repetition_penalty", "unknown_penalty", "coverage_penalty"} & set(options)
            if not changed or options["beam_size"] == 1:
                assert one.score == pytest.approx(pair.score, abs=EXACT)
            if config.max_length is not None:
                assert one.hit_limit == (len(one.ids) == config.max_length)


@pytest.mark.parametrize("options", [option for option in EVERY if option.id not in BY_LENGTH])
def test_s6_lines_with_and_without_wishes_are_each_treated_as_if_alone_under_every_option(translator, options) -> None:
    asked: list[str | Request] = [
        Request(LINES[0], prefix="die bee"),
        Request("owl", target="das yak und 3"),
        "",
        Request("owl", prefix="das 3 h") if "temperature" in options else Request("owl", phrases=("ram",)),
        LINES[1],
    ]
    if options.get("max_length") == 4:
        asked[1] = Request("owl", target="das yak")
    config = decode(options, 3)
    together = translate(translator, asked, config)
    for number, (answer, line) in enumerate(zip(together, asked, strict=True), start=1):
        (alone,) = translator.translate([line], config, numbers=[number], on_notice=lambda _: None)
        assert_same(list(answer.candidates), list(alone.candidates))
    tokenizer = translator.bundle.target_tokenizer
    prefix = tokenizer.encode("die bee")
    assert all(list(one.ids[: len(prefix)]) == prefix for one in together[0].candidates)
    assert [one.text for one in together[1].candidates] == [asked[1].target]
    if "temperature" not in options:
        assert all(find_whole(one.text, "ram") >= 0 for one in together[3].candidates)
