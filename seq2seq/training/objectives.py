"""What a model that translates and a language model learn from a batch."""

import logging
import math
from typing import ClassVar

from torch.nn.functional import pad

from seq2seq.config import OptimConfig, ScheduledSamplingConfig
from seq2seq.corpus.batching import Batch
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import TextBatch
from seq2seq.models import DecoderOnly
from seq2seq.shapes import Bool, Int, Tensor
from seq2seq.training.loss import BatchLoss
from seq2seq.training.module import TrainingModule, perplexity
from seq2seq.training.sums import Sums

log = logging.getLogger(__name__)


class TranslationModule(TrainingModule):
    """A model that translates, under training on pairs with teacher forcing."""

    usual_smoothing: ClassVar[float] = 0.1

    def training_loss(self, batch: Batch) -> BatchLoss:
        """The loss of the target, and with `optim.loss_on_source` of source and separator too."""
        if not self.optim.loss_on_source:
            return self.validation_loss(batch)
        assert isinstance(self.model, DecoderOnly)
        hidden = self.model.read_pairs(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid)
        num_source = batch.src.shape[1] - 1
        source = self.losses(
            hidden[:, :num_source], *source_targets(batch.src, batch.src_valid, batch.tgt_in), self.smoothing
        )
        target = self.losses(hidden[:, num_source:], batch.tgt_out, batch.tgt_valid, self.smoothing)
        return BatchLoss(source.loss + target.loss, target.nll, target.correct, source.nll)

    def validation_loss(self, batch: Batch) -> BatchLoss:
        """The loss of the target alone."""
        hidden = self.model.decode(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid)
        return self.losses(hidden, batch.tgt_out, batch.tgt_valid, self.smoothing)

    def num_pieces(self, batch: Batch) -> int:
        """Target pieces, and with `optim.loss_on_source` source pieces but the first, and separators."""
        return batch.num_target_tokens + (batch.num_source_predictions if self.optim.loss_on_source else 0)


def source_targets(
    src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]
) -> tuple[Int[Tensor, "B S-1"], Bool[Tensor, "B S-1"]]:
    """What a decoder-only model has to predict at each position of the source, and which of them are real.

    The source stands in its row without its EOS, so its last piece is followed by the separator, the target's BOS. Its
    first piece has nothing before it and is not predicted.
    """
    valid = src_valid[:, :-1] & src_valid[:, 1:]
    followed = pad(valid, (0, 1))[:, 1:]
    return src[:, 1:].where(followed, tgt_in[:, :1]), valid


class LanguageModelModule(TrainingModule):
    """A language model under training on blocks of plain text.

    Args:
        model: The network.
        optim: Loss, optimiser and schedule.
        d_model: Width of the network, which the schedule depends on.
        log_every: Steps between logged training metrics.
        valid_size: Characters and bytes of the validation text.
        total_steps: The step at which the run ends; None where that is not known.
        sampling: Scheduled sampling; None is plain teacher forcing.
    """

    usual_smoothing: ClassVar[float] = 0.0

    def __init__(
        self,
        model: DecoderOnly,
        optim: OptimConfig,
        d_model: int,
        log_every: int,
        valid_size: TextSize,
        total_steps: int | None = None,
        sampling: ScheduledSamplingConfig | None = None,
    ) -> None:
        super().__init__(model, optim, d_model, log_every, total_steps, sampling)
        self.valid_size = valid_size

    def training_loss(self, batch: TextBatch) -> BatchLoss:
        """The loss of every piece of the blocks."""
        assert isinstance(self.model, DecoderOnly)
        hidden = self.model.read(batch.ids, batch.documents)
        return self.losses(hidden, batch.targets, batch.counted, self.smoothing)

    def validation_loss(self, batch: TextBatch) -> BatchLoss:
        """The same."""
        return self.training_loss(batch)

    def on_validation_epoch_end(self) -> None:
        """Say the likelihood too, which for a language model no other score stands for."""
        super().on_validation_epoch_end()
        sums = self.valid_sums
        units = self.extra_metrics(sums)
        log.info(
            "step %d: valid perplexity %.2f a piece, %.3f nats a character, %.3f bits a byte",
            self.global_step,
            perplexity(sums.nll / sums.tokens),
            units["valid/nll_per_character"],
            units["valid/bits_per_byte"],
        )

    def extra_metrics(self, sums: Sums) -> dict[str, float]:
        """The likelihood by units that do not depend on the vocabulary: nats per character and bits per byte.

        What the model is charged for includes the end of each document, which is no character.
        """
        return {
            "valid/nll_per_character": sums.nll / self.valid_size.characters,
            "valid/bits_per_byte": sums.nll / math.log(2) / self.valid_size.bytes,
        }
