"""Encoded plain text and its packed blocks, epoch by epoch."""

import logging
from collections.abc import Sequence

from seq2seq.config import DataConfig
from seq2seq.corpus.documents import TextSize
from seq2seq.corpus.text_blocks import EncodedText, PackedText, epoch_blocks
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.training.data_module import EpochDataModule

log = logging.getLogger(__name__)


class TextDataModule(EpochDataModule):
    """Blocks of plain text in batches.

    Args:
        train: Documents to train on.
        valid: Documents to validate on.
        tokenizer: Text to ids.
        config: Budgets, and how documents are packed.
        accumulate: Batches an optimiser step and process.
        seed: Of the cuts and the order.
        num_ranks: Processes that train together.
    """

    def __init__(
        self,
        train: Sequence[str],
        valid: Sequence[str],
        tokenizer: Tokenizer,
        config: DataConfig,
        accumulate: int = 1,
        seed: int = 1,
        num_ranks: int = 1,
    ) -> None:
        super().__init__(config, accumulate, seed, num_ranks)
        self.train_text = _encode(train, tokenizer, "training")
        self.valid_text = _encode(valid, tokenizer, "validation")
        self.valid_size = TextSize.of(valid)

    @property
    def num_blocks(self) -> int:
        """Blocks of a batch."""
        return self.config.batch_tokens // self.config.block_length

    def epoch(self, number: int) -> tuple[PackedText, list[list[int]]]:
        """The blocks of an epoch and its batches, in order."""
        packed = self._blocks(self.train_text, epoch=number)
        return packed, packed.batches(self.num_blocks)

    def validation(self) -> tuple[PackedText, list[list[int]]]:
        """The blocks of the validation text, cut from its beginning on."""
        packed = self._blocks(self.valid_text, shuffle=False)
        return packed, packed.batches(self.num_blocks)

    def padding_share(self) -> float:
        """Share of padding in the first epoch's batches."""
        return self._blocks(self.train_text).padding_share(self.num_blocks)

    def _blocks(self, text: EncodedText, epoch: int = 0, shuffle: bool = True) -> PackedText:
        length, apart = self.config.block_length, self.config.documents_apart
        return epoch_blocks(text, length, apart=apart, seed=self.seed, epoch=epoch, shuffle=shuffle)


def _encode(documents: Sequence[str], tokenizer: Tokenizer, what: str) -> EncodedText:
    # one by one: `encode` knows how to cut a long document, `encode_batch` is for lines
    text = EncodedText([tokenizer.encode(document) for document in documents], tokenizer.special)
    size = TextSize.of(documents)
    log.info(
        "%s text: documents: %d, characters: %s, pieces to predict: %s",
        what,
        len(documents),
        f"{size.characters:,}",
        f"{text.num_predicted:,}",
    )
    return text
