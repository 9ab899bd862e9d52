import copy
import dataclasses

import pytest
import torch

from seq2seq.config import DecodeConfig, PenaltyForm
from seq2seq.models import build_model
from seq2seq.translator import Translator

SOURCES = ["der ant läuft!", "die cat.", "17 elk sieht und das yak schläft?", "owl"]
TARGETS = ["die bee.", "", "das 3 hen owl pig ram", "und"]


@pytest.fixture
def translator(tiny_bundle):
    return Translator(tiny_bundle)


def test_scores_equal_those_of_one_forward_pass_a_pair(translator):
    source_tokenizer, target_tokenizer = translator.bundle.source_tokenizer, translator.bundle.target_tokenizer
    for source, target, pair in zip(SOURCES, TARGETS, translator.score(SOURCES, TARGETS), strict=True):
        src = torch.tensor([[*source_tokenizer.encode(source), 2]])
        out = [*target_tokenizer.encode(target), 2]
        with torch.no_grad():
            log_probs = translator.model(src, src > 0, torch.tensor([[1, *out[:-1]]])).log_softmax(-1)[0]
        expected = [log_probs[place, id_].item() for place, id_ in enumerate(out)]
        assert pair.ids == tuple(out)
        assert pair.tokens == tuple(target_tokenizer.pieces(out))
        assert pair.token_log_probs == pytest.approx(expected, abs=1e-9)
        assert pair.log_prob == pytest.approx(sum(expected), abs=1e-9)


@pytest.mark.parametrize("batch_tokens", [1, 20, 4096])
def test_scores_do_not_depend_on_the_batch(translator, batch_tokens):
    found = translator.score(SOURCES, TARGETS, DecodeConfig(batch_tokens=batch_tokens))
    for pair, source, target in zip(found, SOURCES, TARGETS, strict=True):
        (alone,) = translator.score([source], [target])
        assert pair.token_log_probs == pytest.approx(alone.token_log_probs, abs=1e-9)


def test_the_score_is_the_log_probability_over_the_length_penalty(translator):
    decode = DecodeConfig(penalty_form=PenaltyForm.power, length_penalty=1.0)
    for pair in translator.score(SOURCES, TARGETS, decode):
        assert pair.score == pytest.approx(pair.log_prob / len(pair.ids), abs=1e-12)


def test_a_pair_that_is_blank_on_both_sides_has_log_probability_0(translator):
    both, source, target = translator.score(["\u200b", "owl", " "], ["", "\t", "owl"])
    assert (both.log_prob, both.score, both.ids) == (0.0, 0.0, ())
    assert source.ids == (2,)
    assert target.ids[-1] == 2
    assert source.log_prob < 0
    assert target.log_prob < 0


def test_an_unfinished_translation_is_scored_without_its_end(translator):
    (whole,) = translator.score(["owl"], ["die bee"])
    (part,) = translator.score_ids([[*translator.bundle.source_tokenizer.encode("owl"), 2]], [whole.ids[:-1]])
    assert part.token_log_probs == pytest.approx(whole.token_log_probs[:-1], abs=1e-12)


def test_padded_rows_of_the_vocabulary_take_part_in_the_normalisation_as_in_search(translator):
    (answer,) = translator.translate(["owl cat"])
    (pair,) = translator.score_ids(answer.source_ids, [answer.ids])
    assert translator.model.output.shape[0] == 64 > translator.bundle.target_tokenizer.vocab_size
    assert pair.token_log_probs == pytest.approx(answer.token_log_probs, abs=1e-9)


def test_sources_and_targets_must_be_equally_many(translator):
    with pytest.raises(ValueError, match="got 2 sources and 1 targets; give one target for each source"):
        translator.score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="got 1 sources and 2 targets; give one target for each source"):
        translator.score_ids([[2]], [[2], [2]])


def test_a_source_beyond_the_limit_is_refused_by_line(translator):
    decode = dataclasses.replace(translator.bundle.decode, max_source_length=3)
    with pytest.raises(ValueError, match="line 2 has 4 source pieces, max_source_length is 3; raise it"):
        translator.score(["owl", "der die das"], ["", ""], decode)


def test_ids_outside_the_vocabulary_are_refused(translator):
    with pytest.raises(ValueError, match=r"source sequence 2 has ids \[61\] outside the vocabulary of 61 pieces"):
        translator.score_ids([[5, 2], [61, 2]], [[2], [2]])
    with pytest.raises(ValueError, match=r"target sequence 1 has ids \[-1\] outside the vocabulary"):
        translator.score_ids([[5, 2]], [[-1]])


def test_an_empty_source_sequence_is_refused_unless_there_is_nothing_to_score(translator):
    with pytest.raises(ValueError, match="source sequence 2 is empty; expected at least EOS"):
        translator.score_ids([[2], []], [[2], [2]])
    assert translator.score_ids([[]], [[]])[0].log_prob == 0.0


@pytest.mark.parametrize(("family", "longest"), [("multi_query", (80, 80)), ("gpt2", (41, 40))])
def test_a_pair_beyond_the_learned_positions_is_refused_by_its_number(tiny_bundle, families, family, longest):
    config = families(family)
    model = build_model(config, 61, 61)
    translator = Translator(dataclasses.replace(tiny_bundle, model=model, model_config=config))
    source, target = [5] * longest[0], [6] * longest[1]
    assert len(translator.score_ids([source], [target])[0].ids) == longest[1]
    with pytest.raises(ValueError, match="pair 2 takes 81 positions, but the model has learned 80; shorten it or"):
        translator.score_ids([[5], source], [[6], [*target, 6]])


def test_pairs_that_fit_their_learned_positions_are_scored_beside_longer_sources_and_targets(tiny_bundle, families):
    config = families("gpt2", max_positions=12)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = build_model(config, 61, 61).double()
    translator = Translator(dataclasses.replace(tiny_bundle, model=model, model_config=config))
    sources, targets = [[5] * 9, [7] * 3], [[6] * 3, [8] * 10]
    together = translator.score_ids(sources, targets)
    for source, target, scored in zip(sources, targets, together, strict=True):
        alone = translator.score_ids([source], [target])[0]
        assert scored.token_log_probs == pytest.approx(alone.token_log_probs, abs=1e-9)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_broken_model_gives_no_scores(tiny_bundle, value):
    model = copy.deepcopy(tiny_bundle.model)
    with torch.no_grad():
        model.output.fill_(value)
    with pytest.raises(ValueError, match="the model's log-probabilities are NaN, expected numbers"):
        Translator(dataclasses.replace(tiny_bundle, model=model)).score(SOURCES, TARGETS)
