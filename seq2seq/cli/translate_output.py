"""What `seq2seq translate` writes: each translation as rows of text."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seq2seq.translator import Candidate, Translation


class Format(Enum):
    """How translations are written."""

    text = "text"
    jsonl = "jsonl"
    pharaoh = "pharaoh"


@dataclass(frozen=True)
class Rows:
    """Makes the rows of each translation.

    Attributes:
        format_: How they are written.
        n_best: The number of rows of each line, other than as JSON.
        scores: Whether text has its score and log-probability in front.
    """

    format_: Format = Format.text
    n_best: int = 1
    scores: bool = False

    def __call__(self, translation: "Translation") -> list[str]:
        """The rows, without line ends."""
        if self.format_ is Format.jsonl:
            return [as_json(translation)]
        if self.format_ is Format.pharaoh:
            return as_pharaoh(translation, self.n_best)
        return as_text(translation, self.n_best, self.scores)


def as_text(translation: "Translation", n_best: int, scores: bool) -> list[str]:
    """`n_best` rows: the translations, best first, then empty ones."""
    rows = [
        f"{candidate.score:.6f}\t{candidate.log_prob:.6f}\t{candidate.text}" if scores else candidate.text
        for candidate in translation.candidates
    ]
    return rows + ["-inf\t-inf\t" if scores else ""] * (n_best - len(rows))


def as_pharaoh(translation: "Translation", n_best: int) -> list[str]:
    """`n_best` rows: of each translation its word alignment, as pairs of places in the source and in it, from 0."""
    from seq2seq.translator.alignments import pharaoh

    rows = [pharaoh(candidate) for candidate in translation.candidates]
    return rows + [""] * (n_best - len(rows))


def as_json(translation: "Translation") -> str:
    """The translation as one JSON object."""

    def plain(candidate: "Candidate") -> dict[str, Any]:
        asked = {
            "utility": candidate.utility,
            "alignment": candidate.alignment,
            "piece_links": candidate.piece_links,
            "word_links": candidate.word_links,
        }
        found = {
            "text": candidate.text,
            "score": candidate.score,
            "log_prob": candidate.log_prob,
            "tokens": candidate.tokens,
            "ids": candidate.ids,
            "token_log_probs": candidate.token_log_probs,
            "hit_limit": candidate.hit_limit,
        }
        return found | {name: value for name, value in asked.items() if value is not None}

    record = {
        "line": translation.line,
        "source": translation.source,
        "source_ids": translation.source_ids,
        "translations": [plain(candidate) for candidate in translation.candidates],
        "notice": translation.notice,
    }
    return json.dumps(record, ensure_ascii=False)
