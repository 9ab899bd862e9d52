import stat
from pathlib import Path

import pytest

from seq2seq.text.new_folder import new_folder


def is_box(path: Path) -> bool:
    return (path / "box").is_file()


def fill(path: Path, content: str | BaseException) -> None:
    """A box with the content; the problem itself comes when the box is half made."""
    with new_folder(path, is_box, "a box") as scratch:
        assert list(scratch.iterdir()) == []
        (scratch / "box").write_text(str(content), encoding="utf-8")
        if isinstance(content, BaseException):
            raise content


def test_the_folder_appears_whole_and_others_may_read_it(tmp_path):
    target = tmp_path / "not there yet" / "box"
    with new_folder(target, is_box, "a box") as scratch:
        (scratch / "box").write_text("1", encoding="utf-8")
        assert not target.exists()
    assert (target / "box").read_text(encoding="utf-8") == "1"
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert list(target.parent.iterdir()) == [target]


def test_an_older_one_is_replaced_and_nothing_else_is(tmp_path):
    fill(tmp_path / "box", "1")
    (tmp_path / "box" / "more").touch()
    fill(tmp_path / "box", "2")
    assert [(file.name, file.read_text(encoding="utf-8")) for file in (tmp_path / "box").iterdir()] == [("box", "2")]
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="other exists and is not a box; choose another place or remove it first"):
        fill(tmp_path / "other", "3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["box", "other"]


@pytest.mark.parametrize("problem", [OSError("full"), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_what_was_there(tmp_path, problem):
    fill(tmp_path / "box", "1")
    for name in ("box", "new"):
        with pytest.raises(type(problem)):
            fill(tmp_path / name, problem)
    assert [path.name for path in tmp_path.iterdir()] == ["box"]
    assert (tmp_path / "box" / "box").read_text(encoding="utf-8") == "1"


def test_a_folder_that_cannot_be_put_in_place_leaves_the_older_one(tmp_path, monkeypatch):
    fill(tmp_path / "box", "1")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.startswith(".box.") and not self.name.endswith(".old"):
            raise OSError("not now")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="not now"):
        fill(tmp_path / "box", "2")
    assert [path.name for path in tmp_path.iterdir()] == ["box"]
    assert (tmp_path / "box" / "box").read_text(encoding="utf-8") == "1"
