"""The four special ids that every vocabulary has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the padding, begin, end and unknown symbols.

    The defaults are those of every tokenizer trained here. Imported models bring their own.
    """

    pad: int = 0
    bos: int = 1
    eos: int = 2
    unk: int = 3

    def check(self, vocab_size: int) -> None:
        """Refuse ids that are missing (negative), equal, or outside the vocabulary.

        Raises:
            ValueError: naming the ids got and what was expected.
        """
        ids = {"pad": self.pad, "bos": self.bos, "eos": self.eos, "unk": self.unk}
        listed = ", ".join(f"{name}={value}" for name, value in ids.items())
        missing = [name for name, value in ids.items() if value < 0]
        if missing:
            raise ValueError(
                f"the vocabulary has no {', '.join(missing)} symbol (got {listed}); expected pad, bos, eos and unk "
                "to be switched on: train the tokenizer with `seq2seq data tokenizer`, or give SentencePiece "
                "--pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3"
            )
        if len(set(ids.values())) < len(ids):
            raise ValueError(f"special ids must differ from one another, got {listed}")
        outside = [name for name, value in ids.items() if value >= vocab_size]
        if outside:
            raise ValueError(f"special ids must be below the vocabulary size {vocab_size}, got {listed}")
