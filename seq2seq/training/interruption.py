"""A run that is asked to stop, by Ctrl-C, SIGTERM, a closed terminal or a cluster's SIGUSR1, ends where it can be gone
on from exactly.

The first signal is noted. Before the next step all processes agree that one of them was asked, so that they stop at the
same step; `checkpoints/last.ckpt` is written; the command ends with 128 + the signal's number. A validation that is
going on is given up, and the resumed run begins with it. The second signal ends the process at once.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loops.progress import _ProcessedTracker, _ReadyCompletedTracker

from seq2seq.training.distribution import sum_over_ranks
from seq2seq.training.launch import place

log = logging.getLogger(__name__)

_asked: int | None = None
"""The signal that this process was sent; None if it was sent none."""
_cuts_short = False
"""Whether what is being done now is given up at once for a signal."""


class Interrupted(SystemExit):
    """Ends the process with the exit code of the signal that it was sent.

    Args:
        signum: The signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum


def stop_if_asked() -> None:
    """Stop if any of the processes was asked to. Every rank must call it.

    Raises:
        Interrupted: on all ranks.
    """
    # one bit for each kind of signal, so that ranks that were sent different ones agree on what they say
    kinds = _signals()
    asked = sum_over_ranks([_asked == signum for signum in kinds])
    for signum, count in zip(kinds, asked, strict=True):
        if count:
            raise Interrupted(signum)


@contextmanager
def cut_short() -> Iterator[None]:
    """What is done inside is given up when this process is asked to stop, and then all ranks stop.

    It is for work that takes long and that each rank does without the others. Every rank must come here.

    Raises:
        Interrupted: on all ranks.
    """
    global _cuts_short
    try:
        _cuts_short = True
        if _asked is not None:
            raise Interrupted(_asked)
        yield
    except Interrupted:  # not before the other ranks know
        pass
    finally:
        _cuts_short = False
    stop_if_asked()


class Interruption(Callback):
    """Listens for signals while a run trains, and stops it between two steps. It stands before all other callbacks."""

    def __init__(self) -> None:
        self.validation_left = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen. Lightning, which has just begun to, puts everything back at the end."""
        global _asked
        _asked = None
        if threading.current_thread() is threading.main_thread():
            for signum in _signals():
                if signum is not getattr(signal, "SIGHUP", None) or signal.getsignal(signum) is not signal.SIG_IGN:
                    signal.signal(signum, _take_note)  # a terminal that is closed is nothing to what `nohup` started

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Stop before a step, its batch not touched yet."""
        stop_if_asked()

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Stop before a batch of a validation, of which all ranks have equally many."""
        stop_if_asked()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the loops as they were after the last step, for the checkpoint that is written next."""
        self.validation_left = isinstance(exception, Interrupted) and trainer.validating
        loop = trainer.fit_loop.epoch_loop
        for count in (loop.batch_progress.total, loop.batch_progress.current):
            _level(count, to="processed")  # a batch that was begun is begun again
        loop.val_loop.batch_progress.reset()

    def make_up(self, trainer: Trainer) -> None:
        """Validate, if the run that is resumed was stopped while it validated."""
        if not self.validation_left:
            return
        self.validation_left = False
        loop = trainer.fit_loop.epoch_loop.val_loop
        trainer.validating = True
        loop.run()
        trainer.training = True
        # what follows is as after a resume from this validation's checkpoint
        loop._has_run = False

    def state_dict(self) -> dict[str, Any]:
        """What the resumed run has to do first, for the checkpoint."""
        return {"validation_left": self.validation_left}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Know what has to be done first."""
        self.validation_left = state_dict["validation_left"]


def make_up_validation(trainer: Trainer) -> None:
    """Validate before the first step, if the run that is resumed was stopped while it validated."""
    for callback in getattr(trainer, "callbacks", ()):  # Lightning declares it nowhere
        if isinstance(callback, Interruption):
            callback.make_up(trainer)


def _level(count: _ReadyCompletedTracker, to: str) -> None:
    """Set all numbers of one of Lightning's counts to one of them."""
    assert isinstance(count, _ProcessedTracker)
    count.ready = count.started = count.processed = count.completed = getattr(count, to)


def _signals() -> tuple[int, ...]:
    """What a run may be asked to stop by, the most urgent first."""
    here, kinds = place(), [signal.SIGINT, signal.SIGTERM]
    if here is not None and here.by == "SLURM" and hasattr(signal, "SIGUSR1"):
        kinds.append(signal.SIGUSR1)
    if hasattr(signal, "SIGHUP"):
        kinds.append(signal.SIGHUP)
    return tuple(kinds)


def _say(line: str) -> None:
    """Write a line on standard error, or, when the terminal was closed, have all that follows go nowhere."""
    try:
        os.write(2, line.encode())
    except OSError:  # the bar would end the run by the same error, before its checkpoint
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)


def _take_note(signum: int, frame: FrameType | None) -> None:
    """The first signal is noted; the second ends the process."""
    global _asked
    if _asked is not None:
        if sys.stderr.isatty():
            os.write(2, b"\x1b[?25h")  # the bar has hidden the cursor
        os._exit(128 + signum)
    _asked = signum
    here = place()
    if here is None or here.rank == 0:
        # not by `logging`, which may be in the middle of a line
        name = signal.Signals(signum).name
        _say(f"{name}: stopping after this step; once more ends at once, without a checkpoint\n")
    if _cuts_short:
        raise Interrupted(signum)
