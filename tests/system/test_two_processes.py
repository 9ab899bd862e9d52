"""`seq2seq train` on two processes of the CPU: one folder, one log, one end, whatever happens to either of them."""

import csv
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from seq2seq import load
from seq2seq.training.averaging import checkpoint_weights, read_checkpoint

WORDS = ["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta"]
TRAIN = [
    "train", "model=transformer_tiny", "model.d_model=16", "model.d_ff=24", "logger=csv", "name=small",
    "data.tokenizer.vocab_size=280", "data.batch_tokens=300", "data.max_length=60", "data.valid_size=13",
    "data.train_source=../my.de", "data.train_target=../my.en", "decode.beam_size=2", "decode.max_length=6",
    "optim.warmup_steps=1", "trainer=ddp_cpu", "trainer.max_epochs=null", "trainer.num_threads=1",
    "trainer.log_every=1", "trainer.validate_every=3", "trainer.num_samples=1",
]  # fmt: skip
FOR_EVER = ["trainer.max_steps=1000000", "trainer.patience=null", "hydra.run.dir=run"]
SECONDS = 240
"""On an idle machine a run takes seven; what takes so much longer has hung."""
NOTES = """
import os
from pathlib import Path
from pytorch_lightning import Callback

class Notes(Callback):
    def on_train_start(self, trainer, pl_module):
        Path(f"pid_{trainer.global_rank}").write_text(str(os.getpid()))
    def on_train_end(self, trainer, pl_module):
        Path(f"steps_{trainer.global_rank}").write_text(str(trainer.global_step))
"""


