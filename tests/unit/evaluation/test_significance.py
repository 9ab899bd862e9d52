import pytest

from seq2seq.evaluation.significance import paired_bootstrap

REFERENCES = [f"sentence number {number} is about the colour of house {number * 7}" for number in range(30)]
WORSE = [line.replace("about the colour", "on a hue") for line in REFERENCES]


def test_a_clear_difference_is_significant_and_signed_by_the_scores() -> None:
    bleu, ter = paired_bootstrap(REFERENCES, WORSE, [REFERENCES], metrics=["bleu", "ter"], num_resamples=100)
    assert (bleu.metric, ter.metric) == ("bleu", "ter")
    assert bleu.score == pytest.approx(100.0)
    assert bleu.baseline_score < 80
    assert ter.score == 0.0
    assert ter.baseline_score > 0
    assert bleu.p_value < 0.05
    assert "bs:100|seed:" in bleu.signature


def test_equal_systems_do_not_differ() -> None:
    (bleu,) = paired_bootstrap(WORSE, list(WORSE), [REFERENCES], metrics=["bleu"], num_resamples=100)
    assert bleu.score == bleu.baseline_score
    assert bleu.p_value == 1.0


def test_the_result_is_plain_builtins_when_asked() -> None:
    (bleu,) = paired_bootstrap(WORSE, REFERENCES, [REFERENCES], metrics=["bleu"], num_resamples=10)
    plain = bleu.as_dict()
    assert set(plain) == {"metric", "name", "score", "baseline_score", "p_value", "signature"}
    assert type(plain["p_value"]) is float
    assert type(plain["score"]) is float


def test_a_baseline_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="the baseline has 29 sentences, but there are 30 hypotheses"):
        paired_bootstrap(REFERENCES, WORSE[:-1], [REFERENCES])


def test_a_single_resample_is_refused() -> None:
    with pytest.raises(ValueError, match="num_resamples=1 is too few"):
        paired_bootstrap(REFERENCES, WORSE, [REFERENCES], num_resamples=1)
