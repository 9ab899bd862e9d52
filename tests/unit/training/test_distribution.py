"""What ranks tell one another, where there is one of them; two of them are in the tests of parity."""

from unittest.mock import MagicMock

import pytest
import torch
from pytorch_lightning import LightningModule
from torch import distributed

from seq2seq.training.distribution import (
    alone,
    any_over_ranks,
    barrier,
    from_rank_zero,
    gather_over_ranks,
    log_the_same,
    num_ranks,
    rank,
    sum_over_ranks,
)


def test_one_process_is_told_what_it_says():
    barrier()
    assert (rank(), num_ranks()) == (0, 1)
    assert sum_over_ranks([1, 0.25]) == [1.0, 0.25]
    assert [any_over_ranks(here) for here in (True, False)] == [True, False]
    assert from_rank_zero("a") == "a"
    assert gather_over_ranks("a") == ["a"]


@pytest.fixture
def group(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_a_group_of_one_adds_exactly_and_gives_back_what_was_sent(group):
    barrier()
    assert sum_over_ranks([2**50 + 1, 0.1, True]) == [2**50 + 1, 0.1, 1.0]
    assert from_rank_zero({"a": [torch.ones(2)]})["a"][0].tolist() == [1, 1]
    assert gather_over_ranks(["ü"]) == [["ü"]]


def test_what_a_rank_does_alone_is_sent_nowhere(group, monkeypatch):
    monkeypatch.setattr(distributed, "all_reduce", lambda *_: pytest.fail("something was sent"))
    with alone():
        assert sum_over_ranks([3]) == [3.0]
        assert num_ranks() == 1


def test_values_in_common_are_brought_together_only_where_there_are_several_ranks(monkeypatch):
    module = MagicMock(spec=LightningModule)
    for count in (1, 2):
        monkeypatch.setattr("seq2seq.training.distribution.num_ranks", lambda count=count: count)
        log_the_same(module, {"a": 1.5})
        module.log_dict.assert_called_with({"a": 1.5}, batch_size=1, sync_dist=count > 1, reduce_fx="max")
