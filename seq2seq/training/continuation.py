"""How the language model under training goes on from places of the validation text."""

import json
import logging
from pathlib import Path

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import TensorBoardLogger

from seq2seq.config import GenerateConfig
from seq2seq.corpus.text_blocks import EncodedText
from seq2seq.generator import Ended, Generator
from seq2seq.training.distribution import rank

log = logging.getLogger(__name__)

MOST_PROMPT, MOST_NEW = 64, 200
"""Pieces of a prompt, and of its continuation, at most."""
TEMPERATURE = 0.8
"""The most probable text soon goes round in circles; a little less than the model's own variety reads best."""


class ValidationContinuation(Callback):
    """Logs how the model goes on from some places of the validation text, at each validation.

    The same draws each time, so that what changes is the model. Of several processes the first one does it.

    Args:
        generator: Around the model under training.
        text: The validation text.
        block_length: Prompt and continuation together are not longer than the model is trained on.
        num_samples: Places, spread evenly over the text.
        samples_file: Where they are added as JSON lines.
    """

    def __init__(
        self, generator: Generator, text: EncodedText, block_length: int, num_samples: int, samples_file: Path
    ) -> None:
        self.generator, self.samples_file = generator, samples_file
        num_prompt = min(MOST_PROMPT, block_length // 2)
        num_new = min(MOST_NEW, block_length - num_prompt)
        self.config = GenerateConfig(max_new_pieces=num_new, temperature=TEMPERATURE)
        self.prompts = text.stretches(num_prompt, num_samples)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on from every place and show what comes out, below the line with the likelihood."""
        if rank() > 0:
            return
        rows = [
            {
                "step": trainer.global_step,
                "prompt": answer.prompt,
                "continuation": answer.text,
                "ended": answer.ended is Ended.eos,
            }
            for answer in self.generator.generate_ids(self.prompts, self.config)
        ]
        with self.samples_file.open("a", encoding="utf-8", newline="\n") as stream:
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                log.info("  prompt        %r", row["prompt"])
                log.info("  continuation  %r", row["continuation"])
        table = "\n".join(f"{row['prompt']!r}  \n**{row['continuation']!r}**\n" for row in rows)
        for logger in trainer.loggers:
            if table and isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text("valid/samples", table, global_step=trainer.global_step)
