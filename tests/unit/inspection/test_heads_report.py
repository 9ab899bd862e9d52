import json

import pytest

from seq2seq.inspection.attention import Kind
from seq2seq.inspection.heads import MEASURES, HeadProfile, HeadReport
from seq2seq.inspection.heads_report import as_data, as_markdown, as_table, counted, find_suspects, sentences

NOTHING: dict[str, float | None] = dict.fromkeys(MEASURES)
UNIFORM = NOTHING | dict.fromkeys(MEASURES, 0.1) | {"entropy": 1.0}


def report(kind: Kind, *heads: dict[str, float | None], uniform: dict[str, float | None] = UNIFORM) -> HeadReport:
    profiles = [HeadProfile(kind, 2, head, NOTHING | measures) for head, measures in enumerate(heads, start=1)]
    return HeadReport(profiles, {kind: uniform}, 3, {kind: 20})


@pytest.mark.parametrize(
    ("measures", "what", "words"),
    [
        (
            {"entropy": 0.953},
            "dead",
            "spreads evenly over all keys (entropy 0.95 of the uniform head's), so it carries",
        ),
        ({"entropy": 0.953}, "dead", "a candidate for pruning, with the BLEU before and after"),
        (
            {"first": 0.8},
            "first",
            "looks at the first piece whatever the query (0.80 of its weight, a uniform head 0.10)",
        ),
        ({"first": 0.8}, "first", "over-fitted to a surface pattern"),
        (
            {"previous": 0.61},
            "positional",
            "positional: looks at the piece before (0.61 of its weight, a uniform head 0.1",
        ),
        ({"same": 0.61}, "positional", "positional: looks at its own place"),
        ({"next": 0.61}, "positional", "positional: looks at the piece after"),
        ({"punctuation": 0.5}, "focus", "focus column: a bright stripe on punctuation (0.50 of its weight"),
        ({"eos": 0.7}, "focus", "focus column: a bright stripe on EOS"),
        ({"separator": 0.7}, "focus", "focus column: a bright stripe on the separator (BOS)"),
        ({"agreement": 0.666}, "alignment", "alignment: for 67 % of the words that are predicted it looks most at the"),
        ({"agreement": 0.666}, "alignment", "(a uniform head: 10 %)"),
    ],
)
def test_a_head_that_does_one_thing_is_named_with_its_numbers(measures, what, words):
    (suspect,) = find_suspects(report(Kind.cross, {"entropy": 0.4}, measures))
    assert suspect.what == what
    assert suspect.sentence.startswith("cross-attention, layer 2, head 2: ")
    assert words in suspect.sentence


def test_a_head_may_stand_out_in_several_ways_and_most_in_none():
    found = find_suspects(
        report(Kind.encoder, {"entropy": 0.94, "first": 0.49, "same": 0.49}, {"first": 0.9, "eos": 0.6})
    )
    assert [(one.profile.head, one.what) for one in found] == [(2, "first"), (2, "focus")]
    assert sentences(find_suspects(report(Kind.encoder, {"entropy": 0.5}))) == ["No head stands out."]


def test_in_short_sentences_a_head_that_looks_everywhere_is_not_taken_for_one_that_looks_at_one_piece():
    short = UNIFORM | {"first": 0.4}
    assert find_suspects(report(Kind.encoder, {"first": 0.7}, uniform=short)) == []
    assert len(find_suspects(report(Kind.encoder, {"first": 0.85}, uniform=short))) == 1


def test_the_table_has_the_uniform_head_first_and_only_measures_that_some_head_has():
    found = report(Kind.decoder, {"entropy": 0.5, "first": 0.75}, {"entropy": 0.25, "first": None})
    table = as_table(found, find_suspects(found))
    assert table.headers == ["attention", "layer", "head", "entropy", "first", "remarks"]
    assert table.rows == [
        ["decoder", "", "uniform", "1.000", "0.100", ""],
        ["decoder", "2", "1", "0.500", "0.750", "first"],
        ["decoder", "2", "2", "0.250", "-", ""],
    ]


def test_markdown_and_data_say_the_same():
    found = report(Kind.decoder, {"entropy": 0.5, "first": 0.75})
    suspects = find_suspects(found)
    lines = as_markdown(found, suspects).split("\n")
    assert lines[0] == "Means over 3 sentences: 20 queries of decoder self-attention."
    assert lines[2:6] == [
        "| attention | layer | head | entropy | first | remarks |",
        "| --- | --- | --- | --- | --- | --- |",
        "| decoder |  | uniform | 1.000 | 0.100 |  |",
        "| decoder | 2 | 1 | 0.500 | 0.750 | first |",
    ]
    assert lines[-1] == f"- {suspects[0].sentence}"
    data = json.loads(json.dumps(as_data(found, suspects)))
    assert data["heads"] == [{"kind": "decoder", "layer": 2, "head": 1, **NOTHING, "entropy": 0.5, "first": 0.75}]
    assert (data["sentences"], data["queries"]) == (3, {"decoder": 20})
    assert data["uniform"]["decoder"]["first"] == 0.1
    assert data["suspects"] == [
        {"kind": "decoder", "layer": 2, "head": 1, "what": "first", "sentence": suspects[0].sentence}
    ]
    assert data["thresholds"]["dead_entropy"] == 0.95
    assert counted(found) == "3 sentences: 20 queries of decoder self-attention"
