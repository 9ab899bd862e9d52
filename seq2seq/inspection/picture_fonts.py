"""Fonts in which the pieces of any script can be read, and what is written where no font has a character.

A picture names several font families; the drawing library takes each character from the first one that has it. Which
of the installed ones are needed is found by looking the characters up in them. What is in none of them is written as
its code, U+6211, for an empty box tells nothing.

Arabic, Hebrew and other scripts that are joined up or run from right to left are shaped and ordered by the library
RAQM, which matplotlib has since version 3.11; older ones get a note. Each piece is shaped by itself: letters at its
ends have the form that they have at the end of a word, although the word may go on in the next piece.
"""

import contextlib
import functools
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry
    from matplotlib.ft2font import FT2Font

DEFAULT_FAMILY = "DejaVu Sans"
"""Comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew, and the mark of a space."""

PREFERRED = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans",
    "Malgun Gothic",
    "Noto Sans",
    "Arial Unicode MS",
)
"""Plain faces of common systems, looked at before all others, which come by name."""

LAST_RESORT = "last resort"
"""Begins the names of fonts that have a placeholder, nothing to read, for every character."""

OWN = frozenset(map(chr, range(ord(" "), 127))) | {"…"}
"""Characters that every picture has: titles, figures, and the mark of what was cut off."""

JOINERS = "\u200c\u200d"
"""Cannot be seen, but belong to the spelling of Persian and of Indian languages."""

EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH")
"""How the names of Chinese, Japanese and Korean characters begin."""

MOST_NAMED = 12
"""Characters that a note names before it only counts them."""


@dataclass(frozen=True)
class Fonts:
    """The choice for one picture.

    Attributes:
        families: Names of font families, in the order in which a character is looked for in them.
        missing: Characters that none of them has, in the order of their codes.
        notes: What the reader of the picture should be told, as sentences.
    """

    families: Sequence[str]
    missing: Sequence[str]
    notes: Sequence[str]

    def written(self, piece: str) -> str:
        """The piece as it is drawn: what cannot be seen, or no font has, as its code."""
        parts: list[str] = []
        for character in piece:
            if _is_visible(character) and character not in self.missing:
                if parts and parts[-1].startswith("U+"):
                    parts.append(" ")
                parts.append(character)
            else:
                parts += [" "] if parts else []
                parts.append(f"U+{ord(character):04X}")
        return "".join(parts)


def choose_fonts(pieces: Iterable[str], font_file: Path | None = None) -> Fonts:
    """The fonts that a picture with these pieces needs, of those that are installed.

    Args:
        pieces: All text of the picture.
        font_file: A font to prefer over all others; it need not be installed.

    Raises:
        FileNotFoundError: if there is no such font file.
        ValueError: if it is not a font.
    """
    characters = {character for piece in pieces for character in piece if _is_visible(character)} | OWN
    families, missing = [], characters
    for family, has in _fonts(font_file):
        found = {character for character in missing if has(character)}
        if found:
            families.append(family)
            missing = missing - found
        if not missing:
            break
    return Fonts(tuple(families), tuple(sorted(missing)), tuple(_notes(characters, missing)))


def _is_visible(character: str) -> bool:
    return character.isprintable() or character in JOINERS


def _fonts(font_file: Path | None) -> Iterator[tuple[str, Callable[[str], bool]]]:
    """Families of fonts with what tells whether they have a character: the given file, then the installed ones.

    matplotlib keeps a list of fonts between runs. Those installed since it was made come last.
    """
    from matplotlib import font_manager

    if font_file is not None:
        yield _given(font_file)
    seen: set[str] = set()
    yield from _listed(seen)
    listed = {entry.fname for entry in font_manager.fontManager.ttflist}
    for file in sorted(set(font_manager.findSystemFonts()) - listed):
        with contextlib.suppress(RuntimeError, OSError, NotImplementedError):  # not one that can be drawn with
            font_manager.fontManager.addfont(file)
    yield from _listed(seen)


def _given(font_file: Path) -> tuple[str, Callable[[str], bool]]:
    """The family of a font file, which a picture may name from now on."""
    from matplotlib import font_manager, ft2font

    if not font_file.is_file():
        raise FileNotFoundError(f"no font file at {font_file}; expected a .ttf, .otf or .ttc file")
    try:
        font_manager.fontManager.addfont(str(font_file))
        font = ft2font.FT2Font(str(font_file))
    except (RuntimeError, OSError, NotImplementedError) as problem:
        raise ValueError(f"{font_file} is not a font that can be drawn with ({problem}); give a .ttf or .otf") from None
    return font.family_name, functools.partial(_has, font)


def _listed(seen: set[str]) -> Iterator[tuple[str, Callable[[str], bool]]]:
    """The families that matplotlib knows, but those already `seen`, to which they are added."""
    from matplotlib import font_manager, ft2font

    for entry in sorted(font_manager.fontManager.ttflist, key=_rank):
        if entry.name in seen or entry.name.lower().lstrip(".").startswith(LAST_RESORT):
            continue
        try:
            font = ft2font.FT2Font(entry.fname)
        except (RuntimeError, OSError):  # a damaged file, or one that has gone since
            continue
        # The faces of a family have the same characters, as have the parts of a collection: one face is looked at.
        seen.add(entry.name)
        yield entry.name, functools.partial(_has, font)


def _has(font: "FT2Font", character: str) -> bool:
    return font.get_char_index(ord(character)) != 0


def _rank(entry: "FontEntry") -> tuple[int, bool, str, str]:
    """Where a font stands among the installed ones."""
    order = (DEFAULT_FAMILY, *PREFERRED)
    plain = entry.style == "normal" and entry.weight in (400, "normal", "regular")
    return order.index(entry.name) if entry.name in order else len(order), not plain, entry.name, entry.fname


def _notes(characters: set[str], missing: set[str]) -> Iterator[str]:
    """What is wrong with the characters that are drawn, and what helps."""
    from matplotlib import __version__, ft2font

    if missing:
        named = [f"{character} (U+{ord(character):04X})" for character in sorted(missing)[:MOST_NAMED]]
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        east_asian = any(unicodedata.name(character, "").startswith(EAST_ASIAN) for character in missing)
        name, package = ("Noto Sans CJK", "fonts-noto-cjk") if east_asian else ("one of the Noto fonts", "fonts-noto")
        yield (
            f"no installed font has {', '.join(named)}{more}, so the picture has their codes; install {name} (on "
            f"Debian and Ubuntu the package {package}), or give a font file with --font"
        )
    right_to_left = any(unicodedata.bidirectional(character) in ("R", "AL") for character in characters - missing)
    if right_to_left and not hasattr(ft2font, "__libraqm_version__"):
        yield (
            f"matplotlib {__version__} draws letters that run from right to left one by one from left to right; "
            "version 3.11 orders and joins them: pip install -U matplotlib"
        )
