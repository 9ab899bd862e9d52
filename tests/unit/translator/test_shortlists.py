import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig
from seq2seq.corpus.shortlist import Shortlist
from seq2seq.search.rules import Rows
from seq2seq.translator import Request, Translator
from seq2seq.translator.batches import Part
from seq2seq.translator.shortlists import narrowed, of_model, own_pieces


def shortlist(bundle: Bundle, candidates: list[list[int]], *, frequent: tuple[int, ...] = ()) -> Shortlist:
    special = bundle.target_tokenizer.special
    return Shortlist(
        num_targets=bundle.target_tokenizer.vocab_size,
        candidates=np.array(candidates, dtype=np.int32),
        same=np.full(len(candidates), -1, dtype=np.int32),
        frequent=np.array(frequent, dtype=np.int32),
        always=np.array(sorted({special.pad, special.bos, special.eos, special.unk}), dtype=np.int32),
        sha256=(bundle.source_tokenizer.sha256, bundle.target_tokenizer.sha256),
    )


@pytest.fixture
def few(tiny_bundle: Bundle) -> Bundle:
    """Each source piece asks for three pieces of its own."""
    size = tiny_bundle.source_tokenizer.vocab_size
    return replace(
        tiny_bundle,
        shortlist=shortlist(tiny_bundle, [[(7 * id_ + 3 * place) % size for place in range(3)] for id_ in range(size)]),
    )


LINES = ["ant bee cat läuft.", "owl", "dog elk fox gnu hen und der pig!", "17 ram yak die das 3?"]
DECODE = DecodeConfig(beam_size=3, n_best=3, shortlist=True)


def test_with_all_pieces_answers_are_those_without_to_the_last_bit(tiny_bundle):
    size = tiny_bundle.target_tokenizer.vocab_size
    # rows of the output matrix that no piece has would not be in the list
    output = torch.nn.Parameter(tiny_bundle.model.output[:size])
    model = copy.deepcopy(tiny_bundle.model)
    model.output = output
    everything = shortlist(tiny_bundle, [[]] * size, frequent=tuple(range(size)))
    bundle = replace(tiny_bundle, shortlist=everything)
    translator = Translator(bundle)
    translator.model = model
    for options in (DECODE, replace(DECODE, beam_size=1, n_best=1)):
        assert translator.translate(LINES, options) == translator.translate(LINES, replace(options, shortlist=False))


def test_answers_are_made_of_the_sentences_own_pieces(few):
    for answer in Translator(few).translate(LINES, DECODE):
        allowed = few.shortlist.allowed(answer.source_ids)[0]
        assert all(allowed[list(one.ids)].all() for one in answer.candidates)
    free = Translator(few).translate(LINES, replace(DECODE, shortlist=False))
    assert not all(few.shortlist.allowed(one.source_ids)[0][list(one.ids)].all() for one in free)


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 1, "n_best": 1}, {"beam_size": 1, "temperature": 50.0, "n_best": 2, "max_length": 8}]
)
def test_a_line_alone_is_answered_as_in_a_batch(few, options):
    decode = replace(DECODE, **options)
    together = Translator(few).translate(LINES, decode)
    for number, (line, answer) in enumerate(zip(LINES, together, strict=True), start=1):
        (alone,) = Translator(few).translate([line], decode, numbers=[number])
        assert [one.ids for one in alone.candidates] == [one.ids for one in answer.candidates]
        for one, other in zip(alone.candidates, answer.candidates, strict=True):
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-9)


def test_log_probabilities_are_normalised_over_the_sentences_shortlist(few):
    (answer,) = Translator(few).translate(LINES[:1], DECODE)
    (whole,) = Translator(few).score_ids(answer.source_ids, [answer.ids])
    allowed = few.shortlist.allowed(answer.source_ids)[0]
    source = torch.tensor(answer.source_ids)
    tgt_in = torch.tensor([[few.target_tokenizer.special.bos, *answer.ids[:-1]]])
    logits = few.model(source, torch.ones_like(source, dtype=torch.bool), tgt_in)[0, :, : len(allowed)]
    log_probs = logits.masked_fill(torch.from_numpy(~allowed), -torch.inf).log_softmax(-1)
    expected = log_probs[range(len(answer.ids)), list(answer.ids)].tolist()
    assert answer.token_log_probs == pytest.approx(expected, abs=1e-9)
    assert answer.log_prob > whole.log_prob


