"""Compare this package with `transformers` on random models of every family, and print the differences as a table.

    python scripts/parity_table.py                  a Markdown table
    python scripts/parity_table.py gpt2 qwen3       only these cases
    python scripts/parity_table.py --json           the same as one JSON object a line

Each case is a folder that `transformers` writes: a small random model and a tokenizer. It is imported, and compared:
logits of a padded batch, without the cache and with it (a prompt at once, then single pieces), in float32 and float64;
greedy and beam search token for token; the folder exported again, byte for byte. Nothing is downloaded.
tests/parity/test_hugging_face_parity.py asserts what is printed here.
"""

import argparse
import contextlib
import dataclasses
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import GPT2Config, LlamaConfig, MarianConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from seq2seq.bundle import Bundle
from seq2seq.config import PenaltyForm, TokenizerConfig
from seq2seq.interop import export_hugging_face, import_hugging_face
from seq2seq.interop.hugging_face_tokenizer_json import sentence_piece_json
from seq2seq.models import DecoderOnly
from seq2seq.search import LengthPenalty, SearchLimits, beam_search
from seq2seq.text.tokenizer_training import train_tokenizer

VOCAB_SIZE, PAD, BOS, EOS = 41, 0, 1, 2
MAX_LENGTH = 14
"""Pieces that a search may produce."""
BEAM_SIZE = 4
PENALTIES = (0.0, 1.0, -0.5)
SOURCES = [
    [5, 9, 17], [40, 4, 23, 8, 31, 12], [7], [11, 38, 11, 29], [20, 21, 22, 23, 24], [35, 6], [13, 30, 5, 5, 28, 9, 34],
    [19, 27], [36, 15, 16], [25, 3, 37, 32, 12],
]  # fmt: skip
"""Sources, or prompts, of different lengths, without special pieces."""
TARGET = [BOS, 18, 33, 10, 26, 14, 39]
"""What every row of the batch goes on with."""
_LINES = [
    "the quick brown fox jumps over the lazy dog and the fox and the box",
    "pack my box with five dozen liquor jugs",
] * 3

