"""Whole networks, put together from the parts in `seq2seq.nn`."""

from seq2seq.models.build import build_model
from seq2seq.models.encoder_decoder import AttentionMaps, EncoderDecoder

__all__ = ["AttentionMaps", "EncoderDecoder", "build_model"]
