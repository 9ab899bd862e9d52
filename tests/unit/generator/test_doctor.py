import copy
import dataclasses

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.generator import doctor
from seq2seq.generator.doctor import checks
from seq2seq.nn.cache import CausalState
from seq2seq.search.agreement import Finding, Outcome, examine

PROMPTS = ["der ant", "", "die cat läuft. 17 elk"]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MAX_NEW", 10)


def findings(bundle: Bundle) -> dict[str, Finding]:
    return {check.name: examine(check) for check in checks(bundle, PROMPTS)}


def test_a_sound_language_model_passes_every_check(tiny_writer):
    found = findings(tiny_writer)
    assert {name: finding.outcome for name, finding in found.items()} == {
        "text alone against batch": Outcome.equal,
        "cache off against on": Outcome.equal,
        "search score against forced": Outcome.equal,
    }
    assert {finding.comparison.num_answers for finding in found.values()} == {len(PROMPTS)}


def test_a_sound_language_model_passes_in_float32_too(tiny_writer):
    single = dataclasses.replace(tiny_writer, model=copy.deepcopy(tiny_writer.model).float())
    assert not any(finding.fails for finding in findings(single).values())


def test_a_cache_that_does_not_follow_the_texts_is_found(tiny_writer, monkeypatch):
    right = CausalState.select

    def forgetful(
        self: CausalState, rows: torch.Tensor, sentences: torch.Tensor, places: torch.Tensor | None = None
    ) -> CausalState:
        if places is not None:  # all go on from the first of their sentence, whichever they continue
            rows = torch.stack([rows[places == place].min() for place in places])
        return right(self, rows, sentences, places)

    monkeypatch.setattr(CausalState, "select", forgetful)
    failed = [name for name, finding in findings(tiny_writer).items() if finding.fails]
    assert {"cache off against on", "search score against forced"} <= set(failed)


def test_a_model_that_translates_is_refused(tiny_bundle):
    with pytest.raises(ValueError, match="is a model that translates, not a language model"):
        checks(tiny_bundle, PROMPTS)
