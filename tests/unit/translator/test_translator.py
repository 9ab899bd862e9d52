import copy
import dataclasses
import logging
import math

import pytest
import torch

from seq2seq import load
from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig, LongLines, ModelConfig, TokenizerConfig, Tying, Utility
from seq2seq.models import build_model, estimated
from seq2seq.models.estimated import EstimatedProjection
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.translator import Request, Translator
from seq2seq.translator.results import NOTHING

LINES = ["der ant läuft!", "", "die cat.", "17 elk sieht und das yak schläft?", "\u200b", "owl"]


@pytest.fixture
def translator(tiny_bundle: Bundle) -> Translator:
    return Translator(tiny_bundle)


def decode(**changes: object) -> DecodeConfig:
    return dataclasses.replace(DecodeConfig(), **changes)


def test_one_translation_for_each_line_with_what_was_asked_and_what_was_found(translator):
    found = translator.translate(LINES)
    assert [answer.line for answer in found] == [1, 2, 3, 4, 5, 6]
    assert [answer.source for answer in found] == LINES
    tokenizer = translator.bundle.target_tokenizer
    for answer in found:
        best = answer.candidates[0]
        assert answer.text == best.text == tokenizer.decode(best.ids)
        assert answer.tokens == best.tokens == tuple(tokenizer.pieces(best.ids))
        assert (answer.ids, answer.token_log_probs) == (best.ids, best.token_log_probs)
        assert (answer.score, answer.log_prob, answer.hit_limit) == (best.score, best.log_prob, best.hit_limit)
        assert answer.log_prob == pytest.approx(sum(answer.token_log_probs), abs=1e-12)
        if best is not NOTHING:
            assert best.ids[-1] == tokenizer.special.eos
            source = (*tokenizer.encode(answer.source), tokenizer.special.eos)
            assert answer.source_ids == (source,)


def test_blank_lines_have_the_empty_translation_and_the_model_is_not_called(translator, monkeypatch):
    monkeypatch.setattr(translator.model, "start", lambda *_: pytest.fail("the model was called"))
    found = translator.translate(["", " ", "\u3000\u00a0\ufeff"])
    assert [answer.candidates for answer in found] == [(NOTHING,)] * 3
    assert [answer.source_ids for answer in found] == [()] * 3


def test_a_line_that_normalisation_leaves_nothing_of_is_as_a_blank_one(translator, monkeypatch):
    monkeypatch.setattr(type(translator.bundle.source_tokenizer), "encode", lambda *_: [])
    assert translator.translate(["visible"])[0].candidates == (NOTHING,)


def test_the_bundles_options_hold_unless_others_are_given(tiny_bundle):
    greedy = Translator(dataclasses.replace(tiny_bundle, decode=decode(beam_size=1)))
    wide = Translator(dataclasses.replace(tiny_bundle, decode=decode(beam_size=6, n_best=6)))
    assert len(greedy.translate(LINES)[0].candidates) == 1
    assert len(wide.translate(LINES)[0].candidates) == 6
    assert greedy.translate(LINES, wide.bundle.decode) == wide.translate(LINES)


def test_estimates_of_logits_lead_to_the_same_texts(tiny_bundle, monkeypatch):
    sure = copy.deepcopy(tiny_bundle.model).float()
    translator = Translator(dataclasses.replace(tiny_bundle, model=copy.deepcopy(sure)))
    bundle = dataclasses.replace(tiny_bundle, model=sure)
    bundle.model.estimated = EstimatedProjection(bundle.model.output.detach(), bundle.model.output_bias)
    monkeypatch.setattr(estimated, "FEWEST", 1)
    settled = []
    best = estimated.RoughLogits.best
    monkeypatch.setattr(estimated.RoughLogits, "best", lambda self: settled.append(best(self)) or settled[-1])
    for options in (decode(beam_size=1), decode(beam_size=1, max_length=3), decode(beam_size=1, min_length=9)):
        found = Translator(bundle, details=False).translate(LINES, options)
        assert [one.ids for one in found] == [one.ids for one in translator.translate(LINES, options)]
    assert sum(pieces is not None for pieces in settled) > 10
    some = len(settled)
    for options in (decode(beam_size=1, repetition_penalty=1.5), decode(beam_size=2)):
        assert Translator(bundle, details=False).translate(LINES, options)
    assert len(settled) == some


