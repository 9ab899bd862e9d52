"""The tokenizers of BLEU, under the name that `seq2seq evaluate` still asks for them by."""

from seq2seq.text.bleu_tokenizer import bleu_tokenizer

__all__ = ["bleu_tokenizer"]
