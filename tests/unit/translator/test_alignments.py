import dataclasses

import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import Architecture, DecodeConfig, LongLines, ModelConfig, Tying, Utility
from seq2seq.models import build_model
from seq2seq.translator import Candidate, Request, Translator
from seq2seq.translator.alignments import aligned_layer, check_alignment, hard_alignment, pharaoh, soft_alignments

LINES = ["der ant läuft!", "", "die cat.", "17 elk sieht und das yak schläft?", "\u200b", "owl"]
EXACT = {"atol": 1e-12, "rtol": 0}


@pytest.fixture
def translator(tiny_bundle: Bundle) -> Translator:
    return Translator(tiny_bundle)


@pytest.fixture
def decoder_only(tiny_bundle: Bundle) -> Translator:
    config = ModelConfig(16, 2, 24, 0, 3, architecture=Architecture.decoder_only, tying=Tying.two_way, vocab_multiple=8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = build_model(config, 61, 61).double().eval()
    return Translator(dataclasses.replace(tiny_bundle, model=model, model_config=config))


def decode(**changes: object) -> DecodeConfig:
    return dataclasses.replace(DecodeConfig(alignments=True, max_length_factor=1.0, min_length=6), **changes)


def full_pass(translator: Translator, source_ids: tuple[int, ...], ids: tuple[int, ...]) -> list[torch.Tensor]:
    """[H, T, S] of each layer, by the pass that computes all maps, one pair alone."""
    src = torch.tensor([source_ids])
    tgt_in = torch.tensor([[translator.bundle.target_tokenizer.special.bos, *ids[:-1]]])
    maps = translator.model.attention_maps(src, torch.ones_like(src, dtype=torch.bool), tgt_in)
    return [layer[0] for layer in maps.cross]


@pytest.mark.parametrize(("layer", "head"), [(None, None), (1, 2), (2, None), (2, 1)])
def test_every_candidate_has_the_weights_of_the_full_pass_alone(translator, layer, head):
    options = decode(n_best=2, max_length=9, alignment_layer=layer, alignment_head=head)
    for answer in translator.translate(LINES, options):
        assert len(answer.candidates) == (2 if answer.source_ids else 1)
        for candidate in answer.candidates if answer.source_ids else ():
            maps = full_pass(translator, answer.source_ids[0], candidate.ids)[(layer or 1) - 1]
            expected = maps.mean(0) if head is None else maps[head - 1]
            torch.testing.assert_close(torch.tensor(candidate.alignment, dtype=torch.float64), expected, **EXACT)
            assert expected.shape == (len(candidate.ids), len(answer.source_ids[0]))
            assert candidate.piece_links == tuple(
                sorted(
                    (int(expected[place, :-1].argmax()), place)
                    for place in range(len(candidate.ids))
                    if candidate.ids[place] != 2
                )
            )


def test_alignments_change_nothing_else(translator):
    plain = translator.translate(LINES, decode(alignments=False, n_best=3))
    for answer, other in zip(plain, translator.translate(LINES, decode(n_best=3)), strict=True):
        for one, two in zip(answer.candidates, other.candidates, strict=True):
            assert one.alignment is one.piece_links is one.word_links is None
            assert two.alignment is not None
            assert one == dataclasses.replace(two, alignment=None, piece_links=None, word_links=None)


def test_a_blank_line_has_an_empty_alignment(translator):
    blank = translator.translate([""], decode())[0].candidates[0]
    assert blank.alignment == blank.piece_links == blank.word_links == ()
    assert pharaoh(blank) == ""
    assert translator.translate([""], decode(alignments=False))[0].candidates[0].alignment is None


def test_the_layer_is_the_last_but_one_unless_another_is_given():
    for layers, expected in [(1, 0), (2, 0), (3, 1), (6, 4)]:
        config = ModelConfig(16, 2, 24, 1, layers)
        assert aligned_layer(config, DecodeConfig()) == expected
    assert aligned_layer(config, DecodeConfig(alignment_layer=6)) == 5


def test_layers_and_heads_that_the_model_does_not_have_are_refused_before_anything_is_decoded(translator, monkeypatch):
    monkeypatch.setattr(translator.model, "start", lambda *_: pytest.fail("the model was called"))
    with pytest.raises(ValueError, match="alignment_layer=3, but the decoder has 2 layers; choose from 1 to 2"):
        translator.translate(LINES, decode(alignment_layer=3))
    with pytest.raises(ValueError, match="alignment_head=4, but the decoder has 2 heads; choose from 1 to 2"):
        next(translator.stream(LINES, decode(alignment_head=4)))
    check_alignment(translator.bundle.model_config, decode(alignment_layer=2, alignment_head=2))


def test_hard_alignments_take_the_first_of_the_largest_weights_and_no_end():
    weights = ((0.1, 0.4, 0.4, 0.1), (0.2, 0.2, 0.0, 0.6), (0.9, 0.0, 0.0, 0.1))
    assert hard_alignment(weights, [7, 8, 2], eos=2) == ((0, 1), (1, 0))
    assert hard_alignment(((1.0,),), [7], eos=2) == (), "a source of nothing but its end"


def test_word_links_are_the_words_of_linked_pieces(translator):
    tokenizer = translator.bundle.source_tokenizer
    for answer in translator.translate(["der ant läuft!", "17  elk sieht\u3000und das yak schläft?"], decode(n_best=4)):
        for candidate in answer.candidates:
            source_words, words = answer.source.split(), candidate.text.split()
            text_of = tokenizer.surfaces(candidate.ids)
            expected = set()
            for source, target in candidate.piece_links:
                start, end = tokenizer.spans(answer.source)[source]
                before = "".join(text_of[:target])
                if text_of[target].strip():
                    number = len((before + "x").split()) - 1 + text_of[target].startswith(" ")
                    number -= not before.strip() and text_of[target].startswith(" ")
                    shown = answer.source[start:end].strip()
                    place = len((answer.source[: end - len(shown)] + "x").split()) - 1 if shown else 0
                    expected.add((place, number))
                    assert text_of[target].strip() in words[number]
                    assert shown in source_words[place]
            assert expected <= set(candidate.word_links)
            assert all(0 <= s < len(source_words) and 0 <= t < len(words) for s, t in candidate.word_links)
            assert list(candidate.word_links) == sorted(set(candidate.word_links))
            links = [tuple(map(int, link.split("-"))) for link in pharaoh(candidate).split(" ")]
            assert tuple(links) == candidate.word_links


def test_a_candidate_without_alignment_has_no_pharaoh_line():
    with pytest.raises(ValueError, match=r"translate with DecodeConfig\.alignments=True"):
        pharaoh(Candidate("a", 0.0, 0.0, ("a",), (5,), (0.0,), False))


def test_parts_of_a_split_line_have_their_alignments_side_by_side(translator):
    line = "der ant läuft! die cat sieht das yak. owl und hen!"
    split = decode(long_lines=LongLines.split, max_source_length=7, n_best=2)
    whole = translator.translate([line], split, on_notice=lambda _: None)[0]
    assert len(whole.source_ids) > 2
    texts = [translator.bundle.source_tokenizer.decode(ids) for ids in whole.source_ids]
    parts = translator.translate(texts, decode(n_best=1))
    best = whole.candidates[0]
    assert best.ids == sum((part.ids for part in parts), ())
    sources = targets = source_words = target_words = 0
    piece_links, word_links = [], []
    for part in parts:
        one = part.candidates[0]
        rows = best.alignment[targets : targets + len(one.ids)]
        for row, expected in zip(rows, one.alignment, strict=True):
            assert len(row) == sum(map(len, whole.source_ids))
            own = row[sources : sources + len(expected)]
            assert own == pytest.approx(expected, abs=1e-12)
            assert sum(map(abs, row)) == pytest.approx(1)
        piece_links += [(sources + source, targets + target) for source, target in one.piece_links]
        word_links += [(source_words + source, target_words + target) for source, target in one.word_links]
        sources, targets = sources + len(one.alignment[0]), targets + len(one.ids)
        source_words, target_words = source_words + len(part.source.split()), target_words + len(one.text.split())
    assert best.piece_links == tuple(piece_links)
    assert best.word_links == tuple(word_links)
    assert source_words == len(line.split())
    assert target_words == len(best.text.split())


def test_a_word_that_was_cut_between_two_parts_counts_once(translator):
    line = "owl " + "ant" * 6 + " der"
    split = decode(long_lines=LongLines.split, max_source_length=5)
    answer = translator.translate([line], split, on_notice=lambda _: None)[0]
    assert len(answer.source_ids) > 3
    assert {source for source, _ in answer.candidates[0].word_links} <= {0, 1, 2}
    last = sum(map(len, answer.source_ids[:-1]))
    ends = {s for s, _ in answer.candidates[0].piece_links if s >= last}
    assert ends, "the last part is aligned"
    assert max(source for source, _ in answer.candidates[0].word_links) == 2


def test_languages_without_spaces_are_aligned_by_pieces(tiny_bundle):
    translator = Translator(dataclasses.replace(tiny_bundle, languages=("ja", "zh")))
    split = decode(long_lines=LongLines.split, max_source_length=6)
    for answer in translator.translate(["我们看见猫。你好！", "猫"], split, on_notice=lambda _: None):
        assert answer.candidates[0].word_links == answer.candidates[0].piece_links != ()


def test_drawn_translations_and_given_ones_are_aligned_too(translator):
    drawn = decode(beam_size=1, temperature=1.0, n_best=3)
    for candidate in translator.translate(["der ant läuft!"], drawn)[0].candidates:
        assert len(candidate.alignment) == len(candidate.ids)
        assert len(candidate.piece_links) == len(candidate.ids) - 1
    given = translator.translate([Request("der ant läuft!", target="yak und owl")], decode(min_length=1))[0].candidates[
        0
    ]
    assert given.text == "yak und owl"
    assert {target for _, target in given.word_links} == {0, 1, 2}


def test_a_decoder_only_model_aligns_too(decoder_only):
    for answer in decoder_only.translate(LINES, decode(n_best=2)):
        for candidate in answer.candidates:
            for row in candidate.alignment:
                assert sum(row) == pytest.approx(1)
                assert row[-1] == 0
            assert (candidate.word_links == ()) == (candidate.text.strip() == "" or not answer.source_ids)


def test_soft_alignments_do_not_depend_on_the_batch(translator):
    source, target = translator.bundle.source_tokenizer, translator.bundle.target_tokenizer
    sources = [[*source.encode(line), 2] for line in LINES if source.encode(line)]
    targets = [[*target.encode(line), 2] for line in reversed(LINES) if target.encode(line)]
    bundle, model = translator.bundle, translator.model
    together = soft_alignments(model, bundle, sources, targets, decode())
    alone = soft_alignments(model, bundle, sources, targets, decode(batch_tokens=1))
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), atol=1e-6, rtol=0)


