import dataclasses
import math

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import GenerateConfig, PositionKind, Task
from seq2seq.generator import Ended, Generation, Generator
from seq2seq.models import build_model

PROMPTS = ["der ant", "", "die cat und\n", "o", "17 elk sieht und das yak schläft, und der owl auch.\n", "看"]
NEW = 9
WAYS = {
    "greedy": {},
    "beam": {"beam_size": 4, "length_penalty": 0.0},
    "sampling": {"temperature": 1.0, "num_samples": 2},
    "everything": {
        "temperature": 1.3,
        "top_k": 12,
        "top_p": 0.95,
        "min_p": 0.01,
        "repetition_penalty": 1.3,
        "num_samples": 2,
        "stop": ["p", "nn"],
    },
    "beam with penalty and stop": {"beam_size": 3, "repetition_penalty": 1.5, "stop": ["p"], "length_penalty": 0.0},
}


@pytest.fixture
def generator(tiny_writer: Bundle) -> Generator:
    return Generator(tiny_writer)


def config(**changes: object) -> GenerateConfig:
    return dataclasses.replace(GenerateConfig(max_new_pieces=NEW), **changes)


def assert_same(got: list[Generation], expected: list[Generation]) -> None:
    """All but the last digits of the log-probabilities."""
    assert len(got) == len(expected) > 0
    for one, other in zip(got, expected, strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-9)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-9)
        same = {"token_log_probs": other.token_log_probs, "log_prob": other.log_prob}
        assert dataclasses.replace(one, **same) == other


def test_each_continuation_says_what_it_is(generator):
    tokenizer = generator.tokenizer
    found = generator.generate(PROMPTS, config(temperature=1.0, num_samples=2))
    assert [(one.number, one.sample) for one in found] == [(n, s) for n in range(1, 7) for s in (1, 2)]
    for one in found:
        assert one.prompt == PROMPTS[one.number - 1]
        assert one.prompt_ids == tuple(tokenizer.prompt(one.prompt))
        assert one.tokens == tuple(tokenizer.pieces(one.ids))
        assert one.log_prob == pytest.approx(math.fsum(one.token_log_probs), abs=1e-12)
        assert (one.ended is Ended.eos) == (one.ids[-1] == tokenizer.special.eos)
        assert (one.ended is Ended.limit) == (len(one.ids) == NEW and one.ids[-1] != tokenizer.special.eos)
        assert one.notice is None
        kept = one.ids[:-1] if one.ended is Ended.eos else one.ids
        assert tokenizer.decode_text([*one.prompt_ids, *kept]).startswith(one.prompt + one.text)
    assert {one.ended for one in found} == {Ended.eos, Ended.limit}


@pytest.mark.parametrize("way", WAYS)
def test_uneven_prompts_in_one_batch_give_what_each_gives_alone(generator, way):
    together = generator.generate(PROMPTS, config(**WAYS[way]))
    assert_same(together, generator.generate(PROMPTS, config(batch_tokens=1, **WAYS[way])))
    assert_same(together, generator.generate(PROMPTS, config(batch_tokens=60, **WAYS[way])))
    assert len({len(one.ids) for one in together}) > 2


@pytest.mark.parametrize("way", WAYS)
def test_the_parts_of_a_stream_are_the_text(generator, way):
    for expected in generator.generate(PROMPTS, config(**WAYS[way]))[1:9:2]:
        parts = list(
            generator.stream(expected.prompt, config(**WAYS[way]), number=expected.number, sample=expected.sample)
        )
        assert "".join(parts) == expected.text
        assert all(parts)


def test_a_stream_gives_text_before_the_model_is_done(generator, monkeypatch):
    steps = []
    step = type(generator.model).step

    def counted(self, tokens, state):
        steps.append(1)
        return step(self, tokens, state)

    monkeypatch.setattr(type(generator.model), "step", counted)
    parts = generator.stream("", config())
    assert next(parts) != ""
    assert len(steps) < NEW
    assert "".join(parts) != ""
    assert len(steps) == NEW


def test_gradients_stay_on_for_whoever_reads_a_stream(generator):
    for _ in generator.stream("", config()):
        assert torch.is_grad_enabled()


def test_any_number_of_prompts_is_answered_in_order_and_errors_come_after_the_answers_before(generator):
    drawn = config(temperature=1.0, batch_tokens=10)
    expected = generator.generate(PROMPTS, drawn)
    assert_same(list(generator.generate_each(iter(PROMPTS), drawn)), expected)

    def broken():
        yield from PROMPTS[:2]
        raise ValueError("line 3 is bad")

    answers = generator.generate_each(broken(), drawn)
    assert_same([next(answers), next(answers)], expected[:2])
    with pytest.raises(ValueError, match="line 3 is bad"):
        next(answers)


