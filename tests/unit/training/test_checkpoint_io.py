"""Checkpoints that come onto the disk whole, and what is told of those that did not, or are damaged."""

import errno
import os
import resource
import shutil
import signal

import pytest
import torch

from seq2seq.training import checkpoint_io, whole_file
from seq2seq.training.averaging import read_checkpoint
from seq2seq.training.checkpoint_io import CheckpointNotWrittenError, WholeCheckpoints, damage, is_sound
from seq2seq.training.checkpoints import check_complete


def content(number, size=5000):
    return {
        "state_dict": {"model.x": torch.full((size,), float(number))},
        "optimizer_states": [{"state": {}, "param_groups": [{"params": [0]}]}],
    }


def save(folder, number, name="last.ckpt", **changes):
    WholeCheckpoints().save_checkpoint(content(number, **changes), folder / name)


def number_in(file):
    return float(read_checkpoint(file)["state_dict"]["model.x"][0])


def test_the_checkpoint_before_the_last_is_kept(tmp_path):
    folder = tmp_path / "checkpoints"
    save(folder, 1)
    assert os.listdir(folder) == ["last.ckpt"]
    save(folder, 2)
    save(folder, 3)
    assert sorted(os.listdir(folder)) == ["before_last.ckpt", "last.ckpt"]
    assert (number_in(folder / "last.ckpt"), number_in(folder / "before_last.ckpt")) == (3, 2)
    save(folder, 4, "best_step_000004.ckpt")
    save(folder, 5, "best_step_000004.ckpt")
    assert number_in(folder / "before_last.ckpt") == 2


def test_without_hard_links_the_one_before_is_kept_too(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EPERM, "no links here")))
    save(tmp_path, 1)
    save(tmp_path, 2)
    assert (number_in(tmp_path / "last.ckpt"), number_in(tmp_path / "before_last.ckpt")) == (2, 1)


def test_a_truncated_last_checkpoint_does_not_take_the_place_of_the_one_before(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)
    os.truncate(tmp_path / "last.ckpt", 9000)
    save(tmp_path, 3)
    assert (number_in(tmp_path / "last.ckpt"), number_in(tmp_path / "before_last.ckpt")) == (3, 1)


class FullDisk:
    """A stream on a disk with room for so many bytes."""

    def __init__(self, stream, room):
        self.stream, self.room = stream, room

    def write(self, data):
        self.room -= memoryview(data).nbytes
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.stream.write(data)

    def __getattr__(self, name):
        return getattr(self.stream, name)


@pytest.mark.parametrize("room", [0, 100, 20_000])
def test_a_full_disk_is_told_and_the_last_good_checkpoint_stays(tmp_path, monkeypatch, room):
    save(tmp_path, 1)
    wanted = (tmp_path / "last.ckpt").stat().st_size
    sink = checkpoint_io._Sink
    monkeypatch.setattr(checkpoint_io, "_Sink", lambda stream: sink(FullDisk(stream, room)))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1_234_567))
    told = (
        rf"checkpoint could not be written to .*/last\.ckpt: no space left on device; {wanted / 1e6:.1f} MB are "
        r"needed, 1\.2 MB are free; the last good one is .*/last\.ckpt$"
    )
    with pytest.raises(CheckpointNotWrittenError, match=told):
        save(tmp_path, 2)
    assert os.listdir(tmp_path) == ["last.ckpt"]
    assert number_in(tmp_path / "last.ckpt") == 1


def test_a_disk_that_is_full_at_the_first_checkpoint_says_that_there_is_none_before(tmp_path, monkeypatch):
    def no_room(_):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(whole_file.os, "fsync", no_room)
    with pytest.raises(CheckpointNotWrittenError, match=r"quota exceeded; 0\.0 MB .*; there is none before it"):
        save(tmp_path, 1)
    assert os.listdir(tmp_path) == []


def test_a_limit_of_the_system_for_files_is_told_too(tmp_path):
    save(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(
            CheckpointNotWrittenError, match=r"file too large; 0\.4 MB are needed, .* the last good one"
        ):
            save(tmp_path, 2, size=100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert number_in(tmp_path / "last.ckpt") == 1


def damaged(file, how):
    if how == "truncated":
        os.truncate(file, file.stat().st_size - 100)
    else:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)


@pytest.mark.parametrize(("how", "told"), [("truncated", "truncated, or no"), ("changed", "has another checksum")])
def test_a_damaged_last_checkpoint_is_found_and_the_one_before_offered(tmp_path, how, told):
    save(tmp_path, 1)
    save(tmp_path, 2)
    last, before = tmp_path / "last.ckpt", tmp_path / "before_last.ckpt"
    check_complete(last)
    damaged(last, how)
    assert (is_sound(last), is_sound(before), damage(before)) == (False, True, None)
    with pytest.raises(ValueError, match=rf"last\.ckpt is damaged \(.*{told}.*\); go on from resume=.*/before_last"):
        check_complete(last)
    check_complete(before)


@pytest.mark.parametrize("place", [6, 8, 10, 28, 42], ids=lambda place: f"byte {place} of an entry")
def test_a_checkpoint_whose_list_of_parts_is_changed_is_damaged(tmp_path, place):
    save(tmp_path, 1)
    save(tmp_path, 2)
    last = tmp_path / "last.ckpt"
    data = bytearray(last.read_bytes())
    data[data.index(b"PK\x01\x02") + place] ^= 0xFF
    last.write_bytes(data)
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged \(.+\); go on from resume=.*/before_last\.ckpt"):
        check_complete(last)


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"resume=.* is a folder; expected a run's checkpoints/last\.ckpt"):
        check_complete(tmp_path)


@pytest.mark.parametrize("states", [5, "abc", [1], [{}], [{"param_groups": []}]], ids=repr)
def test_a_foreign_checkpoint_without_an_optimizers_state_is_refused(tmp_path, states):
    torch.save({"state_dict": {}, "optimizer_states": states}, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"holds weights alone, without the optimiser's state; expected"):
        check_complete(tmp_path / "last.ckpt")


def test_a_missing_last_checkpoint_is_told_and_the_one_before_offered(tmp_path):
    save(tmp_path, 1, "before_last.ckpt")
    with pytest.raises(FileNotFoundError, match=r"last\.ckpt does not exist; go on from resume=.*/before_last\.ckpt"):
        check_complete(tmp_path / "last.ckpt")


def test_a_damaged_checkpoint_with_no_other_beside_it_is_told(tmp_path):
    save(tmp_path, 1)
    damaged(tmp_path / "last.ckpt", "changed")
    with pytest.raises(ValueError, match=r"is damaged \(.*\), and there is no before_last\.ckpt beside it; begin anew"):
        check_complete(tmp_path / "last.ckpt")


class Killer:
    """Ends the process that pickles it."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_process_killed_while_it_writes_leaves_the_checkpoint_before(tmp_path):
    save(tmp_path, 1)
    pid = os.fork()
    if pid == 0:
        try:
            WholeCheckpoints().save_checkpoint({**content(2), "end": Killer()}, tmp_path / "last.ckpt")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert number_in(tmp_path / "last.ckpt") == 1
    assert sorted(os.listdir(tmp_path)) == [".last.ckpt.part", "last.ckpt"]
