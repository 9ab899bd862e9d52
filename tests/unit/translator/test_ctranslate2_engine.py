"""The backend ctranslate2 answers as the package's own, by the same options, or says what it lacks."""

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest
import torch

from seq2seq.bundle import Bundle, save_bundle
from seq2seq.config import DecodeConfig, LongLines, PenaltyForm
from seq2seq.models import build_model
from seq2seq.translator import Request, Translator
from seq2seq.translator.ctranslate2_conversion import converted
from seq2seq.translator.ctranslate2_engine import CTranslate2Engine
from seq2seq.translator.ctranslate2_options import search_options

pytest.importorskip("ctranslate2", reason="the extra `interop` is not installed")

TOLERANCE = 1e-4
"""Between two float32 computations of log-probabilities of translations."""

PLAIN = DecodeConfig(beam_size=3, penalty_form=PenaltyForm.none, max_length_factor=3.0)
POWER = dataclasses.replace(PLAIN, penalty_form=PenaltyForm.power, length_penalty=0.7)
GREEDY = dataclasses.replace(PLAIN, beam_size=1)

SEARCHES = {
    "greedy": GREEDY,
    "greedy with the default penalty": dataclasses.replace(GREEDY, penalty_form=PenaltyForm.gnmt, length_penalty=0.6),
    "beam": dataclasses.replace(PLAIN),
    "beam, power of the length": dataclasses.replace(POWER),
    "three best": dataclasses.replace(PLAIN, n_best=3),
    "shortest length": dataclasses.replace(GREEDY, min_length=4, min_length_factor=0.5),
    "repetition penalty": dataclasses.replace(GREEDY, repetition_penalty=1.7),
    "not empty": dataclasses.replace(PLAIN, min_length=2),
    "no bigram twice": dataclasses.replace(GREEDY, no_repeat_ngram=2),
    "no unknown piece": dataclasses.replace(GREEDY, forbid_unknown=True),
}


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Bundle) -> Bundle:
    """A random model in which pieces that are never produced have no probability: CTranslate2 gives them none."""
    config = dataclasses.replace(tiny_bundle.model_config, output_bias=True)
    tokenizer = tiny_bundle.target_tokenizer
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
        model.output.mul_(2)
        model.output[tokenizer.special.eos].mul_(3)
        for weight in model.decoder.layers.parameters():
            if weight.dim() > 1:
                weight.mul_(1.5)
        assert model.output_bias is not None
        model.output_bias.zero_()
        model.output_bias[[tokenizer.special.pad, tokenizer.special.bos, *range(tokenizer.vocab_size, 64)]] = -40
    return dataclasses.replace(tiny_bundle, model=model, model_config=config)


