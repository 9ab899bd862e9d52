"""From options to a network with fresh weights: the one place that tells the architectures apart."""

from typing import cast

import torch
from torch import nn

from seq2seq.config import Architecture, ModelConfig, NormPlacement, PositionKind, Tying
from seq2seq.models.decoder import Decoder
from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.models.encoder import Encoder
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.stack import Stack
from seq2seq.models.transformer import Transformer
from seq2seq.nn.attention import Heads
from seq2seq.nn.block import Block, BlockOptions, CrossBlock
from seq2seq.nn.embedding import Embedding
from seq2seq.nn.initialization import DeepNorm, initialize
from seq2seq.nn.positions import LearnedPositions, SinusoidalPositions
from seq2seq.nn.rotary import RotaryPositions


def embedding_rows(vocab_size: int, vocab_multiple: int) -> int:
    """Rows of an embedding for a vocabulary, rounded up to the multiple."""
    return -(-vocab_size // vocab_multiple) * vocab_multiple


def build_model(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Transformer:
    """A network of the given sizes, its weights drawn from torch's default generator.

    Args:
        config: Sizes and switches.
        source_vocab_size: Pieces of the source tokenizer.
        target_vocab_size: Pieces of the target tokenizer.

    Raises:
        ValueError: if one vocabulary is needed and two of different size are given.
    """
    one_table = config.tying is Tying.three_way or config.architecture is Architecture.decoder_only
    if one_table and source_vocab_size != target_vocab_size:
        what = "tying=three_way" if config.tying is Tying.three_way else "architecture=decoder_only"
        raise ValueError(
            f"{what} needs one joint vocabulary, got {source_vocab_size} source and {target_vocab_size} "
            "target pieces; train a joint tokenizer" + (" or choose tying=two_way" if "tying" in what else "")
        )
    source_rows = nn.Embedding(embedding_rows(source_vocab_size, config.vocab_multiple), config.d_model)
    target_rows = source_rows
    if not one_table:
        target_rows = nn.Embedding(embedding_rows(target_vocab_size, config.vocab_multiple), config.d_model)
    output = cast(nn.Parameter, target_rows.weight)
    if config.tying is Tying.none:
        output = nn.Parameter(target_rows.weight.detach().clone())
    bias = nn.Parameter(torch.zeros(len(output))) if config.output_bias else None
    model = _assemble(config, source_rows, target_rows, output, bias)
    initialize(model, config)
    return model


def _assemble(
    config: ModelConfig,
    source_rows: nn.Embedding,
    target_rows: nn.Embedding,
    output: nn.Parameter,
    bias: nn.Parameter | None,
) -> Transformer:
    """The network around the given tables."""
    decoder_options = block_options(config, encoder=False)
    if config.architecture is Architecture.decoder_only:
        blocks = [Block(decoder_options) for _ in range(config.num_decoder_layers)]
        stack = Stack(_embedding(config, target_rows), blocks, _final_norm(decoder_options), _rotary(config))
        return DecoderOnly(stack, output, bias, config.prefix_lm)
    encoder_options = block_options(config, encoder=True)
    encoder_blocks = [Block(encoder_options) for _ in range(config.num_encoder_layers)]
    decoder_blocks = [CrossBlock(decoder_options) for _ in range(config.num_decoder_layers)]
    return EncoderDecoder(
        Encoder(_embedding(config, source_rows), encoder_blocks, _final_norm(encoder_options), _rotary(config)),
        Decoder(_embedding(config, target_rows), decoder_blocks, _final_norm(decoder_options), _rotary(config)),
        output,
        bias,
    )


def block_options(config: ModelConfig, *, encoder: bool) -> BlockOptions:
    """What the blocks of the encoder, or of the decoder, are built from."""
    own_d_ff = config.encoder_d_ff if encoder else config.decoder_d_ff
    scale = 1.0
    if config.norm_placement is NormPlacement.deepnorm:
        deep = DeepNorm.of(config)
        scale = deep.encoder_scale if encoder else deep.decoder_scale
    return BlockOptions(
        heads=Heads(
            d_model=config.d_model,
            num_heads=config.num_heads,
            num_kv_heads=config.kv_heads,
            d_head=config.head_width,
            bias=config.attention_bias,
            norm_eps=config.norm_eps if config.qk_norm else None,
            dropout=config.attention_dropout,
        ),
        d_ff=own_d_ff if own_d_ff is not None else config.d_ff,
        activation=config.activation,
        gated=config.gated,
        feed_forward_bias=config.feed_forward_bias,
        norm=config.norm,
        norm_placement=config.norm_placement,
        norm_eps=config.norm_eps,
        residual_scale=scale,
        dropout=config.dropout,
        activation_dropout=config.activation_dropout,
    )


def _final_norm(options: BlockOptions) -> nn.Module | None:
    """The norm after the last block, which Pre-LN stacks have."""
    return options.build_norm() if options.norm_placement is NormPlacement.pre else None


def _rotary(config: ModelConfig) -> RotaryPositions | None:
    return RotaryPositions(config.head_width, config.rope) if config.positions is PositionKind.rope else None


def _embedding(config: ModelConfig, rows: nn.Embedding) -> Embedding:
    positions: SinusoidalPositions | LearnedPositions | None = None
    if config.positions is PositionKind.learned:
        assert config.max_positions is not None
        positions = LearnedPositions(config.max_positions, config.d_model)
    elif config.positions is not PositionKind.rope:
        positions = SinusoidalPositions(config.d_model, config.positions is PositionKind.sinusoidal_halves)
    return Embedding(rows, positions, config.scale_embedding, config.dropout)