def test_prompts_can_be_pieces(generator):
    ids = [generator.tokenizer.prompt(prompt) for prompt in PROMPTS]
    expected = generator.generate(PROMPTS, config())
    assert_same(generator.generate_ids(ids, config()), expected)


def test_a_seed_decides_what_is_drawn_and_samples_differ(generator):
    first = generator.generate(PROMPTS, config(temperature=1.0, num_samples=4, seed=5))
    assert generator.generate(PROMPTS, config(temperature=1.0, num_samples=4, seed=5)) == first
    assert generator.generate(PROMPTS, config(temperature=1.0, num_samples=4, seed=6)) != first
    assert len({one.ids for one in first if one.number == 2}) > 1
    twice = generator.generate([PROMPTS[1]] * 2, config(temperature=1.0))
    assert twice[0].ids != twice[1].ids


def test_more_samples_leave_the_first_ones_as_they_were(generator):
    few = generator.generate(PROMPTS, config(temperature=1.0, num_samples=2))
    many = generator.generate(PROMPTS, config(temperature=1.0, num_samples=5))
    assert_same([one for one in many if one.sample <= 2], few)


def test_a_low_temperature_or_one_piece_to_draw_from_gives_the_greedy_text(generator):
    greedy = generator.generate(PROMPTS, config())
    for changes in ({"temperature": 1e-4}, {"temperature": 1.0, "top_k": 1}, {"temperature": 1.0, "top_p": 1e-9}):
        assert [one.ids for one in generator.generate(PROMPTS, config(**changes))] == [one.ids for one in greedy]


def test_a_wide_beam_finds_a_text_that_scores_no_lower_than_the_greedy_one(generator):
    options = {"max_new_pieces": 3, "length_penalty": 0.0}
    greedy = generator.generate(PROMPTS, config(**options))
    wide = generator.generate(PROMPTS, config(beam_size=40, **options))
    assert all(w.log_prob >= g.log_prob - 1e-9 for w, g in zip(wide, greedy, strict=True))
    assert any(w.log_prob > g.log_prob + 1e-3 for w, g in zip(wide, greedy, strict=True))


def test_a_repetition_penalty_changes_the_text_and_not_what_is_reported(generator):
    (plain,) = generator.generate([""], config())
    (other,) = generator.generate([""], config(repetition_penalty=3.0))
    assert len(set(plain.ids)) == 1 < len(plain.ids)
    assert len(set(other.ids)) == len(other.ids) > 1
    ids = torch.tensor([[*other.prompt_ids, *other.ids]])
    with torch.no_grad():
        log_probs = generator.model.logits(generator.model.read(ids))[0].log_softmax(-1)
    begin = len(other.prompt_ids)
    own = [float(log_probs[begin + i - 1, piece]) for i, piece in enumerate(other.ids)]
    assert other.token_log_probs == pytest.approx(own, abs=1e-9)


def test_a_stop_string_ends_a_text_and_is_no_part_of_it(generator):
    before = {one.number: one for one in generator.generate(PROMPTS, config())}
    stopped = generator.generate(PROMPTS, config(stop=["ap", "ll"]))
    assert {one.ended for one in stopped} == {Ended.eos, Ended.stop, Ended.limit}
    for one in stopped:
        whole = before[one.number].text
        places = [whole.index(stop) for stop in ("ap", "ll") if stop in whole]
        assert (one.ended is Ended.stop) == bool(places)
        assert one.text == whole[: min([*places, len(whole)])]
        if places:
            assert "".join(one.tokens).endswith(("ap", "ll"))


def test_padding_bos_and_rows_without_a_piece_are_never_produced(tiny_writer):
    model = build_model(tiny_writer.model_config, 300, 300).double().eval()
    model.load_state_dict(tiny_writer.model.state_dict())
    special = tiny_writer.target_tokenizer.special
    with torch.no_grad():
        model.output_bias[[special.pad, special.bos, *range(300, 304)]] += 50
    loud = Generator(dataclasses.replace(tiny_writer, model=model))
    for way in ({}, {"beam_size": 3}, {"temperature": 1.0}):
        for one in loud.generate(PROMPTS, config(**way)):
            assert not {special.pad, special.bos, *range(300, 304)} & set(one.ids)


def test_every_id_that_ends_a_text_ends_it(tiny_writer, monkeypatch):
    tokenizer = tiny_writer.target_tokenizer
    (letter,) = tokenizer.encode("p")
    monkeypatch.setattr(tokenizer, "stop", (letter,))
    found = Generator(tiny_writer).generate(PROMPTS, config())
    ended = [one for one in found if one.ids[-1] == letter]
    assert ended
    for one in ended:
        assert one.ended is Ended.eos
        assert "p" not in one.text
    assert not any(letter in one.ids[:-1] for one in found)


