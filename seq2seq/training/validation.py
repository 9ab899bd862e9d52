"""BLEU of the model under training: real decoding, compared with the raw references.

Where several processes train, each translates a share of the lines and counts its n-grams; the counts are added, so the
scores are those of one process. Within the search nothing is sent, so it does not matter how long each takes.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import TensorBoardLogger

from seq2seq.config import DecodeConfig, to_dict
from seq2seq.evaluation.bleu_statistics import BleuStatistics, bleu_statistics, corpus_bleu_from_statistics
from seq2seq.evaluation.chrf_statistics import chrf_statistics, corpus_chrf_from_statistics
from seq2seq.evaluation.metrics import MetricScore
from seq2seq.training.distribution import gather_over_ranks, log_the_same, num_ranks, rank, sum_over_ranks
from seq2seq.training.interruption import cut_short
from seq2seq.translator import Translator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RawText:
    """Validation lines as they stand in the files, blank ones too; references never meet a tokenizer."""

    source: list[str]
    target: list[str]


class ValidationBleu(Callback):
    """Translates the validation set at each validation and logs `valid/bleu` and `valid/chrf`.

    The same translator, options and references as `seq2seq translate` and `seq2seq evaluate` use, so the same number.

    Args:
        translator: Around the model under training.
        text: Raw source and reference lines.
        decode: Search options.
        target_lang: Chooses sacreBLEU's tokenizer.
        num_samples: Sentences whose translations are logged, spread evenly over the set.
        samples_file: Where they are added as JSON lines.
    """

    def __init__(
        self,
        translator: Translator,
        text: RawText,
        decode: DecodeConfig,
        target_lang: str | None,
        num_samples: int,
        samples_file: Path,
    ) -> None:
        self.translator, self.text, self.decode = translator, text, decode
        self.target_lang, self.samples_file = target_lang, samples_file
        num_lines = len(text.source)
        self.sample_lines = (
            [i * num_lines // num_samples for i in range(num_samples)] if num_lines >= num_samples else []
        )
        self.last_bleu = float("nan")

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Translate, score, log, show samples."""
        mine = share_of_lines(self.text.source, rank(), num_ranks())
        with cut_short():
            own, notices = self._translate(mine)
        bleu, chrf = self._scores(mine, own)
        translations = {line: text for part in gather_over_ranks(own) for line, text in part.items()}
        self.last_bleu = bleu.score
        log_the_same(pl_module, {"valid/bleu": bleu.score, "valid/chrf": chrf.score})
        notices = [notice for part in gather_over_ranks(notices) for notice in part]
        if rank() > 0:
            return
        for notice in notices:
            log.warning("%s", notice)
        log.info(
            "step %d: valid BLEU %.2f, chrF2++ %.2f, by decoding with %s; %s",
            trainer.global_step,
            bleu.score,
            chrf.score,
            describe_decoding(self.decode),
            bleu.signature,
        )
        self._log_samples(trainer, translations)

    def _translate(self, lines: Sequence[int]) -> tuple[dict[int, str], list[str]]:
        """The translations of some of the lines, and what is to be said of them."""
        notices: list[str] = []
        answers = self.translator.translate(
            [self.text.source[line] for line in lines],
            self.decode,
            numbers=[line + 1 for line in lines],
            on_notice=notices.append,
        )
        return {line: answer.text for line, answer in zip(lines, answers, strict=True)}, notices

    def _scores(self, lines: Sequence[int], translations: dict[int, str]) -> tuple[MetricScore, MetricScore]:
        """BLEU and chrF2++ of the whole set, from the counts of each rank's lines."""
        texts, references = [translations[line] for line in lines], [self.text.target[line] for line in lines]
        bleu = bleu_statistics(texts, [references], target_lang=self.target_lang).values()
        counts = [int(count) for count in sum_over_ranks([*bleu, *chrf_statistics(texts, [references])])]
        added = BleuStatistics.from_values(counts[: len(bleu)])
        return (
            corpus_bleu_from_statistics(added, target_lang=self.target_lang),
            corpus_chrf_from_statistics(counts[len(bleu) :]),
        )

    def _log_samples(self, trainer: Trainer, translations: dict[int, str]) -> None:
        rows = [
            {
                "step": trainer.global_step,
                "line": i + 1,
                "source": self.text.source[i],
                "reference": self.text.target[i],
                "translation": translations[i],
            }
            for i in self.sample_lines
        ]
        with self.samples_file.open("a", encoding="utf-8", newline="\n") as stream:
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                log.info("  source       %s", row["source"])
                log.info("  reference    %s", row["reference"])
                log.info("  translation  %s", row["translation"])
        table = "\n".join(f"{row['source']}  \n{row['reference']}  \n**{row['translation']}**\n" for row in rows)
        for logger in trainer.loggers:
            if table and isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text("valid/samples", table, global_step=trainer.global_step)


def share_of_lines(lines: Sequence[str], rank: int, num_ranks: int) -> list[int]:
    """Places of the lines that a process translates, in order: dealt out by length, so that all have as much to do."""
    by_length = sorted(range(len(lines)), key=lambda place: (len(lines[place]), place))
    return sorted(by_length[rank::num_ranks])


def describe_decoding(decode: DecodeConfig) -> str:
    """The options that a BLEU score depends on, in one phrase."""
    values = to_dict(decode)
    names: tuple[str, ...] = ("beam_size", "penalty_form", "length_penalty", "max_length_factor", "max_length_offset")
    if decode.beam_size == 1:
        names = ("beam_size", "max_length_factor", "max_length_offset")
    return ", ".join(f"{name}={values[name]}" for name in names)
