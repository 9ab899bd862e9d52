"""What the options of decoding do to translations: rules, samples, and what lines force on them."""

import dataclasses
import functools
from collections.abc import Sequence

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig, LongLines, Utility
from seq2seq.search import SearchLimits
from seq2seq.search.phrases import START, PhrasePieces
from seq2seq.search.vocabulary import Vocabulary
from seq2seq.text.words import find_whole
from seq2seq.translator import Request, Translation, Translator
from seq2seq.translator.batches import Part
from seq2seq.translator.rules import batch_rules, phrase_pieces

LINES = ["der ant läuft!", "die cat.", "17 elk sieht und das yak schläft?", "owl", "und der dog 3"]


@pytest.fixture
def translator(tiny_bundle: Bundle) -> Translator:
    return Translator(tiny_bundle)


def decode(**changes: object) -> DecodeConfig:
    return dataclasses.replace(DecodeConfig(max_length_factor=1.0), **changes)


def words(answers: list[Translation]) -> list[str]:
    """The words of all translations."""
    return [word for answer in answers for candidate in answer.candidates for word in candidate.text.split()]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_no_n_gram_comes_twice_in_a_translation_though_it_does_without_the_option(translator, beam_size):
    def repeats(options: DecodeConfig) -> bool:
        found = translator.translate(LINES, options)
        ids = [candidate.ids for answer in found for candidate in answer.candidates]
        return any(len({own[at : at + 2] for at in range(len(own) - 1)}) < len(own) - 1 for own in ids)

    options = decode(beam_size=beam_size, n_best=beam_size, min_length=9)
    assert repeats(options)
    assert not repeats(dataclasses.replace(options, no_repeat_ngram=2))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_forbidden_words_come_in_no_translation_though_they_do_without_the_option(translator, beam_size):
    options = decode(beam_size=beam_size, n_best=beam_size, min_length=9)
    free = translator.translate(LINES, options)
    common = max(set(words(free)), key=words(free).count)
    phrases = [common, " ".join(free[1].text.split()[:2])]
    assert any(find_whole(candidate.text, phrases[1]) >= 0 for answer in free for candidate in answer.candidates)
    for answer in translator.translate(LINES, dataclasses.replace(options, forbidden=phrases)):
        assert answer.candidates
        for candidate in answer.candidates:
            assert [find_whole(candidate.text, phrase) for phrase in phrases] == [-1, -1]


def test_forbidden_words_are_known_in_the_tokenizers_normalisation_too(translator):
    tokenizer = translator.bundle.target_tokenizer
    assert tokenizer.decode(tokenizer.encode("ａｎｔ")) == "ant"
    assert spells(phrase_pieces(tokenizer, decode(forbidden=["ａｎｔ"]), Vocabulary()), tokenizer.encode("ant"))


def test_what_the_tokenizer_leaves_of_a_phrase_that_it_cannot_write_is_not_forbidden(translator):
    tokenizer = translator.bundle.target_tokenizer
    assert tokenizer.decode(tokenizer.encode("ant Ω")) == "ant "
    pieces = phrase_pieces(tokenizer, decode(forbidden=["ant Ω"]), Vocabulary())
    assert not spells(pieces, tokenizer.encode("ant"))


def test_an_unknown_piece_ends_words_where_a_word_of_the_source_will_stand_for_it(translator):
    ids = [*translator.bundle.target_tokenizer.encode("ant"), 3, *translator.bundle.target_tokenizer.encode("h")[-1:]]
    for replaced in (False, True):
        options = decode(forbidden=["ant"], replace_unknown=replaced)
        pieces = phrase_pieces(translator.bundle.target_tokenizer, options, Vocabulary())
        assert (3 in pieces.view(after(pieces, ids[:-2])).forbidden) is replaced
        assert not spells(pieces, ids)


def after(pieces: PhrasePieces, numbers: Sequence[int]) -> tuple[int, bytes]:
    """The state after all pieces."""
    return functools.reduce(pieces.after, numbers, START)


def spells(pieces: PhrasePieces, numbers: Sequence[int]) -> bool:
    """Whether a forbidden phrase is whole if the text ends there."""
    return not pieces.view(after(pieces, numbers)).may_end


