import hashlib
import io
import pickle

import pytest
import sentencepiece

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds

NASTY = ["", " ", "a\rb", "a\u2028b", "nul \0 here", "tab\there", "▁", "<s> </s>", "🎉 中文", "\ufeff", "x" * 3000]


def test_facts_are_read_from_the_model(unigram, bpe, bpe_without_bytes):
    assert (unigram.kind, bpe.kind) == (TokenizerKind.unigram, TokenizerKind.bpe)
    assert unigram.normalization == "nmt_nfkc"
    assert (bpe.byte_fallback, bpe_without_bytes.byte_fallback) == (True, False)
    assert unigram.special == SpecialIds(pad=0, bos=1, eos=2, unk=3)
    assert unigram.vocab_size == 400
    assert unigram.sha256 == hashlib.sha256(unigram.model).hexdigest()
    assert len(unigram.byte_ids) == 256
    assert bpe_without_bytes.byte_ids == frozenset()


def test_a_line_comes_back_from_its_ids(unigram, corpus):
    for line in corpus[:50]:
        ids = unigram.encode(line)
        assert not {0, 1, 2} & set(ids)
        assert unigram.decode(ids) == line


def test_a_batch_is_its_lines(unigram, corpus):
    lines = [*corpus[:20], *NASTY]
    assert unigram.encode_batch(lines) == [unigram.encode(line) for line in lines]
    assert unigram.encode_batch([]) == []


def test_unusual_characters_survive(unigram):
    assert [unigram.decode(unigram.encode(line)) for line in ("nul \0 here", "🎉 中文")] == ["nul \0 here", "🎉 中文"]
    assert unigram.encode("") == []
    for line in NASTY:
        assert all(0 <= id_ < unigram.vocab_size for id_ in unigram.encode(line))


def test_half_a_surrogate_pair_is_refused(unigram):
    for encode in (lambda: unigram.encode("a\ud800b"), lambda: unigram.encode_batch(["ab", "a\ud800b"])):
        with pytest.raises(ValueError, match=r"'a\\ud800b' cannot be written as UTF-8; expected text without half a"):
            encode()


def test_special_ids_are_dropped_from_text_and_kept_in_pieces(unigram, corpus):
    ids = unigram.encode(corpus[0])
    assert unigram.decode([1, *ids, 3, 2, 0, 0]) == corpus[0]
    assert unigram.pieces([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert "".join(unigram.pieces(ids)).replace("▁", " ").strip() == corpus[0]


def test_decoded_text_is_always_one_line(unigram):
    line_feed = unigram.pieces(range(unigram.vocab_size)).index("<0x0A>")
    assert unigram.decode([*unigram.encode("haus"), line_feed, *unigram.encode("baum")]) == "haus  baum"


def test_bytes_that_are_not_utf8_become_the_replacement_character(unigram):
    assert "\ufffd" in unigram.decode([unigram.pieces(range(unigram.vocab_size)).index("<0xE2>")])


@pytest.mark.parametrize("id_", [-1, 400])
def test_an_id_outside_the_vocabulary_is_refused(unigram, id_):
    with pytest.raises(ValueError, match=f"id {id_} is outside the vocabulary of 400 pieces"):
        unigram.decode([4, id_])
    with pytest.raises(ValueError, match=f"id {id_} is outside"):
        unigram.pieces([id_])


def test_a_tokenizer_is_loaded_from_a_file_and_pickled(unigram, corpus, tmp_path):
    (tmp_path / "t.model").write_bytes(unigram.model)
    config = TokenizerConfig(sampling_alpha=0.5)
    for copy in (SentencePieceTokenizer.load(tmp_path / "t.model"), pickle.loads(pickle.dumps(unigram))):
        assert copy.sha256 == unigram.sha256
        assert copy.encode(corpus[0]) == unigram.encode(corpus[0])
        key = (1, 2, 3)
        assert copy.sample(corpus[0], config=config, key=key) == unigram.sample(corpus[0], config=config, key=key)


def test_a_missing_or_damaged_model_is_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"no tokenizer at .*none\.model; expected a SentencePiece \.model file"
    ):
        SentencePieceTokenizer.load(tmp_path / "none.model")
    for data in (b"", b"no model at all"):
        (tmp_path / "bad.model").write_bytes(data)
        with pytest.raises(ValueError, match=rf"bad\.model is not a SentencePiece model \({len(data)} bytes read\)"):
            SentencePieceTokenizer.load(tmp_path / "bad.model")


def test_a_model_of_whole_words_is_refused(corpus):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, model_type="word", vocab_size=40, pad_id=0, bos_id=1,
        eos_id=2, unk_id=3, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match="is of kind word; expected unigram, bpe"):
        SentencePieceTokenizer.from_bytes(model.getvalue())


def test_the_exported_vocabulary_has_one_line_for_each_piece(unigram):
    lines = list(unigram.export_vocabulary())
    assert len(lines) == 400
    assert lines[:2] == ["0\t<pad>\t0", "1\t<s>\t0"]
    assert [line.split("\t")[1] for line in lines] == unigram.pieces(range(400))
