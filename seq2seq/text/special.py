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
        """Refuse ids of a SentencePiece model that are missing (negative), equal, or outside the vocabulary.

        Raises:
            ValueError: naming the ids got and what was expected.
        """
        ids, listed = self._ids(), self._listed()
        missing = [name for name, value in ids.items() if value < 0]
        if missing:
            raise ValueError(
                f"the vocabulary has no {', '.join(missing)} symbol (got {listed}); expected pad, bos, eos and unk "
                "to be switched on: train the tokenizer with `seq2seq data tokenizer`, or give SentencePiece "
                "--pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3"
            )
        if len(set(ids.values())) < len(ids):
            raise ValueError(f"special ids must differ from one another, got {listed}")
        if any(value >= vocab_size for value in ids.values()):
            raise ValueError(f"special ids must be below the vocabulary size {vocab_size}, got {listed}")

    def check_imported(self, vocab_size: int) -> None:
        """Refuse ids of an imported model that are outside the vocabulary. Several may be one: GPT-2 has one for all.

        Raises:
            ValueError: naming the ids got and what was expected.
        """
        if not all(0 <= value < vocab_size for value in self._ids().values()):
            raise ValueError(
                f"special ids must be from 0 to {vocab_size - 1}, the last piece of the vocabulary, got "
                f"{self._listed()}; expected config.json and the tokenizer's files to belong to one model"
            )

    def _ids(self) -> dict[str, int]:
        return {"pad": self.pad, "bos": self.bos, "eos": self.eos, "unk": self.unk}

    def _listed(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._ids().items())
