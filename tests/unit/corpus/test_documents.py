"""Documents of a file, and the part of them that is held out."""

import gzip

import pytest

from seq2seq.config import Documents
from seq2seq.corpus.documents import TextSize, hold_out, read_documents

TEXT = "one\ntwo\u2028still two\n\n \nthree\r\nfour\u00e9"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "text").write_bytes(TEXT.encode())
    return tmp_path / "text"


@pytest.mark.parametrize(
    ("kind", "documents"),
    [
        (Documents.file, ["one\ntwo\u2028still two\n\n \nthree\nfour\u00e9\n"]),
        (Documents.paragraph, ["one\ntwo\u2028still two", "three\nfour\u00e9"]),
        (Documents.line, ["one", "two\u2028still two", "three", "four\u00e9"]),
    ],
)
def test_a_document_is_a_file_or_what_stands_between_blank_lines_or_a_line(file, kind, documents):
    assert read_documents(file, kind) == documents


def test_a_compressed_text_is_read_as_the_plain_one(file, tmp_path):
    (tmp_path / "packed.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert read_documents(tmp_path / "packed", Documents.line) == read_documents(file, Documents.line)


@pytest.mark.parametrize("kind", list(Documents))
def test_a_file_with_nothing_to_see_is_refused(tmp_path, kind):
    (tmp_path / "blank").write_text("\n \n\u200b\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"blank has no text \(3 lines, all blank\); expected text to train on"):
        read_documents(tmp_path / "blank", kind)


def test_the_size_of_a_text_is_told_in_characters_and_in_bytes():
    assert TextSize.of(["ab\n", "\u00e9\U0001f680"]) == TextSize(characters=5, bytes=9)


@pytest.mark.parametrize(("share", "kept"), [(0.1, 9), (0.26, 7), (0.5, 5), (0.001, 9), (0.999, 1)])
def test_a_file_is_cut_at_the_border_of_lines_nearest_to_the_share(share, kept):
    lines = [f"line {i}\u0085x\n" for i in range(10)]
    train, valid = hold_out(["".join(lines)], Documents.file, share)
    assert (train, valid) == (["".join(lines[:kept])], ["".join(lines[kept:])])


@pytest.mark.parametrize("kind", [Documents.paragraph, Documents.line])
def test_whole_documents_are_held_out_by_their_characters_and_not_by_their_number(kind):
    documents = ["a" * 10, "b" * 10, "c" * 60, "d" * 20]
    assert hold_out(documents, kind, 0.2) == (documents[:3], documents[3:])
    assert hold_out(documents, kind, 0.75) == (documents[:2], documents[2:])


@pytest.mark.parametrize(("kind", "what"), [(Documents.file, "line"), (Documents.line, "document")])
def test_a_text_without_a_border_is_refused(kind, what):
    with pytest.raises(ValueError, match=f"the training text is one {what}, .*; give data.valid_text"):
        hold_out(["all in one\n"], kind, 0.1)
