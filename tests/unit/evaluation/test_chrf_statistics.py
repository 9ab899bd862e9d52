import pytest

from seq2seq.evaluation.chrf_statistics import chrf_statistics, corpus_chrf_from_statistics
from seq2seq.evaluation.metrics import corpus_scores

HYPOTHESES = ["The cat sat on the mat.", "A dog barks at night.", "", "Yes."]
REFERENCES = ["The cat sat on a mat.", "A dog barked at night.", "Nobody came.", "Yes."]
OTHERS = ["The cat was on the mat.", "At night a dog barks.", "No one came.", "Yes, yes."]


@pytest.mark.parametrize("sets", [[REFERENCES], [REFERENCES, OTHERS]])
@pytest.mark.parametrize("lowercase", [False, True])
def test_score_and_signature_from_summed_parts_equal_those_of_the_whole(sets, lowercase) -> None:
    parts = [
        chrf_statistics(HYPOTHESES[begin:end], [lines[begin:end] for lines in sets], lowercase=lowercase)
        for begin, end in [(0, 1), (1, 3), (3, 3), (3, 4)]
    ]
    (whole,) = corpus_scores(HYPOTHESES, sets, metrics=["chrf"], lowercase=lowercase)
    summed = [sum(column) for column in zip(*parts, strict=True)]
    assert corpus_chrf_from_statistics(summed, num_references=len(sets), lowercase=lowercase) == whole


def test_no_sentences_at_all_score_zero() -> None:
    assert corpus_chrf_from_statistics(chrf_statistics([], [[]])).score == 0.0


def test_a_part_without_hypotheses_but_with_references_is_refused() -> None:
    with pytest.raises(ValueError, match="no hypotheses to score"):
        chrf_statistics([], [["a"]])


def test_another_number_of_counts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"chrF2\+\+ statistics are 24 numbers, got 23"):
        corpus_chrf_from_statistics([0] * 23)


def test_a_number_of_references_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="num_references=0 must be at least 1"):
        corpus_chrf_from_statistics([0] * 24, num_references=0)