_IDS = {"vocab_size": VOCAB_SIZE, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
_MARIAN = {
    **_IDS, "d_model": 12, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28, "decoder_start_token_id": BOS,
    "max_position_embeddings": 40, "forced_eos_token_id": None,
}  # fmt: skip
_GPT2 = {**_IDS, "n_positions": 33, "n_embd": 12, "n_layer": 3, "n_head": 2}
_LLAMA = {
    **_IDS, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def _rope(**scaling: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 300.0, "original_max_position_embeddings": 6, "factor": 4.0, **scaling}}


CASES: dict[str, Callable[[], PreTrainedConfig]] = {
    "marian relu": lambda: MarianConfig(**_MARIAN, activation_function="relu", scale_embedding=True),
    "marian swish": lambda: MarianConfig(**_MARIAN, activation_function="swish"),
    "marian two tables": lambda: MarianConfig(
        **_MARIAN, activation_function="silu", share_encoder_decoder_embeddings=False
    ),
    "gpt2": lambda: GPT2Config(**_GPT2),
    "gpt2 untied": lambda: GPT2Config(
        **_GPT2, n_inner=20, tie_word_embeddings=False, activation_function="relu", layer_norm_epsilon=1e-3
    ),
    "llama": lambda: LlamaConfig(**_LLAMA | {"num_key_value_heads": 4}),
    "llama grouped, linear": lambda: LlamaConfig(
        **_LLAMA, rope_parameters={"rope_theta": 300.0, "rope_type": "linear", "factor": 4.0}
    ),
    "llama grouped, yarn": lambda: LlamaConfig(**_LLAMA, **_rope(rope_type="yarn", mscale=0.9, mscale_all_dim=0.6)),
    "llama multi-query, llama3": lambda: LlamaConfig(
        **_LLAMA | {"num_key_value_heads": 1, "head_dim": 10},
        **_rope(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0),
        attention_bias=True,
        mlp_bias=True,
    ),
    "qwen2": lambda: Qwen2Config(**_LLAMA),
    "qwen2 padded rows": lambda: Qwen2Config(**_LLAMA | {"vocab_size": 47}, tie_word_embeddings=True),
    "qwen3": lambda: Qwen3Config(**_LLAMA, head_dim=10, tie_word_embeddings=True),
}
"""What is compared, by a name for people: the family, and what is special."""


@dataclass(frozen=True)
class Differences:
    """What was found for one case."""

    case: str
    float32: float
    """Largest difference of logits in a padded batch; logits are between -10 and 10."""
    cached32: float
    """The same with the cache: a prompt at once, then single pieces."""
    float64: float
    cached64: float
    greedy_tokens: int
    """Pieces compared."""
    greedy_differing: int
    """Rows in which one of them differs."""
    beam_tokens: int
    beam_differing: int
    tensors: int
    """Tensors exported again."""
    changed: tuple[str, ...]
    """Tensors and files that did not come back as they were."""


def compare(case: str, folder: Path) -> Differences:
    """Make the case in the folder, import it and compare everything."""
    write_case(case, folder / "model")
    bundle = import_hugging_face(folder / "model")
    theirs = load_theirs(folder / "model")
    full32, cached32 = logit_differences(bundle, theirs)
    greedy = search_differences(bundle, theirs, beam_size=1)
    beam = search_differences(bundle, theirs, beam_size=BEAM_SIZE)
    bundle.model.double()
    with in_double(theirs):
        full64, cached64 = logit_differences(bundle, load_theirs(folder / "model", torch.float64))
    bundle.model.float()
    export_hugging_face(bundle, folder / "again")
    tensors, changed = round_trip_differences(folder / "model", folder / "again")
    return Differences(case, full32, cached32, full64, cached64, *greedy, *beam, tensors, changed)


def write_case(case: str, folder: Path, dtype: torch.dtype = torch.float32, max_shard_size: str = "1GB") -> None:
    """Save a random model with a tokenizer, as `transformers` does."""
    torch.manual_seed(2)
    model = _class(CASES[case]()).from_config(CASES[case]()).eval()
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in name and "inv_freq" not in name:
                is_norm = weight.dim() == 1 and name.endswith("weight")
                weight.copy_(torch.randn_like(weight) * (0.1 if is_norm else 0.25) + is_norm)
        model.get_output_embeddings().weight[EOS] *= 2  # some outputs are to end before they are cut off
    model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
    tokenizer, _ = train_tokenizer(_LINES, TokenizerConfig(vocab_size=VOCAB_SIZE, byte_fallback=False))
    if isinstance(model.config, MarianConfig):
        table = {piece: id_ for id_, piece in enumerate(tokenizer.pieces(range(VOCAB_SIZE)))}
        (folder / "vocab.json").write_text(json.dumps(table, indent=2, ensure_ascii=False), encoding="utf-8")
        for side in ("source", "target"):
            (folder / f"{side}.spm").write_bytes(tokenizer.model)
    else:
        (folder / "tokenizer.json").write_bytes(sentence_piece_json(tokenizer.model))


def load_theirs(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The model in the folder, as `transformers` loads it."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = _class(config).from_pretrained(folder, dtype=dtype).eval()
    if dtype is torch.float64 and isinstance(config, MarianConfig):
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_positions.weight.data = _sinusoids(*stack.embed_positions.weight.shape)
    return model


def _class(config: PreTrainedConfig) -> Any:
    return transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM


def _sinusoids(positions: int, width: int) -> torch.Tensor:
    """Marian's table in float64, an entry at a time; their own is rounded to float32."""
    rows = [[pos / 10000 ** (2 * column / width) for column in range(width // 2)] for pos in range(positions)]
    angles = torch.tensor(rows, dtype=torch.float64)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class _Double:
    """The module torch to code that means float32 when it says so, and is to compute in float64."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextlib.contextmanager
def in_double(model: Any) -> Iterator[None]:
    """Their code for norms and rotary positions in float64 where it insists on float32, for models made inside."""
    modules = [sys.modules[type(model).__module__], transformers.modeling_rope_utils]
    for module in modules:
        module.torch = _Double()
    try:
        yield
    finally:
        for module in modules:
            module.torch = torch


def logit_differences(bundle: Bundle, theirs: Any) -> tuple[float, float]:
    """Largest differences of logits in a padded batch: all positions at once, and with the cache."""
    compare_logits = _decoder_only_logits if isinstance(bundle.model, DecoderOnly) else _encoder_decoder_logits
    with torch.no_grad():
        return compare_logits(bundle, theirs)


def _encoder_decoder_logits(bundle: Bundle, theirs: Any) -> tuple[float, float]:
    src, valid = padded([[*source, EOS] for source in SOURCES])
    tgt = torch.tensor([TARGET] * len(SOURCES))
    encoded = theirs.get_encoder()(input_ids=src, attention_mask=valid.long())
    given = {"encoder_outputs": encoded, "attention_mask": valid.long()}
    expected = theirs(decoder_input_ids=tgt, **given).logits
    full = _largest(bundle.model(src, valid, tgt) - expected)
    state, cache, cached = bundle.model.start(src, valid), None, 0.0
    for start, end in ((0, 3), (3, 4), (4, 5), (5, 7)):
        logits, state = bundle.model.step(tgt[:, start:end], state)
        out = theirs(decoder_input_ids=tgt[:, start:end], use_cache=True, **given, **_cache(theirs, cache))
        cache = out
        cached = max(cached, _largest(logits - out.logits[:, -1]), _largest(logits - expected[:, end - 1]))
    return full, cached


def _cache(model: Any, output: Any) -> dict[str, Any]:
    """The cache that an output holds, under the name that this version of `transformers` takes it by."""
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    return {} if output is None else {name: getattr(output, name)}


def _decoder_only_logits(bundle: Bundle, theirs: Any) -> tuple[float, float]:
    assert isinstance(bundle.model, DecoderOnly)
    prompt, valid = padded(SOURCES, left=True)
    tgt = torch.tensor([TARGET] * len(SOURCES))
    ids, all_valid = torch.cat([prompt, tgt], 1), torch.cat([valid, torch.ones_like(tgt, dtype=torch.bool)], 1)
    places = (all_valid.long().cumsum(1) - 1).clamp(min=0)
    expected = theirs(input_ids=ids, attention_mask=all_valid.long(), position_ids=places).logits
    hidden, _ = bundle.model.prefill(ids, all_valid)
    full = _largest((bundle.model.logits(hidden) - expected)[all_valid])
    hidden, state = bundle.model.prefill(prompt, valid)
    out = theirs(input_ids=prompt, attention_mask=valid.long(), position_ids=places[:, : prompt.shape[1]])
    cached = _largest((bundle.model.logits(hidden) - out.logits)[valid])
    for start, end in ((0, 1), (1, 2), (2, 5), (5, 7)):
        logits, state = bundle.model.step(tgt[:, start:end], state)
        at = slice(prompt.shape[1] + start, prompt.shape[1] + end)
        out = theirs(
            input_ids=tgt[:, start:end],
            attention_mask=all_valid[:, : at.stop].long(),
            position_ids=places[:, at],
            **_cache(theirs, out),
        )
        cached = max(cached, _largest(logits - out.logits[:, -1]), _largest(logits - expected[:, at.stop - 1]))
    return full, cached


def search_differences(bundle: Bundle, theirs: Any, beam_size: int) -> tuple[int, int]:
    """Pieces that both searches found, and in how many rows one of them differs.

    Both end a hypothesis of the maximum length there, forbid nothing, and stop when nothing better can come.
    """
    tokens = differing = 0
    for exponent in PENALTIES if beam_size > 1 else (0.0,):
        ours = our_search(bundle, SOURCES, beam_size, exponent)
        for mine, other in zip(ours, their_search(theirs, SOURCES, beam_size, exponent), strict=True):
            tokens += len(other)
            differing += mine != other
    return tokens, differing


def our_search(
    bundle: Bundle, sources: Sequence[Sequence[int]], beam_size: int, exponent: float, max_length: int = MAX_LENGTH
) -> list[list[int]]:
    """What our search finds under the rules of theirs."""
    special = bundle.target_tokenizer.special
    src, valid = padded([[*source, special.eos] for source in sources], special.pad)
    count = len(sources)
    limits = SearchLimits(special.bos, special.eos, (), [0] * count, [max_length] * count, open_end=True)
    with torch.no_grad():
        found = beam_search(
            bundle.model.step,
            bundle.model.start(src, valid),
            limits,
            beam_size=beam_size,
            n_best=1,
            penalty=LengthPenalty(PenaltyForm.power, exponent),
            device="cpu",
        )
    return [list(best.ids) for best, *_ in found]


def their_search(
    theirs: Any, sources: Sequence[Sequence[int]], beam_size: int, exponent: float, max_length: int = MAX_LENGTH
) -> list[list[int]]:
    """What `generate` finds, without the first piece and without padding."""
    config, pair = theirs.config, theirs.config.is_encoder_decoder
    closed = [[*source, config.eos_token_id if pair else config.bos_token_id] for source in sources]
    rows, valid = padded(closed, config.pad_token_id, left=not pair)
    found = theirs.generate(
        input_ids=rows,
        attention_mask=valid.long(),
        do_sample=False,
        num_beams=beam_size,
        max_new_tokens=max_length,
        **({"early_stopping": "never", "length_penalty": exponent} if beam_size > 1 else {}),
    )
    eos = config.eos_token_id
    cut = [row[1 if pair else rows.shape[1] :] for row in found.tolist()]
    return [row[: row.index(eos) + 1] if eos in row else row for row in cut]


def round_trip_differences(before: Path, after: Path) -> tuple[int, tuple[str, ...]]:
    """How many tensors there are, and the names of tensors and files of `before` that are not the same in `after`."""
    old, new = _tensors(before), _tensors(after)
    changed = [name for name in sorted(old.keys() | new.keys()) if not _same(old.get(name), new.get(name))]
    for file in sorted(before.iterdir()):
        again = after / file.name
        if file.suffix == ".safetensors" or file.name.endswith(".index.json"):
            continue
        if not again.is_file() or file.read_bytes() != again.read_bytes():
            changed.append(file.name)
    return len(old), tuple(changed)


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and one.dtype == other.dtype and torch.equal(one, other)


def padded(rows: Sequence[Sequence[int]], pad: int = PAD, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows as one tensor, and where it is real."""
    width = max(map(len, rows))
    fill = [[pad] * (width - len(row)) for row in rows]
    both = [[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, fill, strict=True)]
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    places = torch.arange(width)[None]
    return torch.tensor(both), places >= width - lengths if left else places < lengths


def _largest(difference: torch.Tensor) -> float:
    return float(difference.abs().max())


def quiet() -> None:
    """No progress bars and remarks from `transformers`."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


_HEADER = """\
| model | logits, float32 | with cache | logits, float64 | with cache | greedy: tokens, rows that differ | beam 4 | \
tensors out again, changed |
|---|---|---|---|---|---|---|---|"""


def _row(found: Differences) -> str:
    return (
        f"| {found.case} | {found.float32:.1e} | {found.cached32:.1e} | {found.float64:.1e} | {found.cached64:.1e} | "
        f"{found.greedy_tokens}, {found.greedy_differing} | {found.beam_tokens}, {found.beam_differing} | "
        f"{found.tensors}, {len(found.changed)} |"
    )


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("cases", nargs="*", help="families, such as gpt2; all by default")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    options = parser.parse_args()
    chosen = [case for case in CASES if not options.cases or case.split()[0] in options.cases]
    if not chosen:
        parser.error(
            f"no case of {', '.join(options.cases)}; there are {', '.join(sorted({c.split()[0] for c in CASES}))}"
        )
    quiet()
    if not options.json:
        print(f"torch {torch.__version__}, transformers {transformers.__version__}\n\n{_HEADER}")
    for case in chosen:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(case, Path(folder))
        print(json.dumps(dataclasses.asdict(found)) if options.json else _row(found), flush=True)


if __name__ == "__main__":
    main()
