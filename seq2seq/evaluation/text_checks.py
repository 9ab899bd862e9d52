"""What is suspicious about text that is about to be scored: above all, that it is in pieces or was tokenised before.

BLEU over pieces or over tokenised text is another number than BLEU over text, usually a much higher one, and no
signature shows it. So the text itself is looked at.
"""

import re
from collections.abc import Sequence

from seq2seq.text.lines import is_blank

MARKER_SHARE = 0.02
"""Share of the lines with a subword or escape mark at which text counts as tokenised; raw text has next to none."""

DETACHED_SHARE = 0.5
"""Share, among the lines that have a comma or full stop at all, of those where one stands free of its word."""

MIN_DETACHED_SHARE = 0.1
"""Share of all lines that must have a detached comma or full stop, so that a few odd lines do not decide."""

UNSPACED_SHARE = 0.3
"""Share of letters in scripts without spaces at which BLEU's ordinary tokenizer is wrong for the text."""

_MARKERS = (
    ("SentencePiece pieces ('▁')", re.compile("▁")),
    ("BPE pieces ('@@ ')", re.compile(r"\S@@(\s|$)")),
    ("WordPiece pieces (' ##')", re.compile(r"\s##\w")),
    ("escapes of a tokenizer (such as '&apos;')", re.compile(r"&(apos|quot|amp|lt|gt|#91|#93|#124);")),
)

# Only the comma and the full stop: French has a space before ! ? ; : in raw text.
_DETACHED = re.compile(r"\s[.,。，、](\s|$)")
_ANY_STOP = re.compile(r"[.,。，、]")

# Thai, Lao, Myanmar, Khmer, Kana, Han.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


def looks_tokenized(lines: Sequence[str]) -> str | None:
    """Why the lines look tokenised, with the number of lines that do, or None if they look like plain text.

    Args:
        lines: Hypotheses or references; blank ones are not counted.
    """
    filled = [line for line in lines if not is_blank(line)]
    for what, pattern in _MARKERS:
        marked = sum(pattern.search(line) is not None for line in filled)
        if marked > 0 and marked >= MARKER_SHARE * len(filled):
            return f"{marked} of {len(filled)} lines have {what}"
    detached = sum(_DETACHED.search(line) is not None for line in filled)
    with_stop = sum(_ANY_STOP.search(line) is not None for line in filled)
    if detached > DETACHED_SHARE * with_stop and detached >= MIN_DETACHED_SHARE * len(filled):
        return f"{detached} of {len(filled)} lines have a comma or full stop that stands free (' .' or ' ,')"
    return None


def written_without_spaces(lines: Sequence[str]) -> bool:
    """Whether the text is mostly in a script without spaces between words, where BLEU needs a tokenizer for it."""
    num_letters = sum(character.isalpha() for line in lines for character in line)
    num_unspaced = sum(len(_UNSPACED.findall(line)) for line in lines)
    return num_letters > 0 and num_unspaced >= UNSPACED_SHARE * num_letters


def tokenized_warning(name: str, lines: Sequence[str]) -> str | None:
    """A strong warning if the text called `name` looks tokenised, else None."""
    reason = looks_tokenized(lines)
    if reason is None:
        return None
    return (
        f"{name} looks tokenised: {reason}. Scores of tokenised text are not comparable with any others; "
        "score plain, detokenised text"
    )


def reference_warnings(name: str, lines: Sequence[str], *, tokenizer: str) -> list[str]:
    """Warnings about one reference set: blank lines, and a script that BLEU's tokenizer cannot split.

    Args:
        name: What the messages call it.
        lines: The references.
        tokenizer: BLEU's tokenizer, by sacreBLEU's name.
    """
    warnings = []
    blank = [number for number, line in enumerate(lines, start=1) if is_blank(line)]
    if blank:
        warnings.append(
            f"{name} has {len(blank)} blank lines, the first at line {blank[0]}; they are scored as empty references"
        )
    if tokenizer == "13a" and written_without_spaces(lines):
        warnings.append(
            f"{name} is written without spaces, but BLEU's tokenizer 13a splits at spaces; give the target language "
            "(--target-lang zh, ja or ko) or a tokenizer (--tokenize char or flores200). TER splits at spaces always"
        )
    return warnings
