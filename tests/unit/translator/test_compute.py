import dataclasses
from pathlib import Path

import pytest
import torch

from seq2seq.bundle import save_bundle
from seq2seq.config import Compute, DecodeConfig
from seq2seq.models import quantized
from seq2seq.models.quantized import Int8Linear
from seq2seq.translator import Translator

LINES = ["ant bee cat läuft.", "owl", "dog elk fox gnu hen und der pig!", "17 ram yak die das 3?"]
DECODE = DecodeConfig(beam_size=3, n_best=2, max_length=12)


@pytest.fixture(
    params=[
        Compute.int8,
        pytest.param(
            Compute.bfloat16,
            marks=pytest.mark.skipif(not quantized._has_bfloat16(), reason="this CPU has no bfloat16 instructions"),
        ),
    ]
)
def rounded(request: pytest.FixtureRequest, tiny_bundle_folder: Path) -> Translator:
    return Translator.load(tiny_bundle_folder, "cpu", compute=request.param)


def test_what_a_search_reports_is_what_scoring_gives(rounded):
    answers = rounded.translate(LINES, DECODE)
    scored = rounded.score_ids([one.source_ids[0] for one in answers], [one.ids for one in answers])
    # attention is computed in other orders, and what differs in the last bit may be rounded to another integer
    for answer, pair in zip(answers, scored, strict=True):
        assert answer.log_prob == pytest.approx(pair.log_prob, rel=0.01)


def test_scores_are_close_to_those_of_float32_but_not_the_same(rounded, tiny_bundle_folder):
    exact = Translator.load(tiny_bundle_folder, "cpu")
    answers = exact.translate(LINES, DECODE)
    pairs = [one.source_ids[0] for one in answers], [one.ids for one in answers]
    found, expected = ([pair.log_prob for pair in one.score_ids(*pairs)] for one in (rounded, exact))
    assert found != expected
    # without VNNI weights have half as many values, of which so narrow a model has few
    tolerance = {"rel": 0.1, "abs": 0.01} if torch.cpu._is_vnni_supported() else {"rel": 0.4, "abs": 0.05}
    assert found == pytest.approx(expected, **tolerance)


def test_every_member_of_an_ensemble_is_rounded(tiny_bundle_folder):
    twice = Translator.load([tiny_bundle_folder, tiny_bundle_folder], "cpu", compute=Compute.int8)
    once = Translator.load(tiny_bundle_folder, "cpu", compute=Compute.int8)
    assert all(any(isinstance(layer, Int8Linear) for layer in member.modules()) for member in twice.model.members)
    assert [one.ids for one in twice.translate(LINES, DECODE)] == [one.ids for one in once.translate(LINES, DECODE)]


def test_a_rounded_model_is_not_saved(tiny_bundle_folder, tmp_path):
    translator = Translator.load(tiny_bundle_folder, "cpu", compute=Compute.int8)
    with pytest.raises(ValueError, match="loaded with compute=int8 or bfloat16 cannot be saved"):
        save_bundle(dataclasses.replace(translator.bundle), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []
