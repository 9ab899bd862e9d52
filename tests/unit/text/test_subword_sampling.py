import itertools
import math
import random
import subprocess
import sys
from collections import Counter

import pytest

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.subword_sampling import BpeDropout, generator, merge
from seq2seq.text.tokenizer_training import train_tokenizer

ALPHA = TokenizerConfig(sampling_alpha=0.3, sampling_nbest=12)
DROPOUT = TokenizerConfig(kind=TokenizerKind.bpe, bpe_dropout=0.3)
NASTY = ["", " ", "a\rb", "a\u2028b", "nul \0 b", "▁a▁▁b", "<s>", "🎉🎉 中文x", "ǆ ﬁ Ⅷ", "  two  spaces ", "\u200b"]


def test_off_is_exactly_encode(unigram, bpe, corpus):
    for tokenizer in (unigram, bpe):
        for index, line in enumerate([*corpus[:50], *NASTY]):
            assert tokenizer.sample(line, config=TokenizerConfig(), key=(1, 1, index)) == tokenizer.encode(line)


def test_a_draw_depends_on_the_key_alone(unigram, bpe, corpus):
    for tokenizer, config in ((unigram, ALPHA), (bpe, DROPOUT)):
        order = list(range(60))
        first = {i: tokenizer.sample(corpus[i], config=config, key=(1, 2, i)) for i in order}
        random.Random(0).shuffle(order)
        assert {i: tokenizer.sample(corpus[i], config=config, key=(1, 2, i)) for i in order} == first
        for other in ((2, 2), (1, 3)):
            changed = {i: tokenizer.sample(corpus[i], config=config, key=(*other, i)) for i in order}
            assert sum(changed[i] != first[i] for i in order) > 20


def test_another_process_draws_the_same(unigram, corpus, tmp_path):
    (tmp_path / "t.model").write_bytes(unigram.model)
    script = (
        "import sys; from seq2seq.text.sentence_piece import SentencePieceTokenizer\n"
        "from seq2seq.config import TokenizerConfig\n"
        "t = SentencePieceTokenizer.load(sys.argv[1]); c = TokenizerConfig(sampling_alpha=0.3, sampling_nbest=12)\n"
        "print(t.sample(sys.argv[2], config=c, key=(5, 6, 7)))"
    )
    command = [sys.executable, "-c", script, tmp_path / "t.model", corpus[0]]
    printed = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8").stdout
    assert printed.strip() == str(unigram.sample(corpus[0], config=ALPHA, key=(5, 6, 7)))


def test_every_draw_spells_the_same_text(unigram, bpe, bpe_without_bytes, corpus):
    for tokenizer, config in ((unigram, ALPHA), (bpe, DROPOUT), (bpe_without_bytes, DROPOUT)):
        for index, line in enumerate([*corpus[:40], *NASTY]):
            drawn = tokenizer.sample(line, config=config, key=(1, 1, index))
            assert tokenizer.decode(drawn) == tokenizer.decode(tokenizer.encode(line))


def test_unigram_draws_follow_the_probabilities_to_the_power_alpha(unigram):
    line = "schnelllich"
    candidates = [tuple(ids) for ids in unigram._processor.nbest_encode(line, nbest_size=12, out_type=int)]
    scores = [sum(unigram._processor.get_score(id_) for id_ in ids) for ids in candidates]
    masses = [math.exp(0.3 * score) for score in scores]
    draws = Counter(tuple(unigram.sample(line, config=ALPHA, key=(1, 1, n))) for n in range(1500))
    assert set(draws) <= set(candidates)
    for ids, mass in zip(candidates, masses, strict=True):
        assert draws[ids] / 1500 == pytest.approx(mass / sum(masses), abs=0.05)


def test_bpe_without_dropout_is_sentencepieces_own_encoding(bpe, bpe_without_bytes, corpus):
    alphabet = sorted(set("".join(corpus))) + list("é中🎉\t\u2028▁ ")
    draw = random.Random(3)
    noise = ["".join(draw.choices(alphabet, k=draw.randint(1, 60))) for _ in range(150)]
    for tokenizer in (bpe, bpe_without_bytes):
        for line in [*corpus[:60], *noise, *NASTY]:
            assert tokenizer._bpe_dropout.sample(line, 0.0, (1, 1, 1)) == tokenizer.encode(line)


