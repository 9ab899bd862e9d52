"""Means of checkpoints."""

import pytest
import torch

from seq2seq.training.averaging import average_checkpoints, checkpoint_weights, latest_checkpoints


def save(path, **weights):
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {f"model.{name}": value for name, value in weights.items()}
    torch.save({"state_dict": state, "global_step": 3}, path)
    return path


def test_the_mean_is_elementwise_and_tied_weights_stay_equal(tmp_path):
    tied = [torch.tensor([1.0, 2.0]), torch.tensor([4.0, 8.0]), torch.tensor([1.0, -1.0])]
    paths = [save(tmp_path / f"{i}.ckpt", rows=value, output=value) for i, value in enumerate(tied)]
    mean = average_checkpoints(paths)
    assert mean["rows"].tolist() == [2.0, 3.0]
    assert torch.equal(mean["rows"], mean["output"])
    assert mean["rows"].dtype == torch.float32


def test_the_mean_of_one_checkpoint_is_itself(tmp_path):
    value = torch.randn(3, 4)
    assert torch.equal(average_checkpoints([save(tmp_path / "a.ckpt", w=value)])["w"], value)


def test_a_missing_a_damaged_and_a_foreign_file_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*none\.ckpt"):
        checkpoint_weights(tmp_path / "none.ckpt")
    (tmp_path / "bad.ckpt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"bad\.ckpt is not a readable training checkpoint"):
        checkpoint_weights(tmp_path / "bad.ckpt")
    with pytest.raises(ValueError, match="no checkpoints to average"):
        average_checkpoints([])


def test_checkpoints_of_different_models_are_refused(tmp_path):
    first = save(tmp_path / "a.ckpt", w=torch.zeros(2))
    with pytest.raises(ValueError, match=r"b\.ckpt is not of the same model as .*a\.ckpt: v is in only one"):
        average_checkpoints([first, save(tmp_path / "b.ckpt", v=torch.zeros(2), w=torch.zeros(2))])
    with pytest.raises(ValueError, match=r"w is \[3\] and \[2\]"):
        average_checkpoints([first, save(tmp_path / "c.ckpt", w=torch.zeros(3))])


def test_the_latest_checkpoints_of_a_run_are_found_by_step(tmp_path):
    for step in (5, 100, 20):
        save(tmp_path / "checkpoints" / f"recent_step_{step:06d}.ckpt", w=torch.zeros(1))
    names = [path.name for path in latest_checkpoints(tmp_path, 2)]
    assert names == ["recent_step_000020.ckpt", "recent_step_000100.ckpt"]
    assert len(latest_checkpoints(tmp_path)) == 3
    with pytest.raises(ValueError, match="has 3 recent checkpoints, 4 were asked for; choose --last 3"):
        latest_checkpoints(tmp_path, 4)
    with pytest.raises(FileNotFoundError, match="has no checkpoints/recent_step"):
        latest_checkpoints(tmp_path / "empty", 1)


def test_a_pickle_is_never_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    torch.save({"state_dict": {}, "evil": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(ValueError, match="not a readable training checkpoint"):
        checkpoint_weights(tmp_path / "evil.ckpt")
