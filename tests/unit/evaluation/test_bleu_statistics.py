import pytest

from seq2seq.evaluation.bleu_statistics import BleuStatistics, bleu_statistics, corpus_bleu_from_statistics
from seq2seq.evaluation.metrics import corpus_scores

HYPOTHESES = ["The cat sat on the mat.", "A dog barks at night.", "", "Yes."]
REFERENCES = ["The cat sat on a mat.", "A dog barked at night.", "Nobody came.", "Yes."]
OTHERS = ["The cat was on the mat.", "At night a dog barks.", "No one came.", "Yes, yes."]


def test_statistics_are_added_term_by_term() -> None:
    left = BleuStatistics((1, 2, 3, 4), (5, 6, 7, 8), 9, 10)
    right = BleuStatistics((10, 20, 30, 40), (50, 60, 70, 80), 90, 100)
    assert left + right == BleuStatistics((11, 22, 33, 44), (55, 66, 77, 88), 99, 110)
    assert left + BleuStatistics() == left


def test_statistics_survive_the_way_through_a_flat_list() -> None:
    statistics = BleuStatistics((1, 2, 3, 4), (5, 6, 7, 8), 9, 10)
    assert statistics.values() == [9, 10, 1, 2, 3, 4, 5, 6, 7, 8]
    assert BleuStatistics.from_values(statistics.values()) == statistics


def test_another_number_of_values_is_refused() -> None:
    with pytest.raises(ValueError, match="BLEU statistics are 10 numbers, got 9"):
        BleuStatistics.from_values([0] * 9)


def test_score_and_signature_from_summed_parts_equal_those_of_the_whole() -> None:
    references = [REFERENCES, OTHERS]
    parts = [
        bleu_statistics(HYPOTHESES[begin:end], [lines[begin:end] for lines in references], lowercase=True)
        for begin, end in [(0, 1), (1, 3), (3, 3), (3, 4)]
    ]
    (whole,) = corpus_scores(HYPOTHESES, references, metrics=["bleu"], lowercase=True)
    assert corpus_bleu_from_statistics(sum(parts, BleuStatistics()), num_references=2, lowercase=True) == whole


def test_a_part_without_sentences_has_the_statistics_of_nothing() -> None:
    assert bleu_statistics([], [[], []]) == BleuStatistics()


def test_a_part_without_hypotheses_but_with_references_is_refused() -> None:
    with pytest.raises(ValueError, match="no hypotheses to score"):
        bleu_statistics([], [["a"]])


def test_no_sentences_at_all_score_zero() -> None:
    assert corpus_bleu_from_statistics(BleuStatistics()).score == 0.0


def test_the_statistics_are_not_changed_by_scoring() -> None:
    statistics = bleu_statistics(HYPOTHESES, [REFERENCES])
    before = statistics.values()
    corpus_bleu_from_statistics(statistics)
    assert statistics.values() == before


def test_a_number_of_references_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="num_references=0 must be at least 1"):
        corpus_bleu_from_statistics(BleuStatistics(), num_references=0)
