import pytest
import torch
from torch import nn

from seq2seq.nn.device import evaluation, find_device, threads_wanted


def test_auto_is_a_gpu_when_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for there, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert find_device("auto") == torch.device(expected)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert find_device("auto") == torch.device("mps")


def test_a_named_device_is_taken_as_it_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("cpu") == find_device(torch.device("cpu")) == torch.device("cpu")
    assert find_device("cuda:1") == torch.device("cuda", 1)


def test_a_name_without_meaning_is_refused():
    with pytest.raises(ValueError, match="device=gpu is not known; expected auto, cpu, cuda, cuda:1 or mps"):
        find_device("gpu")
    with pytest.raises(ValueError, match="device=meta is not known; expected auto, cpu, cuda, cuda:1 or mps"):
        find_device("meta")


def test_a_device_that_this_machine_has_not_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"device=cuda:1 is not there: torch .* finds 1 cuda devices; choose auto"):
        find_device("cuda:1")


@pytest.mark.parametrize("training", [True, False])
def test_the_models_mode_is_restored_even_after_an_error(training):
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout()).train(training)

    def fail() -> None:
        with evaluation(model):
            assert not any(module.training for module in model.modules())
            assert not torch.is_grad_enabled()
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert all(module.training is training for module in model.modules())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(("value", "expected"), [("", None), ("4", 4), (" 3 , 2", 3)])
def test_threads_that_the_environment_asks_for(monkeypatch, value, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert threads_wanted() == expected


@pytest.mark.parametrize("value", ["0", "two", "2,", "-1"])
def test_threads_that_are_no_number_are_refused(monkeypatch, value):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    with pytest.raises(ValueError, match=f"OMP_NUM_THREADS={value} is not a number of threads; expected such as 4"):
        threads_wanted()
