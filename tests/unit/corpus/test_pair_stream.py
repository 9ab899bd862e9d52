import gzip
import os

import pytest

from seq2seq.corpus import pair_stream
from seq2seq.corpus.pair_stream import PairStream


def test_pairs_come_as_ids_each_time_from_the_beginning(uneven_corpus, uneven_pairs, tiny_bundle, monkeypatch):
    monkeypatch.setattr(pair_stream, "_AT_ONCE", 4)
    tokenizer = tiny_bundle.source_tokenizer
    stream = PairStream(*uneven_corpus, tokenizer, tokenizer)
    expected = [(tokenizer.encode(left), tokenizer.encode(right)) for left, right in uneven_pairs]
    assert list(stream) == expected
    assert list(stream) == expected
    assert len(stream) == 13


def test_compressed_files_are_found_and_blank_lines_stay(tmp_path, tiny_bundle):
    (tmp_path / "a.de").write_text("ant\n\nbee\n", encoding="utf-8")
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"cat\ndog\n\n"))
    tokenizer = tiny_bundle.source_tokenizer
    stream = PairStream(tmp_path / "a.de", tmp_path / "a.en", tokenizer, tokenizer)
    assert [(len(left) > 0, len(right) > 0) for left, right in stream] == [(True, True), (False, True), (True, False)]


def test_unequal_files_are_refused_with_the_place_where_they_part(tmp_path, tiny_bundle):
    for name, text in (("a.de", "ant\n" * 3), ("a.en", "ant\n" * 2)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    tokenizer = tiny_bundle.source_tokenizer
    with pytest.raises(ValueError, match=r"has 3 lines but .* has 2"):
        PairStream(tmp_path / "a.de", tmp_path / "a.en", tokenizer, tokenizer)


def test_what_can_be_read_only_once_is_refused(tmp_path, tiny_bundle):
    os.mkfifo(tmp_path / "pipe")
    tokenizer = tiny_bundle.source_tokenizer
    with pytest.raises(ValueError, match="pipe is a pipe or device, which can be read only once"):
        PairStream(tmp_path / "pipe", tmp_path / "pipe", tokenizer, tokenizer)
