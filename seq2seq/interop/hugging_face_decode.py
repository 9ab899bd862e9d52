"""Search options as Hugging Face folders have them (generation_config.json, or config.json in older ones), and ours.

`transformers` counts the piece that the decoder starts with: its max_length=M allows M - 1 pieces, EOS included, as
our max_length=M - 1 does. Its length penalty divides by length^p (`penalty_form=power`). Two things have no
counterpart: its early_stopping (with "never" its search is exact as ours is; with other values it may stop at a worse
translation, but sooner) and our limit by the length of the source, which an imported model has too.
"""

from seq2seq.config import DecodeConfig, PenaltyForm
from seq2seq.interop.families_options import Options

_NEUTRAL: Options = {
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "do_sample": False,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "guidance_scale": None,
}
"""Options that would change translations and that our search does not have, with the values that leave them alone."""


def read_decode(options: Options, suppressed: tuple[int, ...]) -> tuple[DecodeConfig, list[str]]:
    """Our search options, and those of theirs, as `name=value`, that are in effect and that we have nothing for.

    Args:
        options: Theirs. What is not there has the default of this package, but the length penalty that of theirs.
        suppressed: Ids that our search never produces anyway.
    """
    values: Options = {"penalty_form": PenaltyForm.power, "length_penalty": 1.0}
    if options.get("length_penalty") is not None:
        values["length_penalty"] = float(options["length_penalty"])
    if options.get("num_beams"):
        values["beam_size"] = options["num_beams"]
    longest = options.get("max_new_tokens") or (options["max_length"] - 1 if options.get("max_length") else None)
    if longest is not None:
        values["max_length"] = longest
    if options.get("min_new_tokens"):
        values["min_length"] = options["min_new_tokens"] + 1
    elif options.get("min_length"):
        values["min_length"] = options["min_length"]
    unread = [
        f"{key}={options[key]!r}" for key, neutral in _NEUTRAL.items() if options.get(key) not in (None, neutral, [])
    ]
    words = [word for word in options.get("bad_words_ids") or () if len(word) != 1 or word[0] not in suppressed]
    if words:
        unread.append(f"bad_words_ids={words!r:.60}")
    return DecodeConfig(**values), unread


def write_decode(decode: DecodeConfig, longest: int) -> tuple[Options, list[str]]:
    """Their search options, and those of ours, as `name=value`, that they have nothing for.

    Args:
        decode: Ours.
        longest: Positions that the decoder has; the limit where `decode` has none but by the source's length.
    """
    unwritten = []
    penalty = decode.length_penalty
    if decode.penalty_form is PenaltyForm.none:
        penalty = 0.0
    elif decode.penalty_form is PenaltyForm.gnmt and penalty != 0:
        unwritten.append(f"penalty_form=gnmt with length_penalty={penalty:g}")
        penalty = 1.0
    if decode.min_length_factor > 0:
        unwritten.append(f"min_length_factor={decode.min_length_factor:g}")
    options: Options = {
        "num_beams": decode.beam_size,
        "length_penalty": penalty,
        "max_length": decode.max_length + 1 if decode.max_length is not None else longest,
    }
    if decode.min_length > 1:
        options["min_length"] = decode.min_length
    return options, unwritten
