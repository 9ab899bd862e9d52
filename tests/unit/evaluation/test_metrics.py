import math

import pytest
import sacrebleu

from seq2seq.evaluation.metrics import MetricScore, build_metrics, corpus_scores, sentence_bleu

HYPOTHESES = ["The cat sat on the mat.", "A dog barks at night.", ""]
REFERENCES = ["The cat sat on a mat.", "A dog barked at night.", "Nobody came."]
OTHER_REFERENCES = ["The cat was on the mat.", "At night a dog barks.", "No one came."]


def by_metric(scores: list[MetricScore]) -> dict[str, MetricScore]:
    return {score.metric: score for score in scores}


def test_bleu_is_the_number_worked_out_by_hand() -> None:
    # matches: 5/6 unigrams, 4/5 bigrams, 3/4 trigrams, 2/3 four-grams
    (bleu,) = corpus_scores(["one two three four five six"], [["one two three four five"]], metrics=["bleu"])
    expected = 100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert bleu.score == pytest.approx(expected, abs=1e-9)
    assert bleu.bleu is not None
    assert (bleu.bleu.counts, bleu.bleu.totals) == ((5, 4, 3, 2), (6, 5, 4, 3))
    assert (bleu.bleu.hypothesis_length, bleu.bleu.reference_length, bleu.bleu.brevity_penalty) == (6, 5, 1.0)


def test_brevity_penalty_is_applied_to_short_translations() -> None:
    (bleu,) = corpus_scores(["one two three four five"], [["one two three four five six seven"]], metrics=["bleu"])
    assert bleu.bleu is not None
    assert bleu.bleu.brevity_penalty == pytest.approx(math.exp(1 - 7 / 5))
    assert bleu.bleu.length_ratio == pytest.approx(5 / 7)
    assert bleu.score == pytest.approx(100 * math.exp(1 - 7 / 5))


def test_ter_counts_edits_per_reference_word_and_chrf_is_100_for_equal_text() -> None:
    scores = by_metric(corpus_scores(["a b c x"], [["a b c d"]], metrics=["ter"]))
    assert scores["ter"].score == pytest.approx(25.0)
    scores = by_metric(corpus_scores(["a b c d"], [["a b c d"]], metrics=["chrf"]))
    assert scores["chrf"].score == pytest.approx(100.0)


def test_chrf_uses_word_bigrams_and_says_so() -> None:
    (chrf,) = corpus_scores(HYPOTHESES, [REFERENCES], metrics=["chrf"])
    assert chrf.name == "chrF2++"
    assert "nw:2" in chrf.signature
    assert chrf.score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES], word_order=2).score
    assert chrf.score != sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score


def test_all_three_metrics_are_computed_in_the_order_asked_for() -> None:
    assert [score.name for score in corpus_scores(HYPOTHESES, [REFERENCES])] == ["BLEU", "chrF2++", "TER"]
    assert [score.metric for score in corpus_scores(HYPOTHESES, [REFERENCES], metrics=["ter", "bleu"])] == [
        "ter",
        "bleu",
    ]


def test_several_references_count_together_and_appear_in_the_signature() -> None:
    one = by_metric(corpus_scores(HYPOTHESES, [REFERENCES]))
    two = by_metric(corpus_scores(HYPOTHESES, [REFERENCES, OTHER_REFERENCES]))
    assert two["bleu"].score > one["bleu"].score
    assert two["bleu"].score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES, OTHER_REFERENCES]).score
    assert "nrefs:1|" in one["bleu"].signature
    assert all("nrefs:2|" in score.signature for score in two.values())


def test_the_signature_names_case_tokenizer_smoothing_and_version() -> None:
    (bleu,) = corpus_scores(HYPOTHESES, [REFERENCES], metrics=["bleu"])
    assert bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    (lowered,) = corpus_scores(HYPOTHESES, [REFERENCES], metrics=["bleu"], lowercase=True)
    assert "case:lc" in lowered.signature


def test_lowercase_ignores_case_in_bleu_and_chrf() -> None:
    shouted = [line.upper() for line in REFERENCES]
    scores = by_metric(corpus_scores(shouted, [REFERENCES], lowercase=True))
    assert scores["bleu"].score == pytest.approx(100.0)
    assert scores["chrf"].score == pytest.approx(100.0)
    assert by_metric(corpus_scores(shouted, [REFERENCES]))["bleu"].score < 50


def test_chinese_is_split_into_characters_when_the_target_language_says_so() -> None:
    hypotheses, references = ["我喜欢喝热茶。"], [["我喜欢喝绿茶。"]]
    (plain,) = corpus_scores(hypotheses, references, metrics=["bleu"])
    (chinese,) = corpus_scores(hypotheses, references, metrics=["bleu"], target_lang="zh-CN")
    assert plain.score == 0
    assert chinese.score > 30
    assert "tok:zh" in chinese.signature


def test_the_printed_line_is_that_of_sacrebleu() -> None:
    (bleu,) = corpus_scores(HYPOTHESES, [REFERENCES], metrics=["bleu"])
    metric = sacrebleu.BLEU()
    printed = metric.corpus_score(HYPOTHESES, [REFERENCES]).format(width=3, signature=metric.get_signature().format())
    assert bleu.line(width=3) == printed


