import copy
import dataclasses
import math
from collections.abc import Callable

import pytest
import torch

from seq2seq.bundle import Bundle, save_bundle
from seq2seq.config import Average, DecodeConfig, TokenizerConfig, Utility
from seq2seq.models import build_model
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.translator import Request, Translator
from seq2seq.translator.bundle_check import check_ensemble

LINES = ["der ant läuft!", "", "17 elk sieht und das yak schläft?", "owl"]
BOTH = list(Average)


@pytest.fixture(scope="module")
def other_bundle(tiny_bundle: Bundle, families: Callable) -> Bundle:
    """A decoder-only model for the same pieces, of another width."""
    config = families("llama", vocab_multiple=8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        model = build_model(config, 61, 61).double().eval()
    return dataclasses.replace(tiny_bundle, model=model, model_config=config)


OPTIONS: list[dict[str, object]] = [
    {"beam_size": 5, "n_best": 3},
    {"beam_size": 1},
    {"beam_size": 1, "n_best": 2, "temperature": 1.0},
    {"beam_size": 1, "repetition_penalty": 1.3},
    {"beam_size": 3, "coverage_penalty": 0.4},
    {"beam_size": 3, "n_best": 2, "mbr": Utility.chrf},
    {"beam_size": 2, "no_repeat_ngram": 2, "alignments": True, "replace_unknown": True},
]


@pytest.mark.parametrize(
    ("average", "options"), [*((Average.probability, one) for one in OPTIONS), (Average.log_probability, OPTIONS[0])]
)
def test_an_ensemble_of_a_model_with_itself_answers_as_the_model_alone(tiny_bundle, average, options):
    decode = dataclasses.replace(DecodeConfig(max_length=9), **options)
    alone = Translator(tiny_bundle).translate(LINES, decode)
    twice = Translator([tiny_bundle, tiny_bundle], average=average).translate(LINES, decode)
    for found, expected in zip(twice, alone, strict=True):
        assert [one.ids for one in found.candidates] == [one.ids for one in expected.candidates]
        assert [one.text for one in found.candidates] == [one.text for one in expected.candidates]
        for one, other in zip(found.candidates, expected.candidates, strict=True):
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-10)
            assert one.score == pytest.approx(other.score, abs=1e-10)
            assert one.piece_links == other.piece_links
            assert one.utility == pytest.approx(other.utility, abs=1e-10)


@pytest.mark.parametrize("average", BOTH)
def test_what_an_ensemble_reports_is_the_mean_of_its_members_and_what_it_scores(tiny_bundle, other_bundle, average):
    weights = [3.0, 1.0]
    ensemble = Translator([tiny_bundle, other_bundle], weights=weights, average=average)
    answers = ensemble.translate(LINES, DecodeConfig(beam_size=3, n_best=2, max_length=12))
    pairs = [(answer.source_ids[0], one.ids) for answer in answers if answer.source_ids for one in answer.candidates]
    scored = ensemble.score_ids(*map(list, zip(*pairs, strict=True)))
    found = [one for answer in answers if answer.source_ids for one in answer.candidates]
    assert len({len(one.ids) for one in found}) > 1
    for candidate, forced, (source, ids) in zip(found, scored, pairs, strict=True):
        assert forced.token_log_probs == pytest.approx(candidate.token_log_probs, abs=1e-9)
        rows = []
        for bundle in (tiny_bundle, other_bundle):
            src, tgt_in = torch.tensor([source]), torch.tensor([[1, *ids[:-1]]])
            with torch.no_grad():
                rows.append(bundle.model(src, src > 0, tgt_in)[0].softmax(-1))
        mean = 0.75 * rows[0] + 0.25 * rows[1]
        if average is Average.log_probability:
            mean = rows[0] ** 0.75 * rows[1] ** 0.25
        mean = (mean / mean.sum(-1, keepdim=True)).log()
        expected = [mean[place, id_].item() for place, id_ in enumerate(ids)]
        assert candidate.token_log_probs == pytest.approx(expected, abs=1e-9)


def test_the_heavier_member_prevails(tiny_bundle, other_bundle):
    short = DecodeConfig(beam_size=2, max_length=9)
    texts = [[answer.text for answer in Translator(one).translate(LINES, short)] for one in (tiny_bundle, other_bundle)]
    assert texts[0] != texts[1]
    for weights, expected in (([1e9, 1.0], texts[0]), ([1.0, 1e9], texts[1])):
        ensemble = Translator([tiny_bundle, other_bundle], weights=weights, average=Average.log_probability)
        assert [answer.text for answer in ensemble.translate(LINES, short)] == expected


def test_the_answers_of_an_ensemble_do_not_depend_on_the_batch(tiny_bundle, other_bundle):
    ensemble = Translator([tiny_bundle, other_bundle])
    decode = DecodeConfig(beam_size=3, n_best=2, max_length=12)
    together = ensemble.translate(LINES, decode)
    for line, answer in zip(LINES, together, strict=True):
        (alone,) = ensemble.translate([line], decode)
        assert [one.text for one in alone.candidates] == [one.text for one in answer.candidates]
        assert alone.score == pytest.approx(answer.score, abs=1e-9)


