import copy
import dataclasses
import functools

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import Compute, DecodeConfig, LongLines, Utility
from seq2seq.models import quantized
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.nn.cache import DecoderState
from seq2seq.search.agreement import Finding, Outcome, examine
from seq2seq.translator.doctor import checks, plain, searched

pytestmark = pytest.mark.whole_runs

LINES = ["der ant läuft!", "", "die cat.", "17 elk sieht und das yak schläft?", "gnu der 3 hen und ram."]


def findings(bundle: Bundle, lines: list[str] = LINES, **options: object) -> dict[str, Finding]:
    decode = searched(dataclasses.replace(DecodeConfig(min_length=3, max_length=9, beam_size=3), **options))
    return {check.name: examine(check) for check in checks(bundle, lines, decode)}


def failed(found: dict[str, Finding]) -> list[str]:
    return [name for name, finding in found.items() if finding.fails]


def test_a_sound_model_passes_every_check(tiny_bundle):
    found = findings(tiny_bundle)
    information = ("bfloat16", "int8", "whole model in bfloat16", "torch against CTranslate2")
    assert {name: finding.outcome for name, finding in found.items() if name not in information} == {
        "line alone against batch": Outcome.equal,
        "padding": Outcome.equal,
        "batch size": Outcome.equal,
        "cache off against on": Outcome.equal,
        "beam 1 against greedy": Outcome.equal,
        "n-best 1 against n": Outcome.equal,
        "search score against forced": Outcome.equal,
    }
    for name, finding in found.items():
        assert finding.comparison is not None or name in information
        assert finding.comparison is None or finding.comparison.num_answers >= len(LINES) - 1
    assert found["search score against forced"].comparison.num_answers > len(LINES)


def test_a_sound_model_passes_in_float32_too_and_in_bfloat16_it_may_differ(tiny_bundle):
    bundle = dataclasses.replace(tiny_bundle, model=copy.deepcopy(tiny_bundle.model).float())
    found = findings(bundle)
    assert failed(found) == []
    for coarse in ("bfloat16", "int8", "whole model in bfloat16"):
        if found[coarse].outcome is Outcome.not_applicable:  # this CPU has no such products
            assert coarse == "bfloat16"
            assert "needs a CPU with bfloat16 instructions" in found[coarse].note
            continue
        assert found[coarse].comparison.largest_gap > 1e-3
        assert not found[coarse].fails


@pytest.mark.parametrize("compute", [Compute.bfloat16, Compute.int8])
def test_rounded_products_are_those_that_users_get(tiny_bundle, monkeypatch, compute):
    asked = []
    monkeypatch.setattr("seq2seq.translator.doctor.compute_in", lambda model, numbers: asked.append(numbers))
    (check,) = (one for one in checks(tiny_bundle, LINES) if one.name == compute.name)
    assert examine(check).outcome in (Outcome.equal, Outcome.differs)
    assert asked == [compute]


def test_a_sound_model_passes_with_other_options_of_its_own(tiny_bundle):
    options = {"length_penalty": -1.0, "beam_size": 2, "min_length_factor": 0.5, "max_length_factor": 0.8}
    assert failed(findings(tiny_bundle, **options)) == []


def test_a_cache_that_does_not_follow_the_hypotheses_is_found(tiny_bundle, monkeypatch):
    right = DecoderState.select

    def forgetful(
        self: DecoderState, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None
    ) -> DecoderState:
        if places is not None:  # all go on from the first of their sentence, whichever they continue
            rows = torch.stack([rows[places == place].min() for place in places])
        return right(self, rows, sentences, places)

    monkeypatch.setattr(DecoderState, "select", forgetful)
    found = findings(tiny_bundle, max_length=14)
    assert "cache off against on" in failed(found)
    assert "search score against forced" in failed(found)
    assert "beam 1 against greedy" not in failed(found)


def test_a_model_that_sees_the_padding_of_its_source_is_found(tiny_bundle, monkeypatch):
    right = EncoderDecoder.start

    def blind(self: EncoderDecoder, src: torch.Tensor, src_valid: torch.Tensor) -> DecoderState:
        return right(self, src, torch.ones_like(src_valid))

    monkeypatch.setattr(EncoderDecoder, "start", blind)
    assert {"line alone against batch", "padding", "batch size"} <= set(failed(findings(tiny_bundle)))


def test_a_step_that_does_not_do_what_a_forward_pass_does_is_found(tiny_bundle, monkeypatch):
    right = EncoderDecoder.step

    def sharper(self: EncoderDecoder, tokens: torch.Tensor, state: DecoderState) -> tuple[torch.Tensor, DecoderState]:
        logits, state = right(self, tokens, state)
        return 1.01 * logits, state

    monkeypatch.setattr(EncoderDecoder, "step", sharper)
    found = findings(tiny_bundle)
    assert set(failed(found)) == {"cache off against on", "beam 1 against greedy", "search score against forced"}
    first = found["search score against forced"].comparison.differences[0]
    assert first.line == 1
    assert first.answers[0].text == first.answers[1].text
    assert first.gap > 1e-4


def test_a_search_whose_first_answer_depends_on_how_many_are_asked_for_is_found(tiny_bundle, monkeypatch):
    from seq2seq.translator import translator as module

    right = module.search

    @functools.wraps(right)
    def swapped(*arguments: object, **named: object) -> list[object]:
        return [found[::-1] for found in right(*arguments, **named)]

    monkeypatch.setattr(module, "search", swapped)
    assert failed(findings(tiny_bundle)) == ["n-best 1 against n"]


def test_the_checks_search_with_a_beam_and_cut_long_lines_whatever_the_options():
    drawn = DecodeConfig(beam_size=1, n_best=2, temperature=1.0, top_k=3, mbr=Utility.chrf, num_candidates=5)
    found = searched(drawn)
    assert (found.beam_size, found.n_best, found.draws, found.mbr) == (4, 1, False, Utility.none)
    assert found.long_lines is LongLines.truncate
    assert searched(DecodeConfig(beam_size=6, patience=2.0)).patience == 2.0


def test_the_plain_loop_leaves_out_what_it_does_not_know():
    found = plain(DecodeConfig(patience=1.0, no_repeat_ngram=2, forbid_unknown=True, length_penalty=0.3))
    assert (found.patience, found.no_repeat_ngram, found.forbid_unknown) == (None, 0, False)
    assert found.length_penalty == 0.3


def test_what_ctranslate2_cannot_do_is_not_applicable_with_its_reason(tiny_bundle):
    found = findings(tiny_bundle, coverage_penalty=0.2, max_length=4)["torch against CTranslate2"]
    assert (found.outcome, found.fails) == (Outcome.not_applicable, False)
    assert found.note.startswith("coverage_penalty=0.2 is not something that CTranslate2 does")


def test_a_machine_without_products_of_integers_is_told(tiny_bundle, monkeypatch):
    monkeypatch.setattr(quantized, "_multiplies_int8", lambda: False)
    (check,) = (one for one in checks(tiny_bundle, LINES) if one.name == "int8")
    finding = examine(check)
    assert finding.outcome is Outcome.not_applicable
    assert finding.note.startswith("compute=int8 needs a torch with oneDNN for this CPU")


def test_a_greedy_search_is_checked_where_it_is_asked_for():
    assert searched(DecodeConfig(beam_size=4, n_best=3, patience=2.0, coverage_penalty=0.1), 1).beam_size == 1


def test_a_language_model_is_refused(tiny_writer):
    with pytest.raises(ValueError, match="is a language model, which goes on from a text and does not translate"):
        checks(tiny_writer, LINES)