def test_prefixes_targets_and_phrases_need_not_be_in_the_list(few):
    translator = Translator(few)
    allowed = few.shortlist.allowed([few.source_tokenizer.encode("owl")])[0]
    wanted = next(word for word in ("hen", "cat", "yak") if not allowed[few.target_tokenizer.encode(word)].all())
    requests = [Request("owl", prefix=wanted), Request("owl", target=wanted), Request("owl", phrases=(wanted,)), "owl"]
    prefix, target, phrase, plain = translator.translate(requests, replace(DECODE, n_best=1))
    assert prefix.text.startswith(wanted)
    assert target.text == wanted
    assert wanted in phrase.text
    # what another line of the batch has been given is not this line's
    assert all(allowed[id_] for id_ in plain.ids)


def test_an_ensemble_of_equal_members_answers_as_one_of_them(few):
    alone = Translator(few).translate(LINES, DECODE)
    twice = Translator([few, replace(few, model=copy.deepcopy(few.model))]).translate(LINES, DECODE)
    assert [one.ids for one in alone] == [one.ids for one in twice]
    assert [one.log_prob for one in alone] == pytest.approx([one.log_prob for one in twice], abs=1e-9)


def test_a_bundle_without_a_shortlist_says_how_to_make_one(tiny_bundle):
    with pytest.raises(ValueError, match="the bundle has none; make one with `seq2seq data shortlist"):
        Translator(tiny_bundle).translate(LINES, DECODE)


def test_rules_keep_foreign_pieces_out_only_where_there_are_any(few):
    parts = [Part(1, tuple(few.source_tokenizer.encode("owl"))), Part(2, tuple(few.source_tokenizer.encode("hen pig")))]
    assert own_pieces(narrowed(few.model, few, parts[:1]), 2) == []
    narrow = narrowed(few.model, few, parts)
    (rule,) = own_pieces(narrow, 2)
    log_probs = torch.zeros(4, len(narrow.pieces))
    rule(Rows(torch.tensor([3, 0, 1, 2]), torch.zeros(4, 0, dtype=torch.long)), log_probs)
    allowed = few.shortlist.allowed([part.source for part in parts])[:, narrow.pieces]
    np.testing.assert_array_equal((log_probs == 0).numpy(), allowed[[1, 0, 0, 1]])


def test_logits_of_foreign_pieces_are_forbidden_at_once_where_that_is_wanted(few):
    parts = [Part(1, tuple(few.source_tokenizer.encode("owl"))), Part(2, tuple(few.source_tokenizer.encode("hen pig")))]
    src = torch.tensor([few.source_tokenizer.encode("owl")] * 2)
    found = {}
    for forbids in (False, True):
        narrow = narrowed(few.model, few, parts, forbids=forbids)
        assert (own_pieces(narrow, 2) == []) is forbids
        logits, _ = narrow.step(torch.zeros(2, 1, dtype=torch.long), narrow.start(src, torch.ones_like(src).bool()))
        found[forbids] = logits
    own = torch.from_numpy(few.shortlist.allowed([part.source for part in parts])[:, narrow.pieces])
    assert torch.equal(found[True] == -torch.inf, ~own)
    assert torch.equal(found[True][own], found[False][own])


def test_without_scores_the_same_pieces_are_found(few):
    decode = replace(DECODE, beam_size=1, n_best=1)
    found = Translator(few, details=False).translate(LINES, decode)
    assert [one.ids for one in found] == [one.ids for one in Translator(few).translate(LINES, decode)]


def test_a_ranking_finds_the_same_pieces_and_scores(few, monkeypatch):
    wanted = Translator(few).translate(LINES, DECODE)
    monkeypatch.setattr(few.model, "ranking", Ranked(), raising=False)
    found = Translator(few).translate(LINES, DECODE)
    assert few.model.ranking.asked > 0
    for answer, other in zip(found, wanted, strict=True):
        assert [one.ids for one in answer.candidates] == [one.ids for one in other.candidates]
        assert [one.score for one in answer.candidates] == pytest.approx([one.score for one in other.candidates])


class Ranked:
    """Ranks pieces by plain sorting."""

    asked = 0

    def norm(self, logits):
        self.asked += 1
        return logits.double().logsumexp(1, keepdim=True).numpy()

    def top(self, logits, count):
        return logits.sort(dim=1, descending=True, stable=True).indices[:, :count].numpy()


def test_a_bonus_is_asked_with_the_models_own_state(few):
    narrow = narrowed(few.model, few, [Part(1, tuple(few.source_tokenizer.encode("owl")))])
    source = torch.tensor([few.source_tokenizer.encode("owl")])
    state = narrow.start(source, torch.ones_like(source, dtype=torch.bool))
    seen: list[object] = []

    def bonus(state: object) -> np.ndarray:
        seen.append(state)
        return np.zeros(1)

    assert of_model(bonus)(state).tolist() == [0.0]
    assert seen == [state.model]
    assert state.num_bytes() == state.model.num_bytes() > 0
