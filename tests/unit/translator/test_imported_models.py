"""Translators of models from elsewhere: one id for several special pieces, other tasks, two tokenizers of one table."""

import dataclasses
import itertools
import json

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, DecodeConfig, LongLines, ModelConfig, Task, TokenizerConfig, Tying
from seq2seq.models import build_model
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.translator import Translator
from seq2seq.translator.word_numbers import SourceWords


def starting_from(piece: str, tokenizer: SentencePieceTokenizer) -> MarianTokenizer:
    """The same pieces under the same ids, with another start."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    table = json.dumps({name: id_ for id_, name in enumerate(pieces)}).encode()
    return MarianTokenizer(tokenizer.model, table, pieces.index(piece))


@pytest.mark.parametrize("bos", ["<pad>", "</s>"])
def test_a_model_that_starts_from_padding_or_from_its_end_can_still_end(tiny_bundle, tiny_lines, bos):
    tokenizer = starting_from(bos, tiny_bundle.target_tokenizer)
    special = tokenizer.special
    assert special.bos in (special.pad, special.eos)
    translator = Translator(dataclasses.replace(tiny_bundle, source_tokenizer=tokenizer, target_tokenizer=tokenizer))
    found = translator.translate(tiny_lines[:40], DecodeConfig(beam_size=3))
    assert any(translation.ids[-1] == special.eos and not translation.hit_limit for translation in found)
    assert not any(special.pad in translation.ids for translation in found)
    scored = translator.score_ids([source for (source,) in (t.source_ids for t in found)], [t.ids for t in found])
    assert [pair.log_prob for pair in scored] == pytest.approx([t.log_prob for t in found])


def test_three_way_tying_asks_for_one_table_and_not_for_one_tokenizer(tiny_bundle, tiny_lines):
    source = starting_from("<pad>", tiny_bundle.target_tokenizer)
    other, _ = train_tokenizer(tiny_lines[:150], TokenizerConfig(vocab_size=50, byte_fallback=False))
    target = MarianTokenizer(other.model, source.vocabulary, source.special.bos)
    config = dataclasses.replace(tiny_bundle.model_config, tying=Tying.three_way)
    bundle = Bundle(build_model(config, 61, 61), config, source, target)
    assert not bundle.joint
    assert len(Translator(bundle).translate(tiny_lines[:3])) == 3


def test_a_language_model_is_refused_with_the_command_for_it(tiny_bundle):
    with pytest.raises(ValueError, match=r"is a language model, which .* does not translate; use `seq2seq generate`"):
        Translator(dataclasses.replace(tiny_bundle, task=Task.language_model))


def test_a_decoder_only_model_needs_one_vocabulary(tiny_bundle, tiny_lines):
    other, _ = train_tokenizer([*tiny_lines, *tiny_lines[:9]], TokenizerConfig(vocab_size=61, byte_fallback=False))
    config = ModelConfig(8, 2, 12, 0, 1, Architecture.decoder_only, tying=Tying.two_way)
    model = build_model(config, 61, 61)
    with pytest.raises(ValueError, match="architecture=decoder_only needs one vocabulary for both sides, got two"):
        Translator(Bundle(model, config, other, tiny_bundle.target_tokenizer))
    assert len(Translator(Bundle(model, config, other, other)).translate(tiny_lines[:2])) == 2


def test_every_part_of_a_line_is_told_the_language_and_its_words_are_those_of_the_line(tiny_bundle):
    plain = tiny_bundle.target_tokenizer
    names = plain.pieces(range(plain.vocab_size))
    table = {name: id_ for id_, name in enumerate([*names, ">>fra<<"])}
    source = MarianTokenizer(plain.model, json.dumps(table).encode(), table["<pad>"])
    config = dataclasses.replace(tiny_bundle.model_config, tying=Tying.two_way)
    torch.manual_seed(1)
    model = build_model(config, len(table), len(names)).eval()
    translator = Translator(Bundle(model, config, source, plain))
    line = ">>fra<< die cat sieht. Der owl und der dog."
    options = DecodeConfig(
        max_source_length=12, long_lines=LongLines.split, alignments=True, replace_unknown=True, max_length=6
    )
    (found,) = translator.translate([line], options, on_notice=lambda _: None)
    code = table[">>fra<<"]
    assert len(found.source_ids) > 1
    assert [part[0] for part in found.source_ids] == [code] * len(found.source_ids)
    own = [id_ for part in found.source_ids for id_ in part[1:-1]]
    assert [code, *own] == source.encode(line)
    (best,) = found.candidates
    assert {len(row) for row in best.alignment} == {sum(map(len, found.source_ids))}
    ends = list(itertools.accumulate(map(len, found.source_ids)))
    places = [place for part, end in zip(found.source_ids, ends, strict=True) for place in range(end - len(part), end)]
    starts = {0, *ends}
    words = SourceWords.of(source, line, spaced=True).numbers
    numbers, taken = {}, iter(words)
    for place in places:  # the code is the line's first piece, and no word's in the parts behind the first
        eos, repeated = place + 1 in starts, place in starts - {0}
        numbers[place] = () if eos or repeated else next(taken)
    linked = {word for place, _ in best.piece_links for word in numbers[place]}
    assert {word for word, _ in best.word_links} == linked