def test_confidence_of_chrf_can_be_had_when_some_resamples_match_nothing() -> None:
    hypotheses, references = ["alpha", "", "beta gamma"], [["alpha", "foo", "beta gamma"]]
    (chrf,) = corpus_scores(hypotheses, references, metrics=["chrf"], confidence=20)
    assert chrf.confidence is not None
    assert 0 < chrf.confidence.mean < 100
    (plain,) = corpus_scores(hypotheses, references, metrics=["chrf"])
    assert chrf.score == plain.score == sacrebleu.CHRF(word_order=2).corpus_score(hypotheses, references).score


def test_confidence_gives_the_interval_with_number_and_seed_of_the_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    (bleu,) = corpus_scores(HYPOTHESES, [REFERENCES], metrics=["bleu"], confidence=50)
    metric = sacrebleu.BLEU()
    theirs = metric.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=50)
    assert bleu.confidence is not None
    assert bleu.confidence.mean == pytest.approx(theirs._mean, abs=1e-8)
    assert bleu.confidence.half_width == pytest.approx(theirs._ci, abs=1e-8)
    assert (bleu.confidence.num_resamples, bleu.confidence.seed) == (50, "12345")
    assert "bs:50|seed:12345" in bleu.signature
    assert bleu.line() == theirs.format(width=1, signature=metric.get_signature().format())
    assert bleu.score == corpus_scores(HYPOTHESES, [REFERENCES], metrics=["bleu"])[0].score


def test_confidence_of_a_corpus_that_scores_zero_is_zero() -> None:
    (bleu,) = corpus_scores(["a", "b"], [["c", "d"]], metrics=["bleu"], confidence=5)
    assert bleu.confidence is not None
    assert (bleu.confidence.mean, bleu.confidence.half_width) == (0.0, 0.0)


def test_a_score_as_plain_builtins_leaves_out_what_the_metric_does_not_have() -> None:
    bleu, ter = corpus_scores(HYPOTHESES, [REFERENCES], metrics=["bleu", "ter"])
    assert set(bleu.as_dict()) == {"metric", "name", "score", "signature", "bleu"}
    assert set(ter.as_dict()) == {"metric", "name", "score", "signature"}


def test_empty_hypotheses_score_zero_without_a_crash() -> None:
    scores = by_metric(corpus_scores(["", ""], [["a b", "c"]]))
    assert (scores["bleu"].score, scores["chrf"].score, scores["ter"].score) == (0.0, 0.0, 100.0)


def test_length_mismatch_is_refused_with_both_counts() -> None:
    with pytest.raises(ValueError, match="reference set 2 of 2 has 2 sentences, but there are 3 hypotheses"):
        corpus_scores(HYPOTHESES, [REFERENCES, REFERENCES[:2]])


def test_one_list_for_each_sentence_is_recognised() -> None:
    with pytest.raises(ValueError, match=r"looks like one list for each sentence; .*list\(zip\(\*references\)\)"):
        corpus_scores(HYPOTHESES, [[line] for line in REFERENCES])


def test_a_flat_list_of_references_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one list of strings for each reference set: .*\[references\]"):
        corpus_scores(HYPOTHESES, REFERENCES)


def test_one_string_for_hypotheses_is_refused() -> None:
    with pytest.raises(ValueError, match="hypotheses is one string"):
        corpus_scores("abc", [["a", "b", "c"]])


def test_no_sentences_and_no_references_are_refused() -> None:
    with pytest.raises(ValueError, match="no hypotheses to score"):
        corpus_scores([], [[]])
    with pytest.raises(ValueError, match="there are no references"):
        corpus_scores(HYPOTHESES, [])


def test_an_unknown_metric_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="unknown metric 'bleuu'; did you mean 'bleu'"):
        corpus_scores(HYPOTHESES, [REFERENCES], metrics=["bleuu"])


def test_no_metric_or_the_same_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="no metric to compute; choose from bleu, chrf, ter"):
        build_metrics([])
    with pytest.raises(ValueError, match="named twice in ter, ter"):
        build_metrics(["ter", "ter"])


def test_a_single_resample_is_refused() -> None:
    with pytest.raises(ValueError, match="confidence=1 is too few bootstrap resamples"):
        corpus_scores(HYPOTHESES, [REFERENCES], confidence=1)


def test_sentence_bleu_says_that_it_is_one() -> None:
    score = sentence_bleu("A dog barks at night.", ["At night a dog barks.", "A dog barked at night."])
    assert "eff:yes" in score.signature
    assert "nrefs:2" in score.signature
    assert 0 < score.score < 100


def test_sentence_bleu_needs_a_list_of_references() -> None:
    with pytest.raises(ValueError, match="expected a list of one or more references of the sentence, got 'one'"):
        sentence_bleu("one", "one")
    with pytest.raises(ValueError, match=r"got \[\]"):
        sentence_bleu("one", [])
