"""BLEU of the model under training: real decoding, compared with the raw references."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import TensorBoardLogger

from seq2seq.config import DecodeConfig, to_dict
from seq2seq.evaluation.metrics import corpus_scores
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
        translations = [answer.text for answer in self.translator.translate(self.text.source, self.decode)]
        bleu, chrf = corpus_scores(
            translations, [self.text.target], metrics=("bleu", "chrf"), target_lang=self.target_lang
        )
        self.last_bleu = bleu.score
        pl_module.log_dict({"valid/bleu": bleu.score, "valid/chrf": chrf.score}, batch_size=1)
        log.info(
            "step %d: valid BLEU %.2f, chrF2++ %.2f, by decoding with %s; %s",
            trainer.global_step,
            bleu.score,
            chrf.score,
            describe_decoding(self.decode),
            bleu.signature,
        )
        self._log_samples(trainer, translations)

    def _log_samples(self, trainer: Trainer, translations: list[str]) -> None:
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


def describe_decoding(decode: DecodeConfig) -> str:
    """The options that a BLEU score depends on, in one phrase."""
    values = to_dict(decode)
    names: tuple[str, ...] = ("beam_size", "penalty_form", "length_penalty", "max_length_factor", "max_length_offset")
    if decode.beam_size == 1:
        names = ("beam_size", "max_length_factor", "max_length_offset")
    return ", ".join(f"{name}={values[name]}" for name in names)
