"""Fast = slow for whole translations: cached against uncached, a batch against single lines, search against scoring."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from seq2seq.config import DecodeConfig
from seq2seq.models import EncoderDecoder
from seq2seq.translator import Request, Translator
from seq2seq.translator.batches import length_limits

EXACT = 1e-9
"""Tolerance in float64."""

LINES = [
    "der ant läuft!",
    "17 elk sieht und das yak schläft und die gnu?",
    "",
    "owl",
    "die cat und der dog sieht das pig.",
]
PREFIXES = ["die bee", "", "das", "und das 3", ""]
WITH_PREFIXES = [Request(line, prefix=prefix) for line, prefix in zip(LINES, PREFIXES, strict=True)]


@dataclass
class Everything:
    """The state of a decoder that remembers only what it has read: it computes all of it again at each step."""

    src: Any
    src_valid: Any
    tokens: Any
    sentences: Any
    """Of each row."""

    def select(self, rows: Any, sentences: Any, places: Any = None) -> "Everything":
        src, valid = self.src[sentences], self.src_valid[sentences]
        if places is None:
            places = torch.arange(len(src)).repeat_interleave(len(rows) // len(src))
        return Everything(src, valid, self.tokens[rows], places)


class Uncached(EncoderDecoder):
    """The same network without a cache."""

    def start(self, src: Any, src_valid: Any) -> Any:
        return Everything(src, src_valid, torch.empty(len(src), 0, dtype=torch.long), torch.arange(len(src)))

    def step(self, tokens: Any, state: Any) -> Any:
        state.tokens = torch.cat([state.tokens, tokens], dim=1)
        src, valid = state.src[state.sentences], state.src_valid[state.sentences]
        return self(src, valid, state.tokens)[:, -1], state


@pytest.fixture
def translator(tiny_bundle):
    return Translator(tiny_bundle)


@pytest.fixture
def uncached(tiny_bundle):
    model = tiny_bundle.model
    slow = Uncached(model.encoder, model.decoder, model.output).eval()
    return Translator(dataclasses.replace(tiny_bundle, model=slow))


def decode(**changes: object) -> DecodeConfig:
    return dataclasses.replace(DecodeConfig(max_length_factor=1.0), **changes)


def same(fast: list[Any], slow: list[Any]) -> None:
    assert len(fast) == len(slow)
    for left, right in zip(fast, slow, strict=True):
        assert [candidate.ids for candidate in left.candidates] == [candidate.ids for candidate in right.candidates]
        for one, other in zip(left.candidates, right.candidates, strict=True):
            assert one.text == other.text
            assert one.score == pytest.approx(other.score, abs=EXACT)
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=EXACT)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("lines", [LINES, WITH_PREFIXES], ids=["free", "with_prefixes"])
def test_b5_cached_and_uncached_decoding_give_the_same(translator, uncached, beam_size, lines):
    options = decode(beam_size=beam_size, n_best=beam_size)
    same(translator.translate(lines, options), uncached.translate(lines, options))


def test_b5_a_cache_that_is_not_reordered_is_found_out(translator, uncached, monkeypatch):
    def forget(self: Any, rows: Any, sentences: Any, places: Any = None) -> Any:
        grows = len(rows) > self.history.cache.num_sentences and self.history.seen is None
        return original(self, rows if grows else torch.arange(len(rows)), sentences, places)

    options = decode(beam_size=4, n_best=4)
    expected = uncached.translate(LINES, options)
    state = type(translator.model.start(torch.tensor([[5, 2]]), torch.tensor([[True, True]])))
    original = state.select
    monkeypatch.setattr(state, "select", forget)
    with pytest.raises(AssertionError):
        same(translator.translate(LINES, options), expected)


def test_b5_the_logits_of_every_step_are_those_of_the_whole_forward_pass(translator):
    model, tokenizer = translator.model, translator.bundle.source_tokenizer
    longest = max(len(tokenizer.encode(line)) for line in LINES) + 1
    ids = [[*tokenizer.encode(line), 2] for line in LINES]
    src = torch.tensor([[*row, *[0] * (longest - len(row))] for row in ids])
    valid = torch.tensor([[place < len(row) for place in range(longest)] for row in ids])
    tgt_in = torch.randint(4, 61, (len(LINES), 7), generator=torch.Generator().manual_seed(3))
    tgt_in[:, 0] = 1
    with torch.no_grad():
        whole = model(src, valid, tgt_in)
        state = model.start(src, valid)
        for place in range(7):
            logits, state = model.step(tgt_in[:, place : place + 1], state)
            torch.testing.assert_close(logits, whole[:, place], rtol=0, atol=EXACT)


@pytest.mark.parametrize("prefix", ["", "die bee"])
def test_a_beam_of_1_is_greedy_search_written_out(translator, prefix):
    options = decode(beam_size=1)
    found = translator.translate([Request(line, prefix=prefix) for line in LINES], options)
    for answer in found:
        if answer.source:
            expected = _greedy(translator, answer.source, prefix, options)
            assert list(answer.ids) == expected


def _greedy(translator: Translator, line: str, prefix: str, options: DecodeConfig) -> list[int]:
    """One line, one forward pass over all of it for each new piece."""
    source = [*translator.bundle.source_tokenizer.encode(line), 2]
    ids = translator.bundle.target_tokenizer.encode(prefix) if prefix else []
    _, longest = length_limits(options, len(source), len(ids))
    src = torch.tensor([source])
    while not ids or ids[-1] != 2:
        with torch.no_grad():
            logits = translator.model(src, torch.ones_like(src, dtype=torch.bool), torch.tensor([[1, *ids]]))[0, -1]
        logits[[0, 1, 61, 62, 63]] = -torch.inf
        ids.append(2 if len(ids) == longest - 1 else int(logits.argmax()))
    return ids


def test_forced_scoring_gives_the_log_probabilities_that_search_reports(translator):
    answers = [answer for answer in translator.translate(LINES, decode(n_best=4)) if answer.source]
    pairs = [(answer.source_ids[0], candidate) for answer in answers for candidate in answer.candidates]
    assert {candidate.hit_limit for _, candidate in pairs} == {True, False}
    scored = translator.score_ids([source for source, _ in pairs], [candidate.ids for _, candidate in pairs])
    for (_, candidate), pair in zip(pairs, scored, strict=True):
        assert pair.token_log_probs == pytest.approx(candidate.token_log_probs, abs=EXACT)
        assert pair.log_prob == pytest.approx(candidate.log_prob, abs=EXACT)
        assert pair.score == pytest.approx(candidate.score, abs=EXACT)
        assert pair.tokens == candidate.tokens
