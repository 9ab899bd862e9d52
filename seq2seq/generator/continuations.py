"""The text that pieces add to a prompt: found whole, tested for stop strings, and told as it grows."""

from collections.abc import Sequence

from seq2seq.text.tokenizer import Tokenizer

UNKNOWN = "\ufffd"
"""What decoders write for bytes that are no character, or not yet."""


class Continuation:
    """Texts that go on from one prompt.

    They are decoded together with the prompt: by itself the first piece would lose the space before it.

    Args:
        tokenizer: Made the ids.
        prompt: Ids of the prompt.
        stop: Strings that end a text and are no part of it.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._prompt = list(prompt)
        self._stop = list(stop)
        self._before = tokenizer.decode_text(self._prompt)

    def whole(self, ids: Sequence[int]) -> str:
        """What `ids` add to the prompt's text, stop strings too."""
        text = self._tokenizer.decode_text([*self._prompt, *ids])
        before = self._before
        if not text.startswith(before):  # the prompt ended inside a character, which is whole only now
            before = before.rstrip(UNKNOWN)
        return text[len(before) :]

    def stops(self, ids: Sequence[int]) -> bool:
        """Whether a stop string has come, wherever the borders of its pieces are."""
        text = self.whole(ids)
        return any(stop in text for stop in self._stop)

    def final(self, ids: Sequence[int], cut: bool) -> str:
        """The text of a continuation that is over.

        Args:
            ids: All its pieces.
            cut: Whether it ends because of a limit, which may be in the middle of a character.
        """
        text, stopped = self._until_stop(self.whole(ids))
        return text.rstrip(UNKNOWN) if cut and not stopped else text

    def settled(self, ids: Sequence[int]) -> str:
        """As much of the text as no further piece can change: without half a character or half a stop string."""
        text, stopped = self._until_stop(self.whole(ids))
        if stopped:
            return text
        text = text.rstrip(UNKNOWN)
        held = max((_overlap(text, stop) for stop in self._stop), default=0)
        return text[: len(text) - held]

    def _until_stop(self, text: str) -> tuple[str, bool]:
        """The text before the first stop string, and whether there is one."""
        places = [place for place in (text.find(stop) for stop in self._stop) if place >= 0]
        return (text[: min(places)], True) if places else (text, False)


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` that may be the beginning of `stop`, the most there can be."""
    longest = min(len(text), len(stop) - 1)
    return next((length for length in range(longest, 0, -1) if stop.startswith(text[-length:])), 0)
