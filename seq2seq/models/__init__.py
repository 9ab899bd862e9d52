"""Whole networks, put together from the parts in `seq2seq.nn`."""

from seq2seq.models.build import build_model
from seq2seq.models.decoder_only import DecoderOnly
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.ensemble import Ensemble
from seq2seq.models.transformer import AttentionMaps, Transformer

__all__ = ["AttentionMaps", "DecoderOnly", "EncoderDecoder", "Ensemble", "Transformer", "build_model"]