@pytest.fixture(scope="module")
def folder(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On disk, where the conversion is kept too."""
    save_bundle(bundle, folder := tmp_path_factory.mktemp("engine") / "bundle")
    return folder


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.load(folder, "cpu")


@pytest.fixture(scope="module")
def engine(folder: Path) -> CTranslate2Engine:
    return CTranslate2Engine.load(folder, PLAIN, device="cpu", threads=1)


@pytest.fixture
def lines(tiny_lines: list[str]) -> list[str]:
    return [*tiny_lines[:24], "", "\u200b", *tiny_lines[-2:]]


@pytest.mark.parametrize("decode", SEARCHES.values(), ids=SEARCHES)
def test_the_same_translations_scores_and_probabilities(engine, translator, lines, decode, monkeypatch):
    monkeypatch.setattr("seq2seq.translator.ctranslate2_options.PATIENCE", 50.0)
    compared = 0
    for ours, theirs in zip(translator.translate(lines, decode), engine.translate(lines, decode), strict=True):
        assert (ours.line, ours.source, ours.source_ids) == (theirs.line, theirs.source, theirs.source_ids)
        if decode.beam_size > 1 and any(one.hit_limit for one in (*ours.candidates, *theirs.candidates)):
            continue  # CTranslate2 cuts where this package's beam closes what it has
        assert [one.ids for one in theirs.candidates] == [one.ids for one in ours.candidates][: len(theirs.candidates)]
        for one, other in zip(ours.candidates, theirs.candidates, strict=False):
            assert (one.text, one.tokens, one.hit_limit) == (other.text, other.tokens, other.hit_limit)
            assert other.score == pytest.approx(one.score, abs=TOLERANCE)
            assert other.log_prob == pytest.approx(one.log_prob, abs=TOLERANCE)
            assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=TOLERANCE)
        compared += 1
    assert compared >= 8


def test_without_details_only_the_probabilities_of_pieces_are_missing(folder, engine, lines):
    bare = CTranslate2Engine.load(folder, POWER, device="cpu", threads=1, details=False)
    for one, other in zip(engine.translate(lines, POWER), bare.translate(lines), strict=True):
        assert (one.text, one.ids) == (other.text, other.ids)
        assert other.score == pytest.approx(one.score, abs=TOLERANCE)
        assert other.log_prob == pytest.approx(one.log_prob, abs=TOLERANCE)
        if not other.hit_limit:
            assert other.token_log_probs == ()


def test_prefixes_and_whole_targets(engine, translator):
    lines = [Request("die cat und der dog.", prefix="owl"), Request("der ant.", target="fox und gnu."), "17 elk."]
    for ours, theirs in zip(translator.translate(lines, GREEDY), engine.translate(lines, GREEDY), strict=True):
        assert theirs.ids == ours.ids
        assert theirs.log_prob == pytest.approx(ours.log_prob, abs=TOLERANCE)


def test_each_line_keeps_its_own_limits_in_a_batch(engine, lines):
    decode = dataclasses.replace(GREEDY, max_length_factor=0.4, max_length_offset=2, min_length_factor=0.3)
    together = engine.translate(lines, decode)
    alone = [engine.translate([line], decode)[0] for line in lines]
    assert [one.ids for one in together] == [one.ids for one in alone]
    assert any(one.hit_limit for one in together)


def test_long_lines_are_split_and_joined(engine, translator):
    decode = dataclasses.replace(GREEDY, max_source_length=8, long_lines=LongLines.split)
    line = "die cat sieht. der owl schläft und der dog läuft."
    notices: list[str] = []
    (theirs,) = engine.translate([line], decode, on_notice=notices.append)
    (ours,) = translator.translate([line], decode, on_notice=notices.append)
    assert theirs.ids == ours.ids
    assert notices[0] == notices[1]
    assert "translated in" in notices[0]


def test_drawn_translations_depend_on_the_seed_of_the_process(folder, lines):
    decode = dataclasses.replace(GREEDY, temperature=1.0, top_k=20, top_p=0.95, n_best=2)
    engine = CTranslate2Engine.load(folder, decode, device="cpu", threads=1)
    drawn = [engine.translate(lines[:8]) for _ in range(2)]
    assert [one.ids for one in drawn[0]] != [one.ids for one in drawn[1]]
    for translation in drawn[0]:
        assert len(translation.candidates) == 2
        for one in translation.candidates:
            assert one.log_prob == pytest.approx(sum(one.token_log_probs), abs=TOLERANCE)


def test_drawn_translations_are_independent_and_come_as_they_were_drawn(folder):
    decode = dataclasses.replace(GREEDY, temperature=3.0, n_best=40, max_length=6)
    engine = CTranslate2Engine.load(folder, decode, device="cpu", threads=1)
    for translation in engine.translate(["der ant.", "die cat."]):
        scores = [one.log_prob for one in translation.candidates]
        assert len(scores) == 40
        assert scores != sorted(scores, reverse=True)
        assert all(len(one.ids) <= 6 for one in translation.candidates)
    sure = engine.translate(["der ant.", ""], dataclasses.replace(decode, top_k=1, n_best=3))
    assert [len({one.text for one in answer.candidates}) for answer in sure] == [1, 1]
    assert [len(answer.candidates) for answer in sure] == [3, 1]


def test_drawn_translations_of_the_parts_of_a_line_are_joined_in_step(folder):
    decode = dataclasses.replace(GREEDY, temperature=1.0, n_best=5, max_source_length=8, long_lines=LongLines.split)
    engine = CTranslate2Engine.load(folder, decode, device="cpu", threads=1)
    line = "die cat sieht. der owl schläft und der dog läuft."
    for top_k in (1, None):
        (found,) = engine.translate([line], dataclasses.replace(decode, top_k=top_k), on_notice=lambda _: None)
        assert len(found.source_ids) > 1
        assert len(found.candidates) == 5


def test_the_options_as_ctranslate2_calls_them():
    decode = dataclasses.replace(POWER, beam_size=5, n_best=2, no_repeat_ngram=3, repetition_penalty=1.2)
    assert search_options(decode) == {
        "beam_size": 5,
        "num_hypotheses": 2,
        "length_penalty": 0.7,
        "no_repeat_ngram_size": 3,
        "repetition_penalty": 1.2,
        "disable_unk": False,
        "patience": 2.0,
    }
    drawing = dataclasses.replace(GREEDY, temperature=0.5, top_k=7, top_p=0.8, n_best=3)
    assert search_options(drawing)["sampling_topk"] == 7
    assert search_options(drawing)["sampling_topp"] == 0.8
    assert search_options(drawing)["sampling_temperature"] == 0.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"penalty_form": PenaltyForm.gnmt}, "penalty_form=gnmt is not one that CTranslate2 has"),
        ({"coverage_penalty": 0.2}, "coverage_penalty=0.2 is not something that CTranslate2 does"),
        ({"forbidden": ["x"]}, "forbidden="),
        ({"unknown_penalty": 1.0}, "unknown_penalty=1.0"),
        ({"alignments": True}, "alignments=True"),
        ({"min_length": 2, "penalty_form": PenaltyForm.power}, "min_length=2 forbids"),
        (
            {"min_length": 3, "penalty_form": PenaltyForm.none},
            "min_length=3 forbids pieces, and CTranslate2 shares out their probability",
        ),
        ({"min_length_factor": 0.5}, r"min_length_factor=0\.5 forbids pieces"),
        ({"no_repeat_ngram": 3}, "no_repeat_ngram=3 forbids pieces"),
        ({"forbid_unknown": True}, "forbid_unknown=True forbids pieces"),
        ({"beam_size": 1, "temperature": 1.0, "min_p": 0.1}, "min_p=0.1"),
    ],
)
def test_options_that_it_lacks_are_refused_before_anything_is_read(folder, changes, said):
    with pytest.raises(ValueError, match=said):
        CTranslate2Engine.load(folder, dataclasses.replace(DecodeConfig(), **changes), device="cpu")


def test_lines_that_ask_for_what_it_lacks_are_refused(engine):
    with pytest.raises(ValueError, match="line 2 has phrases that its translation must contain"):
        engine.translate(["ant", Request("die cat.", phrases=("owl",))], GREEDY)
    with pytest.raises(ValueError, match="line 1 has a prefix, which CTranslate2 leaves out of the scores"):
        engine.translate([Request("die cat.", prefix="owl")], POWER)


def test_the_conversion_is_kept_and_made_anew_for_other_weights(folder, bundle, tmp_path):
    first = converted(folder, "int8")
    before = (first / "model.bin").stat().st_mtime_ns
    assert converted(folder, "int8") == first
    assert (first / "model.bin").stat().st_mtime_ns == before
    assert first.parent == folder / "ctranslate2"
    assert (first / "model.bin").stat().st_size < (converted(folder, "float32") / "model.bin").stat().st_size
    changed = tmp_path / "changed"
    save_bundle(dataclasses.replace(bundle, languages=("de", "fr")), changed)
    assert converted(changed, "int8").name != first.name


def test_8_bit_weights_translate(folder, lines):
    engine = CTranslate2Engine.load(folder, GREEDY, compute="int8", device="cpu", threads=1)
    assert len(engine.translate(lines)) == len(lines)


@pytest.mark.parametrize("device", ["mps", "cuda:x"])
def test_devices_that_it_lacks_are_refused(folder, device):
    with pytest.raises(ValueError, match=f"device={device} is not one that CTranslate2 has"):
        CTranslate2Engine.load(folder, PLAIN, device=device)


def test_a_gpu_that_is_not_there_is_refused(folder):
    with pytest.raises(ValueError, match="CTranslate2 cannot translate with float32 on cuda:7"):
        CTranslate2Engine.load(folder, PLAIN, device="cuda:7")


def test_a_model_with_one_stack_is_refused(tiny_writer_folder):
    with pytest.raises(
        ValueError, match="is a model with one stack, and the backend ctranslate2 is for encoder-decoders"
    ):
        converted(tiny_writer_folder, "float32")


def test_a_folder_that_cannot_be_written_is_named(folder, tmp_path, monkeypatch):
    copy = Path(shutil.copytree(folder, tmp_path / "locked"))
    shutil.rmtree(copy / "ctranslate2", ignore_errors=True)  # another test may have converted it, or none

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("seq2seq.translator.ctranslate2_conversion.export_ctranslate2", refuse)
    with pytest.raises(ValueError, match=r"could not be converted into .*ctranslate2 \(Permission denied\)"):
        converted(copy, "float32")


def test_a_missing_package_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ValueError, match=r"needs the package ctranslate2; pip install 'seq2seq\[ctranslate2\]'"):
        CTranslate2Engine.load(folder, PLAIN)


def test_it_takes_a_float64_bundle_too(tiny_bundle: Bundle, tmp_path):
    save_bundle(tiny_bundle, tmp_path / "double")
    engine = CTranslate2Engine.load(tmp_path / "double", GREEDY, device="cpu", threads=1)
    (ours,) = Translator(tiny_bundle).translate(["die cat."], GREEDY)
    assert engine.translate(["die cat."])[0].ids == ours.ids
