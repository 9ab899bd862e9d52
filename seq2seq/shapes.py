"""The legend of dimensions: the letters that stand in every shape annotation of the package.

Shapes are written in signatures with jaxtyping (``Float[Tensor, "B T D"]``) and checked on every test run.

    B  sentences in a batch          H  query heads               V  vocabulary size
    S  source length, in pieces      G  key/value heads           W  beam width
    T  target length, in pieces      K  width of one head         N  layers
    D  width of the residual stream  F  width of the feed-forward network's inner layer
    R  rows of a decode step: B * W, the beam varying fastest
    C  positions that a cache has room for
    P  positions of a prompt: in a decoder-only model the source without its EOS, or the text to go on from

Batch first, always. A length counts the closing EOS. In a boolean mask True means "may be attended to".
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Tensor"]
