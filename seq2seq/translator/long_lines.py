"""What becomes of a line with more pieces than the model should be given at once."""

import re
from collections.abc import Sequence
from functools import reduce

from seq2seq.config import Architecture, DecodeConfig, LongLines, ModelConfig, PositionKind
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translator.results import Candidate, Links, Weights

_WORD_START = "\u2581"  # SentencePiece's mark of a space before the piece
_CLOSING = "\"'\u2019\u201c\u201d\u00bb\u00ab)\\]"
# A full stop behind a single letter or a number mostly belongs to an abbreviation or an ordinal.
_SENTENCE_END = re.compile(rf"([!?\u2026\u061f\u0964]|[^\W\d_]{{2}}[{_CLOSING}]*\.)[{_CLOSING}]*$")
# Chinese and Japanese: full width, or made narrow by the tokenizer's normalisation and then told by what follows.
_WIDE_CLOSING = "\u300d\u300f\u201d\u2019"
_WIDE_END = re.compile(f"[\u3002\uff01\uff1f!?][{_WIDE_CLOSING}]*$")
_WIDE = re.compile("[\u3002-\u30ff\u3400-\u9fff\uff01\uff1f]")
_CONTINUATION_BYTE = re.compile("<0x[89AB][0-9A-F]>")


def longest_source(model: ModelConfig) -> int | None:
    """Pieces, EOS included, of the longest source that learned positions are enough for; None without such a limit.

    A decoder-only model has source and target in a row: there is room for a translation as long as the source.
    """
    if model.positions is not PositionKind.learned:
        return None
    assert model.max_positions is not None
    in_a_row = model.architecture is Architecture.decoder_only
    return (model.max_positions + 1) // 2 if in_a_row else model.max_positions


def longest_target(model: ModelConfig, source_length: int) -> int | None:
    """Pieces, EOS included, of the longest target of such a source; None without a limit."""
    if model.positions is not PositionKind.learned:
        return None
    assert model.max_positions is not None
    return model.max_positions - (source_length - 1 if model.architecture is Architecture.decoder_only else 0)


def fit(
    ids: list[int], tokenizer: Tokenizer, decode: DecodeConfig, line: int, longest: int | None = None
) -> tuple[list[list[int]], str | None]:
    """The parts that a line is translated in, and a notice if it was too long to be one.

    Each part has in front what says how all of the line is to be translated, such as the code of a language.

    Args:
        ids: The line, without EOS.
        tokenizer: Knows the pieces of `ids`.
        decode: Limit and choice.
        line: Number of the line, for messages.
        longest: Pieces that the model has positions for, as `longest_source` tells.

    Raises:
        ValueError: if the line is too long and `long_lines` is error, or the limit leaves no room.
    """
    limit = decode.max_source_length - 1  # EOS takes one
    if len(ids) <= limit and (longest is None or len(ids) < longest):
        return [ids], None
    if limit < 1:
        raise ValueError(f"max_source_length={decode.max_source_length} leaves no room beside EOS; give at least 2")
    found, remedy = (
        f"line {line} has {len(ids) + 1} pieces, max_source_length is {decode.max_source_length}",
        "raise it, or ",
    )
    typed = "--max-source-length, "
    if longest is not None and longest <= limit:
        found = f"line {line} has {len(ids) + 1} pieces, the model's learned positions are enough for {longest}"
        limit, remedy, typed = longest - 1, "", ""
    if decode.long_lines is LongLines.error:
        raise ValueError(
            f"{found}; {remedy}choose long_lines=truncate or long_lines=split (on the command line {typed}--long "
            "truncate, --long split)"
        )
    if decode.long_lines is LongLines.truncate:
        return [ids[:limit]], f"{found}: the last {len(ids) - limit} pieces were dropped"
    front = tokenizer.front(ids)
    if limit <= front:
        raise ValueError(f"{found}; it leaves no room beside the first {front} and EOS, which every part has")
    parts = [[*ids[:front], *part] for part in split(ids[front:], tokenizer.pieces(ids[front:]), limit - front)]
    return parts, f"{found}: translated in {len(parts)} parts"


