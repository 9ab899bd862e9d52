"""Which target pieces a sentence's translation is likely to be made of, told from its source pieces.

A model that chooses among some hundred pieces instead of its whole vocabulary computes that many rows of its output
matrix alone, which is where a small model spends most of its time. What is left out cannot be produced.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from seq2seq.corpus.translation_table import TranslationTable
from seq2seq.shapes import Bool, Int
from seq2seq.text.lines import write_bytes
from seq2seq.text.tokenizer import Tokenizer

FILE = "shortlist.safetensors"
"""Its name inside a bundle."""

FORMAT_VERSION = 1

_WORD_START = "\u2581"


@dataclass(frozen=True)
class Shortlist:
    """The target pieces to choose from, for any source.

    Raises:
        ValueError: if the parts do not fit together, or an id is outside the vocabulary.

    Source:
        Jean et al. 2015, arXiv:1412.2007, section 3.2: the K most frequent pieces and, for each source piece, the most
        probable ones of a dictionary. Deviations: one of pieces, from model 1; each source piece's own spelling,
        digits, punctuation and special pieces belong to it always.
    """

    num_targets: int
    """Pieces on the target side."""
    candidates: Int[np.ndarray, "S K"]
    """For each source piece target pieces, most probable first, filled up with -1."""
    same: Int[np.ndarray, " _"]
    """For each source piece the target piece that is spelled alike, so that names are copied; -1 without one."""
    frequent: Int[np.ndarray, " N"]
    """Target pieces that every sentence has to choose from, most frequent first."""
    always: Int[np.ndarray, " M"]
    """As `frequent`: special pieces, single digits and signs."""
    sha256: tuple[str, str]
    """Checksums of the tokenizers that it was made with, source and target."""

    def __post_init__(self) -> None:
        if len(self.same) != len(self.candidates):
            raise ValueError(
                f"the shortlist has candidates for {len(self.candidates)} source pieces, spellings for "
                f"{len(self.same)}; expected as many"
            )
        for name in ("candidates", "same", "frequent", "always"):
            ids = getattr(self, name)
            low = -1 if name in ("candidates", "same") else 0
            if ids.size and not (low <= ids.min() and ids.max() < self.num_targets):
                raise ValueError(
                    f"the shortlist has ids from {ids.min()} to {ids.max()} in {name}, the target vocabulary has "
                    f"{self.num_targets} pieces"
                )

    def allowed(
        self, sources: Sequence[Sequence[int]], others: Sequence[Sequence[int]] | None = None
    ) -> Bool[np.ndarray, "B V"]:
        """For each sentence of a batch the target pieces that it has to choose from.

        Args:
            sources: The sentences' source ids.
            others: For each sentence target ids that it must have too, such as those of a forced prefix.
        """
        chosen = np.zeros((len(sources), self.num_targets + 1), dtype=bool)
        chosen[:, self.frequent] = True
        chosen[:, self.always] = True
        for row, source in zip(chosen, sources, strict=True):
            found = np.array(source, dtype=np.int64)
            row[self.candidates[found]] = True  # -1 is the place behind the last one
            row[self.same[found]] = True
        for row, ids in zip(chosen, others or (), strict=others is not None):
            row[np.array(ids, dtype=np.int64)] = True
        return chosen[:, :-1]

    def cut(self, candidates: int, frequent: int) -> "Shortlist":
        """The same with fewer pieces: the first ones of each source piece, and of all."""
        return Shortlist(
            self.num_targets,
            self.candidates[:, :candidates],
            self.same,
            self.frequent[:frequent],
            self.always,
            self.sha256,
        )

    def check(self, source: Tokenizer, target: Tokenizer) -> None:
        """Refuse a shortlist of other tokenizers, whose ids mean other pieces.

        Raises:
            ValueError: with the checksums.
        """
        for side, expected, tokenizer in zip(("source", "target"), self.sha256, (source, target), strict=True):
            if tokenizer.sha256 != expected:
                raise ValueError(
                    f"the shortlist was made with another {side} tokenizer: SHA-256 {expected[:12]}, this one has "
                    f"{tokenizer.sha256[:12]}; make it again with `seq2seq data shortlist`"
                )


def build_shortlist(
    table: TranslationTable, source: Tokenizer, target: Tokenizer, *, candidates: int, frequent: int
) -> Shortlist:
    """The shortlist that a translation table gives.

    Args:
        table: Of these two tokenizers' pieces.
        source: The source tokenizer.
        target: The target tokenizer.
        candidates: Target pieces for each source piece.
        frequent: Target pieces for all.
    """
    names = target.pieces(range(target.vocab_size))
    counts = table.target_counts
    by_name = {name: id_ for id_, name in enumerate(names) if counts[id_]}
    same = [by_name.get(name, -1) for name in source.pieces(range(source.vocab_size))]
    order = np.argsort(-counts, kind="stable")
    special = target.special
    always = {special.pad, special.bos, special.eos, special.unk, *target.stop}
    always |= {id_ for id_, name in enumerate(names) if counts[id_] and _is_sign(name)}
    return Shortlist(
        num_targets=target.vocab_size,
        candidates=table.best(source.vocab_size, candidates),
        same=np.array(same, dtype=np.int32),
        frequent=order[: min(frequent, np.count_nonzero(counts))].astype(np.int32),
        always=np.array(sorted(always), dtype=np.int32),
        sha256=(source.sha256, target.sha256),
    )


def write_shortlist(shortlist: Shortlist, path: str | Path) -> None:
    """Write it as one safetensors file, whole or not at all.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: a folder has that name.
    """
    arrays = {name: np.ascontiguousarray(getattr(shortlist, name)) for name in _ARRAYS}
    metadata = {
        "format": "seq2seq shortlist",
        "format_version": str(FORMAT_VERSION),
        "num_targets": str(shortlist.num_targets),
        "source_sha256": shortlist.sha256[0],
        "target_sha256": shortlist.sha256[1],
    }
    write_bytes(path, save(arrays, metadata))


_ARRAYS = {"candidates": 2, "same": 1, "frequent": 1, "always": 1}
"""What the file has, and the numbers of dimensions."""


def read_shortlist(path: str | Path) -> Shortlist:
    """The shortlist that `write_shortlist` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, something else, or of a newer format.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist; `seq2seq data shortlist` makes a shortlist")
    try:
        with safe_open(path, framework="np") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            arrays: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no dict
    except SafetensorError as problem:
        raise ValueError(f"{path} is damaged ({problem}); make it again with `seq2seq data shortlist`") from problem
    if metadata.get("format") != "seq2seq shortlist":
        raise ValueError(f"{path} is not a shortlist; expected a file that `seq2seq data shortlist` wrote")
    version = metadata.get("format_version", "")
    if version != str(FORMAT_VERSION):
        raise ValueError(
            f"{path} has format version {version!r}, this package reads {FORMAT_VERSION}; update seq2seq, or make it "
            "again"
        )
    found = {name: (array.ndim, str(array.dtype)) for name, array in arrays.items()}
    expected = {name: (dimensions, "int32") for name, dimensions in _ARRAYS.items()}
    if found != expected or not metadata.get("num_targets", "").isdigit():
        raise ValueError(
            f"{path} is damaged: it has {found}, expected {expected} and num_targets; make it again with "
            "`seq2seq data shortlist`"
        )
    try:
        return Shortlist(
            **arrays,
            num_targets=int(metadata["num_targets"]),
            sha256=(metadata.get("source_sha256", ""), metadata.get("target_sha256", "")),
        )
    except ValueError as problem:
        raise ValueError(f"{path} is damaged: {problem}") from problem


