"""Attention without padding: the real rows of a batch stand end to end, and each sequence attends within itself.

A padded batch [B, T, D] becomes one row [1, n, D] of its n real positions, so linear layers, norms and dropout skip
padding too; only attention has to know where each sequence begins. On GPUs that is torch's kernel for sequences of
uneven length. The slow twin is the padded pass with a mask, which gives the same numbers at real positions.

Source:
    The layout is the one of FlashAttention's functions for uneven lengths (Dao 2023, arXiv:2307.08691, and its code).
"""

import inspect
from dataclasses import dataclass

import torch

from seq2seq.nn.positions import Places
from seq2seq.shapes import Bool, Float, Int, Tensor

WIDEST_HEAD = 256
"""The widest head that the kernel takes; widths must be multiples of 8."""
CAPABILITY = (8, 0)
"""The least compute capability of an NVIDIA GPU that has the kernel (Ampere)."""


@dataclass(frozen=True)
class Packing:
    """Where the sequences of a padded batch stand when only their real positions are kept, end to end.

    Attributes:
        places: [n], where each kept position stands in the batch's B * T, ascending.
        starts: [N + 1] int32, the first kept position of each sequence, and n.
        longest: No sequence is longer. Known without asking the device.
        shape: B and T.
    """

    places: Tensor
    starts: Tensor
    longest: int
    shape: tuple[int, int]

    @staticmethod
    def of_valid(valid: Bool[Tensor, "B T"]) -> "Packing":
        """Each row is a sequence of its real positions, wherever its padding is; one without any is empty."""
        batch, length = valid.shape
        starts = _running_sum(valid.sum(1))
        return Packing(valid.flatten().nonzero().flatten(), starts, length, (batch, length))

    @staticmethod
    def of_documents(documents: Int[Tensor, "B T"]) -> "Packing":
        """Each document of each row is a sequence; all positions are kept.

        Args:
            documents: For each position the number of its document, ascending.
        """
        batch, length = documents.shape
        first = torch.ones_like(documents, dtype=torch.bool)
        first[:, 1:] = documents[:, 1:] != documents[:, :-1]
        places = torch.arange(batch * length, device=documents.device)
        end = places.new_full((1,), batch * length)
        starts = torch.cat([first.flatten().nonzero().flatten(), end]).to(torch.int32)
        return Packing(places, starts, length, (batch, length))

    def pack(self, x: Tensor) -> Tensor:
        """The kept positions of [B, T] or [B, T, D], as one row [1, n] or [1, n, D]."""
        # not a view, or blocks that are compiled would be compiled once more for the first one's input
        return x.flatten(0, 1)[None].index_select(1, self.places)

    def pack_places(self, places: Places) -> Places:
        """The places of the kept positions, in one row."""
        return Places(self.pack(places.index.expand(self.shape)), places.end)

    def unpack(self, x: Float[Tensor, "1 n D"]) -> Float[Tensor, "B T D"]:
        """The rows back in their batch, zeros where padding is."""
        batch, length = self.shape
        padded = x.new_zeros(batch * length, x.shape[2])
        return padded.index_copy(0, self.places, x[0]).view(batch, length, x.shape[2])


def _running_sum(lengths: Int[Tensor, " N"]) -> Int[Tensor, " N1"]:
    """0, the first length, the first two together, ..., all, in int32."""
    starts = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
    starts[1:] = lengths.cumsum(0)
    return starts


@dataclass(frozen=True)
class PackedMask:
    """Stands in the place of a mask: queries attend to the keys of the sequence with the same number, and no others."""

    queries: Packing
    keys: Packing

    @property
    def own(self) -> "PackedMask":
        """The queries among themselves."""
        return PackedMask(self.queries, self.queries)


def attend_packed(
    query: Float[Tensor, "1 H n K"],
    key: Float[Tensor, "1 G m K"],
    value: Float[Tensor, "1 G m K"],
    mask: PackedMask,
    causal: bool = False,
) -> Float[Tensor, "1 H n K"]:
    """softmax(q k^T / sqrt(K)) v within each sequence, without dropout on the weights.

    Under autocast in its half precision, as `scaled_dot_product_attention`; else in the precision given.

    Args:
        query: Of the packed queries.
        key: Of the packed keys, G of the H heads.
        value: The same.
        mask: Where the sequences begin.
        causal: No position attends to a later one of its sequence; only with as many queries as keys.
    """
    if not query.shape[2] or not key.shape[2]:
        # the kernel takes no empty batch, which a rank gets for which nothing is left; the result hangs on all inputs
        return query * 0 + (key.sum() + value.sum()) * 0
    # here, for it brings torch's compiler along, which takes more than a second to load
    from torch.nn.attention.varlen import varlen_attn

    device = query.device.type
    mixed = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if mixed else query.dtype
    attended = varlen_attn(
        query[0].transpose(0, 1).to(dtype),
        key[0].transpose(0, 1).to(dtype),
        value[0].transpose(0, 1).to(dtype),
        mask.queries.starts,
        mask.keys.starts,
        mask.queries.longest,
        mask.keys.longest,
        window_size=(-1, 0) if causal else (-1, -1),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(attended, Tensor)
    return attended.transpose(0, 1)[None]


def check_varlen(d_head: int, attention_dropout: float) -> None:
    """Refuse what the kernel cannot do on this machine.

    Args:
        d_head: Width K of the model's heads.
        attention_dropout: Probability that an attention weight is dropped.

    Raises:
        ValueError: saying what is missing.
    """
    instead = "or choose trainer.padding_free=false, the padded pass, which gives the same numbers"
    if not {"window_size", "enable_gqa"} <= _kernel_parameters():
        raise ValueError(
            f"trainer.padding_free=true needs torch.nn.attention.varlen as torch 2.13 has it, this is torch "
            f"{torch.__version__}; install a newer torch, {instead}"
        )
    if attention_dropout > 0:
        raise ValueError(
            f"trainer.padding_free=true has no dropout on attention weights, got model.attention_dropout="
            f"{attention_dropout}; set it to 0 (model.dropout may stay), {instead}"
        )
    if d_head % 8 or d_head > WIDEST_HEAD:
        raise ValueError(
            f"trainer.padding_free=true needs heads whose width is a multiple of 8 and at most {WIDEST_HEAD}, got "
            f"{d_head}; choose other model.d_model, model.num_heads or model.d_head, {instead}"
        )
    if not torch.cuda.is_available():
        raise ValueError(
            f"trainer.padding_free=true needs a CUDA GPU, and torch {torch.__version__} finds none; train on one, "
            f"{instead}"
        )
    capability = torch.cuda.get_device_capability()
    if capability < CAPABILITY:
        raise ValueError(
            f"trainer.padding_free=true needs a GPU of compute capability {CAPABILITY[0]}.{CAPABILITY[1]} or more "
            f"(Ampere), got {capability[0]}.{capability[1]} ({torch.cuda.get_device_name()}); use another, {instead}"
        )


def _kernel_parameters() -> set[str]:
    """Names of what the kernel of this torch takes; none where there is no such kernel."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return set()
    return set(inspect.signature(varlen_attn).parameters)