def test_without_details_greedy_search_gives_the_same_texts_and_no_probabilities(tiny_bundle, translator):
    bare = Translator(tiny_bundle, details=False)
    for options in (decode(beam_size=1), decode(beam_size=1, repetition_penalty=1.5, min_length=3)):
        wanted, found = translator.translate(LINES, options), bare.translate(LINES, options)
        assert [(one.text, one.ids, one.hit_limit) for one in found] == [
            (one.text, one.ids, one.hit_limit) for one in wanted
        ]
        for one in found:
            if one.candidates[0] is not NOTHING:
                assert math.isnan(one.score)
                assert math.isnan(one.log_prob)
                assert one.token_log_probs == ()


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 3},
        {"beam_size": 1, "temperature": 1.0, "n_best": 2},
        {"beam_size": 1, "temperature": 1.0, "num_candidates": 3, "mbr": Utility.chrf},
    ],
)
def test_a_search_that_goes_by_probabilities_has_them_without_details_too(tiny_bundle, translator, options):
    options = decode(**options)
    assert Translator(tiny_bundle, details=False).translate(LINES, options) == translator.translate(LINES, options)


def test_parts_of_a_split_line_are_joined_without_details_too(tiny_bundle, translator):
    options = decode(beam_size=1, max_source_length=4, long_lines=LongLines.split)
    wanted = translator.translate(LINES, options)
    found = Translator(tiny_bundle, details=False).translate(LINES, options)
    assert [one.text for one in found] == [one.text for one in wanted]


def test_n_best_candidates_are_distinct_texts_and_best_first(translator):
    for answer in translator.translate(LINES, decode(beam_size=7, n_best=5)):
        scores = [candidate.score for candidate in answer.candidates]
        assert scores == sorted(scores, reverse=True)
        assert len({candidate.text for candidate in answer.candidates}) == len(answer.candidates)


def test_a_model_in_training_mode_answers_the_same_and_stays_in_it(tiny_bundle):
    config = dataclasses.replace(tiny_bundle.model_config, dropout=0.5)
    model = build_model(config, 61, 61).double()
    model.load_state_dict(tiny_bundle.model.state_dict())
    in_training = Translator(dataclasses.replace(tiny_bundle, model=model.train(), model_config=config))
    expected = Translator(tiny_bundle).translate(LINES)
    assert in_training.translate(LINES) == expected
    assert in_training.score(LINES, LINES) == Translator(tiny_bundle).score(LINES, LINES)
    assert all(module.training for module in model.modules())


