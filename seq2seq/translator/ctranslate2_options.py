"""Search options as CTranslate2 calls them, and those that it does not have."""

from typing import Any

from seq2seq.config import DecodeConfig, PenaltyForm
from seq2seq.translator.batches import Part

PATIENCE = 2.0
"""What stands in for a search that ends when nothing better can come, which CTranslate2 does not have: it nearly always
finds the same."""


def search_options(decode: DecodeConfig) -> dict[str, Any]:
    """The options of `ctranslate2.Translator.translate_batch` that are the same for all lines."""
    options: dict[str, Any] = {
        "beam_size": decode.beam_size,
        "num_hypotheses": 1 if decode.draws else decode.num_found,
        "length_penalty": 0.0 if decode.penalty_form is PenaltyForm.none else decode.length_penalty,
        "no_repeat_ngram_size": decode.no_repeat_ngram,
        "repetition_penalty": decode.repetition_penalty,
        "disable_unk": decode.forbid_unknown,
    }
    if decode.beam_size > 1:
        options["patience"] = PATIENCE if decode.patience is None else decode.patience
    else:
        options["length_penalty"] = 0.0
    if decode.draws:
        options["sampling_topk"] = decode.top_k or 0
        options["sampling_topp"] = decode.top_p
        options["sampling_temperature"] = decode.temperature
    return options


def check_options(decode: DecodeConfig) -> None:
    """Refuse options that CTranslate2 does not have, or by which it would find something else.

    Raises:
        ValueError: naming the option, and what to do.
    """
    lacks = {
        "coverage_penalty": decode.coverage_penalty != 0,
        "forbidden": bool(decode.forbidden),
        "unknown_penalty": decode.unknown_penalty != 0,
        "replace_unknown": decode.replace_unknown,
        "min_p": decode.min_p != 0,
        "alignments": decode.alignments,
        "ordered_phrases": decode.ordered_phrases,
        "shortlist": decode.shortlist,
    }
    for name, wanted in lacks.items():
        if wanted:
            raise ValueError(
                f"{name}={getattr(decode, name)} is not something that CTranslate2 does as this package does it; leave "
                "it out, or take the backend torch"
            )
    renormalised = {
        # with 2 it is the first step's, which all hypotheses share: a constant, unless lengths divide it
        "min_length": decode.min_length > (1 if penalized(decode) else 2),
        "min_length_factor": decode.min_length_factor > 0,
        "no_repeat_ngram": decode.no_repeat_ngram > 0,
        "forbid_unknown": decode.forbid_unknown,
    }
    for name, wanted in renormalised.items():
        if wanted and decode.beam_size > 1:
            raise ValueError(
                f"{name}={getattr(decode, name)} forbids pieces, and CTranslate2 shares out their probability among "
                "the others, so that its beam finds something else; give beam_size=1 (on the command line --beam 1), "
                "leave it out, or take the backend torch"
            )
    if decode.penalty_form is PenaltyForm.gnmt and decode.beam_size > 1 and decode.length_penalty != 0:
        raise ValueError(
            "penalty_form=gnmt is not one that CTranslate2 has; give penalty_form=power (on the command line "
            "--penalty-form power), beam_size=1, or take the backend torch"
        )


def check_part(part: Part, decode: DecodeConfig) -> None:
    """Refuse a line that asks for what CTranslate2 does not do.

    Raises:
        ValueError: with the number of the line.
    """
    if part.phrases:
        raise ValueError(
            f"line {part.number} has phrases that its translation must contain, which CTranslate2 does not search for; "
            "take the backend torch"
        )
    if part.prefix and not part.forced and decode.beam_size > 1 and penalized(decode):
        raise ValueError(
            f"line {part.number} has a prefix, which CTranslate2 leaves out of the scores that its beam goes by, so "
            f"that length_penalty={decode.length_penalty} would choose otherwise; give length_penalty=0, beam_size=1, "
            "or take the backend torch"
        )


def penalized(decode: DecodeConfig) -> bool:
    """Whether scores are divided for length."""
    return decode.penalty_form is not PenaltyForm.none and decode.length_penalty != 0
