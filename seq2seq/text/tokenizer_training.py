"""Train a SentencePiece tokenizer on lines in memory, with errors that say what to do."""

import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sentencepiece

from seq2seq.config import TokenizerConfig, TokenizerKind
from seq2seq.text.lines import is_blank
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds

MAX_TRAINING_LINES = 5_000_000
"""A larger corpus is represented by a random sample of this many lines, drawn with the seed."""
NORMALIZATION_RULES = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")
"""The rules that SentencePiece ships."""
# The trainer's own sentinel for unknown characters: it passes over lines that contain it.
_RESERVED = "\u2585"
_QUIET = 2  # errors only; they come back as exceptions
# Results depend on how the sums are split over threads, so the number is fixed and not that of the machine.
_NUM_THREADS = 4


@dataclass(frozen=True)
class TrainingReport:
    """What a tokenizer was trained on."""

    num_lines: int
    """Lines given."""
    num_used: int
    """Lines trained on."""
    num_blank: int
    """Blank lines, left out."""
    num_skipped_long: int
    """Lines of more than `max_sentence_bytes` bytes, left out; with `keep_whitespace` they are cut instead."""
    num_skipped_reserved: int
    """Lines with U+2585, which the trainer keeps for itself and passes over."""
    num_sampled_out: int
    """Usable lines left out because the corpus has more than `MAX_TRAINING_LINES`."""
    vocab_size: int
    """Pieces in the vocabulary."""

    def summary(self) -> str:
        """One sentence for people; names only what was left out."""
        left_out = {
            "blank": self.num_blank,
            "too long": self.num_skipped_long,
            "with the reserved character U+2585": self.num_skipped_reserved,
            "beyond the sample": self.num_sampled_out,
        }
        skipped = ", ".join(f"{count:,} {what}" for what, count in left_out.items() if count)
        text = f"tokenizer with {self.vocab_size:,} pieces trained on {self.num_used:,} of {self.num_lines:,} lines"
        return f"{text} (left out: {skipped})" if skipped else text


def train_tokenizer(
    lines: Iterable[str], config: TokenizerConfig, *, seed: int = 1, symbols: Sequence[str] = ()
) -> tuple[SentencePieceTokenizer, TrainingReport]:
    """A tokenizer trained on the lines, and what was left out. The same input gives the same bytes.

    Args:
        lines: Text; for a joint vocabulary the lines of both sides. With `keep_whitespace` each may be a whole text
            with line feeds.
        config: Kind, size, coverage, normalisation.
        seed: Draws the sample of a corpus of more than `MAX_TRAINING_LINES` lines.
        symbols: Strings that become one piece each and are never split (language tags, separators).

    Raises:
        ValueError: no usable line, a vocabulary too large or too small for the text (says what is possible), or an
            unknown normalisation rule.
    """
    if config.normalization not in NORMALIZATION_RULES:
        raise ValueError(
            f"data.tokenizer.normalization={config.normalization} is not a rule of SentencePiece; "
            f"choose one of {', '.join(NORMALIZATION_RULES)}"
        )
    if config.keep_whitespace:
        lines = _parts(lines, config.max_sentence_bytes)
    usable, counts = _select(lines, config.max_sentence_bytes, seed)
    if not usable:
        raise ValueError(_nothing_usable(counts, config))
    special = SpecialIds()
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(usable),
            model_writer=model,
            model_type=config.kind.name,
            vocab_size=config.vocab_size,
            pad_id=special.pad,
            bos_id=special.bos,
            eos_id=special.eos,
            unk_id=special.unk,
            byte_fallback=config.byte_fallback,
            character_coverage=config.character_coverage,
            normalization_rule_name=config.normalization,
            max_sentence_length=config.max_sentence_bytes,
            # Without one, SentencePiece would take line feeds for spaces.
            user_defined_symbols=["\n", *symbols] if config.keep_whitespace else list(symbols),
            # The space that it puts in front of a line, and those that it takes away, cannot be told from the text's.
            add_dummy_prefix=not config.keep_whitespace,
            remove_extra_whitespaces=not config.keep_whitespace,
            allow_whitespace_only_pieces=config.keep_whitespace,  # indentation
            hard_vocab_limit=config.kind is not TokenizerKind.char,  # no text has a given number of characters
            num_threads=_NUM_THREADS,
            minloglevel=_QUIET,
        )
    except RuntimeError as error:
        raise ValueError(_explained(str(error), config, len(usable))) from error
    tokenizer = SentencePieceTokenizer.from_bytes(model.getvalue())
    report = TrainingReport(
        num_lines=counts["lines"],
        num_used=len(usable),
        num_blank=counts["blank"],
        num_skipped_long=counts["long"],
        num_skipped_reserved=counts["reserved"],
        num_sampled_out=counts["sampled_out"],
        vocab_size=tokenizer.vocab_size,
    )
    return tokenizer, report


