"""Text and its pieces: lines of files, special ids, tokenizers of three formats."""
