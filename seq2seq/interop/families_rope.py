"""Rotary positions as LLaMA and Qwen folders describe them: three ways of writing it, and what each means to us.

Since version 5 of `transformers` everything stands in `rope_parameters`; before, the base stood beside it as
`rope_theta` and the scaling in `rope_scaling`, with its kind under `rope_type` or, older still, `type`.
"""

import math
from typing import Any

from seq2seq.config import ModelConfig, RopeConfig, RopeScaling
from seq2seq.interop.families_options import MisfitError, Options, Row

_KINDS = {
    "default": RopeScaling.none,
    "linear": RopeScaling.linear,
    "yarn": RopeScaling.yarn,
    "llama3": RopeScaling.llama3,
}
_KEYS = {
    "default": (),
    "linear": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "truncate"),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
}
"""What each kind has beside its base."""
_INFERRED = ("mscale", "mscale_all_dim")
"""Of yarn: what its attention factor is computed from if it is not given."""


def _read(
    parameters: Options | None,
    scaling: Options | None,
    base: int | float | None,
    partial: int | float | None,
    original: int | None,
    longest: int | None,
) -> tuple[RopeConfig]:
    """Our options, whichever way they are written."""
    given: Options = {"rope_theta": base, "partial_rotary_factor": partial, **(scaling or parameters or {})}
    kind = given.pop("rope_type", None) or given.get("type") or "default"
    given.pop("type", None)
    if kind not in _KINDS:
        raise MisfitError(f"rope_type={kind!r}; this package has {', '.join(_KINDS)}")
    theta, partial = given.pop("rope_theta"), given.pop("partial_rotary_factor")
    if partial not in (None, 1, 1.0):
        raise MisfitError(f"partial_rotary_factor={partial}; this package turns whole heads")
    if original is not None:
        given["original_max_position_embeddings"] = original
    known = (*_KEYS[kind], *_INFERRED) if kind == "yarn" else _KEYS[kind]
    for key, value in given.items():
        if key not in known and not (kind in ("default", "linear") and key == "original_max_position_embeddings"):
            raise MisfitError(
                f"{key}={value!r} for rope_type={kind!r}; this package knows {', '.join(known) or 'no such'}"
            )
    values: Options = {"base": float(10000.0 if theta is None else theta), "scaling": _KINDS[kind]}
    if kind in ("yarn", "llama3"):
        values["original_positions"] = given.get("original_max_position_embeddings") or longest
    for key in ("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor"):
        if given.get(key) is not None and key in known:
            values[key] = float(given[key])
    if kind == "yarn":
        values |= _yarn(given, values.get("original_positions"), longest)
    elif kind == "linear" and "factor" not in values:
        raise MisfitError("rope_type='linear' without a factor; expected the factor that positions are divided by")
    return (RopeConfig(**values),)


def _yarn(given: Options, original: int | None, longest: int | None) -> Options:
    """Of yarn what is computed from other values.

    Source:
        mscale: DeepSeek-AI 2024, arXiv:2405.04434, in the form that `transformers` has it.
    """
    values: dict[str, Any] = {"truncate": given.get("truncate", True)}
    factor = given.get("factor")
    if factor is None and original is not None and longest is not None:
        values["factor"] = factor = longest / original
    upper, lower = given.get("mscale"), given.get("mscale_all_dim")
    if given.get("attention_factor") is None and upper and lower and factor is not None and factor > 1:
        values["attention_factor"] = (0.1 * upper * math.log(factor) + 1) / (0.1 * lower * math.log(factor) + 1)
    return values


def _write(config: ModelConfig) -> Options:
    """The one dictionary of today."""
    rope = config.rope
    kind = next(word for word, scaling in _KINDS.items() if scaling is rope.scaling)
    values = {
        "factor": rope.factor,
        "original_max_position_embeddings": rope.original_positions,
        "attention_factor": rope.attention_factor,
        "beta_fast": rope.beta_fast,
        "beta_slow": rope.beta_slow,
        "truncate": rope.truncate,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
    }
    parameters = {key: values[key] for key in _KEYS[kind] if values[key] is not None}
    return {"rope_parameters": {"rope_theta": rope.base, "rope_type": kind, **parameters}}


ROPE = Row(
    (
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "partial_rotary_factor",
        "original_max_position_embeddings",
        "max_position_embeddings",
    ),
    (None,) * 6,
    ("rope",),
    _read,
    _write,
    replaces=("rope_scaling", "rope_theta", "original_max_position_embeddings"),
)
"""Rotary positions."""
