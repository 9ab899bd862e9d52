"""Text and its pieces: lines of files, special ids, the SentencePiece tokenizer."""
