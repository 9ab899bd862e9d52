"""From a batch to its loss in training: one pass over it, the passes of scheduled sampling, or the two of R-Drop."""

import logging
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch

from seq2seq.config import GradientThrough
from seq2seq.nn.embedding import Mixture
from seq2seq.shapes import Bool, Float, Int, Tensor
from seq2seq.text.special import SpecialIds
from seq2seq.training.distribution import rank
from seq2seq.training.loss import BatchLoss
from seq2seq.training.module import TrainingModule
from seq2seq.training.regularization import divergence
from seq2seq.training.scheduled_sampling import Mixer, Target, mixing_rate
from seq2seq.training.sums import Sums

log = logging.getLogger(__name__)


class PassesModule(TrainingModule):
    """A network under training by passes over each batch.

    With the options of scheduled sampling, R-Drop and word dropout off, a batch has one pass and no random number is
    drawn but by dropout.

    Attributes:
        special: Special ids of what the decoder is given.
    """

    special: SpecialIds

    @abstractmethod
    def read(
        self, batch: Any, mixture: Mixture | None = None, memory: Float[Tensor, "B S D"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """The output at every place from which something is learned; the last places are those of the target."""

    @abstractmethod
    def read_source(self, batch: Any) -> Float[Tensor, "B S D"] | None:
        """What all passes over the batch have in common; None where there is nothing."""

    @abstractmethod
    def loss(self, hidden: Float[Tensor, "B L D"], batch: Any) -> BatchLoss:
        """The loss of an output of `read`."""

    @abstractmethod
    def learned(self, batch: Any) -> Bool[Tensor, "B L"]:
        """The places of `read` whose predictions count."""

    @abstractmethod
    def target(self, batch: Any) -> Target:
        """What the decoder is given of the right text, and what it has to predict."""

    @abstractmethod
    def with_target(self, batch: Any, ids: Int[Tensor, "B T"]) -> Any:
        """The batch with other ids given to the decoder; what it has to predict stays."""

    @abstractmethod
    def with_word_dropout(self, batch: Any) -> Any:
        """The batch with some of the pieces that are read turned into unknown ones; what is to be predicted stays."""

    @abstractmethod
    def twice(self, batch: Any) -> Any:
        """All rows of the batch, and once more all rows."""

    @abstractmethod
    def exposure(self, batch: Any, hidden: Float[Tensor, "B T D"], losses: BatchLoss) -> dict[str, Tensor]:
        """How many target pieces are right in teacher forcing and in free running, and how many are compared."""

    def training_loss(self, batch: Any) -> BatchLoss:
        """The loss of one batch, with all that is trained on."""
        given = self.with_word_dropout(batch)
        share = mixing_rate(self.global_step + 1, self.sampling)
        if share > 0:
            return self._sampled_loss(batch, given, share)
        if self.optim.r_drop > 0:
            return self._r_drop_loss(batch, given)
        return self.loss(self.read(given), batch)

    def _sampled_loss(self, batch: Any, given: Any, share: float) -> BatchLoss:
        """The loss of the last pass of scheduled sampling, or the mean of all passes' losses.

        Source:
            Mihaylova and Martins 2019, arXiv:1906.07651, section 3, which has both. Deviation: the mean, where they add
            up, so that the size of the gradients does not depend on the number of passes.
        """
        learns_from_all = self.sampling.gradient is GradientThrough.all
        barred = (self.special.pad, self.special.bos, self.special.eos)
        target = self.target(given)
        mixer = Mixer(self.model, target, share, self.sampling, barred, self.optim.loss_chunk)
        memory = self.read_source(given)
        current, mixture = given, None
        losses: list[BatchLoss] = []
        for left in reversed(range(self.sampling.passes)):
            learns = learns_from_all or left == 0
            with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
                hidden = self.read(current, mixture, memory)
                if learns or not losses:
                    losses.append(self.loss(hidden, batch))
                if left:
                    mixed = mixer.mix(hidden[:, -target.ids.shape[1] :])
                    current, mixture = self.with_target(given, mixed.ids), mixed.mixture
        loss = torch.stack([one.loss for one in losses]).mean() if learns_from_all else losses[-1].loss
        further = {
            "first_pass_loss": losses[0].loss,
            "first_pass_pieces": torch.tensor(self.num_pieces(batch)),
            "replaced": mixer.where.sum(),
            "replaceable": target.replaceable.sum(),
        }
        return replace(losses[-1], loss=loss, further=further)

    def _r_drop_loss(self, batch: Any, given: Any) -> BatchLoss:
        """The mean loss of two passes with different dropout, plus what keeps their predictions together.

        Both passes are one over twice the rows. With a for `optim.r_drop`, the loss of a target piece is

            (l1 + l2) / 2 + a / 2 * (KL(p1 || p2) + KL(p2 || p1)) / 2

        Source:
            Wu et al. 2021, arXiv:2106.14448, equations 2 to 4. Deviation: their loss is l1 + l2 + a * (KL + KL) / 2;
            this is half of it, the size of a loss without R-Drop, and a is theirs.
        """
        one, other = self.read(self.twice(given)).chunk(2)
        first, second = self.loss(one, batch), self.loss(other, batch)
        apart = divergence(self.model, one, other, self.learned(batch), self.optim.loss_chunk)
        source_nll = None
        if first.source_nll is not None and second.source_nll is not None:
            source_nll = (first.source_nll + second.source_nll) / 2
        return BatchLoss(
            loss=(first.loss + second.loss) / 2 + self.optim.r_drop / 2 * apart,
            nll=(first.nll + second.nll) / 2,
            correct=first.correct,
            source_nll=source_nll,
            further={"divergence": apart},
        )

    def extra_training_metrics(self, sums: Sums) -> dict[str, float]:
        """What scheduled sampling and R-Drop do, where they are on."""
        metrics = {}
        if self.optim.r_drop > 0:
            metrics["train/r_drop_divergence"] = sums.divergence / sums.pieces
        if self.sampling.rate > 0:
            metrics["train/mixing_rate"] = mixing_rate(self.global_step, self.sampling)
        if sums.first_pass_pieces:
            metrics["train/mixed_share"] = sums.replaced / max(1, sums.replaceable)
            metrics["train/first_pass_loss"] = sums.first_pass_loss / sums.first_pass_pieces
        return metrics

    def validation_loss(self, batch: Any) -> BatchLoss:
        """The loss of one batch, of the target alone, with the right pieces given; and how it goes without them."""
        target = self.target(batch)
        hidden = self.read(batch)[:, -target.ids.shape[1] :]
        losses = self.losses(hidden, target.right, target.counted, self.smoothing)
        return replace(losses, further=self.exposure(batch, hidden, losses))

    def on_validation_epoch_end(self) -> None:
        """Say what training by teacher forcing does not show, too."""
        super().on_validation_epoch_end()
        metrics = PassesModule.extra_metrics(self, self.valid_sums)
        free, gap = metrics["valid/free_running_accuracy"], metrics["valid/exposure_gap"]
        if rank() == 0:
            log.info(
                "step %d: valid accuracy %.1f%% with the right pieces given, %.1f%% in free running",
                self.global_step,
                100 * (free + gap),
                100 * free,
            )

    def extra_metrics(self, sums: Sums) -> dict[str, float]:
        """Accuracy in free running, and how much lower it is than in teacher forcing at the same places."""
        forced, free = sums.forced_correct / sums.compared, sums.free_correct / sums.compared
        return {"valid/free_running_accuracy": free, "valid/exposure_gap": forced - free}