@pytest.fixture
def short(tiny_writer: Bundle) -> Generator:
    """A model that has learned 12 positions."""
    changes = {"positions": PositionKind.learned, "max_positions": 12}
    sizes = dataclasses.replace(tiny_writer.model_config, **changes)
    torch.manual_seed(1)
    model = build_model(sizes, 300, 300).double().eval()
    with torch.no_grad():
        model.output_bias[tiny_writer.target_tokenizer.special.eos] = -50
    return Generator(dataclasses.replace(tiny_writer, model=model, model_config=sizes))


def test_a_continuation_is_as_long_as_the_positions_allow_and_a_notice_says_so(short):
    notices: list[str] = []
    found = short.generate(["ant", "", "ant bee cat"], config(max_new_pieces=9), on_notice=notices.append)
    assert [len(one.prompt_ids) for one in found] == [4, 1, 12]
    assert [len(one.ids) for one in found] == [9, 9, 1]
    assert notices == [one.notice for one in found if one.notice is not None]
    assert notices == [
        "the text of prompt 3 was cut after 1 new pieces, not 9: the prompt has 12, and the model has learned 12 "
        "positions"
    ]
    for way in ({}, {"beam_size": 2}):
        assert "".join(short.stream("ant bee cat", config(**way), on_notice=notices.append)) == found[2].text
    assert len(notices) == 3


def test_no_notice_is_given_of_a_text_that_ends_by_itself_before_the_positions_do(short):
    with torch.no_grad():
        short.model.output_bias[short.tokenizer.special.eos] = 50
    for way in ({}, {"beam_size": 2}):
        (found,) = short.generate(["ant bee"], config(**way), on_notice=pytest.fail)
        assert (found.ended, found.notice) == (Ended.eos, None)
        assert list(short.stream("ant bee", config(**way), on_notice=pytest.fail)) == []


def test_a_prompt_longer_than_the_positions_is_refused_before_anything_is_generated(short, monkeypatch):
    monkeypatch.setattr(type(short.model), "prefill", lambda *_: pytest.fail("the model was called"))
    with pytest.raises(ValueError, match="prompt 2 has 13 pieces, but the model has learned 12 positions; shorten it"):
        short.generate(["", "ant bee cat."], config())


def test_the_positions_of_a_short_prompt_do_not_run_out_beside_a_long_one(short):
    together = short.generate(["ant bee cat", ""], config(max_new_pieces=12), on_notice=lambda _: None)
    alone = short.generate(["ant bee cat", ""], config(max_new_pieces=12, batch_tokens=1), on_notice=lambda _: None)
    assert_same(together, alone)
    assert len(together[1].ids) == 12


def test_a_model_that_translates_is_refused(tiny_bundle):
    with pytest.raises(ValueError, match="a model that translates, not a language model; use `seq2seq translate`"):
        Generator(tiny_bundle)


def test_a_tokenizer_with_more_pieces_than_the_model_has_rows_is_refused(tiny_writer):
    small = build_model(tiny_writer.model_config, 99, 99)
    with pytest.raises(ValueError, match="the tokenizer has 300 pieces, but the model only 104 rows"):
        Generator(dataclasses.replace(tiny_writer, model=small))


def test_prompts_that_are_none_are_refused(generator):
    for call in (generator.generate, generator.score):
        with pytest.raises(ValueError, match=r"got one string; write (generate|score)\(\[text\]\)"):
            call("ant")
    with pytest.raises(ValueError, match=r"got one string; write generate_each\(\[text\]\)"):
        list(generator.generate_each("ant"))
    with pytest.raises(ValueError, match="prompt 2 has no pieces; give at least one"):
        generator.generate_ids([[1], []])
    with pytest.raises(ValueError, match=r"prompt 1 has ids \[300, -1\] outside the vocabulary of 300 pieces"):
        generator.generate_ids([[1, 300, -1]])


def test_no_prompt_gives_no_text(generator):
    assert generator.generate([]) == []
    assert list(generator.generate_each([])) == []


def test_a_model_in_training_answers_the_same_and_stays_in_it(tiny_writer):
    sizes = dataclasses.replace(tiny_writer.model_config, dropout=0.5)
    model = build_model(sizes, 300, 300).double()
    model.load_state_dict(tiny_writer.model.state_dict())
    in_training = Generator(dataclasses.replace(tiny_writer, model=model.train(), model_config=sizes))
    for one, other in zip(
        in_training.generate(PROMPTS, config()), Generator(tiny_writer).generate(PROMPTS, config()), strict=True
    ):
        assert one.ids == other.ids
    list(in_training.stream("", config()))
    in_training.score(PROMPTS)
    assert all(module.training for module in model.modules())


def test_a_bundle_is_loaded_from_its_folder(tiny_writer_folder, generator):
    loaded = Generator.load(tiny_writer_folder, "cpu")
    assert loaded.device == torch.device("cpu")
    assert loaded.bundle.task is Task.language_model
    assert loaded.generate(["der ant"], config())[0].text == generator.generate(["der ant"], config())[0].text