@pytest.fixture
def unknowing(tiny_bundle) -> Translator:
    """Its translations are mostly unknown pieces; what they are aligned to is left to its attention."""
    config = dataclasses.replace(tiny_bundle.model_config, output_bias=True)
    model = build_model(config, 61, 61).double().eval()
    model.load_state_dict(tiny_bundle.model.state_dict(), strict=False)
    with torch.no_grad():
        model.output_bias.zero_()
        model.output_bias[tiny_bundle.target_tokenizer.special.unk] = 4.0
    return Translator(dataclasses.replace(tiny_bundle, model=model, model_config=config))


def test_unknown_pieces_are_replaced_by_the_words_that_they_are_aligned_to(unknowing):
    line = "der ant. läuft! und 17 yak!"
    kept = unknowing.translate([line], decode(n_best=3, max_length=12))[0]
    replaced = unknowing.translate([line], decode(n_best=3, max_length=12, replace_unknown=True))[0]
    tokenizer = unknowing.bundle.target_tokenizer
    unknown = tokenizer.special.unk
    by_ids = {candidate.ids: candidate for candidate in kept.candidates}
    assert any(unknown in ids for ids in by_ids)
    assert unknown not in replaced.source_ids[0]
    for candidate in replaced.candidates:
        old = by_ids[candidate.ids]
        assert (candidate.score, candidate.token_log_probs) == (old.score, old.token_log_probs)
        assert candidate.piece_links == old.piece_links
        sources = {target: source for source, target in candidate.piece_links}
        surfaces = tokenizer.surfaces(candidate.ids)
        spans = unknowing.bundle.source_tokenizer.spans(line)
        for place, id_ in enumerate(candidate.ids):
            if id_ == unknown:
                start, end = spans[sources[place]]
                own = line[start:end].strip()
                word = line.split()[len(line[: max(end, 1)].split()) - 1]
                assert own in word
                surfaces[place] = word.strip(".!")
        assert candidate.text == "".join(surfaces).strip()
        assert ("<unk>" in candidate.tokens) == (candidate.text != old.text)
    assert len({candidate.text for candidate in replaced.candidates}) == len(replaced.candidates)


