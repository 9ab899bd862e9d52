import dataclasses
import math

import numpy as np
import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, DecodeConfig, ModelConfig, PenaltyForm, Tying
from seq2seq.corpus.shortlist import Shortlist
from seq2seq.models import build_model
from seq2seq.search import LengthPenalty
from seq2seq.translator import Request, Translator

LINES = ["der ant läuft!", "", "die cat.", "17 elk sieht und das yak schläft?", "owl"]


def decode(**changes: object) -> DecodeConfig:
    return dataclasses.replace(
        DecodeConfig(beam_size=5, n_best=3, alignments=True, coverage_penalty=0.4, min_length=3, max_length=9),
        **changes,
    )


@pytest.fixture(params=["encoder_decoder", "decoder_only"])
def translator(request, tiny_bundle: Bundle) -> Translator:
    if request.param == "encoder_decoder":
        return Translator(tiny_bundle)
    config = ModelConfig(16, 2, 24, 0, 3, architecture=Architecture.decoder_only, tying=Tying.two_way, vocab_multiple=8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = build_model(config, 61, 61).double().eval()
    return Translator(dataclasses.replace(tiny_bundle, model=model, model_config=config))


def lacking(alignment: tuple[tuple[float, ...], ...]) -> float:
    """Equation 14 without its weight, from the weights of a pass over the whole translation."""
    return sum(math.log(min(sum(column), 1.0)) for column in list(zip(*alignment, strict=True))[:-1])


@pytest.mark.parametrize(("layer", "head"), [(None, None), (2, 1)])
def test_scores_are_log_probability_over_length_penalty_and_what_the_alignment_lacks(translator, layer, head):
    options = decode(alignment_layer=layer, alignment_head=head)
    penalty = LengthPenalty(options.penalty_form, options.length_penalty)
    lacks = []
    for answer in translator.translate(LINES, options):
        if not answer.source_ids:
            continue
        for one in answer.candidates:
            expected = one.log_prob / penalty(len(one.ids)) + 0.4 * lacking(one.alignment)
            assert one.score == pytest.approx(expected, abs=1e-5)
            lacks.append(lacking(one.alignment))
            assert one.log_prob == pytest.approx(sum(one.token_log_probs), abs=1e-9)
        scores = [one.score for one in answer.candidates]
        assert scores == sorted(scores, reverse=True)
    assert min(lacks) < -1e-3


def test_more_weight_favours_translations_that_attend_to_more_of_the_source(translator):
    plain = translator.translate(LINES, decode(coverage_penalty=0.0, n_best=1))
    covered = translator.translate(LINES, decode(coverage_penalty=50.0, n_best=1))
    gains = [
        lacking(two.candidates[0].alignment) - lacking(one.candidates[0].alignment)
        for one, two in zip(plain, covered, strict=True)
        if one.source_ids
    ]
    assert max(gains) > 0.01
    assert [one.text for one in plain] != [two.text for two in covered]


def test_a_line_alone_has_the_answer_that_it_has_in_a_batch(translator):
    options = decode(patience=None)
    for line, answer in zip(LINES, translator.translate(LINES, options), strict=True):
        alone = translator.translate([line], options)[0]
        assert [one.ids for one in alone.candidates] == [one.ids for one in answer.candidates]
        assert [one.score for one in alone.candidates] == pytest.approx([one.score for one in answer.candidates])


def test_a_given_target_is_scored_with_what_it_lacks(translator):
    options = decode(n_best=1, min_length=1, penalty_form=PenaltyForm.none)
    one = translator.translate([Request("der ant läuft!", target="owl und yak")], options)[0].candidates[0]
    assert one.text == "owl und yak"
    assert one.score == pytest.approx(one.log_prob + 0.4 * lacking(one.alignment), abs=1e-5)


def test_it_goes_with_patience_forbidden_pieces_and_penalties(translator):
    options = decode(patience=1.0, no_repeat_ngram=2, repetition_penalty=1.3, unknown_penalty=1.0, forbid_unknown=True)
    for answer in translator.translate(LINES, options):
        for one in answer.candidates if answer.source_ids else ():
            assert math.isfinite(one.score)
            pairs = list(zip(one.ids, one.ids[1:], strict=False))
            assert len(set(pairs)) == len(pairs)


def test_it_goes_with_a_shortlist(tiny_bundle):
    tokenizer = tiny_bundle.target_tokenizer
    shortlist = Shortlist(
        num_targets=tokenizer.vocab_size,
        candidates=np.array([[(7 * id_) % 61, (7 * id_ + 3) % 61] for id_ in range(61)], dtype=np.int32),
        same=np.full(61, -1, dtype=np.int32),
        frequent=np.array([], dtype=np.int32),
        always=np.arange(4, dtype=np.int32),
        sha256=(tokenizer.sha256, tokenizer.sha256),
    )
    narrow = Translator(dataclasses.replace(tiny_bundle, shortlist=shortlist))
    options = decode(shortlist=True, penalty_form=PenaltyForm.power, length_penalty=0.0)
    for answer in narrow.translate(["der ant läuft!", "owl"], options):
        for one in answer.candidates:
            assert shortlist.allowed(answer.source_ids)[0][list(one.ids)].all()
            assert one.score == pytest.approx(one.log_prob + 0.4 * lacking(one.alignment), abs=1e-5)


def test_an_ensemble_takes_the_attention_of_its_first_bundle(tiny_bundle):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        other = build_model(tiny_bundle.model_config, 61, 61).double().eval()
    both = Translator([tiny_bundle, dataclasses.replace(tiny_bundle, model=other)])
    penalty = LengthPenalty(decode().penalty_form, decode().length_penalty)
    for answer in both.translate(["der ant läuft!", "owl"], decode()):
        for one in answer.candidates:
            src = torch.tensor(answer.source_ids)
            tgt_in = torch.tensor([[1, *one.ids[:-1]]])
            weights = tiny_bundle.model.cross_weights(src, src > 0, tgt_in, layer=0)[0]
            assert one.alignment == pytest.approx(weights.numpy(), abs=1e-9)
            assert one.score == pytest.approx(
                one.log_prob / penalty(len(one.ids)) + 0.4 * lacking(one.alignment), abs=1e-5
            )
