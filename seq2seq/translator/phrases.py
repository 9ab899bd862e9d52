"""Phrases that translations must contain: checked before anything is translated, then followed by the search."""

import itertools
from collections.abc import Iterable, Sequence

from seq2seq.config import DecodeConfig
from seq2seq.search.constraints import Constraints, Phrase, Spelling, WordPieces
from seq2seq.search.vocabulary import Vocabulary
from seq2seq.text import spelling
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.words import find_whole
from seq2seq.translator.batches import Part
from seq2seq.translator.request import alternatives


def room_for_phrases(
    tokenizer: Tokenizer,
    decode: DecodeConfig,
    phrases: Sequence[str],
    *,
    prefix: Sequence[int],
    longest: int | None,
    line: int,
) -> int:
    """How many pieces the phrases may still need behind the prefix, if they are written in the longest way.

    Args:
        tokenizer: Of the target language.
        decode: Search options.
        phrases: What the translation of a line must contain, as in `Request.phrases`.
        prefix: Pieces that the translation starts with, which may have phrases in them.
        longest: The longest possible translation, EOS included; None without a limit.
        line: Number of the line, for messages.

    Raises:
        ValueError: if there is no beam to find a translation with the phrases, one of them cannot be spelt or is ruled
            out by other options, or they do not fit into the longest translation even in their shortest spellings.
    """
    if not phrases:
        return 0
    if decode.draws or decode.beam_size == 1:
        option = f"temperature={decode.temperature}" if decode.draws else "beam_size=1"
        raise ValueError(
            f"line {line} has phrases that its translation must contain, which takes a beam whose places are shared "
            f"out, but {option}; choose temperature=0 and a beam_size of at least 2, such as 10"
        )
    given = tokenizer.decode(prefix)
    for phrase in phrases:
        if any(find_whole(given, text) >= 0 for text in alternatives(phrase)):
            continue  # rules do not hold for what is given; the search knows what else is needed
        try:
            _check_rules(tokenizer, decode, phrase, times=phrases.count(phrase))
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from None
    part = Part(line, (), tuple(prefix), tuple(phrases))
    constraints = _constraints(tokenizer, decode, [part], Vocabulary())
    rest = constraints.shortest_rest(0, prefix)
    needed = len(prefix) + rest + 1
    if rest and longest is not None and needed > longest:
        raise ValueError(
            f"line {line} has phrases that take {rest} pieces{' behind its prefix' if prefix else ''}, with EOS its "
            f"translation needs {needed}, but it may have only {longest}; raise max_length if that is what limits it, "
            "or ask for less"
        )
    return constraints.total(0) - constraints.met(0, prefix)


def batch_constraints(
    tokenizer: Tokenizer, decode: DecodeConfig, parts: Sequence[Part], vocabulary: Vocabulary
) -> Constraints | None:
    """What keeps the sentences of a batch from ending without their phrases; None if none has any.

    Args:
        tokenizer: Of the target language.
        decode: Search options.
        parts: The sentences of the search, in its order.
        vocabulary: Numbers the pieces; a shortlist has all those that `phrase_ids` gives.
    """
    if not any(part.phrases for part in parts):
        return None
    return _constraints(tokenizer, decode, parts, vocabulary)


def phrase_ids(tokenizer: Tokenizer, phrases: Iterable[str]) -> set[int]:
    """Ids of all pieces that the phrases may be written with, which a shortlist must not lack."""
    return {
        id_
        for phrase in phrases
        for text in alternatives(phrase)
        for one in spelling.spellings(tokenizer, text)
        for id_ in one.ids
    }


def _constraints(
    tokenizer: Tokenizer, decode: DecodeConfig, parts: Sequence[Part], vocabulary: Vocabulary
) -> Constraints:
    joints = spelling.joints(tokenizer)
    eos = vocabulary.number(tokenizer.special.eos)
    assert eos is not None
    return Constraints(
        [[_phrase(tokenizer, phrase, vocabulary) for phrase in part.phrases] for part in parts],
        [eos],
        words=WordPieces(_numbers(joints.opening, vocabulary), _numbers(joints.continuing, vocabulary)),
        ordered=decode.ordered_phrases,
    )


def _phrase(tokenizer: Tokenizer, phrase: str, vocabulary: Vocabulary) -> Phrase:
    """All spellings of all alternatives, in the numbers of the vocabulary."""
    found: dict[Spelling, None] = {}
    for text in alternatives(phrase):
        for one in spelling.spellings(tokenizer, text):
            numbers = vocabulary.numbers(one.ids)
            assert numbers is not None, "a shortlist contains the phrases"
            found[Spelling(tuple(numbers), one.whole_start, one.whole_end)] = None
    return tuple(found)


def _numbers(ids: frozenset[int], vocabulary: Vocabulary) -> frozenset[int]:
    if vocabulary.shortlist is None:
        return ids
    return frozenset(number for number, id_ in enumerate(vocabulary.shortlist) if id_ in ids)


def _check_rules(tokenizer: Tokenizer, decode: DecodeConfig, phrase: str, times: int) -> None:
    """Refuse a phrase that has no spelling, or that no translation may have under other options."""
    texts = alternatives(phrase)
    written = [one.ids for text in texts for one in spelling.spellings(tokenizer, text)]
    forbidden = [words for words in decode.forbidden if all(find_whole(text, words.strip()) >= 0 for text in texts)]
    if forbidden:
        raise ValueError(
            f"phrase {phrase!r}, which the translation must contain, has {forbidden[0]!r} in it, which forbidden rules "
            "out; take one of them back"
        )
    size = decode.no_repeat_ngram
    pairs = itertools.product(written, written if times > 1 else [()])
    if size and all(_repeats(size, *pair) for pair in pairs):
        raise ValueError(
            f"phrase {phrase!r}, which the translation must contain{' twice' if times > 1 else ''}, repeats a sequence "
            f"of {size} pieces, which no_repeat_ngram={size} rules out; choose a larger one, or 0"
        )


def _repeats(size: int, *texts: Sequence[int]) -> bool:
    """Whether a sequence of so many pieces comes twice in the texts."""
    found = [tuple(ids[at : at + size]) for ids in texts for at in range(len(ids) - size + 1)]
    return len(set(found)) < len(found)