def _parts(texts: Iterable[str], max_bytes: int) -> Iterator[str]:
    """The lines of texts, each with its line feed; long ones cut, before a space where there is one."""
    longest = max_bytes // 4  # characters, of at most four bytes each
    for text in texts:
        for line in text.split("\n"):
            start = 0
            while len(line) - start >= longest:
                space = line.rfind(" ", start + 1, start + longest)
                end = space if space > 0 else start + longest
                yield line[start:end]
                start = end
            yield line[start:] + "\n"


def _select(lines: Iterable[str], max_bytes: int, seed: int) -> tuple[list[str], dict[str, int]]:
    """Lines to train on, and how many were left out for which reason; a sample if there are too many."""
    counts = dict.fromkeys(("lines", "blank", "long", "reserved", "sampled_out"), 0)
    kept: list[str] = []
    draw = random.Random(seed)
    for line in lines:
        counts["lines"] += 1
        if is_blank(line):
            counts["blank"] += 1
        elif len(line.encode("utf-8")) > max_bytes:
            counts["long"] += 1
        elif _RESERVED in line:
            counts["reserved"] += 1
        elif len(kept) < MAX_TRAINING_LINES:
            kept.append(line)
        else:
            # Reservoir sampling: line number n replaces a kept one with probability MAX / n.
            counts["sampled_out"] += 1
            place = draw.randrange(len(kept) + counts["sampled_out"])
            if place < len(kept):
                kept[place] = line
    return kept, counts


def _nothing_usable(counts: dict[str, int], config: TokenizerConfig) -> str:
    if counts["lines"] == 0:
        return "the tokenizer's training text has no lines; give files with text"
    return (
        f"the tokenizer's training text has no usable line: of {counts['lines']} lines {counts['blank']} are blank, "
        f"{counts['long']} have more than data.tokenizer.max_sentence_bytes={config.max_sentence_bytes} bytes and "
        f"{counts['reserved']} contain the reserved character U+2585; split long lines into sentences "
        "or raise the limit"
    )


def _explained(message: str, config: TokenizerConfig, num_lines: int) -> str:
    """SentencePiece's abort in words that say what to change."""
    too_large = re.search(r"Vocabulary size too high.*<= (\d+)", message)
    if too_large:
        return (
            f"data.tokenizer.vocab_size={config.vocab_size} is more than {num_lines} lines of text can fill; "
            f"the largest possible for them is {too_large[1]}: set data.tokenizer.vocab_size={too_large[1]} or less, "
            "or give more text"
        )
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_small:
        return (
            f"data.tokenizer.vocab_size={config.vocab_size} has no room for the characters of the text; set it to "
            f"{too_small[1]} or more, or lower data.tokenizer.character_coverage={config.character_coverage}"
        )
    return (
        f"SentencePiece could not train a {config.kind.name} tokenizer of {config.vocab_size} pieces on {num_lines} "
        f"lines: {message}; try more text or a smaller data.tokenizer.vocab_size"
    )
