"""Real parallel text, where it is at hand: in SEQ2SEQ_DATA, or in shared/data beside the checkout."""

import os
import re
from pathlib import Path

import pytest

from seq2seq.config import TokenizerConfig
from seq2seq.corpus.batching import padding_share, token_batches
from seq2seq.corpus.parallel import read_parallel
from seq2seq.text.tokenizer_training import train_tokenizer

DATA = Path(os.environ.get("SEQ2SEQ_DATA", Path(__file__).parents[3] / "shared" / "data"))
CORPORA = {
    "multi30k": ("train.de", "train.en", 29_000),
    "tatoeba_en_zh": ("train.en", "train.zh", 26_155),
    "seed_en_mi": ("train.en", "train.mi", 4_693),
    "ntrex": ("newstest2019.de", "newstest2019.zh", 1_499),
}

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the corpora are not at {DATA}; set SEQ2SEQ_DATA")


@pytest.mark.parametrize("name", list(CORPORA))
def test_every_line_of_a_corpus_is_a_pair(name):
    source, target, count = CORPORA[name]
    text = read_parallel(DATA / name / source, DATA / name / target)
    assert len(text) == text.num_lines == count
    assert text.line_numbers == list(range(1, count + 1))


def test_chinese_and_maori_survive_a_joint_vocabulary_and_fill_batches_well():
    text = read_parallel(DATA / "seed_en_mi" / "train.en", DATA / "seed_en_mi" / "train.mi")
    config = TokenizerConfig(vocab_size=2000, normalization="identity", character_coverage=0.999)
    tokenizer, _ = train_tokenizer([*text.source[:1500], *text.target[:1500]], config)
    chinese = read_parallel(DATA / "ntrex" / "newstest2019.en", DATA / "ntrex" / "newstest2019.zh").target[:50]
    for line in [*text.target[:200], *chinese]:
        assert tokenizer.decode(tokenizer.encode(line)) == re.sub(" +", " ", line).strip(" ")
    sides = [[len(ids) + 1 for ids in tokenizer.encode_batch(side)] for side in (text.source, text.target)]
    assert padding_share(*sides, token_batches(*sides, 4096, seed=1)) < 0.1
