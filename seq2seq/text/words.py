"""Where words begin and end in a text, in languages that write spaces between them and in those that do not."""

import unicodedata

# Chinese and Japanese characters, Thai, Lao, Myanmar and Khmer letters: written without spaces between words.
_NO_SPACES = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3005, 0x3007),
    (0x3040, 0x312F),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x323AF),
)
_JOINERS = frozenset("_\u200c\u200d")


def in_word(character: str) -> bool:
    """Whether a word can only end behind this character if no other such character follows.

    Letters, digits and marks of scripts that write spaces between words are like that. Punctuation, hyphens and
    apostrophes are not, nor is any character of Chinese, Japanese, Thai, Lao, Burmese or Khmer, where a word may end
    anywhere.
    """
    if character.isascii():
        return character.isalnum() or character == "_"
    if any(first <= ord(character) <= last for first, last in _NO_SPACES):
        return False
    return character in _JOINERS or unicodedata.category(character)[0] in "LMN"


def is_whole(text: str, start: int, end: int) -> bool:
    """Whether `text[start:end]`, which is not empty, begins and ends where words do."""
    inside_left = start > 0 and in_word(text[start - 1]) and in_word(text[start])
    inside_right = end < len(text) and in_word(text[end - 1]) and in_word(text[end])
    return not inside_left and not inside_right


def find_whole(text: str, words: str) -> int:
    """Where `words` first stands in the text as whole words; -1 if nowhere."""
    start = text.find(words)
    while start >= 0 and not is_whole(text, start, start + len(words)):
        start = text.find(words, start + 1)
    return start
