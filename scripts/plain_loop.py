"""The loop that `seq2seq train` is measured against: torch.nn's own layers, its loss and its optimiser, nothing else.

Same sizes, dropout, batches, loss and clipping as the run beside it; written as one would write it down.
"""

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from update_meter import UpdateMeter

from seq2seq.config import (
    Accelerator,
    Activation,
    Architecture,
    ModelConfig,
    NormKind,
    NormPlacement,
    PositionKind,
    TrainConfig,
    Tying,
)
from seq2seq.corpus.batching import Batch
from seq2seq.models.build import embedding_rows
from seq2seq.nn.positions import sinusoids
from seq2seq.training.data_module import ParallelDataModule
from seq2seq.training.text import prepare_tokenizers, read_text


class PlainTransformer(nn.Module):
    """Post-LN encoder and decoder of torch.nn, with one table for source, target and output.

    Args:
        config: Sizes.
        num_rows: Rows of the table.
        longest: Positions at most.
    """

    def __init__(self, config: ModelConfig, num_rows: int, longest: int) -> None:
        super().__init__()
        sizes = {
            "d_model": config.d_model,
            "nhead": config.num_heads,
            "dim_feedforward": config.d_ff,
            "dropout": config.dropout,
        }
        encoder = nn.TransformerEncoderLayer(**sizes, batch_first=True)  # type: ignore[arg-type]
        decoder = nn.TransformerDecoderLayer(**sizes, batch_first=True)  # type: ignore[arg-type]
        self.encoder = nn.TransformerEncoder(encoder, config.num_encoder_layers, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, config.num_decoder_layers)
        self.rows = nn.Embedding(num_rows, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("positions", sinusoids(longest, config.d_model).float())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.rows.weight, std=config.d_model**-0.5)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits of every target position."""
        padding = ~batch.src_valid  # torch.nn's masks say where not to look
        later = nn.Transformer.generate_square_subsequent_mask(
            batch.tgt_in.shape[1], dtype=torch.bool, device=batch.src.device
        )
        memory = self.encoder(self._embed(batch.src), src_key_padding_mask=padding)
        hidden = self.decoder(
            self._embed(batch.tgt_in), memory, tgt_mask=later, tgt_is_causal=True, memory_key_padding_mask=padding
        )
        return functional.linear(hidden, self.rows.weight)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions = self.get_buffer("positions")[: ids.shape[1]]
        vectors: torch.Tensor = self.dropout(self.rows(ids) * math.sqrt(self.rows.embedding_dim) + positions)
        return vectors


def check_plain(config: ModelConfig) -> None:
    """Refuse a model that torch.nn's layers cannot be, or that this loop does not build.

    Raises:
        ValueError: naming the option.
    """
    wanted = {
        "architecture": Architecture.encoder_decoder,
        "tying": Tying.three_way,
        "positions": PositionKind.sinusoidal,
        "scale_embedding": True,
        "output_bias": False,
        "norm": NormKind.layer_norm,
        "norm_placement": NormPlacement.post,
        "activation": Activation.relu,
        "gated": False,
        "attention_dropout": config.dropout,
        "activation_dropout": config.dropout,
        "num_kv_heads": None,
        "d_head": None,
        "encoder_d_ff": None,
        "decoder_d_ff": None,
    }
    for name, value in wanted.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"the plain loop of torch.nn's layers has {name}={value}, the model has {getattr(config, name)}; "
                "choose another --model, or --no-plain-loop"
            )


def measure_plain(config: TrainConfig, meter: UpdateMeter) -> UpdateMeter:
    """The meter after as many updates as it needs.

    Args:
        config: Of the run that is measured beside it.
        meter: Fresh.
    """
    check_plain(config.model)
    torch.set_num_threads(config.trainer.num_threads or torch.get_num_threads())
    torch.manual_seed(config.seed)
    device = torch.device({Accelerator.gpu: "cuda", Accelerator.mps: "mps"}.get(config.trainer.accelerator, "cpu"))
    text = read_text(config.data, config.seed)
    tokenizers = prepare_tokenizers(config.data, text.train, config.seed)
    data = ParallelDataModule(text.train, text.valid, tokenizers, config.data, seed=config.seed)
    num_rows = embedding_rows(tokenizers.target.vocab_size, config.model.vocab_multiple)
    model = PlainTransformer(config.model, num_rows, config.data.max_length + 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    place: Any = SimpleNamespace(device=device)
    trainer: Any = None
    epoch = 0
    while not meter.finished():
        pairs, batches = data.epoch(epoch)
        for indices in batches:
            batch = pairs[indices].to(device)
            update(model, optimizer, batch, tokenizers.target.special.pad)
            meter.on_train_batch_end(trainer, place, None, (batch,), 0)
            if meter.finished():
                break
        epoch += 1
    return meter


def update(model: PlainTransformer, optimizer: torch.optim.Optimizer, batch: Batch, pad: int) -> float:
    """One optimiser step.

    Returns:
        The loss, per target piece.
    """
    logits = model(batch)
    loss = functional.cross_entropy(
        logits.reshape(-1, logits.shape[2]), batch.tgt_out.reshape(-1), ignore_index=pad, label_smoothing=0.1
    )
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())
