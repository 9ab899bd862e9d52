"""What each process of the tests on ranks does: trains tiny models and writes down all that can be compared.

With one process the same is done with `accumulate` times as many batches a step, which has to come to the same.
"""

import dataclasses
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.plugins.environments import TorchElasticEnvironment
from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from seq2seq.bundle import Bundle
from seq2seq.config import (
    Architecture,
    DataConfig,
    DataKind,
    DecodeConfig,
    MixingSchedule,
    ModelConfig,
    OptimConfig,
    ScheduledSamplingConfig,
    Strategy,
    TokenizerConfig,
    TokenizerKind,
    TrainerConfig,
    Tying,
)
from seq2seq.corpus.parallel import pair_up
from seq2seq.models import build_model
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.training.data_module import EpochDataModule, ParallelDataModule, Tokenizers
from seq2seq.training.distribution import any_over_ranks, barrier, from_rank_zero, gather_over_ranks, sum_over_ranks
from seq2seq.training.module import TrainingModule
from seq2seq.training.objectives import LanguageModelModule, TranslationModule
from seq2seq.training.quiet import quiet_lightning
from seq2seq.training.strategy import WholeWeights, build_strategy
from seq2seq.training.text_data_module import TextDataModule
from seq2seq.training.validation import RawText, ValidationBleu
from seq2seq.translator import Translator

LENGTHS = [1, 30, 2, 17, 5, 3, 23, 8, 1, 11, 4, 14, 6]
SOURCES = ["".join("abcdefg"[(row * row + 3 * place) % 7] for place in range(n)) for row, n in enumerate(LENGTHS)]
TARGETS = [
    "".join("hijklmn"[(row + 2 * place) % 7] for place in range(max(1, n - row % 3))) for row, n in enumerate(LENGTHS)
]
LETTERS = TokenizerConfig(kind=TokenizerKind.char, vocab_size=40, byte_fallback=False)
MODEL = ModelConfig(d_model=8, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=2, dropout=0.0)
OPTIM = OptimConfig(warmup_steps=3, lr_factor=0.05, clip_norm=0.5)


class Record(Callback):
    """Notes batches, gradients, logged values and messages sent, and saves the run after its second step."""

    def __init__(self, checkpoint: Path | None) -> None:
        self.checkpoint = checkpoint
        self.batches: list[list[tuple[list[int], int, int]]] = []
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.metrics: list[dict[str, float]] = []
        self.sent: list[int] = []
        self.random: list[torch.Tensor] = []
        self.skipped: list[int] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model = trainer.strategy.model
        if isinstance(model, DistributedDataParallel):
            model.register_comm_hook(self.sent, counted)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.sent.append(0)
        self.random.append(torch.get_rng_state())
        self.batches.append([(list(one.indices), one.num_target_tokens, _size(one)) for one in batch])

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self.gradients.append({name: whole(weight.grad) for name, weight in pl_module.model.named_parameters()})

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._note(trainer)
        self.skipped.append(pl_module.guard.skipped)
        if self.checkpoint is not None and trainer.global_step == 2:
            trainer.save_checkpoint(self.checkpoint)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._note(trainer)

    def _note(self, trainer: Trainer) -> None:
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.metrics.append({name: value for name, value in values.items() if "per_second" not in name})


