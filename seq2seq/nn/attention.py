"""Multi-head attention, over one's own sequence and over another one.

Shapes on the way (B sentences, T queries, S keys, H heads of width K = D / H):

    x               [B, T, D]
    q, k, v         [B, T, H*K]  ->  [B, H, T, K]
    q k^T / sqrt(K) [B, H, T, S]     rows are queries, columns are keys; the mask comes before the softmax
    softmax         [B, H, T, S]     over keys, each row sums to 1
    weights v       [B, H, T, K]  ->  heads side by side [B, T, H*K]  ->  output projection [B, T, D]

Source:
    Vaswani et al. 2017, arXiv:1706.03762, section 3.2. Projections have biases, as in the authors' later code.
"""

import math

from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from seq2seq.nn.cache import KeyValue
from seq2seq.nn.masks import causal_mask
from seq2seq.shapes import Bool, Float, Tensor


def split_heads(x: Float[Tensor, "B T HK"], num_heads: int) -> Float[Tensor, "B H T K"]:
    """Heads as a dimension of their own."""
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T HK"]:
    """Heads side by side again."""
    return x.transpose(1, 2).flatten(2)


def attention_weights(
    query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"], mask: Bool[Tensor, "#B #H #T S"] | None
) -> Float[Tensor, "B H T S"]:
    """softmax(q k^T / sqrt(K)) over the keys, written out: for looking at, not for speed.

    A query that may attend to nothing has all weights 0, as in torch's kernels, instead of NaN.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)


class SelfAttention(nn.Module):
    """Each position looks at positions of its own sequence.

    Args:
        d_model: Width D.
        num_heads: Heads H.
        dropout: Probability that an attention weight is dropped in training.

    Raises:
        ValueError: if D is not divisible by H.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        _check_heads(d_model, num_heads)
        self.num_heads, self.dropout = num_heads, dropout
        self.query_key_value = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def project(
        self, x: Float[Tensor, "B T D"]
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T K"], Float[Tensor, "B H T K"]]:
        """Queries, keys and values, from one product."""
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        return split_heads(query, self.num_heads), split_heads(key, self.num_heads), split_heads(value, self.num_heads)

    def forward(
        self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B 1 1 T"] | None = None, causal: bool = False
    ) -> Float[Tensor, "B T D"]:
        """All positions at once.

        Args:
            x: The sequence.
            mask: True where a key may be attended to; not together with `causal`.
            causal: No position attends to a later one.
        """
        query, key, value = self.project(x)
        dropout = self.dropout if self.training else 0.0
        context = scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout, is_causal=causal)
        return self.output(merge_heads(context))

    def step(
        self, x: Float[Tensor, "R T D"], cache: KeyValue | None, length: int
    ) -> tuple[Float[Tensor, "R T D"], KeyValue]:
        """The next T positions of a causal sequence, given the keys and values of the `length` before them.

        Returns:
            The outputs of the new positions, and the cache with them added.
        """
        query, key, value = self.project(x)
        cache = (cache or KeyValue.empty(key)).write(length, key, value)
        seen = cache.until(length + x.shape[1])
        # One query attends to everything so far. is_causal would align it with key 0, so it is never used here.
        mask = None if x.shape[1] == 1 else causal_mask(x.shape[1], length, x.device)
        context = scaled_dot_product_attention(query, seen.key, seen.value, mask)
        return self.output(merge_heads(context)), cache

    def weights(self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "#B 1 #T T"] | None) -> Float[Tensor, "B H T T"]:
        """The attention weights of all positions."""
        query, key, _ = self.project(x)
        return attention_weights(query, key, mask)


class CrossAttention(nn.Module):
    """Each target position looks at the encoder's output.

    Args:
        d_model: Width D.
        num_heads: Heads H.
        dropout: Probability that an attention weight is dropped in training.

    Raises:
        ValueError: if D is not divisible by H.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        _check_heads(d_model, num_heads)
        self.num_heads, self.dropout = num_heads, dropout
        self.query = nn.Linear(d_model, d_model)
        self.key_value = nn.Linear(d_model, 2 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def keys_values(self, memory: Float[Tensor, "B S D"]) -> KeyValue:
        """Keys and values of the source: computed once a sentence."""
        key, value = self.key_value(memory).chunk(2, dim=-1)
        return KeyValue(split_heads(key, self.num_heads), split_heads(value, self.num_heads))

    def forward(
        self, x: Float[Tensor, "R T D"], source: KeyValue, mask: Bool[Tensor, "B 1 1 S"]
    ) -> Float[Tensor, "R T D"]:
        """All target positions at once, of R = B * W rows: W beams of each sentence share its keys and values.

        The beams' positions become further queries of the one sentence, [B, H, W*T, K], so nothing is copied.
        """
        num_sentences, num_queries = source.key.shape[0], x.shape[0] // source.key.shape[0] * x.shape[1]
        query = split_heads(self.query(x).reshape(num_sentences, num_queries, -1), self.num_heads)
        dropout = self.dropout if self.training else 0.0
        context = scaled_dot_product_attention(query, source.key, source.value, mask, dropout_p=dropout)
        return self.output(merge_heads(context).reshape(x.shape))

    def weights(
        self, x: Float[Tensor, "B T D"], source: KeyValue, mask: Bool[Tensor, "B 1 1 S"]
    ) -> Float[Tensor, "B H T S"]:
        """The attention weights of all target positions over the source."""
        return attention_weights(split_heads(self.query(x), self.num_heads), source.key, mask)


def _check_heads(d_model: int, num_heads: int) -> None:
    if d_model % num_heads:
        raise ValueError(
            f"d_model={d_model} is not divisible by num_heads={num_heads}; choose d_model as a multiple of num_heads"
        )
