import gzip
import io
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from seq2seq.text.lines import (
    check_place,
    count_lines,
    find_file,
    is_blank,
    iter_lines,
    read_lines,
    write_bytes,
    write_lines,
)

INSIDE = "a\u2028b\u2029c\x85d\x0ce\x1cf\x1dg\x1eh\x0bi\rj\0k\tl"


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_only_line_feed_ends_a_line(tmp_path):
    file = put(tmp_path / "t", f"{INSIDE}\n{INSIDE}\n".encode())
    assert read_lines(file) == [INSIDE, INSIDE]


def test_the_number_of_lines_is_that_of_wc(tmp_path):
    file = put(tmp_path / "t", f"{INSIDE}\n\n\r\nx\n".encode())
    counted = int(subprocess.run(["wc", "-l", file], capture_output=True, check=True).stdout.split()[0])
    assert count_lines(file) == len(read_lines(file)) == counted == 4


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r", ["a\r"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfa", ["\ufeffa"]),
    ],
)
def test_line_ends_and_byte_order_marks(tmp_path, data, expected):
    assert read_lines(put(tmp_path / "t", data)) == expected


def test_gzip_is_known_by_its_first_bytes_whatever_the_name(tmp_path):
    packed = gzip.compress(b"a\nb\n")
    assert read_lines(put(tmp_path / "t.gz", packed)) == ["a", "b"]
    assert read_lines(put(tmp_path / "plain", packed)) == ["a", "b"]
    assert read_lines(put(tmp_path / "named.gz", b"c\n")) == ["c"]


def test_a_name_is_found_with_and_without_gz(tmp_path):
    put(tmp_path / "t.de.gz", gzip.compress(b"a\n"))
    put(tmp_path / "t.en", b"b\n")
    assert read_lines(tmp_path / "t.de") == ["a"]
    assert read_lines(str(tmp_path / "t.en.gz")) == ["b"]
    assert find_file(tmp_path / "t.de") == tmp_path / "t.de.gz"


def test_a_missing_file_is_told_with_both_names_and_the_nearest_one(tmp_path):
    put(tmp_path / "train.de", b"")
    with pytest.raises(
        FileNotFoundError, match=r"train\.dee \(looked for train\.dee\.gz too\); did you mean .*train\.de"
    ):
        read_lines(tmp_path / "train.dee")
    with pytest.raises(FileNotFoundError, match="has a name like it"):
        read_lines(tmp_path / "quite-other")
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist either"):
        count_lines(tmp_path / "nowhere" / "x")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is a folder; expected a text file"):
        read_lines(tmp_path)


def test_bytes_that_are_not_utf8_are_told_with_file_line_byte_and_offset(tmp_path):
    file = put(tmp_path / "t", "gut\nschön ".encode() + b"stra\xdfe\n")
    with pytest.raises(ValueError, match=r"t: line 2 is not UTF-8: byte 0xDF at offset 11 of the line"):
        read_lines(file)


def test_utf16_is_recognised(tmp_path):
    with pytest.raises(ValueError, match=r"line 1 .*byte 0xFF at offset 0 .*UTF-16"):
        read_lines(put(tmp_path / "t", "hallo\n".encode("utf-16")))


def test_gzip_that_breaks_off_is_refused(tmp_path):
    packed = gzip.compress(b"".join(b"%d\n" % n for n in range(9999)))
    with pytest.raises(ValueError, match="gzip data breaks off or is damaged"):
        read_lines(put(tmp_path / "t.gz", packed[:2000]))


def test_a_line_is_given_as_soon_as_it_has_been_read():
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "wb", buffering=0) as feed:
        lines = iter_lines(stream, "pipe")
        feed.write(b"first\nsec")
        assert next(lines) == "first"
        feed.write(b"ond\r\n")
        assert next(lines) == "second"


def test_a_named_pipe_can_be_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeder = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\n",))
    feeder.start()
    assert read_lines(pipe) == ["a", "b"]
    feeder.join()


def test_what_is_written_is_read_back(tmp_path):
    lines = [INSIDE, "", "ä 中 🎉", " "]
    for name in ("t", "t.gz"):
        write_lines(tmp_path / name, iter(lines))
        assert read_lines(tmp_path / name) == lines
    assert (tmp_path / "t").read_bytes() == "".join(line + "\n" for line in lines).encode()
    assert (tmp_path / "t.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_the_same_lines_give_the_same_gzip_bytes(tmp_path, monkeypatch):
    write_lines(tmp_path / "a.gz", ["x"])
    monkeypatch.setattr("time.time", lambda: 1.0)
    write_lines(tmp_path / "b.gz", ["x"])
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_line_feed_inside_a_line_is_refused_and_the_old_file_stays(tmp_path):
    write_lines(tmp_path / "t", ["old"])
    with pytest.raises(ValueError, match="line 2 to be written contains a line feed"):
        write_lines(tmp_path / "t", ["a", "b\nc"])
    assert read_lines(tmp_path / "t") == ["old"]
    assert os.listdir(tmp_path) == ["t"]


def test_half_a_surrogate_pair_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"line 1 cannot be written as UTF-8"):
        write_lines(tmp_path / "t", ["\ud800"])


def test_writing_needs_a_folder_and_a_file_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; create it first"):
        write_lines(tmp_path / "nowhere" / "t", ["a"])
    with pytest.raises(ValueError, match="is a folder; expected the name of a file to write"):
        write_bytes(tmp_path, b"a")


def test_a_written_file_follows_the_umask_a_replaced_one_keeps_its_mode_and_links_stay(tmp_path):
    old = os.umask(0o027)
    try:
        write_lines(tmp_path / "new", ["a"])
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    write_lines(tmp_path / "link", ["b"])
    assert (tmp_path / "link").is_symlink()
    assert read_lines(tmp_path / "new") == ["b"]
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


def test_gzip_data_in_a_pipe_is_named():
    with pytest.raises(ValueError, match="this is gzip data, unpack it first"):
        list(iter_lines(io.BytesIO(gzip.compress(b"a")), "standard input"))


def test_an_empty_name_is_refused():
    with pytest.raises(ValueError, match="the name of the file to read is empty; give a name"):
        read_lines("")
    with pytest.raises(ValueError, match="the name of the file to write is empty; give a name"):
        write_lines("", ["a"])


def test_a_place_can_be_checked_before_the_work(tmp_path):
    check_place(tmp_path / "new")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; create it first"):
        check_place(tmp_path / "nowhere" / "new")
    with pytest.raises(ValueError, match="is a folder; expected the name of a file to write"):
        check_place(tmp_path)


def test_a_device_is_written_to_and_not_replaced():
    write_lines("/dev/null", ["a"])
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize(
    "line", ["", " ", "\t", "\u3000", "\u200b", "\u00a0\ufeff", "\u2028\x85", "\0", "\r", "\u00ad"]
)
def test_a_line_with_nothing_to_see_is_blank(line):
    assert is_blank(line)


@pytest.mark.parametrize("line", ["a", " . ", "\u3000。", "\u0301", "🎉"])
def test_a_line_with_something_to_see_is_not_blank(line):
    assert not is_blank(line)


def test_a_stream_in_memory_can_be_read():
    assert list(iter_lines(io.BytesIO(b"a\nb"), "memory")) == ["a", "b"]
