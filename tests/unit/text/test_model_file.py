import io

import pytest
import sentencepiece

from seq2seq.config import TokenizerConfig
from seq2seq.text.model_file import read_facts
from seq2seq.text.tokenizer_training import train_tokenizer


def test_user_defined_pieces_are_found(corpus):
    tokenizer, _ = train_tokenizer(corpus, TokenizerConfig(vocab_size=350), symbols=["<a>", "<b>"])
    facts = read_facts(tokenizer.model)
    assert sorted(tokenizer.pieces(facts.user_defined)) == ["<a>", "<b>"]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
@pytest.mark.parametrize("rule", ["identity", "nfkc_cf"])
def test_every_kind_and_rule_is_read_as_it_was_trained(corpus, kind, rule):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, model_type=kind, vocab_size=60, hard_vocab_limit=False,
        normalization_rule_name=rule, minloglevel=2,
    )  # fmt: skip
    facts = read_facts(model.getvalue())
    assert (facts.kind, facts.normalization, facts.byte_fallback) == (kind, rule, False)
    assert facts.user_defined == frozenset()
