"""How much alike the candidates of a sentence are: chrF2 and BLEU of every pair, equal to sacreBLEU's.

A metric that is called pair by pair counts the n-grams of each text again for each pair. Here they are counted once,
for all texts together, and what two texts share comes out of products of matrices.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from seq2seq.config import Utility
from seq2seq.shapes import Float, Int

CHRF_ORDERS, CHRF_BETA = 6, 2
BLEU_ORDERS = 4

MATRIX_SIZE = 1 << 22
"""Counts that are held as a matrix at once."""

Table = Float[np.ndarray, "n n"]

Measure = Callable[[Sequence[str]], Table]
"""Takes how much (0 to 100) each text, a row, is like each text as the reference, a column."""


def measure(utility: Utility, target_lang: str | None) -> Measure:
    """What measures this utility.

    Args:
        utility: chrF2 or BLEU.
        target_lang: Code of the texts' language, which chooses BLEU's tokenizer of words; None if it is not known.

    Raises:
        ValueError: if the tokenizer needs something that is not installed.
    """
    assert utility is not Utility.none
    if utility is Utility.chrf:
        return chrf
    # sacreBLEU takes a while to import, and most translating goes without
    from seq2seq.text.bleu_tokenizer import bleu_tokenizer, instantiate_bleu

    return partial(bleu, words=instantiate_bleu(bleu_tokenizer(target_lang)).tokenizer)


def chrf(texts: Sequence[str]) -> Table:
    """Sentence chrF2 (0 to 100) of each text, a row, measured against each text as the reference, a column.

    An empty text has nothing in common with any, not even with another empty one: 0.

    Source:
        Popovic 2015, "chrF: character n-gram F-score for automatic MT evaluation", with beta 2; averaged over the
        orders that both texts are long enough for, as sacreBLEU does.
    """
    # 32 bits a character; a stray half of a pair of UTF-16 is one too
    encoded = ["".join(text.split()).encode("utf-32-le", "surrogatepass") for text in texts]
    characters = [np.frombuffer(text, dtype="<u4").astype(np.int64) for text in encoded]
    lengths, matches = shared_ngrams(characters, CHRF_ORDERS)
    precision, recall, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order, common in enumerate(matches, start=1):
        totals = np.maximum(lengths - order + 1, 0)
        counted = (totals[:, None] > 0) & (totals[None, :] > 0)
        precision += np.where(counted, common / np.maximum(totals, 1)[:, None], 0.0)
        recall += np.where(counted, common / np.maximum(totals, 1)[None, :], 0.0)
        orders += counted
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    weight = CHRF_BETA**2
    below = weight * precision + recall
    return 100 * ((1 + weight) * precision * recall / np.where(below > 0, below, 1.0))


def bleu(texts: Sequence[str], words: Callable[[str], str]) -> Table:
    """Sentence BLEU (0 to 100) of each text, a row, measured against each text as the reference, a column.

    An empty text has nothing in common with any: 0.

    Source:
        Papineni et al. 2002, up to the highest order that a text is long enough for, with the third smoothing of Chen
        and Cherry 2014, "A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU".

    Args:
        texts: As they are.
        words: Puts spaces between the words of a text, as sacreBLEU's tokenizers do.
    """
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(word, len(numbers)) for word in words(text.rstrip()).split()] for text in texts]
    lengths, matches = shared_ngrams([np.array(own, dtype=np.int64) for own in rows], BLEU_ORDERS)
    log_precisions, smoothing = np.zeros((len(texts), len(texts))), np.ones((len(texts), len(texts)))
    for order, common in enumerate(matches, start=1):
        totals = np.maximum(lengths - order + 1, 0)[:, None]
        missed = (common == 0) & (totals > 0)
        smoothing = np.where(missed, 2 * smoothing, smoothing)
        precision = 100 * np.where(missed, 1 / smoothing, common) / np.maximum(totals, 1)
        log_precisions += np.where(totals > 0, np.log(np.where(totals > 0, precision, 1.0)), 0.0)
    orders = np.clip(lengths, 1, BLEU_ORDERS)[:, None]
    own, references = lengths[:, None], lengths[None, :]
    brevity = np.exp(np.minimum(1 - references / np.maximum(own, 1), 0.0))
    return np.where(matches[0] > 0, brevity * np.exp(log_precisions / orders), 0.0)


def shared_ngrams(
    sequences: Sequence[Int[np.ndarray, " _"]], num_orders: int
) -> tuple[Int[np.ndarray, " n"], list[Float[np.ndarray, "n n"]]]:
    """The sequences' lengths, and for each order from 1 how many n-grams each two of them have in common.

    An n-gram that comes several times counts as often as it comes in both. The diagonal has all n-grams of a sequence.
    """
    lengths = np.array([len(own) for own in sequences], dtype=np.int64)
    tokens = np.unique(np.concatenate([*sequences, np.empty(0, np.int64)]), return_inverse=True)[1]
    owners = np.repeat(np.arange(len(sequences)), lengths)
    # how many tokens of its sequence stand at a place and behind it
    left = np.repeat(lengths.cumsum(), lengths) - np.arange(len(tokens))
    places, ngrams = np.arange(len(tokens)), tokens
    matches = []
    for order in range(1, num_orders + 1):
        if order > 1:
            fits = left[places] >= order
            places, ngrams = places[fits], ngrams[fits]
            ngrams = ngrams * (len(tokens) + 1) + tokens[places + order - 1]
        ngrams = np.unique(ngrams, return_inverse=True)[1]
        # what comes only once is shared with nothing, and neither is anything that begins with it
        again = np.bincount(ngrams)[ngrams] > 1
        places, ngrams = places[again], ngrams[again]
        common = _common(owners[places], ngrams, len(sequences))
        np.fill_diagonal(common, np.maximum(lengths - order + 1, 0))
        matches.append(common)
    return lengths, matches


def _common(owners: Int[np.ndarray, " m"], ngrams: Int[np.ndarray, " m"], count: int) -> Float[np.ndarray, "n n"]:
    """How many of the n-grams each two of `count` owners have in common.

    The smaller of two counts is the number of the t for which both are at least t, so it takes a product of two
    matrices of zeros and ones for each t.
    """
    common = torch.zeros(count, count)
    num_kinds = int(ngrams.max()) + 1 if len(ngrams) else 0
    width = max(1, min(num_kinds, MATRIX_SIZE // max(1, count)))
    for first in range(0, num_kinds, width):
        inside = (ngrams >= first) & (ngrams < first + width)
        cells = owners[inside] * width + ngrams[inside] - first
        counts = torch.from_numpy(np.bincount(cells, minlength=count * width)).view(count, width)
        times = 1
        while True:
            reached = counts >= times
            counts = counts[:, reached.sum(0) > 1]
            if counts.shape[1] == 0:
                break
            reached = (counts >= times).float()
            common += reached @ reached.T
            times += 1
    return common.numpy().astype(np.float64)