class Run:
    """A command that goes on in a folder of its own."""

    def __init__(self, folder: Path, *options: str, start: tuple[str, ...] = (), **environment: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "notes.py").write_text(NOTES, encoding="utf-8")
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        command = [sys.executable, *start, "-m", "seq2seq", *TRAIN, "+callbacks.notes._target_=notes.Notes", *options]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"} | environment, stdout=out, stderr=err
            )

    def wait_for_checkpoint(self) -> Path:
        """Until the first validation is over."""
        last = self.folder / "run" / "checkpoints" / "last.ckpt"
        limit = time.monotonic() + SECONDS
        while not last.exists() and time.monotonic() < limit and self.process.poll() is None:
            time.sleep(0.05)
        assert last.exists(), self.said()
        return last

    def ends(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()
            for pid in self.left():
                os.kill(pid, signal.SIGKILL)

    def pids(self) -> dict[int, int]:
        """The process of each rank."""
        return {int(file.name[4:]): int(file.read_text()) for file in self.folder.glob("pid_*")}

    def left(self) -> list[int]:
        """The processes that have not ended."""
        return [pid for pid in self.pids().values() if lives(pid)]

    def said(self) -> str:
        """What it has written to standard error."""
        return self.err.read_text(encoding="utf-8")


def lives(pid):
    """Whether there is such a process, and it has not ended."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        return stat.exists() and stat.read_text().rpartition(") ")[2][0] not in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    draw = random.Random(1)
    lines = [" ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 7))) for _ in range(150)]
    for name in ("my.de", "my.en"):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    """A run that ends by patience, written where Hydra's clock says."""
    run = Run(folder / "a", "trainer.max_steps=30", "trainer.patience=1", "decode.max_length=2")
    assert run.ends() == 0, run.said()
    return run


@pytest.fixture(scope="module")
def run_dir(run):
    (only,) = (run.folder / "outputs" / "small").iterdir()
    return only


def test_r8_all_ranks_use_one_folder_one_log_and_one_best_checkpoint(run, run_dir):
    promised = {".hydra", "bundle", "checkpoints", "config.yaml", "metrics.csv", "run.json", "samples.jsonl"}
    assert promised | {"tokenizer", "train.log"} <= {path.name for path in run_dir.iterdir()}
    assert list(run.folder.rglob("*.log")) == [run_dir / "train.log"]
    said = (run_dir / "train.log").read_text(encoding="utf-8")
    for once in ("training text: ", "pieces trained on", "step 3: valid BLEU", "bundle written from"):
        assert said.count(once) == 1, once
    best = read_checkpoint(run_dir / "checkpoints" / "last.ckpt")["callbacks"]
    names = {
        Path(state["best_model_path"]).name
        for name, state in best.items()
        if name.startswith("KeptCheckpoints") and "valid/bleu" in name
    }
    assert json.loads((run_dir / "bundle" / "config.json").read_text())["provenance"]["checkpoints"] == list(names)
    assert (run_dir / "checkpoints" / names.pop()).is_file()


def test_r8_metrics_and_samples_have_each_row_once(run_dir):
    with (run_dir / "metrics.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    steps = [(row["step"], bool(row["train/loss"])) for row in rows]
    assert set(Counter(steps).values()) == {1}
    assert [step for step, training in steps if training] == [str(step + 1) for step in range(len(rows) * 3 // 4)]
    samples = [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]
    assert [sample["step"] for sample in samples] == [int(step) for step, training in steps if not training]


def test_d5_patience_stops_both_ranks_at_the_same_step(run, run_dir):
    steps = {rank: int((run.folder / f"steps_{rank}").read_text()) for rank in (0, 1)}
    assert steps[0] == steps[1] < 30
    assert f"ended at step {steps[0]}: valid/bleu has not improved in 1 validations" in run.said()


def test_r7_the_bundle_is_named_from_where_the_command_was_typed_and_translates(run, run_dir):
    (line,) = run.out.read_text().splitlines()
    assert line == f"outputs/small/{run_dir.name}/bundle"
    (translation,) = load(str(run.folder / line)).translate(["alpha beta"])
    assert translation.log_prob < 0
    assert run.left() == []


def test_d5_an_interrupt_leaves_a_usable_checkpoint_and_no_process(folder):
    run = Run(folder / "interrupted", *FOR_EVER)
    last = run.wait_for_checkpoint()
    run.process.send_signal(signal.SIGINT)
    assert run.ends() == 130
    assert run.left() == []
    assert len(run.pids()) == 2
    assert "interrupted; to go on, type the same command with resume=run/checkpoints/last.ckpt" in run.said()
    assert "Traceback" not in run.said()
    checkpoint = read_checkpoint(last)
    assert checkpoint["global_step"] >= 3
    assert len(checkpoint["ranks"]) == 2


def test_d5_a_rank_that_is_killed_ends_the_run_with_its_error(folder):
    run = Run(folder / "killed", *FOR_EVER)
    run.wait_for_checkpoint()
    os.kill(run.pids()[1], signal.SIGKILL)
    assert run.ends() == 137
    assert "error: process 1 of 2 (rank 1) was ended by SIGKILL; was there enough memory?" in run.said()
    assert "Traceback" not in run.said()
    assert run.left() == []


@pytest.mark.slow
def test_what_every_rank_refuses_is_told_once_and_leaves_no_folder(folder):
    run = Run(folder / "refused", "trainer.max_steps=1", "data.train_source=nothing.de")
    assert run.ends() == 1
    (error,) = [line for line in run.said().splitlines() if "error" in line]
    assert error.startswith("error: no such file: nothing.de")
    assert list((run.folder / "outputs").iterdir()) == []


@pytest.mark.slow
def test_sigterm_ends_a_run_with_143_and_one_that_is_resumed_equals_one_that_was_not_stopped(folder):
    options = ["trainer.patience=null", "hydra.run.dir=run", "trainer.average_last=0"]
    straight = Run(folder / "straight", *options, "trainer.max_steps=60")
    assert straight.ends() == 0, straight.said()
    run = Run(folder / "stopped", *options, "trainer.max_steps=60")
    run.wait_for_checkpoint()
    run.process.send_signal(signal.SIGTERM)
    assert run.ends() == 143
    resumed = Run(folder / "resumed", *options, "trainer.max_steps=60", "resume=../stopped/run/checkpoints/last.ckpt")
    assert resumed.ends() == 0, resumed.said()
    weights = [checkpoint_weights(path / "run/checkpoints/last.ckpt") for path in (straight.folder, resumed.folder)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_processes_whose_parent_was_killed_write_a_checkpoint_and_end(folder):
    run = Run(folder / "orphans", *FOR_EVER)
    run.wait_for_checkpoint()
    run.process.kill()
    limit = time.monotonic() + SECONDS
    while run.left() and time.monotonic() < limit:
        time.sleep(0.1)
    assert run.left() == []
    assert read_checkpoint(run.folder / "run/checkpoints/last.ckpt")["optimizer_states"]
    run.ends()


@pytest.mark.slow
def test_r8_processes_that_torchrun_has_started_use_one_folder(folder):
    run = Run(
        folder / "torchrun", "trainer.max_steps=3",
        start=("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"),
    )  # fmt: skip
    assert run.ends() == 0, run.said()
    (run_dir,) = (run.folder / "outputs" / "small").iterdir()
    assert run.out.read_text().splitlines() == [f"outputs/small/{run_dir.name}/bundle"]
    assert list(run.folder.rglob("*.log")) == [run_dir / "train.log"]


@pytest.mark.slow
def test_r8_two_machines_that_torchrun_has_brought_together_use_one_folder(folder):
    """Each of two agents, which know of each other by the network alone, starts one process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "machines").mkdir()
    runs = [
        Run(
            folder / "machines" / str(node), "trainer.max_steps=3", "trainer.devices=1", "trainer.num_nodes=2",
            "data.train_source=../../my.de", "data.train_target=../../my.en",
            start=("-m", "torch.distributed.run", "--nproc-per-node=1", "--nnodes=2", f"--node-rank={node}",
                   "--master-addr=127.0.0.1", f"--master-port={port}"),
        )
        for node in (0, 1)
    ]  # fmt: skip
    assert [run.ends() for run in runs] == [0, 0], "\n".join(run.said() for run in runs)
    assert [(run.folder / f"steps_{rank}").read_text() for rank, run in enumerate(runs)] == ["3", "3"]
    assert len(list((runs[0].folder / "outputs" / "small").iterdir())) == 1
    assert not (runs[1].folder / "outputs").exists()


@pytest.mark.slow
def test_r8_processes_that_slurm_has_started_use_one_folder(folder):
    slurm = {
        "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_NODEID": "0",
        "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": str(random.randint(1000, 9999)), "SLURM_NODELIST": "127.0.0.1",
    }  # fmt: skip
    (folder / "slurm").mkdir()
    runs = [
        Run(folder / "slurm" / str(rank), "trainer.max_steps=3", "data.train_source=../../my.de",
            "data.train_target=../../my.en", **slurm, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank))
        for rank in (0, 1)
    ]  # fmt: skip
    assert [run.ends() for run in runs] == [0, 0], "\n".join(run.said() for run in runs)
    # each was started in a folder of its own, so that one that had made a run's folder for itself would be seen
    assert len(list((runs[0].folder / "outputs" / "small").iterdir())) == 1
    assert not (runs[1].folder / "outputs").exists()
    assert runs[1].out.read_text() == ""


@pytest.mark.slow
def test_divided_weights_become_those_of_whole_ones_and_are_gone_on_with_by_one_process(folder):
    options = ["model.dropout=0", "trainer.patience=null", "hydra.run.dir=run", "trainer.max_steps=6"]
    runs = {}
    for strategy in ("ddp", "fsdp"):
        runs[strategy] = Run(folder / strategy, *options, f"trainer.strategy={strategy}")
        assert runs[strategy].ends() == 0, runs[strategy].said()
    whole, divided = (read_checkpoint(run.folder / "run/checkpoints/last.ckpt") for run in runs.values())
    assert whole["state_dict"].keys() == divided["state_dict"].keys()
    # the biases of keys change nothing, so their gradients are rounding errors, of which Adam makes whole steps
    names = [name for name in whole["state_dict"] if not name.endswith("key_value.bias")]
    for name in names:
        torch.testing.assert_close(divided["state_dict"][name], whole["state_dict"][name], rtol=2e-3, atol=2e-5)
    states = [content["optimizer_states"][0]["state"] for content in (whole, divided)]
    assert states[0].keys() == states[1].keys()
    for number, state in states[0].items():
        torch.testing.assert_close(states[1][number]["exp_avg"], state["exp_avg"], rtol=2e-2, atol=2e-5)
    alone = Run(
        folder / "alone", *options, "trainer.devices=1", "trainer.accumulate=2", "trainer.max_steps=9",
        "resume=../fsdp/run/checkpoints/last.ckpt",
    )  # fmt: skip
    assert alone.ends() == 0, alone.said()
    again = Run(
        folder / "again", *options, "trainer.strategy=fsdp", "trainer.max_steps=9",
        "resume=../fsdp/run/checkpoints/last.ckpt",
    )  # fmt: skip
    assert again.ends() == 0, again.said()
    one, two = (checkpoint_weights(run.folder / "run/checkpoints/last.ckpt") for run in (alone, again))
    for name in (name.removeprefix("model.") for name in names):
        torch.testing.assert_close(two[name], one[name], rtol=2e-3, atol=2e-4)
