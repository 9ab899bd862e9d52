"""B5, B6 for whole searches of both architectures: texts in, texts out, with a cache and without. float64, 1e-9.

Models that translate do so with and without a prefix; a language model goes on from prompts and from nothing.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig, GenerateConfig, ModelConfig, NormPlacement, Task, TokenizerConfig, Tying
from seq2seq.generator import Ended, Generator
from seq2seq.models import build_model
from seq2seq.models.twins import uncached
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.translator import Request, Translator

pytestmark = pytest.mark.whole_runs

EXACT = 1e-9
"""Tolerance in float64."""

OPEN = {"norm_placement": NormPlacement.pre, "tying": Tying.none, "output_bias": True}
"""Makes the answers of a random model vary, and lets their ends be set."""

MODELS = ["encoder_decoder", "decoder_only", "prefix_lm", "language_model"]
LINES = [
    "der ant läuft!",
    "17 elk sieht und das yak schläft und die gnu?",
    "",
    "owl",
    "die cat und der dog sieht das pig.",
]
PREFIXES = ["die bee", "", "das", "und das 3", ""]
PROMPTS = ["der ant", "", "die cat und\n", "o", "17 elk sieht und das yak schläft, und der owl auch.\n"]


@dataclass(frozen=True)
class Found:
    """One text that a search gives, whichever kind of model has written it."""

    ids: tuple[int, ...]
    text: str
    log_prob: float
    token_log_probs: tuple[float, ...]
    cut: bool
    """Whether it was ended by its limit."""


def random_bundle(base: Bundle, config: ModelConfig, end: float) -> Bundle:
    """The tokenizer with a random model in float64, to whose logits of EOS something is added.

    So that some of its texts end early and others reach their limit.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        size, special = base.target_tokenizer.vocab_size, base.target_tokenizer.special
        model = build_model(config, size, size).double().eval()
        model.output.mul_(3)
        for weight in model.decoder.layers.parameters():
            if weight.dim() > 1:
                weight.mul_(4)
        model.output_bias[special.eos] += end
        model.output_bias[sorted(base.target_tokenizer.byte_ids)] -= 4
    return dataclasses.replace(base, model=model, model_config=config)


@pytest.fixture(params=MODELS)
def bundle(
    request: pytest.FixtureRequest, tiny_bundle: Bundle, tiny_lines: list[str], families: Callable[..., ModelConfig]
) -> Bundle:
    """A tiny model of each kind in turn."""
    if request.param == "encoder_decoder":
        return tiny_bundle
    if request.param == "decoder_only":
        return random_bundle(tiny_bundle, families("llama", **OPEN), end=0.0)
    if request.param == "prefix_lm":
        return random_bundle(tiny_bundle, families("prefix_lm", **OPEN), end=2.5)
    options = TokenizerConfig(vocab_size=300, normalization="identity", keep_whitespace=True)
    tokenizer, _ = train_tokenizer([line + "\n" for line in tiny_lines], options)
    base = dataclasses.replace(
        tiny_bundle, source_tokenizer=tokenizer, target_tokenizer=tokenizer, task=Task.language_model
    )
    return random_bundle(base, families("gpt2", **OPEN), end=0.2)


def write(bundle: Bundle, beam_size: int, given: bool) -> list[list[Found]]:
    """What is found for each line or prompt, with or without the start of the answer given."""
    if bundle.task is Task.language_model:
        options = GenerateConfig(max_new_pieces=9, beam_size=beam_size, length_penalty=0.5)
        texts = Generator(bundle).generate(PROMPTS if given else [""], options)
        return [
            [Found(one.ids, one.text, one.log_prob, one.token_log_probs, one.ended is Ended.limit)] for one in texts
        ]
    decode = DecodeConfig(beam_size=beam_size, n_best=beam_size, max_length_factor=0.5)
    prefixes = PREFIXES if given else [""] * len(LINES)
    requests = [Request(line, prefix=prefix) for line, prefix in zip(LINES, prefixes, strict=True)]
    return [
        [Found(one.ids, one.text, one.log_prob, one.token_log_probs, one.hit_limit) for one in answer.candidates]
        for answer in Translator(bundle).translate(requests, decode)
    ]


def without_cache(bundle: Bundle) -> Bundle:
    """The same weights, all pieces of which are read again at each step."""
    return dataclasses.replace(bundle, model=uncached(bundle.model))


def assert_same(fast: Sequence[Sequence[Found]], slow: Sequence[Sequence[Found]]) -> None:
    assert [[one.ids for one in some] for some in fast] == [[one.ids for one in some] for some in slow]
    for one, other in ((one, other) for pair in zip(fast, slow, strict=True) for one, other in zip(*pair, strict=True)):
        assert (one.text, one.cut) == (other.text, other.cut)
        assert one.log_prob == pytest.approx(other.log_prob, abs=EXACT)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=EXACT)


@pytest.mark.parametrize("given", [False, True], ids=["free", "with_prefixes"])
@pytest.mark.parametrize("beam_size", [1, 4], ids=["greedy", "beam"])
def test_b5_whole_searches_with_and_without_a_cache_give_the_same(bundle, beam_size, given):
    fast = write(bundle, beam_size, given)
    assert_same(fast, write(without_cache(bundle), beam_size, given))
    if given and bundle.task is not Task.language_model:
        assert all(
            not some[0].ids or some[0].text.startswith(prefix) for some, prefix in zip(fast, PREFIXES, strict=True)
        )
    if given and beam_size == 4:
        assert {one.cut for some in fast for one in some if one.ids} == {True, False}
        assert len({len(one.ids) for some in fast for one in some}) > 1


@pytest.mark.parametrize("given", [False, True], ids=["free", "with_prefixes"])
def test_b6_a_cache_that_does_not_follow_the_beam_is_found_out(bundle, given, monkeypatch):
    expected = write(without_cache(bundle), 4, given)
    ids = torch.tensor([[5, 2]])
    state = type(bundle.model.start(ids, torch.ones_like(ids, dtype=torch.bool)))
    original, counts = state.select, [0]

    def forget(self: Any, rows: Any, sentences: Any, places: Any = None) -> Any:
        """Rows stay where they are, but where there are to be more of them."""
        kept = rows if len(rows) > counts[-1] else torch.arange(len(rows))
        counts.append(len(rows))
        return original(self, kept, sentences, places)

    monkeypatch.setattr(state, "select", forget)
    found = write(bundle, 4, given)
    with pytest.raises(AssertionError):
        assert_same(found, expected)
    assert len(counts) > 4
