import copy
import dataclasses
import math

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import GenerateConfig, PositionKind
from seq2seq.generator import Generator, ScoredText
from seq2seq.generator.results import perplexity
from seq2seq.generator.scoring import windows
from seq2seq.models import build_model

TEXTS = ["der ant", "", "die cat und\nowl €", "17 elk sieht und das yak schläft.\n"]


@pytest.fixture
def generator(tiny_writer: Bundle) -> Generator:
    return Generator(tiny_writer)


def slow(generator: Generator, ids: list[int]) -> list[float]:
    """Log-probability of each piece after BOS: one forward pass a piece, over all that is before it."""
    whole = [generator.tokenizer.special.bos, *ids]
    with torch.no_grad():
        return [
            float(
                generator.model.logits(generator.model.read(torch.tensor([whole[:n]])))[0, -1].log_softmax(0)[whole[n]]
            )
            for n in range(1, len(whole))
        ]


@pytest.mark.parametrize("batch_tokens", [1, 30, 8192])
def test_each_piece_has_the_log_probability_that_the_model_gives_it_step_by_step(generator, batch_tokens):
    for text, scored in zip(TEXTS, generator.score(TEXTS, batch_tokens=batch_tokens), strict=True):
        ids = generator.tokenizer.encode(text)
        assert (scored.text, scored.ids, scored.notice) == (text, tuple(ids), None)
        assert scored.tokens == tuple(generator.tokenizer.pieces(ids))
        assert scored.token_log_probs == pytest.approx(slow(generator, ids), abs=1e-10)
        assert scored.log_prob == pytest.approx(math.fsum(scored.token_log_probs), abs=1e-12)


def test_the_end_of_the_document_counts_where_it_is_asked_for(generator):
    eos = generator.tokenizer.special.eos
    for text, scored in zip(TEXTS, generator.score(TEXTS, count_end=True), strict=True):
        ids = [*generator.tokenizer.encode(text), eos]
        assert scored.ids == tuple(ids)
        assert scored.token_log_probs == pytest.approx(slow(generator, ids), abs=1e-10)


def test_perplexity_is_told_by_piece_by_byte_and_by_character(generator):
    scored = generator.score(["läuft €"])[0]
    assert (len(scored.ids), scored.num_characters, scored.num_bytes) == (9, 7, 10)
    assert scored.perplexity == pytest.approx(math.exp(-scored.log_prob / 9))
    assert scored.byte_perplexity == pytest.approx(math.exp(-scored.log_prob / 10))
    assert scored.character_perplexity == pytest.approx(math.exp(-scored.log_prob / 7))
    nothing = generator.score([""])[0]
    assert (nothing.ids, nothing.log_prob, nothing.perplexity, nothing.byte_perplexity) == ((), 0.0, 1.0, 1.0)


def test_what_generate_reports_is_what_score_gives(generator):
    prompt = "der ant"
    (greedy,) = generator.generate([prompt], GenerateConfig(max_new_pieces=9))
    (scored,) = generator.score([prompt + greedy.text])
    begin = len(greedy.prompt_ids) - 1
    assert scored.ids[begin:] == greedy.ids[: len(scored.ids) - begin]
    assert scored.token_log_probs[begin:] == pytest.approx(greedy.token_log_probs[: len(scored.ids) - begin], abs=1e-9)


def test_windows_score_each_piece_once_and_never_read_more_than_the_context():
    for length in (1, 2, 5, 6, 7, 23, 40):
        for context in (2, 5, 6):
            ids = list(range(100, 100 + length))
            found = list(windows(3, ids, 1, context))
            scored = [piece for window in found for piece in window.ids[len(window.ids) - window.num_scored :]]
            assert scored == ids[1:]
            assert all(window.text == 3 for window in found)
            assert all(len(window.ids) - 1 <= context for window in found)
            for window in found[1:]:
                assert len(window.ids) - window.num_scored >= context - context // 2, "half a context stands before"


def test_a_text_beyond_the_context_is_read_in_windows_and_a_notice_says_so(generator):
    text = TEXTS[3]
    ids = [generator.tokenizer.special.bos, *generator.tokenizer.encode(text)]
    plain, scored = generator.score([text])[0], generator.score([text], context=10)[0]
    assert scored.notice == f"a text of {len(ids) - 1} pieces was read in windows of 10 that overlap by half"
    assert scored.ids == plain.ids
    expected: list[float] = []
    with torch.no_grad():
        for window in windows(0, ids, 1, 10):
            row = generator.model.logits(generator.model.read(torch.tensor([window.ids[:-1]])))[0].log_softmax(-1)
            values = row.gather(-1, torch.tensor(window.ids[1:])[:, None])[:, 0].tolist()
            expected += values[len(values) - window.num_scored :]
    assert scored.token_log_probs == pytest.approx(expected, abs=1e-10)
    assert scored.token_log_probs[:10] == pytest.approx(plain.token_log_probs[:10], abs=1e-10)
    assert scored.token_log_probs != pytest.approx(plain.token_log_probs, abs=1e-6)


def test_the_context_is_as_long_as_the_learned_positions(tiny_writer):
    sizes = dataclasses.replace(tiny_writer.model_config, positions=PositionKind.learned, max_positions=12)
    model = build_model(sizes, 300, 300).double().eval()
    short = Generator(dataclasses.replace(tiny_writer, model=model, model_config=sizes))
    found: ScoredText = short.score(["ant bee cat dog"])[0]
    assert found.notice == "a text of 15 pieces was read in windows of 12 that overlap by half"
    assert short.score(["ant bee cat "])[0].notice is None
    with pytest.raises(ValueError, match="context=13, but the model has learned 12 positions; give at most 12"):
        short.score(["ant"], context=13)
    with pytest.raises(ValueError, match="context=1 leaves nothing to predict from; give at least 2"):
        short.score(["ant"], context=1)


def test_a_hopeless_text_has_an_infinite_perplexity():
    assert perplexity(-1e6, 3) == math.inf
    assert perplexity(-math.inf, 3) == math.inf


def test_a_broken_model_gives_no_scores(tiny_writer):
    model = copy.deepcopy(tiny_writer.model)
    with torch.no_grad():
        model.output.fill_(torch.nan)
    with pytest.raises(ValueError, match="the model's log-probabilities are NaN, expected numbers"):
        Generator(dataclasses.replace(tiny_writer, model=model)).score(TEXTS)
