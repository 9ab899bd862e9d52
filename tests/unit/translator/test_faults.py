import dataclasses

import pytest
import torch

from seq2seq.config import DecodeConfig
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.nn.cache import DecoderState
from seq2seq.translator import Candidate, Translation, Translator
from seq2seq.translator.diagnosis import sentences
from seq2seq.translator.faults import Fault, Sentence, find_faults, loop_at_end, share_copied

EOS, UNKNOWN = 2, 3


def sentence(
    text: str = "a b",
    ids: tuple[int, ...] = (10, 11, EOS),
    reference: str = "c d",
    reference_ids: tuple[int, ...] = (12, 13),
    source: str = "x y",
    source_ids: tuple[tuple[int, ...], ...] = ((14, 15, EOS),),
    hit_limit: bool = False,
) -> Sentence:
    candidate = Candidate(text, -1.0, -1.0, tuple(map(str, ids)), ids, (-1.0,) * len(ids), hit_limit)
    answer = Translation(1, source, source_ids, (candidate,), None)
    return Sentence(answer, reference, reference_ids, EOS, (UNKNOWN, UNKNOWN))


def faults(one: Sentence) -> list[Fault]:
    return [fault for fault, places in find_faults([one]).items() if places]


def test_an_ordinary_translation_has_no_fault():
    assert faults(sentence()) == []


def test_nothing_is_a_fault_only_where_there_is_something_to_translate():
    assert faults(sentence(text="", ids=(EOS,))) == [Fault.empty]
    assert faults(sentence(text="", ids=(EOS,), reference=" ", reference_ids=())) == []
    assert faults(sentence(text="", ids=(), source="", source_ids=())) == []


@pytest.mark.parametrize(
    ("ids", "unit"),
    [
        ((7, 8, 9), None),
        ((5, 7, 7, 7, 7, 7), None),
        ((7, 7, 7, 7, 7, 7), 1),
        ((5, 7, 8, 7, 8, 7, 8), 2),
        ((5, 7, 8, 7, 8), None),
        ((1, 4, 5, 6, 4, 5, 6, 4, 5, 6), 3),
        ((4, 5, 6, 4, 5, 6, 4, 5, 9), None),
        ((7, 8, 7, 8, 7, 8, 9), None),
    ],
)
def test_a_loop_is_six_pieces_or_more_that_are_three_times_the_same_at_the_end(ids, unit):
    assert loop_at_end(ids) == unit


def test_a_loop_that_the_reference_has_too_is_none():
    looping = (7, 8, 7, 8, 7, 8)
    assert faults(sentence(ids=(*looping, EOS), reference_ids=(9,) * 4)) == [Fault.loop]
    assert faults(sentence(ids=(*looping, EOS), reference_ids=looping)) == []


def test_the_source_is_a_copy_unless_it_is_the_reference_too():
    assert faults(sentence(text="Hans Huber", source="hans  huber")) == [Fault.copy]
    assert faults(sentence(text="Hans Huber", source="Hans Huber", reference="Hans Huber")) == []


def test_most_words_of_the_source_are_a_copy_where_the_reference_has_few_of_them():
    source, text = "der Hund läuft am Strand entlang", "der Hund läuft am Strand along"
    assert share_copied(text, source) == pytest.approx(5 / 6)
    assert faults(sentence(text=text, source=source, reference="the dog runs along the beach")) == [Fault.copy]
    assert faults(sentence(text=text, source=source, reference=source)) == []
    assert faults(sentence(text="der Hund runs", source=source, reference="the dog runs")) == []


def test_words_count_as_copied_as_often_as_the_source_has_them():
    assert share_copied("ja ja ja nein", "ja nein") == 0.5
    assert share_copied("", "ja") == 0.0


def test_lengths_far_from_the_references_are_told():
    long, short = tuple(range(10, 22)), tuple(range(10, 15))
    assert faults(sentence(ids=(*short, EOS), reference_ids=long)) == [Fault.too_short]
    assert faults(sentence(ids=(*long, EOS), reference_ids=short)) == [Fault.too_long]
    assert faults(sentence(ids=(10, EOS), reference_ids=short)) == []


def test_the_limit_and_unknown_pieces_are_told():
    assert faults(sentence(hit_limit=True)) == [Fault.hit_limit]
    assert faults(sentence(ids=(10, UNKNOWN, EOS))) == [Fault.unknown_output]
    assert faults(sentence(source_ids=((14, EOS), (UNKNOWN, EOS)))) == [Fault.unknown_source]


def found_faults(translator: Translator, decode: DecodeConfig) -> dict[Fault, list[int]]:
    lines, references = ["der ant läuft und schläft.", "die cat sieht das yak!"], ["one two three four"] * 2
    answers = translator.translate(lines, decode)
    return find_faults(sentences(translator.bundle, answers, references))


def test_a_model_that_says_the_same_for_ever_loops_until_the_limit(tiny_bundle, monkeypatch):
    right = EncoderDecoder.step

    def stuck(self: EncoderDecoder, tokens: torch.Tensor, state: DecoderState) -> tuple[torch.Tensor, DecoderState]:
        logits, state = right(self, tokens, state)
        logits[:, 7] += 1000
        return logits, state

    monkeypatch.setattr(EncoderDecoder, "step", stuck)
    found = found_faults(Translator(tiny_bundle), DecodeConfig(beam_size=2))
    assert (found[Fault.loop], found[Fault.hit_limit], found[Fault.copy]) == ([0, 1], [0, 1], [])


def test_a_model_that_says_its_source_copies(tiny_bundle, monkeypatch):
    start, step = EncoderDecoder.start, EncoderDecoder.step
    said: list[list[int]] = []

    def reading(self: EncoderDecoder, src: torch.Tensor, src_valid: torch.Tensor) -> DecoderState:
        said[:] = [src[0].tolist()]
        return start(self, src, src_valid)

    def copying(self: EncoderDecoder, tokens: torch.Tensor, state: DecoderState) -> tuple[torch.Tensor, DecoderState]:
        logits, state = step(self, tokens, state)
        logits[:, said[0].pop(0)] += 1000
        return logits, state

    monkeypatch.setattr(EncoderDecoder, "start", reading)
    monkeypatch.setattr(EncoderDecoder, "step", copying)
    one_by_one = dataclasses.replace(DecodeConfig(beam_size=1), batch_tokens=1)
    found = found_faults(Translator(tiny_bundle), one_by_one)
    assert (found[Fault.copy], found[Fault.loop], found[Fault.hit_limit]) == ([0, 1], [], [])
