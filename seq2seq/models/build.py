"""From options to a network with fresh weights."""

from typing import TypeVar, cast

from torch import nn

from seq2seq.config import ModelConfig, Tying
from seq2seq.models.decoder import Decoder, DecoderLayer
from seq2seq.models.encoder import Encoder, EncoderLayer
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.nn.embedding import Embedding
from seq2seq.nn.initialization import initialize

Layer = TypeVar("Layer", EncoderLayer, DecoderLayer)


def embedding_rows(vocab_size: int, vocab_multiple: int) -> int:
    """Rows of an embedding for a vocabulary, rounded up to the multiple."""
    return -(-vocab_size // vocab_multiple) * vocab_multiple


def build_model(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    """A network of the given sizes, its weights drawn from torch's default generator.

    Args:
        config: Sizes and switches.
        source_vocab_size: Pieces of the source tokenizer.
        target_vocab_size: Pieces of the target tokenizer.

    Raises:
        ValueError: if three-way tying is asked for two vocabularies of different size.
    """
    if config.tying is Tying.three_way and source_vocab_size != target_vocab_size:
        raise ValueError(
            f"tying=three_way needs one joint vocabulary, got {source_vocab_size} source and {target_vocab_size} "
            "target pieces; train a joint tokenizer or choose tying=two_way"
        )
    source_rows = nn.Embedding(embedding_rows(source_vocab_size, config.vocab_multiple), config.d_model)
    target_rows = source_rows
    if config.tying is not Tying.three_way:
        target_rows = nn.Embedding(embedding_rows(target_vocab_size, config.vocab_multiple), config.d_model)
    output = cast(nn.Parameter, target_rows.weight)
    if config.tying is Tying.none:
        output = nn.Parameter(target_rows.weight.detach().clone())
    model = EncoderDecoder(
        Encoder(Embedding(source_rows, config.dropout), _layers(EncoderLayer, config.num_encoder_layers, config)),
        Decoder(Embedding(target_rows, config.dropout), _layers(DecoderLayer, config.num_decoder_layers, config)),
        output,
    )
    initialize(model)
    if config.tying is Tying.none:
        nn.init.normal_(model.output, std=config.d_model**-0.5)
    return model


def _layers(kind: type[Layer], count: int, config: ModelConfig) -> list[Layer]:
    """`count` fresh layers of the configured sizes."""
    return [
        kind(
            d_model=config.d_model,
            num_heads=config.num_heads,
            d_ff=config.d_ff,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.activation_dropout,
            norm_eps=config.norm_eps,
        )
        for _ in range(count)
    ]