def test_a_penalty_of_repetition_changes_what_is_found_but_not_what_its_pieces_are_said_to_be_worth(translator):
    options = decode(repetition_penalty=4.0, n_best=3, min_length=9)
    free = translator.translate(LINES, dataclasses.replace(options, repetition_penalty=1.0))
    found = translator.translate(LINES, options)
    assert [answer.ids for answer in found] != [answer.ids for answer in free]
    for answer in found:
        pairs = translator.score_ids(
            [answer.source_ids[0]] * 3, [candidate.ids for candidate in answer.candidates], options
        )
        for candidate, pair in zip(answer.candidates, pairs, strict=True):
            assert candidate.token_log_probs == pytest.approx(pair.token_log_probs, abs=1e-9)
            assert candidate.log_prob == pytest.approx(pair.log_prob, abs=1e-9)


@pytest.fixture
def unknowing(tiny_bundle: Bundle) -> Translator:
    """One that says the unknown piece often."""
    bundle = dataclasses.replace(tiny_bundle)
    translator = Translator(bundle)
    weights = translator.model.output.detach().clone()
    with torch.no_grad():
        weights[3] = 1.5 * weights[55]  # a piece that is often said
    model = type(translator.model)(translator.model.encoder, translator.model.decoder, torch.nn.Parameter(weights))
    return Translator(dataclasses.replace(tiny_bundle, model=model.eval()))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_unknown_piece_is_dear_or_forbidden(unknowing, beam_size):
    def count(**changes: object) -> int:
        found = unknowing.translate(LINES, decode(beam_size=beam_size, min_length=9, **changes))
        return sum(answer.ids.count(3) for answer in found)

    assert count() > count(unknown_penalty=1.0) > count(unknown_penalty=100.0) == 0
    assert count(forbid_unknown=True) == 0


RULES = {"no_repeat_ngram": 1, "repetition_penalty": 3.0, "forbidden": ["die", "das ant", "3"], "unknown_penalty": 2.0}


@pytest.mark.parametrize("beam_size", [1, 4])
def test_what_a_line_forces_on_its_translation_need_not_keep_the_rules_and_costs_what_the_model_says(
    translator, beam_size
):
    target = "die die das ant 3 die"
    options = decode(beam_size=beam_size, forbid_unknown=True, **RULES)
    forced, begun, free = translator.translate(
        [Request("owl", target=target), Request("owl", prefix=target), "owl"], options
    )
    (pair,) = translator.score(["owl"], [target])
    assert (forced.text, forced.ids) == (target, pair.ids)
    assert forced.score == pytest.approx(pair.score, abs=1e-9)
    assert forced.token_log_probs == pytest.approx(pair.token_log_probs, abs=1e-9)
    given = pair.ids[:-1]
    assert begun.ids[: len(given)] == given
    behind = begun.ids[len(given) :]
    assert len(set(behind)) == len(behind)
    assert not set(behind) & set(given)
    assert free.ids == translator.translate(["owl"], options)[0].ids


def test_a_forced_translation_comes_once_however_many_are_drawn(translator):
    options = decode(beam_size=1, temperature=1.0, n_best=4)
    forced, free = translator.translate([Request("owl", target="das yak"), "owl"], options)
    assert [candidate.text for candidate in forced.candidates] == ["das yak"]
    assert len(free.candidates) == 4


def drawn(translator: Translator, lines: list[str | Request], n: int, **changes: object) -> list[list[tuple[int, ...]]]:
    """Ids of n samples of each line."""
    options = decode(beam_size=1, temperature=1.3, n_best=n, **changes)
    return [[one.ids for one in answer.candidates] for answer in translator.translate(lines, options)]


def test_samples_of_a_line_do_not_depend_on_its_batch_and_go_on_where_fewer_end(translator):
    lines = [LINES[0], Request(LINES[1], prefix="das yak"), LINES[2], "", LINES[1]]
    together = drawn(translator, lines, 3)
    assert together[3] == [()]
    assert together[1] != together[4]
    small = drawn(translator, lines, 3, batch_tokens=1)
    more = drawn(translator, lines, 5)
    assert small == together
    assert [samples[:3] for samples in more] == together
    for number, line in enumerate(lines, start=1):
        options = decode(beam_size=1, temperature=1.3, n_best=3)
        (alone,) = translator.translate([line], options, numbers=[number])
        assert [one.ids for one in alone.candidates] == together[number - 1]