@pytest.mark.parametrize("symbols", [["<2de>", "<2de"], ["haus"], ["a.", "(x)"]])
def test_bpe_without_dropout_agrees_when_symbols_are_defined(corpus, symbols):
    tokenizer, _ = train_tokenizer(corpus, TokenizerConfig(kind=TokenizerKind.bpe, vocab_size=400), symbols=symbols)
    for line in ["<2de> haus", "haus<2de>baum<2de", "a.b(x)c", "▁<2de>▁", "hausbaum  haus", *corpus[:100]]:
        assert tokenizer._bpe_dropout.sample(line, 0.0, (1, 1, 1)) == tokenizer.encode(line)


def test_bpe_agrees_when_pieces_cross_spaces(corpus):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, model_type="bpe", vocab_size=300, pad_id=0, bos_id=1,
        eos_id=2, unk_id=3, split_by_whitespace=False, minloglevel=2,
    )  # fmt: skip
    tokenizer = SentencePieceTokenizer.from_bytes(model.getvalue())
    assert any("▁" in piece[1:] for piece in tokenizer.pieces(range(300)))
    for line in corpus[:100]:
        assert tokenizer._bpe_dropout.sample(line, 0.0, (1, 1, 1)) == tokenizer.encode(line)


def test_more_dropout_gives_more_pieces_and_full_dropout_gives_characters(bpe, corpus):
    line = corpus[0]

    def mean(dropout: float) -> float:
        return sum(len(bpe._bpe_dropout.sample(line, dropout, (1, 1, n))) for n in range(40)) / 40

    lengths = [mean(dropout) for dropout in (0.0, 0.2, 0.5, 0.9)]
    assert lengths == sorted(set(lengths))
    characters = bpe._bpe_dropout.sample(line, 1.0, (1, 1, 1))
    assert bpe.pieces(characters) == list("▁" + line.replace(" ", "▁"))


def test_a_merge_is_left_out_with_the_given_probability():
    priority = {"ab": -1.0}
    draw = generator((1, 1, 1)).random
    left_out = sum(len(merge(["a", "b"], priority, 0.25, draw)) == 2 for _ in range(1500))
    assert left_out / 1500 == pytest.approx(0.25, abs=0.04)


def test_merging_goes_by_priority_and_then_from_the_left():
    priority = {"aa": -1.0, "ab": -2.0, "aab": -3.0}
    assert merge(list("aaab"), priority, 0.0, random.random) == ["aa", "ab"]
    assert merge(list("aab"), priority, 0.0, random.random) == ["aab"]
    assert merge([], priority, 0.0, random.random) == []


def test_user_defined_symbols_stay_whole_in_every_draw(corpus):
    for kind, config in ((TokenizerKind.unigram, ALPHA), (TokenizerKind.bpe, DROPOUT)):
        train = TokenizerConfig(kind=kind, vocab_size=350)
        tokenizer, _ = train_tokenizer(corpus, train, symbols=["haus"])
        whole = tokenizer.pieces(range(350)).index("haus")
        for n in range(50):
            assert tokenizer.sample("baum haus hausen", config=config, key=(1, 1, n)).count(whole) == 2


def test_every_part_of_the_key_counts():
    draws = {key: generator(key).random() for key in itertools.product(range(6), repeat=3)}
    assert len(set(draws.values())) == len(draws)
    assert generator((12, 3, 4)).random() != generator((1, 23, 4)).random()


def test_sampling_for_another_kind_is_refused(unigram, bpe):
    with pytest.raises(ValueError, match=r"set up for tokenizer.kind=unigram, but this tokenizer is bpe.*bpe_dropout"):
        bpe.sample("haus", config=ALPHA, key=(1, 1, 1))
    with pytest.raises(ValueError, match=r"kind=bpe, but this tokenizer is unigram.*kind=unigram and .*sampling_alpha"):
        unigram.sample("haus", config=DROPOUT, key=(1, 1, 1))


def test_unknown_characters_in_a_row_are_one_unknown_piece(bpe_without_bytes):
    sampler: BpeDropout = bpe_without_bytes._bpe_dropout
    assert sampler.sample("中文", 0.5, (1, 1, 1)).count(3) == 1
