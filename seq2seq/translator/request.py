"""What a translator may be told about a line besides its text."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """A line to translate, and what its translation must be like.

    Raises:
        ValueError: if options exclude each other, or a phrase is blank.
    """

    text: str
    """The line."""
    prefix: str = ""
    """Text that the translation starts with."""
    target: str | None = None
    """The whole translation, which is then only scored and aligned (forced decoding); None lets the model translate."""
    phrases: tuple[str, ...] = ()
    """Words or phrases that the translation contains, as whole words; ``a|b`` is one of the two. See `terminology`."""

    def __post_init__(self) -> None:
        if self.target is not None and (self.prefix or self.phrases):
            raise ValueError(
                "a line has a target, which is its whole translation, and a prefix or phrases too; give one of them"
            )
        blank = [phrase for phrase in self.phrases if not phrase.strip()]
        if blank:
            raise ValueError(f"phrases has {blank[0]!r}, expected words or phrases")
        for phrase in self.phrases:
            alternatives(phrase)


def alternatives(phrase: str) -> tuple[str, ...]:
    """The texts of which a translation must contain one: ``a|b`` is either of the two.

    Raises:
        ValueError: if one of them is blank.
    """
    texts = tuple(" ".join(text.split()) for text in phrase.split("|"))
    if not all(texts):
        raise ValueError(
            f"phrase {phrase!r} has an empty alternative; expected words, with one '|' between two alternatives"
        )
    return texts
