import dataclasses
import itertools
import math
from collections import defaultdict

import pytest

from seq2seq.bundle import Bundle
from seq2seq.config import Task
from seq2seq.inspection import heads
from seq2seq.inspection.attention import Attention, Kind, attention_of_pair, attention_of_text
from seq2seq.inspection.heads import HeadReport, Pair, is_punctuation, measure_heads

SENTENCES = ["der ant läuft!", "die cat. und owl?", "hen", "das 3 und 17 schläft. der dog sieht die bee."]
TARGETS = ["die bee!", "das. hen 3", "owl und pig und ram.", "gnu"]


def pairs_of(bundle: Bundle) -> list[Pair]:
    encode, eos = bundle.source_tokenizer.encode, bundle.source_tokenizer.special.eos
    return [((*encode(source), eos), (*encode(target), eos)) for source, target in zip(SENTENCES, TARGETS, strict=True)]


Place = tuple[Kind, int, int, str]


def slow(bundle: Bundle, pairs: list[Pair], prefix_lm: bool = False) -> dict[Place, float]:
    """The measures, sentence by sentence, query by query and head by head, with no padding anywhere."""
    found: dict[Place, list[float]] = defaultdict(list)
    for source, target in pairs:
        if bundle.task is Task.language_model:
            (text,) = attention_of_text(bundle, target)
            add(found, text, num_source=0, prefix=0, predicted=None)
            continue
        predicted = bundle.target_tokenizer.pieces(target)
        whole, *others = attention_of_pair(bundle, source, target)
        if whole.kind is Kind.encoder:
            for one in (whole, *others):
                add(found, one, num_source=0, prefix=0, predicted=predicted)
        else:
            num_source = len(source) - 1
            add(found, whole, num_source=num_source, prefix=num_source if prefix_lm else 0, predicted=predicted)
    return {place: sum(values) / len(values) for place, values in found.items()}


def add(
    found: dict[Place, list[float]], one: Attention, *, num_source: int, prefix: int, predicted: list[str] | None
) -> None:
    """Every value of every measure of one sentence; `num_source` positions of a row are the source."""
    num_layers, num_heads = one.weights.shape[:2]
    mean = one.weights.mean((0, 1)).tolist()
    for query in range(len(one.queries)):
        num_keys = len(one.keys)
        if one.kind is Kind.decoder:
            num_keys = max(query + 1, prefix if query < prefix else 0)
        if num_keys < 2:
            continue
        groups = keys_by_measure(one, query, num_keys, num_source)
        words = source_words(one, query, num_source, predicted)
        for layer, head in itertools.product(range(num_layers), range(num_heads)):
            place = (one.kind, layer + 1, head + 1)
            row = one.weights[layer, head, query].tolist()
            entropy = -sum(weight * math.log(weight) for weight in row if weight > 0)
            found[*place, "entropy"].append(entropy / math.log(num_keys))
            for name, keys in groups.items():
                if keys:
                    found[*place, name].append(sum(row[key] for key in keys))
            if len(words) > 1:
                same = max(words, key=row.__getitem__) == max(words, key=mean[query].__getitem__)
                found[*place, "agreement"].append(same)


def keys_by_measure(one: Attention, query: int, num_keys: int, num_source: int) -> dict[str, list[int]]:
    """The first `num_keys` keys, by what they are to this query."""
    keys = range(num_keys)
    elsewhere = [key for key in keys if one.kind is Kind.cross or key != query]
    return {
        "first": [0],
        "previous": [key for key in keys if key == query - 1],
        "same": [key for key in keys if key == query],
        "next": [key for key in keys if key == query + 1],
        "punctuation": [key for key in elsewhere if is_punctuation(one.keys[key])],
        "eos": [key for key in elsewhere if one.keys[key] == "</s>"],
        "separator": [key for key in elsewhere if one.keys[key] == "<s>" and num_source],
    }


def source_words(one: Attention, query: int, num_source: int, predicted: list[str] | None) -> list[int]:
    """The keys that are words of the source, if a word is predicted here."""
    first = num_source if one.kind is Kind.decoder else 0
    if predicted is None or one.kind is Kind.encoder or (one.kind is Kind.decoder and not num_source) or query < first:
        return []
    if not is_word(predicted[query - first]):
        return []
    return [key for key in range(num_source or len(one.keys)) if is_word(one.keys[key])]