def whole(value: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor, of which each rank may have a part. All ranks must call it."""
    return (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()


def counted(sent: list[int], bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sends gradients as usual, and counts."""
    sent[-1] += 1
    return allreduce_hook(None, bucket)


def train(
    module: TrainingModule,
    data: EpochDataModule,
    num_ranks: int,
    every: int,
    *extra: Callback,
    save: Path | None = None,
    resume: Path | None = None,
    strategy: Strategy = Strategy.ddp,
    mixed: bool = False,
) -> dict[str, Any]:
    """A run of five steps, and what was noted of it."""
    record = Record(save)
    trainer = Trainer(
        accelerator="cpu",
        devices=num_ranks,
        strategy=build_strategy(TrainerConfig(max_steps=1, devices=num_ranks, strategy=strategy)),
        precision="bf16-mixed" if mixed else None,
        plugins=[TorchElasticEnvironment()] if num_ranks > 1 else [],
        max_steps=5,
        val_check_interval=every,
        check_val_every_n_epoch=None,
        log_every_n_steps=1,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*extra, WholeWeights(), record],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet_lightning():
            trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    noted = {name: getattr(record, name) for name in ("batches", "gradients", "metrics", "sent", "random", "skipped")}
    weights = {name: whole(weight) for name, weight in module.model.named_parameters()}
    averages = module.average.averages if module.average is not None else {}
    averages = {name: whole(average) for name, average in averages.items()}
    return {**noted, "weights": weights, "averages": averages, "steps_an_epoch": data.steps_an_epoch()}


def translation(
    num_ranks: int,
    folder: Path,
    *,
    valid: list[int],
    accumulate: int = 1,
    beam: int = 3,
    every: int = 3,
    save: Path | None = None,
    resume: Path | None = None,
    **model: Any,
) -> dict[str, Any]:
    """Pairs in batches of tokens, validated with a beam."""
    text, tokenizers = pair_up(SOURCES, TARGETS), Tokenizers(*[letters(SOURCES + TARGETS)] * 2)
    config = dataclasses.replace(MODEL, **model)
    torch.manual_seed(1)
    net = build_model(config, tokenizers.source.vocab_size, tokenizers.target.vocab_size).double()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(1 + (weight.dim() > 1))  # else all translations are the same
    data = ParallelDataModule(
        text,
        pair_up(*_part(valid)),
        tokenizers,
        DataConfig(train_source="s", train_target="t", batch_tokens=45, max_length=33),
        accumulate if num_ranks > 1 else 2 * accumulate,
        seed=1,
        num_ranks=num_ranks,
    )
    decode = DecodeConfig(beam_size=beam, max_length=9)
    translator = Translator(Bundle(net, config, tokenizers.source, tokenizers.target, decode))
    sources, targets = _part(valid)
    samples = folder / "samples.jsonl"
    samples.unlink(missing_ok=True)
    bleu = ValidationBleu(translator, RawText([*sources, ""], [*targets, "x"]), decode, "en", len(valid) + 1, samples)
    found = train(TranslationModule(net, OPTIM, 8, log_every=2), data, num_ranks, every, bleu, save=save, resume=resume)
    barrier()
    return {**found, "samples": samples.read_text(encoding="utf-8") if samples.exists() else ""}


class Shaken(TranslationModule):
    """The second pass of R-Drop differs from the first by more than dropout, whose masks every rank draws by itself."""

    def read(self, batch: Any, mixture: Any = None, memory: Any = None) -> Any:
        """Twice as many rows as sources are those of two passes."""
        hidden = super().read(batch, mixture, memory)
        if not self.training:
            return hidden
        one, other = hidden.chunk(2)
        return torch.cat([one, 1.3 * other])


class Poisoned(TranslationModule):
    """The last batch of the second step, which one rank alone has, has gradients that are not numbers."""

    attempts = 0

    def training_step(self, update: Any, batch_idx: int) -> None:
        """Counts."""
        self.attempts, self.left = self.attempts + 1, len(update)
        super().training_step(update, batch_idx)

    def training_loss(self, batch: Any) -> Any:
        """Spoils one."""
        losses = super().training_loss(batch)
        self.left -= 1
        if self.attempts == 2 and self.left == 0 and self.global_rank == self.trainer.world_size - 1:
            losses = dataclasses.replace(losses, loss=losses.loss * float("nan"))
        return losses


def passes(
    num_ranks: int,
    kind: type[TranslationModule],
    strategy: Strategy,
    sampling: ScheduledSamplingConfig | None = None,
    *,
    mixed: bool = False,
    save: Path | None = None,
    resume: Path | None = None,
    **optim: Any,
) -> dict[str, Any]:
    """Pairs, with options of training that make more of a step than one pass, or less."""
    tokenizers = Tokenizers(*[letters(SOURCES + TARGETS)] * 2)
    torch.manual_seed(3)
    net = build_model(MODEL, tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    net = net if mixed else net.double()
    data = ParallelDataModule(
        pair_up(SOURCES, TARGETS),
        pair_up(*_part([3, 5, 8])),
        tokenizers,
        DataConfig(train_source="s", train_target="t", batch_tokens=45, max_length=33),
        3 - num_ranks,
        seed=1,
        num_ranks=num_ranks,
    )
    module = kind(net, dataclasses.replace(OPTIM, **optim), 8, 1, sampling=sampling)
    found = train(module, data, num_ranks, 5, strategy=strategy, mixed=mixed, save=save, resume=resume)
    barrier()
    return found


EVERY_PIECE = ScheduledSamplingConfig(rate=1.0, schedule=MixingSchedule.constant)
"""Every piece is replaced, so that it does not matter what each rank draws."""


def sampled(num_ranks: int, save: Path | None = None, resume: Path | None = None) -> dict[str, Any]:
    """Two passes of scheduled sampling, with an average of the weights, which are divided where there are two ranks."""
    return passes(num_ranks, TranslationModule, Strategy.fsdp, EVERY_PIECE, save=save, resume=resume, ema_decay=0.9)


def language_model(num_ranks: int) -> dict[str, Any]:
    """Packed blocks of plain text, by two workers."""
    documents = [source + target for source, target in zip(SOURCES, TARGETS, strict=True)]
    tokenizer = letters(documents)
    config = dataclasses.replace(
        MODEL, architecture=Architecture.decoder_only, num_encoder_layers=0, tying=Tying.two_way
    )
    torch.manual_seed(2)
    net = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).double()
    options = DataConfig(kind=DataKind.text, train_text="t", block_length=16, batch_tokens=32, num_workers=2)
    accumulate = 3 if num_ranks > 1 else 6
    data = TextDataModule(documents, documents[:2], tokenizer, options, accumulate, seed=1, num_ranks=num_ranks)
    module = LanguageModelModule(net, OPTIM, 8, 2, data.valid_size)  # type: ignore[arg-type]
    return train(module, data, num_ranks, 4)


def letters(lines: list[str]) -> Tokenizer:
    """A piece for each letter."""
    return train_tokenizer(lines, LETTERS)[0]


def everything(num_ranks: int, rank: int, folder: Path) -> dict[str, Any]:
    """All runs."""
    torch.set_num_threads(1)
    everyone = list(range(len(LENGTHS)))
    found: dict[str, Any] = {
        "pairs": translation(num_ranks, folder, valid=everyone, save=folder / "second.ckpt" if num_ranks > 1 else None),
        "parts": translation(num_ranks, folder, valid=[3], accumulate=3, beam=1),
        "text": language_model(num_ranks),
        "sampled": sampled(num_ranks, save=folder / "sampled.ckpt"),
        "mixed": passes(num_ranks, TranslationModule, Strategy.fsdp, mixed=True),
        "r_drop": passes(num_ranks, Shaken, Strategy.fsdp, r_drop=2.0),
        "guarded": passes(num_ranks, Poisoned, Strategy.ddp, ema_decay=0.5, skip_norm=1.95),
    }
    if num_ranks > 1:
        found["resumed"] = sampled(num_ranks, resume=folder / "sampled.ckpt")
        found["often"] = translation(num_ranks, folder, valid=[3], every=1, dropout=0.2)
        found["seldom"] = translation(num_ranks, folder, valid=[3], every=5, dropout=0.2)
        found["sum"] = sum_over_ranks([rank + 1, 0.1, 2**40 + rank])
        found["any"] = [any_over_ranks(rank == 1), any_over_ranks(False)]
        found["first"] = from_rank_zero({"rank": rank, "weights": torch.full((2,), rank)})
        found["all"] = gather_over_ranks(["x"] * rank)
    return found


def _part(lines: list[int]) -> tuple[list[str], list[str]]:
    return [SOURCES[line] for line in lines], [TARGETS[line] for line in lines]


def _size(batch: Any) -> int:
    """Rows times the longest side."""
    if hasattr(batch, "src"):
        return len(batch.src) * max(batch.src.shape[1], batch.tgt_out.shape[1])
    return batch.ids.numel()


if __name__ == "__main__":
    here = int(os.environ["RANK"])
    torch.save(everything(int(os.environ["WORLD_SIZE"]), here, Path(sys.argv[1])), Path(sys.argv[1]) / f"{here}.pt")
