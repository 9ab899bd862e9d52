"""Files that are there whole or not at all."""

import os
import subprocess
import sys

import pytest

from seq2seq.training.whole_file import remove_leftovers, whole_file, write_whole


def test_a_file_takes_the_place_of_the_older_one_only_when_it_is_complete(tmp_path):
    file = tmp_path / "x.json"
    write_whole(file, "one")
    with whole_file(file) as stream:
        stream.write("zwei é".encode())
        stream.flush()
        assert file.read_text() == "one"
    assert file.read_text(encoding="utf-8") == "zwei é"
    assert os.listdir(tmp_path) == ["x.json"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_or_interrupt_leaves_the_older_file_and_nothing_else(tmp_path, error):
    file = tmp_path / "x.json"
    write_whole(file, "one")

    def write_half():
        with whole_file(file) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(error):
        write_half()
    assert file.read_text() == "one"
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*none/x\.json'"):
        write_whole(tmp_path / "none" / "x.json", "text")


def test_what_a_killed_process_has_half_written_is_removed_at_the_next_start(tmp_path):
    script = (
        "import os, signal, sys\n"
        "from seq2seq.training.whole_file import whole_file\n"
        "with whole_file(sys.argv[1]) as stream:\n"
        "    stream.write(b'half'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    file = tmp_path / "x.json"
    write_whole(file, "one")
    ended = subprocess.run([sys.executable, "-c", script, str(file)], check=False, timeout=60)
    assert ended.returncode == -9
    assert sorted(os.listdir(tmp_path)) == [".x.json.part", "x.json"]
    assert [left.name for left in remove_leftovers(tmp_path)] == [".x.json.part"]
    assert [path.read_text() for path in tmp_path.iterdir()] == ["one"]