def test_of_candidates_that_are_equal_with_their_unknown_pieces_replaced_the_best_is_kept(unknowing):
    answers = unknowing.translate(["ant", "owl."], decode(beam_size=8, n_best=8, max_length=8, replace_unknown=True))
    kept = unknowing.translate(["ant", "owl."], decode(beam_size=8, n_best=8, max_length=8))
    assert sum(len(answer.candidates) for answer in answers) <= sum(len(answer.candidates) for answer in kept)
    for answer in answers:
        texts = [candidate.text for candidate in answer.candidates]
        assert len(set(texts)) == len(texts)
        assert [one.score for one in answer.candidates] == sorted(
            (one.score for one in answer.candidates), reverse=True
        )


def test_unknown_pieces_of_the_source_are_copied_alone_and_before_all_others(unknowing):
    options = decode(replace_unknown=True, min_length=1)
    assert unknowing.translate([Request("der ant🐦 yak!", target="owl🐦")], options)[0].text == "owl🐦"
    answer = unknowing.translate([Request("🐧 ant🐦", target="🐦 owl 🐦🐧 owl")], options)[0]
    source, target = unknowing.bundle.source_tokenizer, unknowing.bundle.target_tokenizer
    at = [place for place, id_ in enumerate(answer.source_ids[0]) if id_ == source.special.unk]
    expected = []
    for place, id_ in enumerate(answer.ids):
        if id_ == target.special.unk:
            row = answer.candidates[0].alignment[place]
            expected.append("🐧" if row[at[0]] >= row[at[1]] else "🐦")
    assert len(at) == len(expected) == 2
    assert [character for character in answer.text if character in "🐧🐦"] == expected