def test_an_ensemble_begins_with_the_prefix_and_gives_a_target_that_is_forced(tiny_bundle, other_bundle):
    ensemble = Translator([tiny_bundle, other_bundle])
    begun, forced = ensemble.translate([Request("owl", prefix="das yak"), Request("owl", target="die bee")])
    tokenizer = tiny_bundle.target_tokenizer
    assert list(begun.ids[: len(tokenizer.encode("das yak"))]) == tokenizer.encode("das yak")
    assert forced.text == "die bee"
    assert forced.log_prob == pytest.approx(ensemble.score(["owl"], ["die bee"])[0].log_prob, abs=1e-9)


def test_the_narrowest_limits_of_the_members_positions_hold(tiny_bundle, families):
    bundles = [tiny_bundle]
    for family in ("multi_query", "gpt2"):
        config = families(family, vocab_multiple=8, max_positions=12 if family == "gpt2" else 10)
        bundles.append(
            dataclasses.replace(tiny_bundle, model=build_model(config, 61, 61).double().eval(), model_config=config)
        )
    ensemble = Translator(bundles)
    longest = DecodeConfig(beam_size=1, min_length=50)
    (answer,) = ensemble.translate(["owl"], longest)
    source = len(answer.source_ids[0])
    assert (len(answer.ids), answer.hit_limit) == (min(10, 12 - (source - 1)), True)
    with pytest.raises(ValueError, match="the model's learned positions are enough for 6; choose long_lines"):
        ensemble.translate(["ant bee cat dog elk fox gnu"])
    with pytest.raises(ValueError, match="pair 1 takes 13 positions, but the model has learned 12"):
        ensemble.score_ids([[5, 5, 5, 2]], [[6] * 10])
    assert len(ensemble.score_ids([[5, 5, 2]], [[6] * 10])[0].ids) == 10


def test_bundles_are_loaded_as_an_ensemble(tiny_bundle_folder, tiny_bundle, tmp_path):
    other = copy.deepcopy(tiny_bundle.model).float()
    with torch.no_grad():
        other.output.mul_(0.5)
    save_bundle(dataclasses.replace(tiny_bundle, model=other), tmp_path / "other")
    paths = [tiny_bundle_folder, str(tmp_path / "other")]
    ensemble = Translator.load(paths, "cpu", weights=[1.0, 3.0], average=Average.log_probability)
    bundles = [Translator.load(path, "cpu").bundle for path in paths]
    expected = Translator(bundles, weights=[1.0, 3.0], average=Average.log_probability)
    assert ensemble.score(["owl"], ["die"]) == expected.score(["owl"], ["die"])
    assert ensemble.score(["owl"], ["die"]) != Translator(bundles).score(["owl"], ["die"])
    assert len(ensemble.bundles) == 2
    assert ensemble.device == torch.device("cpu")


def test_a_single_path_or_bundle_is_no_ensemble(tiny_bundle_folder, tiny_bundle):
    listed, alone = Translator.load([tiny_bundle_folder], "cpu"), Translator.load(tiny_bundle_folder, "cpu")
    assert listed.score(["owl"], ["die"]) == alone.score(["owl"], ["die"])
    assert Translator([tiny_bundle]).model is tiny_bundle.model


def test_weights_must_fit_the_bundles_also_where_there_is_one(tiny_bundle):
    with pytest.raises(ValueError, match="got 2 weights for 1 models"):
        Translator(tiny_bundle, weights=[1.0, 2.0])
    with pytest.raises(ValueError, match=f"weights has {math.nan}, expected positive numbers"):
        Translator([tiny_bundle, tiny_bundle], weights=[1.0, math.nan])


def test_no_bundle_is_refused():
    with pytest.raises(ValueError, match="got no bundle, expected at least one"):
        Translator([])


def test_bundles_of_other_tokenizers_are_refused_with_their_checksums(tiny_bundle, tiny_lines):
    tokenizer, _ = train_tokenizer(tiny_lines, TokenizerConfig(vocab_size=58, byte_fallback=False))
    own, others = tiny_bundle.source_tokenizer.sha256, tokenizer.sha256
    for side in ("source", "target"):
        other = dataclasses.replace(tiny_bundle, **{f"{side}_tokenizer": tokenizer})
        with pytest.raises(
            ValueError, match=rf"bundle 2 of the ensemble has another {side} tokenizer \(SHA-256 {others}\).*{own}"
        ):
            check_ensemble([tiny_bundle, other])


def test_a_language_model_is_refused_as_a_member(tiny_bundle, tiny_writer):
    with pytest.raises(ValueError, match="this bundle is a language model"):
        Translator([tiny_bundle, tiny_writer])
