"""What a model that translates and a language model learn from a batch."""

import logging
import math
from dataclasses import replace
from typing import ClassVar

from torch import cat
from torch.nn.functional import pad

from seq2seq.config import OptimConfig, ScheduledSamplingConfig
from seq2seq.corpus.batching import Batch
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import TextBatch
from seq2seq.models import DecoderOnly, Transformer
from seq2seq.nn.embedding import Mixture
from seq2seq.shapes import Bool, Float, Int, Tensor
from seq2seq.text.special import SpecialIds
from seq2seq.training.distribution import rank
from seq2seq.training.exposure import free_running_target, free_running_text
from seq2seq.training.loss import BatchLoss
from seq2seq.training.module import perplexity
from seq2seq.training.passes import PassesModule
from seq2seq.training.regularization import check_unknown, word_dropout
from seq2seq.training.scheduled_sampling import Target
from seq2seq.training.sums import Sums

log = logging.getLogger(__name__)


class TranslationModule(PassesModule):
    """A model that translates, under training on pairs.

    Args:
        model: The network.
        optim: Loss, optimiser and schedule.
        d_model: Width of the network, which the schedule depends on.
        log_every: Steps between logged training metrics.
        total_steps: The step at which the run ends; None where that is not known.
        sampling: Scheduled sampling; None is plain teacher forcing.
        source_special: Special ids of source pieces.
        target_special: Special ids of target pieces.

    Raises:
        ValueError: if there is word dropout on a side whose vocabulary has no unknown piece.
    """

    usual_smoothing: ClassVar[float] = 0.1

    def __init__(
        self,
        model: Transformer,
        optim: OptimConfig,
        d_model: int,
        log_every: int = 20,
        total_steps: int | None = None,
        sampling: ScheduledSamplingConfig | None = None,
        source_special: SpecialIds = SpecialIds(),  # noqa: B008  # it never changes
        target_special: SpecialIds = SpecialIds(),  # noqa: B008
    ) -> None:
        super().__init__(model, optim, d_model, log_every, total_steps, sampling)
        self.source_special, self.special = source_special, target_special
        check_unknown("source_word_dropout", optim.source_word_dropout, source_special)
        check_unknown("target_word_dropout", optim.target_word_dropout, target_special)

    def num_pieces(self, batch: Batch) -> int:
        """Target pieces, and with `optim.loss_on_source` source pieces but the first, and separators."""
        return batch.num_target_tokens + (batch.num_source_predictions if self.optim.loss_on_source else 0)

    def read(
        self, batch: Batch, mixture: Mixture | None = None, memory: Float[Tensor, "B S D"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """The output at the target's positions, and with `optim.loss_on_source` at the source's before them."""
        if not self.optim.loss_on_source:
            return self.model.decode(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid, mixture, memory)
        assert isinstance(self.model, DecoderOnly)
        return self.model.read_pairs(batch.src, batch.src_valid, batch.tgt_in, batch.tgt_valid, mixture)

    def read_source(self, batch: Batch) -> Float[Tensor, "B S D"] | None:
        """The encoder's output."""
        return self.model.read_source(batch.src, batch.src_valid)

    def loss(self, hidden: Float[Tensor, "B L D"], batch: Batch) -> BatchLoss:
        """The loss of the target, and with `optim.loss_on_source` of source and separator too."""
        if not self.optim.loss_on_source:
            return self.losses(hidden, batch.tgt_out, batch.tgt_valid, self.smoothing)
        num_source = batch.src.shape[1] - 1
        source = self.losses(
            hidden[:, :num_source], *source_targets(batch.src, batch.src_valid, batch.tgt_in), self.smoothing
        )
        target = self.losses(hidden[:, num_source:], batch.tgt_out, batch.tgt_valid, self.smoothing)
        return BatchLoss(source.loss + target.loss, target.nll, target.correct, source.nll)

    def learned(self, batch: Batch) -> Bool[Tensor, "B L"]:
        """Real positions of the target, and with `optim.loss_on_source` those of the source before real ones."""
        if not self.optim.loss_on_source:
            return batch.tgt_valid
        return cat([source_targets(batch.src, batch.src_valid, batch.tgt_in)[1], batch.tgt_valid], 1)

    def target(self, batch: Batch) -> Target:
        """All real target pieces but BOS can be replaced."""
        replaceable = pad(batch.tgt_valid[:, 1:], (1, 0))
        return Target(batch.tgt_in, batch.tgt_out, batch.tgt_valid, replaceable)

    def with_target(self, batch: Batch, ids: Int[Tensor, "B T"]) -> Batch:
        """The batch with other ids given to the decoder."""
        return replace(batch, tgt_in=ids)

    def with_word_dropout(self, batch: Batch) -> Batch:
        """The batch with pieces of both sides turned into unknown ones; EOS, BOS and padding stay."""
        words = batch.src_valid & (batch.src != self.source_special.eos)
        source, target = self.optim.source_word_dropout, self.optim.target_word_dropout
        return replace(
            batch,
            src=word_dropout(batch.src, words, source, self.source_special.unk),
            tgt_in=word_dropout(batch.tgt_in, self.target(batch).replaceable, target, self.special.unk),
        )

    def twice(self, batch: Batch) -> Batch:
        """All rows, and once more all rows."""
        return replace(
            batch,
            src=cat([batch.src] * 2),
            src_valid=cat([batch.src_valid] * 2),
            tgt_in=cat([batch.tgt_in] * 2),
            tgt_out=cat([batch.tgt_out] * 2),
            tgt_valid=cat([batch.tgt_valid] * 2),
        )

    def exposure(self, batch: Batch, hidden: Float[Tensor, "B T D"], losses: BatchLoss) -> dict[str, Tensor]:
        """Over the whole target."""
        return {
            "forced_correct": losses.correct,
            "free_correct": free_running_target(self.model, batch),
            "compared": batch.tgt_valid.sum(),
        }


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


class LanguageModelModule(PassesModule):
    """A language model under training on blocks of plain text.

    Args:
        model: The network.
        optim: Loss, optimiser and schedule.
        d_model: Width of the network, which the schedule depends on.
        log_every: Steps between logged training metrics.
        valid_size: Characters and bytes of the validation text.
        total_steps: The step at which the run ends; None where that is not known.
        sampling: Scheduled sampling; None is plain teacher forcing.
        special: Special ids of the vocabulary.

    Raises:
        ValueError: if there is word dropout and the vocabulary has no unknown piece.
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
        special: SpecialIds = SpecialIds(),  # noqa: B008  # it never changes
    ) -> None:
        super().__init__(model, optim, d_model, log_every, total_steps, sampling)
        self.valid_size, self.special = valid_size, special
        check_unknown("target_word_dropout", optim.target_word_dropout, special)

    def read(
        self, batch: TextBatch, mixture: Mixture | None = None, memory: Float[Tensor, "B S D"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """The output at every place."""
        assert memory is None, "there is no source"
        assert isinstance(self.model, DecoderOnly)
        return self.model.read(batch.ids, batch.documents, mixture)

    def read_source(self, batch: TextBatch) -> None:
        """Nothing."""

    def loss(self, hidden: Float[Tensor, "B L D"], batch: TextBatch) -> BatchLoss:
        """The loss of every piece of the blocks."""
        return self.losses(hidden, batch.targets, batch.counted, self.smoothing)

    def learned(self, batch: TextBatch) -> Bool[Tensor, "B L"]:
        """Where the prediction counts."""
        return batch.counted

    def target(self, batch: TextBatch) -> Target:
        """Pieces that are predicted from the place before in the same document can be replaced, so never a BOS."""
        predicted = pad(batch.counted[:, :-1], (1, 0))
        if batch.documents is not None:
            predicted &= pad(batch.documents[:, 1:] == batch.documents[:, :-1], (1, 0))
        # padding behind the last piece follows a place that counts
        real = batch.counted.flip(1).cumsum(1).flip(1) > 0
        return Target(batch.ids, batch.targets, batch.counted, predicted & real)

    def with_target(self, batch: TextBatch, ids: Int[Tensor, "B T"]) -> TextBatch:
        """The batch with other ids to read."""
        return replace(batch, ids=ids)

    def with_word_dropout(self, batch: TextBatch) -> TextBatch:
        """The batch with pieces turned into unknown ones; BOS, EOS and padding stay."""
        special, ids = self.special, batch.ids
        words = (ids != special.bos) & (ids != special.eos) & (ids != special.pad)
        return replace(batch, ids=word_dropout(ids, words, self.optim.target_word_dropout, special.unk))

    def twice(self, batch: TextBatch) -> TextBatch:
        """All blocks, and once more all blocks."""
        return replace(
            batch,
            ids=cat([batch.ids] * 2),
            targets=cat([batch.targets] * 2),
            counted=cat([batch.counted] * 2),
            documents=cat([batch.documents] * 2) if batch.documents is not None else None,
        )

    def exposure(self, batch: TextBatch, hidden: Float[Tensor, "B T D"], losses: BatchLoss) -> dict[str, Tensor]:
        """Over what follows the first half of each block's first part."""
        assert isinstance(self.model, DecoderOnly)
        forced, free, compared = free_running_text(self.model, batch, hidden)
        return {"forced_correct": forced, "free_correct": free, "compared": compared}

    def on_validation_epoch_end(self) -> None:
        """Say the likelihood too, which for a language model no other score stands for."""
        super().on_validation_epoch_end()
        sums = self.valid_sums
        units = self.extra_metrics(sums)
        if rank() > 0:
            return
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
            **super().extra_metrics(sums),
            "valid/nll_per_character": sums.nll / self.valid_size.characters,
            "valid/bits_per_byte": sums.nll / math.log(2) / self.valid_size.bytes,
        }