def test_unknown_pieces_are_replaced_in_drawn_translations_and_in_parts_of_a_split_line(unknowing):
    lines = ["der ant läuft! die cat sieht 17 yak. owl und hen?"]
    split = decode(long_lines=LongLines.split, max_source_length=8, replace_unknown=True)
    answer = unknowing.translate(lines, split, on_notice=lambda _: None)[0]
    assert "<unk>" in answer.tokens
    words = {word.strip("!.?") for word in lines[0].split()}
    assert any(word in answer.text for word in words)
    assert {target for _, target in answer.candidates[0].word_links} == set(range(len(answer.text.split())))
    drawn = decode(beam_size=1, temperature=1.0, n_best=4, replace_unknown=True, alignments=False)
    found = unknowing.translate(lines, drawn)[0].candidates
    assert len(found) == 4
    assert all(candidate.alignment is None for candidate in found)
    assert any(word in one.text for one in found if "<unk>" in one.tokens for word in words)


def test_words_of_unknown_pieces_that_stay_are_not_linked(unknowing):
    for answer in unknowing.translate(["der ant läuft!", "owl sieht yak."], decode(n_best=4)):
        for candidate in answer.candidates:
            count = len(candidate.text.split())
            assert all(target < count for _, target in candidate.word_links)


def test_without_unknown_pieces_nothing_is_aligned_for_their_sake(translator, monkeypatch):
    monkeypatch.setattr(translator.model, "cross_weights", lambda *_, **__: pytest.fail("aligned"))
    options = decode(alignments=False, replace_unknown=True, min_length=1)
    answer = translator.translate([Request("der ant", target="yak")], options)[0]
    assert answer.text == "yak"


def test_minimum_bayes_risk_compares_texts_with_unknown_pieces_replaced_and_what_it_takes_is_aligned(unknowing):
    options = decode(beam_size=6, num_candidates=6, n_best=2, mbr=Utility.chrf, max_length=8, replace_unknown=True)
    answers = unknowing.translate(["der ant läuft!", "owl sieht yak."], options)
    assert any("<unk>" in candidate.tokens for answer in answers for candidate in answer.candidates)
    for answer in answers:
        assert len(answer.candidates) == 2
        for candidate in answer.candidates:
            assert len(candidate.alignment) == len(candidate.ids)
            assert {target for _, target in candidate.word_links} == set(range(len(candidate.text.split())))
        assert answer.candidates[0].utility >= answer.candidates[1].utility
