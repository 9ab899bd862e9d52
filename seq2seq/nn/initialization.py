"""Initial weights that a stack trains from: one recipe for each placement of the norm."""

import math
from dataclasses import dataclass

from torch import nn, split

from seq2seq.config import Architecture, ModelConfig, NormPlacement, Tying
from seq2seq.nn.attention import CrossAttention, SelfAttention
from seq2seq.nn.feed_forward import FeedForward


@dataclass(frozen=True)
class DeepNorm:
    """By how much deepnorm scales residuals up and initial weights down, for the depths of both stacks.

    Attributes:
        encoder_scale: Multiplies the input of each of the encoder's sublayers (alpha).
        encoder_gain: Gain of the Xavier draw of its values, output projections and feed-forward networks (beta).
        decoder_scale: The same for the decoder, or the only stack.
        decoder_gain: The same.

    Source:
        Wang et al. 2022, arXiv:2203.00555, table in figure 2.
    """

    encoder_scale: float
    encoder_gain: float
    decoder_scale: float
    decoder_gain: float

    @staticmethod
    def of(config: ModelConfig) -> "DeepNorm":
        """The factors for these depths."""
        encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
        if config.architecture is Architecture.decoder_only:
            return DeepNorm(1.0, 1.0, (2 * decoder) ** 0.25, (8 * decoder) ** -0.25)
        both = (encoder**4 * decoder) ** (1 / 16)
        return DeepNorm(0.81 * both, 0.87 / both, (3 * decoder) ** 0.25, (12 * decoder) ** -0.25)


def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Set every weight of `model` in place.

    Biases are 0, norms 1 and 0. Embedding rows and learned positions are normal: with deviation D^-0.5 where rows are
    scaled by sqrt(D), so that the inputs have unit variance, and tied to the output they give logits of about unit
    variance; else with 0.02.

    post: Matrices are Xavier-uniform. Those of queries, keys and values use the gain 1/sqrt(2), which is what Xavier
    gives the three stacked as one [3D, D] matrix; each part is drawn for itself, so that the result does not depend on
    which of them are stacked.

    pre: Matrices are normal with deviation 0.02 (or that of Xavier in narrow models, if it is larger); the output
    projections, which are added to the residual stream, are smaller by 1/sqrt(number of sublayers in the stack), so
    that the stream's variance does not grow with depth.

    deepnorm: As post, with the gain beta of `DeepNorm` for values, output projections and feed-forward networks, and 1
    for queries and keys.

    Source:
        Glorot and Bengio 2010 (Xavier); the paper says nothing about initialisation, these are the values that
        trained 6 + 6 Post-LN layers in the toolkits of its time. pre: Radford et al. 2019 (GPT-2), section 2.3;
        deviation for narrow models: ours. deepnorm: Wang et al. 2022, arXiv:2203.00555, figure 2, with uniform draws
        where the authors' code has normal ones of the same variance.
    """
    std = config.d_model**-0.5 if config.scale_embedding else 0.02
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std)
    if config.tying is Tying.none:
        nn.init.normal_(model.get_parameter("output"), std=std)
    for name, part in model.named_modules():
        if name in ("encoder", "decoder"):
            _initialize_stack(part, config, encoder=name == "encoder")


def _initialize_stack(stack: nn.Module, config: ModelConfig, *, encoder: bool) -> None:
    """The matrices of a stack's sublayers, as its placement of the norm wants them."""
    sublayers = [m for m in stack.modules() if isinstance(m, SelfAttention | CrossAttention | FeedForward)]
    if config.norm_placement is NormPlacement.pre:
        for part in sublayers:
            _initialize_pre(part, 1 / math.sqrt(len(sublayers)))
        return
    gain, value_gain = 1 / math.sqrt(2), 1 / math.sqrt(2)
    if config.norm_placement is NormPlacement.deepnorm:
        deep = DeepNorm.of(config)
        gain, value_gain = 1.0, deep.encoder_gain if encoder else deep.decoder_gain
    for part in sublayers:
        if isinstance(part, FeedForward):
            if config.norm_placement is NormPlacement.deepnorm:
                for linear in (part.inner, part.output):
                    nn.init.xavier_uniform_(linear.weight, gain=value_gain)
            continue
        _initialize_inputs(part, gain, value_gain)
        if config.norm_placement is NormPlacement.deepnorm:
            nn.init.xavier_uniform_(part.output.weight, gain=value_gain)


def _initialize_inputs(part: SelfAttention | CrossAttention, gain: float, value_gain: float) -> None:
    """Queries, keys and values, each drawn for itself."""
    heads = part.heads
    if isinstance(part, SelfAttention):
        parts = split(part.query_key_value.weight.data, [heads.query_width, heads.kv_width, heads.kv_width])
    else:
        parts = (part.query.weight.data, *split(part.key_value.weight.data, heads.kv_width))
    for weight, its_gain in zip(parts, (gain, gain, value_gain), strict=True):
        nn.init.xavier_uniform_(weight, gain=its_gain)


def _initialize_pre(part: nn.Module, output_scale: float) -> None:
    """Normal weights, smaller ones in the projection that is added to the residual stream."""
    for name, linear in part.named_children():
        if isinstance(linear, nn.Linear):
            std = max(0.02, math.sqrt(2 / sum(linear.weight.shape)))
            nn.init.normal_(linear.weight, std=std * output_scale if name == "output" else std)
