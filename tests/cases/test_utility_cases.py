"""S9 of the list of cases: sentence scores of our own are sacreBLEU's, also where there is little or nothing."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from seq2seq.config import Utility
from seq2seq.translator.utility import Measure, measure

SACREBLEU = {Utility.chrf: CHRF(), Utility.bleu: BLEU(effective_order=True)}
OURS = {utility: measure(utility, "en") for utility in SACREBLEU}
BOTH = list(SACREBLEU)
TEXTS = [
    "",
    " \t\u3000",
    "a",
    "hello",
    "hello ",
    "A dog runs on the beach.",
    "A dog runs on the beach .",
    "the the the the the",
    "the the",
    "The dog, which ran (on the beach), ran & ran &amp; ran 1,000.5 miles!",
    "dog",
    "we see cats 我们看见猫。",
    "cafe\u0301 caf\u00e9 👨\u200d👩\u200d👧",
    "a lone half \ud83d of a pair",
    "no\u00a0break\x85next\x1cline",
]


def pairwise(utility: Utility, texts: Sequence[str]) -> np.ndarray:
    """One call of sacreBLEU for each pair."""
    metric = SACREBLEU[utility]
    return np.array([[metric.sentence_score(text, [other]).score for other in texts] for text in texts])


@pytest.mark.parametrize("utility", BOTH)
def test_s9_an_empty_text_scores_0_whatever_it_is_compared_with(utility):
    found = OURS[utility](TEXTS)
    assert (found[:2] == 0).all()
    assert (found[:, :2] == 0).all()


@pytest.mark.parametrize("utility", BOTH)
def test_s9_identical_texts_score_100_even_of_one_word_or_letter(utility):
    found = OURS[utility]([*TEXTS[2:], *TEXTS[2:]])
    count = len(TEXTS[2:])
    np.testing.assert_allclose(found.diagonal(), 100, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found[:count, count:].diagonal(), 100, rtol=0, atol=1e-9)


@pytest.mark.parametrize("utility", BOTH)
def test_s9_texts_that_bite_score_as_in_sacrebleu(utility):
    expected = pairwise(utility, TEXTS)
    assert len(np.unique(expected)) > 10
    np.testing.assert_allclose(OURS[utility](TEXTS), expected, rtol=0, atol=1e-9)


words = st.sampled_from(["the", "dog", "dogs", "runs", ".", ",", "a", "don't", "3.5", "-", "DOG"])
sentences = st.lists(words, max_size=9).map(" ".join)


@pytest.mark.parametrize("utility", BOTH)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(texts=st.lists(sentences | st.text(max_size=9), max_size=4))
def test_s9_random_texts_score_as_in_sacrebleu(utility, texts):
    found = OURS[utility](texts)
    assert found.shape == (len(texts), len(texts))
    if texts:
        np.testing.assert_allclose(found, pairwise(utility, texts), rtol=0, atol=1e-9)


def test_s9_bleu_is_counted_in_the_words_of_the_target_language():
    texts = ["我们看见猫。", "我们看见狗。", "他们看见猫。"]
    metric = BLEU(effective_order=True, tokenize="zh")
    expected = [[metric.sentence_score(text, [other]).score for other in texts] for text in texts]
    np.testing.assert_allclose(measure(Utility.bleu, "zh_CN")(texts), expected, rtol=0, atol=1e-9)
    as_english: Measure = measure(Utility.bleu, None)
    assert as_english(texts)[0, 1] == 0 < expected[0][1]
