import json

import pytest

from seq2seq.evaluation.report import Scoring, make_report

HYPOTHESES = ["The cat sat on the mat.", "A dog barks at night.", "\u3000"]
REFERENCES = ["The cat sat on a mat.", "A dog barked at night.", "Nobody came."]


def test_json_has_scores_signatures_counts_settings_and_warnings() -> None:
    report = make_report(
        HYPOTHESES,
        [REFERENCES, REFERENCES],
        Scoring(target_lang="en"),
        files={"hypothesis": "mine.txt"},
        decode={"beam_size": 5},
        warnings=["über"],
    )
    text = report.as_json()
    found = json.loads(text)
    assert set(found) == {"scores", "paired", "counts", "settings", "decode", "warnings"}
    assert set(found["scores"]) == {"bleu", "chrf", "ter"}
    assert found["scores"]["bleu"]["score"] == report.scores[0].score
    assert found["scores"]["bleu"]["signature"] == report.scores[0].signature
    assert len(found["scores"]["bleu"]["bleu"]["precisions"]) == 4
    assert {"brevity_penalty", "length_ratio"} < set(found["scores"]["bleu"]["bleu"])
    assert found["counts"] == {"sentences": 3, "reference_sets": 2, "empty_hypotheses": 1}
    assert found["settings"] == {
        "hypothesis": "mine.txt",
        "target_lang": "en",
        "tokenize": "13a",
        "lowercase": False,
    }
    assert found["decode"] == {"beam_size": 5}
    assert found["warnings"] == ["über"]
    assert "über" in text


def test_the_table_has_a_line_with_signature_for_each_metric_and_the_decode_settings() -> None:
    report = make_report(
        HYPOTHESES, [REFERENCES], Scoring(), decode={"beam_size": 5, "max_length": None, "length_penalty": 0.6}
    )
    lines = report.as_table().splitlines()
    bleu, detail, chrf, ter, scored, decode = lines
    for line, score in zip((bleu, chrf, ter), report.scores, strict=True):
        assert line.split() == [score.name, f"{score.score:.2f}", score.signature]
    assert "BP = " in detail
    assert scored == "Scored    3 sentences, 1 reference set, 1 of the hypotheses empty"
    assert decode == "Decode    beam_size=5 max_length=null length_penalty=0.6"


def test_the_table_of_a_file_has_no_decode_settings_and_counts_its_reference_sets() -> None:
    report = make_report(HYPOTHESES[:2], [REFERENCES[:2]] * 2, Scoring(metrics=("ter",)))
    assert report.as_table().splitlines()[1:] == ["Scored    2 sentences, 2 reference sets"]


def test_confidence_stands_beside_the_score_in_table_and_json() -> None:
    report = make_report(HYPOTHESES, [REFERENCES], Scoring(metrics=("bleu",), confidence=True, num_resamples=20))
    found = report.scores[0].confidence
    assert found is not None
    assert f"95 % interval {found.mean:.2f} ± {found.half_width:.2f}" in report.as_table()
    assert json.loads(report.as_json())["scores"]["bleu"]["confidence"]["num_resamples"] == 20


def test_a_baseline_is_compared_in_table_and_json() -> None:
    baseline = ["The mat.", "A dog.", "No."]
    report = make_report(HYPOTHESES, [REFERENCES], Scoring(metrics=("chrf",), num_resamples=20), baseline=baseline)
    (paired,) = report.paired
    assert paired.score > paired.baseline_score
    line = report.as_table().splitlines()[1]
    assert f"+{paired.score - paired.baseline_score:.2f}" in line
    assert f"p = {paired.p_value:.4f}" in line
    assert json.loads(report.as_json())["paired"]["chrf"]["baseline_score"] == paired.baseline_score


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="reference set 1 of 1 has 2 sentences, but there are 3 hypotheses"):
        make_report(HYPOTHESES, [REFERENCES[:2]], Scoring())
