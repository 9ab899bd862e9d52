"""Two processes against one: batches, gradients, losses, weights, translations and scores, in float64."""

import json
import math
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

PROGRAM = Path(__file__).with_name("ranks_program.py")
SECONDS = 240
"""A minute is usual on a busy machine; a process that waits for the other longer than this waits for ever."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the two processes write."""
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def two(folder: Path) -> list[dict[str, Any]]:
    """What each of two processes has found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "OMP_NUM_THREADS": "1"}
    processes, logs = [], [folder / f"{rank}.log" for rank in (0, 1)]
    for rank, log in enumerate(logs):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "GROUP_RANK": "0"}
        with log.open("wb") as stream:
            command = [sys.executable, str(PROGRAM), str(folder)]
            processes.append(subprocess.Popen(command, env=os.environ | place | meeting, stderr=stream))
    try:
        codes = [process.wait(SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0, 0], "\n".join(log.read_text(encoding="utf-8") for log in logs)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    """What one process finds, which accumulates the batches of both."""
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = runpy.run_path(str(PROGRAM))["everything"](1, 0, Path(folder))
    return found


RUNS = pytest.mark.parametrize("run", ["pairs", "parts", "text"])
"""Batches of pairs, one a step and process; three a step and process; blocks of plain text, three."""


@RUNS
def test_d3_each_rank_has_its_share_of_every_step_and_both_the_whole_text_once(one, two, run):
    for joined, first, second in zip(one[run]["batches"], *(rank[run]["batches"] for rank in two), strict=True):
        assert len(first) == len(second) == math.ceil(len(joined) / 2)
        assert first == joined[::2]
        assert [part for part in second if part[0]] == joined[1::2]
        for indices, num_target_tokens, size in second:
            assert (indices == []) == (num_target_tokens == 0)
            assert size <= 45
    assert {rank[run]["steps_an_epoch"] for rank in two} == {one[run]["steps_an_epoch"]}
    epoch = [rank[run]["batches"][: one[run]["steps_an_epoch"]] for rank in two]
    seen = sorted(index for steps in epoch for step in steps for indices, _, _ in step for index in indices)
    assert seen == list(range(len(seen)))
    assert len(seen) >= 13


@RUNS
def test_t2_gradients_and_weights_of_two_ranks_are_those_of_one_with_the_joined_batches(one, two, run):
    left_out = [part for step in two[1][run]["batches"] for part in step if not part[0]]
    assert left_out or run == "text", "no rank was ever without a batch, so that was not tested"
    for rank in two:
        for step, joined in zip(rank[run]["gradients"], one[run]["gradients"], strict=True):
            for name, gradient in joined.items():
                torch.testing.assert_close(step[name], gradient, rtol=1e-9, atol=1e-12)
        for name, weight in one[run]["weights"].items():
            torch.testing.assert_close(rank[run]["weights"][name], weight, rtol=1e-8, atol=1e-9)
    for name, weight in two[0][run]["weights"].items():
        assert torch.equal(weight, two[1][run]["weights"][name])


@RUNS
def test_logged_values_are_the_same_on_all_ranks_and_those_of_one_process(one, two, run):
    assert two[0][run]["metrics"] == two[1][run]["metrics"]
    assert "train/loss" in two[0][run]["metrics"][-1]
    assert "valid/nll" in two[0][run]["metrics"][-1]
    for values, joined in zip(two[0][run]["metrics"], one[run]["metrics"], strict=True):
        assert values == pytest.approx(joined, rel=1e-6, abs=1e-9)


def test_gradients_are_sent_once_a_step_however_many_batches_it_has(two):
    for rank in two:
        assert rank["pairs"]["sent"][-1] == rank["parts"]["sent"][-1] > 0
        assert rank["parts"]["sent"][1:] == [rank["parts"]["sent"][-1]] * 4  # torch arranges them anew after the first


def test_d1_a_validation_with_beam_search_ends_and_its_scores_are_those_of_one_process(one, two):
    for run in ("pairs", "parts"):  # 14 lines; two lines, one of them blank, so that a rank has nothing to translate
        lines = one[run]["samples"]
        assert len(lines.splitlines()) == {"pairs": 14, "parts": 2}[run]
        for rank in two:
            assert rank[run]["samples"] == lines
            for name in ("valid/bleu", "valid/chrf"):
                assert rank[run]["metrics"][-1][name] == one[run]["metrics"][-1][name]
    translations = [json.loads(line)["translation"] for line in one["pairs"]["samples"].splitlines()]
    assert len(set(translations)) > 3
    assert one["pairs"]["metrics"][-1]["valid/chrf"] > 0


def test_validating_more_often_does_not_change_the_training_path_of_two_ranks(two):
    for rank in two:
        assert len(rank["often"]["metrics"]) > len(rank["seldom"]["metrics"])
        for name, weight in rank["often"]["weights"].items():
            assert torch.equal(weight, rank["seldom"]["weights"][name])


@pytest.mark.parametrize("run", ["sampled", "r_drop", "guarded"])
def test_training_in_several_passes_divided_weights_and_averages_are_those_of_one_process(one, two, run):
    for rank in two:
        assert rank[run]["metrics"] == two[0][run]["metrics"]
        for values, joined in zip(rank[run]["metrics"], one[run]["metrics"], strict=True):
            assert values == pytest.approx(joined, rel=1e-6, abs=1e-9)
        for kind in ("weights", "averages"):
            assert rank[run][kind].keys() == one[run][kind].keys()
            for name, weight in one[run][kind].items():
                torch.testing.assert_close(rank[run][kind][name], weight, rtol=1e-8, atol=1e-9)


def test_divided_weights_and_their_averages_are_gone_on_with_by_two_ranks_and_by_one(one, two, folder):
    content = torch.load(folder / "sampled.ckpt", weights_only=True)
    assert content["global_step"] == 2
    alone = runpy.run_path(str(PROGRAM))["sampled"](1, resume=folder / "sampled.ckpt")
    for found in (alone, *(rank["resumed"] for rank in two)):
        for kind in ("weights", "averages"):
            for name, weight in one["sampled"][kind].items():
                torch.testing.assert_close(found[kind][name], weight, rtol=1e-8, atol=1e-9)


def test_divided_weights_compute_in_half_precision_as_whole_ones(one, two):
    for rank in two:
        assert rank["mixed"]["metrics"] == two[0]["mixed"]["metrics"]
        for values, joined in zip(rank["mixed"]["metrics"], one["mixed"]["metrics"], strict=True):
            assert values["train/loss"] == pytest.approx(joined["train/loss"], rel=0.01)
        assert rank["mixed"]["metrics"][-1]["valid/nll"] == pytest.approx(
            one["mixed"]["metrics"][-1]["valid/nll"], rel=0.02
        )
    assert one["mixed"]["weights"]["output"].dtype == torch.float32


def test_what_such_training_is_about_has_happened(one, two):
    assert one["sampled"]["metrics"][-1]["train/mixed_share"] == 1
    assert one["r_drop"]["metrics"][-1]["train/r_drop_divergence"] > 0.01
    for run in ("sampled", "guarded"):
        assert one[run]["averages"].keys() == {f"model.{name}" for name in one[run]["weights"]}
        for name, average in one[run]["averages"].items():
            assert not torch.equal(average, one[run]["weights"][name.removeprefix("model.")]), name
    for kind in ("sampled", "r_drop"):
        assert two[0][kind]["sent"] == [0] * 5, "the weights were not divided"


def test_t6_ranks_skip_the_same_steps_also_if_the_gradients_of_one_alone_are_bad(one, two):
    # the second one for one rank's gradients that are no numbers, others for gradients that are too large
    skipped = one["guarded"]["skipped"]
    assert skipped[:2] == [1, 2]
    assert 2 < skipped[-1] < len(skipped)
    assert [rank["guarded"]["skipped"] for rank in two] == [skipped, skipped]


def test_each_rank_draws_dropout_masks_of_its_own(two):
    assert not torch.equal(*(rank["often"]["random"][0] for rank in two))


def test_one_process_goes_on_from_a_checkpoint_of_two_in_the_middle_of_an_epoch(one, two, folder, tmp_path):
    program = runpy.run_path(str(PROGRAM))
    rest = program["translation"](1, tmp_path, valid=[3], resume=folder / "second.ckpt")
    assert rest["batches"] == one["pairs"]["batches"][2:]
    for name, weight in one["pairs"]["weights"].items():
        torch.testing.assert_close(rest["weights"][name], weight, rtol=1e-8, atol=1e-9)


def test_what_ranks_tell_one_another(two):
    for found in two:
        assert found["sum"] == [3.0, 0.2, 2**41 + 1.0]
        assert found["any"] == [True, False]
        assert found["first"]["rank"] == 0
        assert found["first"]["weights"].tolist() == [0, 0]
        assert found["all"] == [[], ["x"]]