@dataclass(frozen=True)
class Coverage:
    """How much of given translations could have been made from a shortlist."""

    num_pieces: int
    """Pieces of the translations."""
    covered: int
    """Of them, pieces that the shortlist of their sentence has."""
    num_sentences: int
    """Translations."""
    whole: int
    """Of them, translations of which each piece is there."""
    mean_size: float
    """Pieces of one sentence's shortlist, on average."""
    batch_size: float
    """Pieces that a batch of `BATCH` sentences of like length has together, on average."""


BATCH = 64
"""Sentences of a batch, for `Coverage`."""


def coverage(shortlist: Shortlist, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Coverage:
    """How much of the pairs' targets the shortlist has; batches are of sources of like length.

    Raises:
        ValueError: if there is no pair.
    """
    if not pairs:
        raise ValueError("there is no pair to measure the shortlist with; give parallel text")
    sizes, covered, whole = 0, 0, 0
    for source, target in pairs:
        allowed = shortlist.allowed([source])[0]
        hits = int(allowed[np.array(target, dtype=np.int64)].sum())
        sizes, covered, whole = sizes + int(allowed.sum()), covered + hits, whole + (hits == len(target))
    sources = sorted((source for source, _ in pairs), key=len)
    starts = range(0, len(sources), BATCH)
    batches = [int(shortlist.allowed(sources[at : at + BATCH]).any(axis=0).sum()) for at in starts]
    return Coverage(
        num_pieces=sum(len(target) for _, target in pairs),
        covered=covered,
        num_sentences=len(pairs),
        whole=whole,
        mean_size=sizes / len(pairs),
        batch_size=sum(batches) / len(batches),
    )


def _is_sign(name: str) -> bool:
    """Whether a piece is one digit, punctuation mark or symbol, with or without a space before it."""
    return len(sign := name.removeprefix(_WORD_START)) == 1 and unicodedata.category(sign)[0] in "NPS"
