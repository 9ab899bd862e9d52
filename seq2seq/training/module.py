"""One optimiser step, and the validation loss, whatever a model learns."""

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from seq2seq.config import OptimConfig, ScheduledSamplingConfig
from seq2seq.models import Transformer
from seq2seq.shapes import Bool, Float, Int, Tensor
from seq2seq.training.distribution import gather_over_ranks, log_the_same, num_ranks, rank, sum_over_ranks
from seq2seq.training.guard import StepGuard, clip_gradients, lower_scale
from seq2seq.training.interruption import make_up_validation
from seq2seq.training.loss import BatchLoss, batch_loss
from seq2seq.training.moving_average import MovingAverage, weights_to_train
from seq2seq.training.optimizers import build_optimizer, set_rate
from seq2seq.training.random_state import random_state, restore_of_rank
from seq2seq.training.schedule import learning_rate
from seq2seq.training.strategy import divide
from seq2seq.training.sums import Sums


class TrainingModule(LightningModule, ABC):
    """A network under training.

    One call of `training_step` is one optimiser step: it is given all the batches of the step, so the loss can be
    divided by the number of their predicted pieces together, and no state lives between the batches of a step.

    Args:
        model: The network.
        optim: Loss, optimiser and schedule.
        d_model: Width of the network, which the schedule depends on.
        log_every: Steps between logged training metrics.
        total_steps: The step at which the run ends; None where that is not known.
        sampling: Scheduled sampling; None is plain teacher forcing.
    """

    usual_smoothing: ClassVar[float]
    """Label smoothing where the options say none."""

    def __init__(
        self,
        model: Transformer,
        optim: OptimConfig,
        d_model: int,
        log_every: int = 20,
        total_steps: int | None = None,
        sampling: ScheduledSamplingConfig | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.optim = optim
        self.smoothing = optim.label_smoothing if optim.label_smoothing is not None else self.usual_smoothing
        self.d_model = d_model
        self.log_every = log_every
        self.sampling = sampling or ScheduledSamplingConfig()
        self.total_steps = total_steps
        self.guard = StepGuard(optim.max_bad_steps, optim.skip_norm)
        self.average = MovingAverage(optim.ema_decay) if optim.ema_decay is not None else None
        self.rank_states: list[dict[str, Any]] = []
        self.step_began: dict[str, Any] | None = None
        self.train_sums = Sums()
        self.valid_sums = Sums()

    @abstractmethod
    def training_loss(self, batch: Any) -> BatchLoss:
        """The loss of one batch, with all that is trained on."""

    @abstractmethod
    def validation_loss(self, batch: Any) -> BatchLoss:
        """The loss of one batch, of the target alone."""

    def num_pieces(self, batch: Any) -> int:
        """Pieces that count in the training loss."""
        num: int = batch.num_target_tokens
        return num

    def extra_metrics(self, sums: Sums) -> dict[str, float]:
        """What a validation tells beside the usual means."""
        return {}

    def extra_training_metrics(self, sums: Sums) -> dict[str, float]:
        """What is logged of training beside the usual means."""
        return {}

    def losses(
        self,
        hidden: Float[Tensor, "B T D"],
        targets: Int[Tensor, "B T"],
        counted: Bool[Tensor, "B T"],
        smoothing: float,
    ) -> BatchLoss:
        """Loss at the places that count."""
        return batch_loss(self.model, hidden, targets, counted, smoothing, self.optim.loss_chunk)

    def configure_model(self) -> None:
        """Where the ranks share one set of weights, divide it."""
        divide(self, self.trainer.strategy)

    def configure_optimizers(self) -> Optimizer:
        """The optimiser; its rate is set at every step."""
        return build_optimizer(self.model, self.optim, fused=self.device.type in ("cpu", "cuda"))

    def _trained(self) -> list[nn.Parameter]:
        """The parameters that are not frozen."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what every rank needs to go on: its random numbers, and its sums since metrics were last logged.

        All ranks are here; of weights alone nothing goes on.
        """
        if "optimizer_states" in checkpoint:
            state = self.step_began or self._rank_state()
            checkpoint["ranks"] = gather_over_ranks({"random": state["random"], "sums": state["sums"].numbers()})
            checkpoint["guard"] = self.guard.state_dict()
        if self.average is not None:
            self.average.save(self, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take what each rank had, to go on with when training starts."""
        # those of before have the state of torch's generator alone
        self.rank_states = checkpoint.get("ranks") or [{"random": {"torch": checkpoint["torch_random_state"]}}]
        if "guard" in checkpoint:
            self.guard.load_state_dict(checkpoint["guard"])
        weights_to_train(self, checkpoint)
        if self.average is not None:
            self.average.load(checkpoint)

    def on_train_start(self) -> None:
        """Go on with what the run that is resumed had, and with what it had left undone."""
        self._go_on()
        make_up_validation(self.trainer)

    def _go_on(self) -> None:
        """Go on with the random numbers, and the sums, of the run that is resumed.

        In a new run, whose ranks have drawn the same first weights, each draws numbers of its own from here on.
        """
        self.guard.checkpoint = Path(self.trainer.default_root_dir) / "checkpoints" / "last.ckpt"
        if self.average is not None:
            self.average.start(self)
        if not self.rank_states:
            if rank() > 0:
                torch.manual_seed(torch.initial_seed() + rank())
            return
        same = restore_of_rank([state["random"] for state in self.rank_states], rank(), num_ranks())
        if same and "sums" in self.rank_states[rank()]:
            self.train_sums = Sums(**self.rank_states[rank()]["sums"])
        self.rank_states = []

    def _rank_state(self) -> dict[str, Any]:
        """What this rank needs to go on from here, beside what all ranks have in common."""
        return {"random": random_state(), "sums": self.train_sums.snapshot()}

    def training_step(self, update: tuple[Any, ...], batch_idx: int) -> None:
        """Gradients of all batches of the step, normalised by all their predicted pieces; clip; step."""
        started = time.perf_counter()
        # an error or interrupt in the middle of a step is gone on from as if the step had not begun
        self.step_began = self._rank_state()
        optimizer = cast(LightningOptimizer, self.optimizers())
        rate = learning_rate(self.global_step + 1, self.optim, self.d_model, self.total_steps)
        set_rate(optimizer.param_groups, rate)
        optimizer.zero_grad(set_to_none=True)
        num_pieces = [self.num_pieces(batch) for batch in update]
        # the engines average gradients over ranks; what is wanted is their sum over the pieces of all ranks
        share = num_ranks() / max(1, sum_over_ranks([sum(num_pieces)])[0])
        for number, (batch, num) in enumerate(zip(update, num_pieces, strict=True), start=1):
            with self._gradients_sent(number == len(update)):
                losses = self.training_loss(batch)
                # a batch without pieces is there only because other ranks have one more
                self.manual_backward(losses.loss * (share if num else 0.0))
            self._count(self.train_sums, batch, losses, num)
        norm = self._clip()
        taken = self.guard.accepts(norm, self.global_step + 1)
        if taken:
            optimizer.step()
            self.after_step()
        else:
            if (scaler := self._scaler()) is not None:
                lower_scale(scaler, optimizer.optimizer)
            self.train_sums = self.step_began["sums"]
        self.step_began = None
        self.train_sums.seconds += time.perf_counter() - started
        if taken and self.global_step % self.log_every == 0:
            self._log_training(rate, norm)

    def _gradients_sent(self, last: bool) -> AbstractContextManager[Any]:
        """Where several ranks train, gradients are sent with the last batch of a step alone."""
        model = self.trainer.strategy.model if self._trainer is not None else None
        return model.no_sync() if isinstance(model, DistributedDataParallel) and not last else nullcontext()

    def _clip(self) -> float:
        """Scale the gradients down to the norm allowed.

        Returns:
            Their norm before.
        """
        return clip_gradients(self._trained(), self.optim.clip_norm, self._scaler())

    def _scaler(self) -> GradScaler | None:
        """What multiplies the loss with fp16; None with other numbers."""
        scaler: GradScaler | None = getattr(self.trainer.precision_plugin, "scaler", None) if self._trainer else None
        return scaler

    def after_step(self) -> None:
        """What follows each step taken: the average of the weights."""
        if self.average is not None:
            self.average.update(self)

    def on_validation_start(self) -> None:
        """Validate the average of the weights, where there is one; what is written until the end holds it, too."""
        if self.average is not None:
            self.average.show(self)

    def on_validation_end(self) -> None:
        """Go on with the weights themselves."""
        if self.average is not None:
            self.average.hide(self)

    def on_validation_epoch_start(self) -> None:
        """Begin the sums of a validation anew."""
        self.valid_sums = Sums()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Add a batch to the validation sums."""
        self._count(self.valid_sums, batch, self.validation_loss(batch), batch.num_target_tokens)

    def on_validation_epoch_end(self) -> None:
        """Log means per target piece over the whole validation set, of which each rank has seen a part."""
        self.valid_sums = sums = self.valid_sums.over_ranks()
        nll = sums.nll / sums.tokens
        self._log(
            {
                "valid/loss": sums.loss / sums.pieces,
                "valid/nll": nll,
                "valid/perplexity": perplexity(nll),
                "valid/teacher_forced_accuracy": sums.correct / sums.tokens,
                **self.extra_metrics(sums),
            }
        )

    def _count(self, sums: Sums, batch: Any, losses: BatchLoss, num_pieces: int) -> None:
        if not num_pieces:
            return
        sums.add(losses)
        sums.pieces += num_pieces
        sums.tokens += batch.num_target_tokens
        sums.padding += batch.num_padding
        sums.positions += batch.num_positions

    def _log_training(self, rate: float, norm: float) -> None:
        sums, self.train_sums = self.train_sums.over_ranks(), Sums()
        nll = sums.nll / sums.tokens
        num_source = sums.pieces - sums.tokens
        self._log(
            {
                "train/loss": sums.loss / sums.pieces,
                **({"train/source_nll": sums.source_nll / num_source} if num_source else {}),
                "train/nll": nll,
                "train/perplexity": perplexity(nll),
                "train/lr": rate,
                "train/grad_norm": norm,
                "train/skipped_steps": self.guard.skipped,
                # ranks work at the same time
                "train/target_tokens_per_second": sums.tokens / (sums.seconds / num_ranks()),
                "train/padding_share": sums.padding / sums.positions,
                **self.extra_training_metrics(sums),
            }
        )

    def _log(self, metrics: dict[str, float]) -> None:
        """Log values that all ranks have in common.

        Those of training go to the loggers at once. Lightning, which counts batches and no steps, would repeat old ones
        after a step that was skipped.
        """
        values = {**metrics, "step": float(self.global_step)}
        if not self.trainer.training:
            log_the_same(self, values)
            return
        self.log_dict(values, batch_size=1, logger=False)
        for logger in self.loggers:
            logger.log_metrics(metrics, step=self.global_step)
            logger.save()


def perplexity(nll: float) -> float:
    """exp of the unsmoothed negative log-likelihood per token, infinite where that overflows."""
    return float(torch.tensor(nll, dtype=torch.float64).exp())