def test_a_model_can_be_trained_on_after_it_has_translated(tiny_bundle):
    config = ModelConfig(8, 2, 12, 1, 1)
    model = build_model(config, 61, 61)
    Translator(dataclasses.replace(tiny_bundle, model=model, model_config=config)).translate(
        ["ant " * 200], decode(beam_size=1, max_length=300)
    )
    src = torch.tensor([[4, 5, 2]])
    model(src, src > 0, src).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_autocast_around_it_changes_nothing(tiny_bundle):
    model = build_model(tiny_bundle.model_config, 61, 61)
    translator = Translator(dataclasses.replace(tiny_bundle, model=model.eval()))
    expected = translator.translate(LINES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert translator.translate(LINES) == expected


def test_no_row_beyond_the_vocabulary_and_neither_padding_nor_bos_is_ever_produced(tiny_bundle):
    special = tiny_bundle.target_tokenizer.special
    model = build_model(tiny_bundle.model_config, 61, 61).double()
    model.load_state_dict(tiny_bundle.model.state_dict())
    hidden = torch.nn.functional.normalize(model.output.detach().abs().mean(0), dim=0)
    with torch.no_grad():
        for row in (special.pad, special.bos, 61, 62, 63):
            model.output[row] = 50 * hidden
        model.decoder.layers[-1].feed_forward_norm.weight.zero_()
        model.decoder.layers[-1].feed_forward_norm.bias.copy_(hidden)
    unwanted = {special.pad, special.bos, 61, 62, 63}
    with torch.no_grad():
        src = torch.tensor([[5, 2]])
        assert set(model(src, src > 0, src)[0, -1].topk(5).indices.tolist()) == unwanted
    found = Translator(dataclasses.replace(tiny_bundle, model=model)).translate(LINES, decode(n_best=4))
    produced = {id_ for answer in found for candidate in answer.candidates for id_ in candidate.ids}
    assert produced
    assert not produced & unwanted


def test_line_feeds_and_carriage_returns_in_a_translation_become_spaces(translator, monkeypatch):
    monkeypatch.setattr(type(translator.bundle.target_tokenizer), "decode", lambda *_: "one\rtwo\r\nthree")
    assert translator.translate(["cat"])[0].text == "one two  three"


def test_lengths_are_limited_as_the_options_say(translator):
    lines = LINES[:1] + LINES[2:4]
    lengths = [len(answer.source_ids[0]) for answer in translator.translate(lines)]
    for answer, length in zip(translator.translate(lines, decode(max_length_factor=0.5)), lengths, strict=True):
        assert len(answer.ids) <= -(-length // 2) + 10
    for answer in translator.translate(lines, decode(max_length=3)):
        assert len(answer.ids) <= 3
    for answer in translator.translate(lines, decode(min_length=77)):
        assert (len(answer.ids), answer.hit_limit) == (77, True)


def test_a_translation_starts_with_its_prefix_even_if_that_is_longer_than_the_relative_limit(translator):
    prefixes = ["das yak", "und " * 40]
    found = translator.translate([*(Request("owl", prefix=p) for p in prefixes), "owl", Request("", prefix="die")])
    for answer, prefix in zip(found[:2], prefixes, strict=True):
        ids = translator.bundle.target_tokenizer.encode(prefix)
        assert list(answer.ids[: len(ids)]) == ids
    assert found[2].ids == translator.translate(["owl"])[0].ids
    assert found[3].candidates == (NOTHING,)


def test_a_prefix_that_max_length_has_no_room_for_is_refused_by_line(translator):
    with pytest.raises(ValueError, match=r"the prefix of line 2 has 3 pieces, max_length=3 has room for 2 and EOS"):
        translator.translate(["owl", Request("owl", prefix="das die das")], decode(max_length=3))


def test_a_target_that_max_length_has_no_room_for_is_refused_by_line(translator):
    with pytest.raises(ValueError, match=r"the target of line 1 has 3 pieces, max_length=3 has room for 2 and EOS"):
        translator.translate([Request("owl", target="das die das")], decode(max_length=3))


@pytest.mark.parametrize(
    ("request_", "what"),
    [(Request("owl und cat", target="das"), "target"), (Request("owl und cat", phrases=("das",)), "phrases")],
    ids=["target", "phrases"],
)
def test_a_line_in_parts_cannot_be_told_its_target_or_phrases(translator, request_, what):
    split = decode(max_source_length=3, long_lines=LongLines.split)
    with pytest.raises(
        ValueError, match=rf"line 2 is translated in \d+ parts, so that its {what} cannot be told which"
    ):
        translator.translate(["owl", request_], split)
    (answer,) = translator.translate([Request("owl und cat", prefix="das")], split, on_notice=lambda _: None)
    assert len(answer.source_ids) > 1
    assert answer.text.startswith("das")


def test_lines_are_called_by_the_numbers_that_they_are_given(translator):
    with pytest.raises(ValueError, match=r"the prefix of line 70 has 3 pieces"):
        translator.translate(["owl", Request("owl", prefix="das die das")], decode(max_length=3), numbers=[7, 70])
    assert [answer.line for answer in translator.translate(["owl", ""], decode(), numbers=[7, 70])] == [7, 70]
    with pytest.raises(ValueError, match="got 1 numbers for 2 lines; give one for each"):
        translator.translate(["owl", "owl"], decode(), numbers=[7])


FORCED = ["das yak sieht die owl.", "", "17 bee und", "die cat"]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_given_target_is_the_translation_and_has_the_scores_that_score_gives_it(translator, beam_size):
    sources = LINES[:1] + LINES[2:4] + LINES[5:]
    lines = [Request(source, target=target) for source, target in zip(sources, FORCED, strict=True)]
    options = decode(beam_size=beam_size, n_best=beam_size, min_length=4)
    free = translator.translate(["owl"], options)
    *found, last = translator.translate([*lines, "owl"], options)
    assert [one.ids for one in last.candidates] == [one.ids for one in free[0].candidates]
    for answer, target, pair in zip(found, FORCED, translator.score(sources, FORCED), strict=True):
        (only,) = answer.candidates
        assert (only.text, only.ids, only.tokens) == (target, pair.ids, pair.tokens)
        assert only.token_log_probs == pytest.approx(pair.token_log_probs, abs=1e-12)
        assert only.log_prob == pytest.approx(pair.log_prob, abs=1e-12)
        assert only.score == pytest.approx(pair.score, abs=1e-12)


def test_a_string_in_place_of_a_list_is_refused(translator):
    with pytest.raises(ValueError, match=r"got one string; write translate\(\[text\]\)"):
        translator.translate("owl")
    with pytest.raises(ValueError, match=r"line 2 is None, expected a string or a Request"):
        list(translator.stream(iter(["owl", None])))
    with pytest.raises(ValueError, match=r"got one string; write stream\(\[text\]\)"):
        list(translator.stream("owl"))
    with pytest.raises(ValueError, match=r"got one string; write score\(\[source\], \[target\]\)"):
        translator.score("owl", "die")


def test_notices_are_logged_unless_someone_listens(translator, caplog):
    line, cut = "ant bee cat dog", decode(max_source_length=3, long_lines=LongLines.truncate)
    with caplog.at_level(logging.WARNING, logger="seq2seq"):
        (answer,) = translator.translate([line], cut)
        assert caplog.messages == [answer.notice]
        heard: list[str] = []
        translator.translate([line], cut, on_notice=heard.append)
        list(translator.stream([line], cut, on_notice=heard.append))
        assert heard == [answer.notice] * 2
        assert len(caplog.messages) == 1


def test_of_a_split_line_scores_add_up_and_texts_are_joined(translator):
    first, second = "der ant läuft!", "Die cat und das yak."
    split = decode(max_source_length=12, long_lines=LongLines.split, n_best=3)
    (whole,) = translator.translate([f"{first} {second}"], split, on_notice=lambda _: None)
    parts = translator.translate([first, second], split)
    assert whole.source_ids == parts[0].source_ids + parts[1].source_ids
    sentences = [answer.candidates[0] for answer in parts]
    if len(whole.source_ids) == 2:
        assert whole.source_ids == (parts[0].source_ids + parts[1].source_ids)
    assert whole.score == pytest.approx(sum(candidate.score for candidate in sentences), abs=1e-9)
    assert whole.log_prob == pytest.approx(sum(candidate.log_prob for candidate in sentences), abs=1e-9)
    assert whole.ids == sentences[0].ids + sentences[1].ids
    assert whole.text == " ".join(candidate.text for candidate in sentences if candidate.text)


def test_a_split_line_of_chinese_is_joined_without_a_space(tiny_bundle):
    split = decode(max_source_length=9, long_lines=LongLines.split, min_length=3)
    line = "我们看见猫。你好！"
    chinese = Translator(dataclasses.replace(tiny_bundle, languages=("en", "zh-TW")))
    (with_space,) = Translator(tiny_bundle).translate([line], split, on_notice=lambda _: None)
    (without,) = chinese.translate([line], split, on_notice=lambda _: None)
    assert without.ids == with_space.ids
    assert len(without.source_ids) == 2
    texts = [tiny_bundle.target_tokenizer.decode(part) for part in _by_eos(without.ids)]
    assert all(texts)
    assert (with_space.text, without.text) == (" ".join(texts), "".join(texts))


def _by_eos(ids: tuple[int, ...]) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for id_ in ids:
        parts[-1].append(id_)
        if id_ == 2:
            parts.append([])
    return parts[:-1]


def test_a_stream_gives_what_translate_gives_whatever_the_batches(translator, tiny_lines):
    lines = [*tiny_lines[:4], "", *tiny_lines[4:7]]
    greedy, small = decode(beam_size=1), decode(beam_size=1, batch_tokens=3)
    expected = [answer.text for answer in translator.translate(lines, greedy)]
    answers = list(translator.stream(iter(lines), small))
    assert [answer.text for answer in answers] == expected
    assert [answer.line for answer in answers] == list(range(1, 9))
    assert [answer.text for answer in translator.stream(iter(lines), greedy, read_ahead=False)] == expected


def test_without_reading_ahead_each_line_is_answered_before_the_next_is_read(translator):
    events: list[str] = []

    def lines():
        for line in ["owl", "", "cat"]:
            events.append(f"read {line}")
            yield line

    for answer in translator.stream(lines(), read_ahead=False):
        events.append(f"answered {answer.source}")
    assert events == ["read owl", "answered owl", "read ", "answered ", "read cat", "answered cat"]


def test_a_stream_reads_only_a_window_ahead(translator):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield "owl"

    stream = translator.stream(endless(), decode(beam_size=1, batch_tokens=8))
    assert next(stream).line == 1
    assert 1 < read < 100


def test_what_comes_before_a_line_that_is_too_long_is_translated_and_then_the_error_raised(translator):
    stream = translator.stream(["owl", "cat", "ant " * 9, "dog"], decode(max_source_length=5))
    assert [next(stream).line, next(stream).line] == [1, 2]
    with pytest.raises(ValueError, match=r"line 3 has \d+ pieces, max_source_length is 5"):
        next(stream)


def test_an_error_of_the_input_itself_comes_after_the_lines_before_it(translator):
    def broken():
        yield "owl"
        raise OSError("the disk is gone")

    stream = translator.stream(broken())
    assert next(stream).source == "owl"
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)


def test_a_list_with_a_line_that_is_too_long_is_refused_before_anything_is_translated(translator, monkeypatch):
    monkeypatch.setattr(translator.model, "start", lambda *_: pytest.fail("the model was called"))
    with pytest.raises(ValueError, match=r"line 2 has 6 pieces, max_source_length is 5; raise it, or choose"):
        translator.translate(["owl", "der die das 3 17"], decode(max_source_length=5))


def test_a_vocabulary_that_is_larger_than_the_model_is_refused(tiny_bundle):
    small = build_model(tiny_bundle.model_config, 56, 61)
    with pytest.raises(ValueError, match=r"the source tokenizer has 61 pieces, which takes 64 rows, .* has 56 on that"):
        Translator(dataclasses.replace(tiny_bundle, model=small))
    small = build_model(tiny_bundle.model_config, 61, 70)
    with pytest.raises(ValueError, match=r"the target tokenizer has 61 pieces, which takes 64 rows, .* has 72 on that"):
        Translator(dataclasses.replace(tiny_bundle, model=small))


def test_three_way_tying_with_two_tokenizers_is_refused(tiny_bundle, tiny_lines):
    other, _ = train_tokenizer([*tiny_lines, *tiny_lines[:9]], TokenizerConfig(vocab_size=61, byte_fallback=False))
    assert other.sha256 != tiny_bundle.target_tokenizer.sha256
    config = dataclasses.replace(tiny_bundle.model_config, tying=Tying.three_way)
    bundle = Bundle(build_model(config, 61, 61), config, other, tiny_bundle.target_tokenizer)
    with pytest.raises(
        ValueError, match=rf"needs one vocabulary for both sides, got two: .* {other.vocabulary_sha256[:12]} and"
    ):
        Translator(bundle)


def test_load_gives_a_translator_of_the_bundle_on_the_device_asked_for(tiny_bundle_folder, tiny_bundle):
    model = load(str(tiny_bundle_folder), device="cpu")
    assert isinstance(model, Translator)
    assert model.device == torch.device("cpu")
    expected = [answer.text for answer in Translator(tiny_bundle, "cpu").translate(LINES)]
    assert [answer.text for answer in model.translate(LINES)] == expected  # float32 against float64


def test_what_is_not_a_bundle_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a bundle"):
        Translator.load(tmp_path)


@pytest.mark.parametrize("name", ["gpt2", "multi_query"])
def test_learned_positions_end_a_translation_and_never_crash_it(tiny_bundle, families, name):
    tokenizer = tiny_bundle.source_tokenizer
    torch.manual_seed(3)
    config = families(name, max_positions=23)
    model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).double()
    translator = Translator(dataclasses.replace(tiny_bundle, model=model, model_config=config))
    lines = ["der die das", "owl " * (10 if name == "gpt2" else 20)]
    lengths = [len(tokenizer.encode(line)) + 1 for line in lines]
    room = [23 - length + 1 if name == "gpt2" else 23 for length in lengths]
    found = translator.translate(lines, decode(beam_size=3, min_length=100))
    assert [len(answer.ids) for answer in found] == room
    with pytest.raises(ValueError, match="the model's learned positions are enough for"):
        translator.translate(["owl " * 30])
    with pytest.raises(ValueError, match="the model's learned positions have room for"):
        translator.translate(["ant", Request("die cat", prefix="owl " * 30)])