def test_samples_depend_on_the_seed_and_on_the_number_of_the_line(translator):
    same = ["owl", "owl"]
    first, second = drawn(translator, same, 4)
    assert first != second
    assert len(set(first)) > 1
    assert drawn(translator, same, 4, seed=2)[0] != first
    assert drawn(translator, same, 4, seed=1) == [first, second]


def test_samples_may_come_twice_and_have_the_probabilities_of_the_model(translator):
    (answer,) = translator.translate(["owl"], decode(beam_size=1, temperature=0.2, n_best=20))
    assert len(answer.candidates) == 20
    assert len({one.text for one in answer.candidates}) < 20
    pairs = translator.score_ids([answer.source_ids[0]] * 20, [one.ids for one in answer.candidates])
    for one, pair in zip(answer.candidates, pairs, strict=True):
        assert one.token_log_probs == pytest.approx(pair.token_log_probs, abs=1e-9)


@pytest.mark.parametrize("changes", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 1e-3}], ids=str)
def test_draws_from_nothing_but_the_best_piece_are_greedy_search(translator, changes):
    options = decode(beam_size=1, temperature=1.0, n_best=2)
    greedy = translator.translate(LINES, decode(beam_size=1))
    for answer, best in zip(translator.translate(LINES, dataclasses.replace(options, **changes)), greedy, strict=True):
        assert [one.ids for one in answer.candidates] == [best.ids] * 2


def test_rules_hold_for_samples_too(translator):
    options = decode(beam_size=1, temperature=1.5, n_best=6, no_repeat_ngram=2, forbidden=["der", "das"])
    for answer in translator.translate(LINES, options):
        for one in answer.candidates:
            assert find_whole(one.text, "der") == find_whole(one.text, "das") == -1
            assert len({one.ids[at : at + 2] for at in range(len(one.ids) - 1)}) == len(one.ids) - 1


def test_the_parts_of_a_split_line_are_drawn_each_for_itself_and_joined_in_step(translator):
    options = decode(beam_size=1, temperature=1.3, n_best=4, max_source_length=2, long_lines=LongLines.split)
    (answer,) = translator.translate(["owl owl"], options, on_notice=lambda _: None)
    assert answer.source_ids[0] == answer.source_ids[1]
    first, second = zip(*(halves(one.ids) for one in answer.candidates), strict=True)
    assert first != second
    assert len(first) == 4
    (alone,) = translator.translate(["owl"], options)
    assert tuple(one.ids for one in alone.candidates) == first


def halves(ids: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of two parts, each with its EOS."""
    cut = ids.index(2) + 1
    return ids[:cut], ids[cut:]


def test_minimum_bayes_risk_of_samples_ranks_distinct_ones_by_their_utility(translator):
    options = decode(beam_size=1, temperature=0.5, mbr=Utility.chrf, num_candidates=12, n_best=3)
    for answer in translator.translate(LINES[:2], options):
        utilities = [one.utility for one in answer.candidates]
        assert utilities == sorted(utilities, reverse=True)
        assert len({one.text for one in answer.candidates}) == len(utilities)


def test_rules_work_in_the_numbers_of_a_shortlist(tiny_bundle):
    tokenizer = tiny_bundle.target_tokenizer
    ant = tokenizer.encode("ant")
    shortlist = sorted({0, 1, 2, *ant, *range(20, 40)} - {3})
    vocabulary = Vocabulary(shortlist)
    part = Part(1, (5, 2))
    limits = SearchLimits(1, 2, (0, 1), [1], [9])
    options = decode(forbidden=["ant"], unknown_penalty=2.0, forbid_unknown=True, no_repeat_ngram=1)
    made = batch_rules(tiny_bundle, options, [part], limits, vocabulary)
    assert made.edits == []  # the unknown piece is not there
    assert len(made.rules) == 2
    pieces = phrase_pieces(tokenizer, options, vocabulary)
    view = pieces.view(after(pieces, vocabulary.numbers(ant) or []))
    assert not view.may_end
    assert view.forbidden.max() < len(shortlist)
    spelled = [tokenizer.pieces([shortlist[number]])[0] for number in view.forbidden.tolist()]
    assert spelled
    assert not any(piece[0].isalpha() for piece in spelled)
