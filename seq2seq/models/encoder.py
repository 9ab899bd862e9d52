"""The encoder: source ids in, one vector for each source position out."""

from collections.abc import Iterator
from typing import cast

from torch import nn

from seq2seq.nn.attention import SelfAttention
from seq2seq.nn.dropout import Dropout
from seq2seq.nn.embedding import Embedding
from seq2seq.nn.feed_forward import FeedForward
from seq2seq.nn.masks import padding_mask
from seq2seq.shapes import Bool, Float, Int, Tensor


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; each added to its input, and the sum normalised (Post-LN).

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.1: LayerNorm(x + Sublayer(x)).
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, num_heads, attention_dropout)
        self.self_attention_norm = nn.LayerNorm(d_model, norm_eps)
        self.feed_forward = FeedForward(d_model, d_ff, activation_dropout)
        self.feed_forward_norm = nn.LayerNorm(d_model, norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B 1 1 S"]) -> Float[Tensor, "B S D"]:
        """The sequence, each position informed by all real ones."""
        x = self.self_attention_norm(x + self.dropout(self.self_attention(x, mask)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Encoder(nn.Module):
    """Embedding and N encoder layers. A Post-LN stack has no norm after its last layer."""

    def __init__(self, embedding: Embedding, layers: list[EncoderLayer]) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)

    def blocks(self) -> Iterator[EncoderLayer]:
        """The layers, first to last."""
        return cast(Iterator[EncoderLayer], iter(self.layers))

    def forward(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """The memory that the decoder attends to. What stands at padded positions means nothing."""
        x, mask = self.embedding(src), padding_mask(src_valid)
        for layer in self.blocks():
            x = layer(x, mask)
        return x
