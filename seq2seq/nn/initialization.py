"""Initial weights that a Post-LN stack trains from."""

import math

from torch import nn

from seq2seq.nn.attention import CrossAttention, SelfAttention


def initialize(model: nn.Module) -> None:
    """Set every weight of `model` in place.

    Matrices are Xavier-uniform. Those of queries, keys and values use the gain 1/sqrt(2), which is what Xavier gives
    the three stacked as one [3D, D] matrix; each part is drawn for itself, so that the result does not depend on
    which of them are stacked. Biases are 0, norms 1 and 0. Embedding rows are normal with deviation D^-0.5: times
    sqrt(D) the inputs have unit variance, and tied to the output they give logits of about unit variance.

    Source:
        Glorot and Bengio 2010 (Xavier). The paper says nothing about initialisation; these are the values that
        trained 6 + 6 Post-LN layers in the toolkits of its time.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    for module in model.modules():
        if isinstance(module, SelfAttention):
            _initialize_stacked(module.query_key_value, 3)
        elif isinstance(module, CrossAttention):
            _initialize_stacked(module.query, 1)
            _initialize_stacked(module.key_value, 2)


def _initialize_stacked(linear: nn.Linear, parts: int) -> None:
    for part in linear.weight.data.chunk(parts):
        nn.init.xavier_uniform_(part, gain=1 / math.sqrt(2))