def is_word(piece: str) -> bool:
    return piece != "</s>" and not is_punctuation(piece)


def check(report: HeadReport, expected: dict[Place, float]) -> None:
    found = {
        (one.kind, one.layer, one.head, name): value
        for one in report.profiles
        for name, value in one.measures.items()
        if value is not None
    }
    assert found.keys() == expected.keys()
    for place, value in expected.items():
        assert found[place] == pytest.approx(value, abs=1e-12), place


@pytest.mark.parametrize("name", ["original", "modern", "gpt2", "prefix_lm"])
def test_batches_give_what_a_loop_over_sentences_heads_and_queries_gives(bundle_of, families, name):
    bundle = bundle_of(families(name))
    pairs = pairs_of(bundle)
    report = measure_heads(bundle, pairs)
    check(report, slow(bundle, pairs, prefix_lm=name == "prefix_lm"))
    assert report.num_sentences == 4
    kinds = [Kind.decoder] if name in ("gpt2", "prefix_lm") else [Kind.encoder, Kind.decoder, Kind.cross]
    assert list(report.uniform) == list(report.num_queries) == kinds


def test_a_language_model_too_with_texts_of_uneven_length(bundle_of, families):
    bundle = bundle_of(families("llama"), Task.language_model)
    texts: list[Pair] = [((), bundle.target_tokenizer.prompt(line)) for line in SENTENCES]
    texts.append(((), (5, 2, 9, 30)))
    check(measure_heads(bundle, texts), slow(bundle, texts))


def test_how_many_sentences_go_together_changes_nothing(bundle_of, families, monkeypatch):
    bundle = bundle_of(families("original"))
    pairs = pairs_of(bundle)
    together: list[int] = []
    whole = measure_heads(bundle, pairs, together.append)
    monkeypatch.setattr(heads, "WEIGHTS_AT_ONCE", 1)
    one_by_one: list[int] = []
    single = measure_heads(bundle, pairs, one_by_one.append)
    assert (together, one_by_one) == ([4], [1, 1, 1, 1])
    assert single.num_queries == whole.num_queries
    for one, other in zip(single.profiles, whole.profiles, strict=True):
        assert one.measures == pytest.approx(other.measures, abs=1e-12)
    assert single.uniform[Kind.cross] == pytest.approx(whole.uniform[Kind.cross], abs=1e-12)


def test_a_head_without_queries_looks_everywhere_alike_and_has_the_numbers_of_the_uniform_head(bundle_of, families):
    bundle = bundle_of(families("original"))
    query_key_value = bundle.model.encoder.layers[0].self_attention.query_key_value
    query_key_value.weight[6:12], query_key_value.bias[6:12] = 0, 0  # the second of four heads of width 6
    report = measure_heads(bundle, pairs_of(bundle))
    profile = next(one for one in report.profiles if (one.kind, one.head) == (Kind.encoder, 2))
    expected = report.uniform[Kind.encoder]
    assert expected["entropy"] == 1.0
    assert expected["agreement"] is None
    assert profile.measures == pytest.approx(expected, abs=1e-12)
    assert report.profiles[0].measures["entropy"] < 0.99


def test_no_sentence_is_refused(bundle_of, families):
    with pytest.raises(ValueError, match="there is no sentence to measure heads on; give text with at least one line"):
        measure_heads(bundle_of(families("original")), [])


def test_the_model_stays_in_the_mode_it_was_in(bundle_of, families):
    bundle = bundle_of(dataclasses.replace(families("original"), dropout=0.5))
    quiet = measure_heads(bundle, pairs_of(bundle))
    bundle.model.train()
    assert measure_heads(bundle, pairs_of(bundle)).profiles == quiet.profiles
    assert bundle.model.training


def test_what_punctuation_is():
    assert all(map(is_punctuation, [".", "▁.", "。", "▁«", "...", "！？", "،"]))
    assert not any(map(is_punctuation, ["", "▁", "</s>", "a.", "▁a", "$", "3", "我"]))
