"""A run whose weights give no numbers any more ends before a validation decodes with them, or keeps them."""

import math

from pytorch_lightning import Callback, LightningModule, Trainer

from seq2seq.training.distribution import any_over_ranks
from seq2seq.training.module import TrainingModule


class BrokenWeights(Callback):
    """Looks at the loss of each validation. It stands before all callbacks that do something with the model then.

    A single step with finite gradients is enough to break weights, if the learning rate is far too high: the guard of
    the steps sees only what comes after it, and a validation may come before it has seen enough.
    """

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the run if the loss is not a number, on whatever rank.

        Raises:
            BadStepsError: on all ranks, so that none of them keeps such weights.
        """
        assert isinstance(pl_module, TrainingModule)
        if any_over_ranks(math.isnan(pl_module.valid_sums.numbers()["nll"])):
            raise pl_module.guard.broken(trainer.global_step)