def split(ids: list[int], pieces: Sequence[str], limit: int) -> list[list[int]]:
    """The ids cut into parts of at most `limit`: at the end of every sentence, longer ones between words.

    Models are trained on sentences, so each becomes a part by itself, even where two would fit. Only a word that is
    longer than the limit is cut inside.
    """
    parts = []
    ends = [*sentence_starts(pieces), len(ids)]
    start = 0
    for end in ends:
        while end - start > limit:
            cut = _cut(pieces, start, start + limit)
            parts.append(ids[start:cut])
            start = cut
        if end > start:
            parts.append(ids[start:end])
        start = end
    return parts


def join(
    parts: Sequence[Sequence[Candidate]], *, between: str, n_best: int, in_step: bool = False
) -> tuple[Candidate, ...]:
    """The candidates of a line from those of its parts, none from no part.

    Of all combinations the distinct ones with the best sums of scores (of utilities, where there are), best first. In
    step the n-th candidates of all parts make the n-th of the line: what is drawn for each part is so for the whole.
    """
    if in_step:
        return tuple(
            reduce(lambda left, right: _together(left, right, between), row) for row in zip(*parts, strict=True)
        )
    best = list(parts[0]) if parts else []
    for part in parts[1:]:
        pairs = [_together(left, right, between) for left in best for right in part]
        distinct: dict[str, Candidate] = {}
        for pair in sorted(pairs, key=lambda pair: -pair.merit):
            distinct.setdefault(pair.text, pair)
        best = list(distinct.values())[:n_best]
    return tuple(best)


def _together(left: Candidate, right: Candidate, between: str) -> Candidate:
    """The translation of two parts of a line."""
    return Candidate(
        text=between.join(text for text in (left.text, right.text) if text),
        score=left.score + right.score,
        log_prob=left.log_prob + right.log_prob,
        tokens=left.tokens + right.tokens,
        ids=left.ids + right.ids,
        token_log_probs=left.token_log_probs + right.token_log_probs,
        hit_limit=left.hit_limit or right.hit_limit,
        utility=None if left.utility is None or right.utility is None else left.utility + right.utility,
        alignment=_beside(left.alignment, right.alignment),
        piece_links=_links(left, right),
    )


def _beside(left: Weights | None, right: Weights | None) -> Weights | None:
    """The weights of both parts, each over its own source pieces only."""
    if left is None or right is None:
        return None
    behind, before = (0.0,) * len(right[0]), (0.0,) * len(left[0])
    return (*((*row, *behind) for row in left), *((*before, *row) for row in right))


def _links(left: Candidate, right: Candidate) -> Links | None:
    """The links of both parts, those of the right one moved by the pieces of the left one."""
    if left.piece_links is None or left.alignment is None or right.piece_links is None:
        return None
    sources, targets = len(left.alignment[0]), len(left.tokens)
    return (*left.piece_links, *((sources + source, targets + target) for source, target in right.piece_links))


def sentence_starts(pieces: Sequence[str]) -> list[int]:
    """Where a new sentence starts inside the pieces, as far as punctuation tells."""
    starts = []
    word_starts = [at for at, piece in enumerate(pieces) if at == 0 or piece.startswith(_WORD_START)]
    for before, at, after in zip(word_starts, word_starts[1:], [*word_starts[2:], len(pieces)], strict=False):
        word, next_word = "".join(pieces[before:at]), "".join(pieces[at:after]).strip(_WORD_START)
        if _SENTENCE_END.search(word) and not next_word[:1].islower():
            starts.append(at)
    for at in range(1, len(pieces)):
        end = _WIDE_END.search("".join(pieces[max(0, at - 3) : at]))  # a closing quote may be a piece by itself
        if end and (_WIDE.match(end[0]) or _WIDE.match(pieces[at])) and pieces[at][:1] not in _WIDE_CLOSING:
            starts.append(at)
    return sorted(set(starts))


def _cut(pieces: Sequence[str], start: int, end: int) -> int:
    """The last place after `start`, up to `end`, where a word begins; else one that is not inside a character."""
    for at in range(end, start, -1):
        if pieces[at].startswith(_WORD_START):
            return at
    for at in range(end, start, -1):
        if not _CONTINUATION_BYTE.fullmatch(pieces[at]):
            return at
    return end
