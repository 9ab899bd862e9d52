"""`seq2seq verify-resume` as it is typed: one and two processes, batches put together here and by workers."""

import json
import os
import subprocess
import sys

import pytest

SECONDS = 600
"""On an idle machine it takes less than one minute."""


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("devices", [1, 2])
def test_r1_a_resumed_run_of_the_command_equals_the_straight_one(tmp_path, devices, num_workers):
    typed = ["verify-resume", "--json", "--steps", "5", f"--devices={devices}", f"data.num_workers={num_workers}"]
    done = subprocess.run(
        [sys.executable, "-m", "seq2seq", *typed],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["equal"]
    assert (found["stopped_after"], found["num_steps"], found["num_ranks"]) == (5, 10, devices)
    assert found["counts"]["parameters"] == found["counts"]["batch ids"] == 10 * devices
