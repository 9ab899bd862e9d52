"""Write tests/golden/: logits and search results of two tiny models whose weights are a formula.

One is the original Transformer, the other decoder-only with the blocks of Qwen 3, which are the farthest from it.

    python scripts/make_golden.py            write the files
    python scripts/make_golden.py --check    compare with the files instead; exit 1 where they differ

The weights do not come from a random generator, so the numbers are the same in every version of torch. Regenerate only
when the network is meant to compute something else, and say so in the commit.
"""

import argparse
import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from seq2seq.config import (
    Activation,
    Architecture,
    AttentionBias,
    ModelConfig,
    NormKind,
    NormPlacement,
    PenaltyForm,
    PositionKind,
    RopeConfig,
    Tying,
    to_dict,
)
from seq2seq.models import Transformer, build_model
from seq2seq.search import Hypothesis, LengthPenalty, SearchLimits, beam_search, greedy

FOLDER = Path(__file__).parents[1] / "tests" / "golden"
TOLERANCE = 1e-6

RECIPE = (
    "float64. Parameters in alphabetical order of their names, tied ones once (under the name that comes first). "
    "Number i, from 0, of parameter n, from 0, read row by row, is a * sin(0.71 * (i + 1)^2 + n), with a = 0.1 for "
    "biases, 0.1 on top of 1 for the norms' weights, and 1.5 / sqrt(number of columns) for matrices. "
    "Logits are those of forward(src, src_valid, tgt_in); greedy and beam search start from the same sources."
)

CONFIGS = {
    "encoder_decoder": ModelConfig(8, 2, 12, num_encoder_layers=2, num_decoder_layers=3, dropout=0.0),
    "decoder_only": ModelConfig(
        8,
        4,
        12,
        num_encoder_layers=0,
        num_decoder_layers=3,
        architecture=Architecture.decoder_only,
        num_kv_heads=2,
        d_head=6,
        dropout=0.0,
        tying=Tying.two_way,
        norm=NormKind.rms_norm,
        norm_placement=NormPlacement.pre,
        qk_norm=True,
        positions=PositionKind.rope,
        rope=RopeConfig(base=500.0),
        scale_embedding=False,
        attention_bias=AttentionBias.none,
        feed_forward_bias=False,
        activation=Activation.silu,
        gated=True,
    ),
}
VOCAB_SIZE = 11
PAD, BOS, EOS = 0, 1, 2
SRC = [[5, 9, 4, 7, 2], [8, 6, 2, 0, 0]]
TGT_IN = [[1, 6, 10, 3], [1, 4, 4, 9]]
BEAM_SIZE, N_BEST, MAX_LENGTH = 3, 2, 8
PENALTY = LengthPenalty(PenaltyForm.gnmt, 0.6)


def golden_file(name: str) -> Path:
    """Where the numbers of a model are."""
    return FOLDER / f"{name}.json"


def golden_model(name: str) -> Transformer:
    """The model of the recipe."""
    model = build_model(CONFIGS[name], VOCAB_SIZE, VOCAB_SIZE).double().eval()
    names: dict[torch.nn.Parameter, str] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        names[parameter] = min(path, names.get(parameter, path))
    with torch.no_grad():
        for n, parameter in enumerate(sorted(names, key=names.__getitem__)):
            wave = torch.tensor([math.sin(0.71 * (i + 1) ** 2 + n) for i in range(parameter.numel())]).double()
            if names[parameter].endswith("norm.weight"):
                values = 1 + 0.1 * wave
            elif parameter.dim() == 1:
                values = 0.1 * wave
            else:
                values = 1.5 / math.sqrt(parameter.shape[1]) * wave
            parameter.copy_(values.view_as(parameter))
    return model


def golden(name: str) -> dict[str, Any]:
    """Everything that the file of a model holds."""
    model = golden_model(name)
    src, tgt_in = torch.tensor(SRC), torch.tensor(TGT_IN)
    valid = src != PAD
    limits = SearchLimits(
        bos=BOS,
        eos=EOS,
        suppressed=(PAD, BOS),
        min_lengths=[1] * len(SRC),
        max_lengths=[MAX_LENGTH] * len(SRC),
        prefixes=None,
    )
    with torch.inference_mode():
        logits = model(src, valid, tgt_in)
        best = greedy(model.step, model.start(src, valid), limits, penalty=PENALTY, device="cpu")
        beams = beam_search(
            model.step,
            model.start(src, valid),
            limits,
            beam_size=BEAM_SIZE,
            n_best=N_BEST,
            penalty=PENALTY,
            device="cpu",
        )
    return {
        "made_by": "scripts/make_golden.py",
        "recipe": RECIPE,
        "model": to_dict(CONFIGS[name]),
        "vocab_size": VOCAB_SIZE,
        "src": SRC,
        "tgt_in": TGT_IN,
        "logits": logits.tolist(),
        "search": {
            "penalty": to_dict(PENALTY),
            "beam_size": BEAM_SIZE,
            "n_best": N_BEST,
            "max_length": MAX_LENGTH,
            "suppressed": [PAD, BOS],
        },
        "greedy": [plain(hypothesis) for hypothesis in best],
        "beam": [[plain(hypothesis) for hypothesis in sentence] for sentence in beams],
    }


def plain(hypothesis: Hypothesis) -> dict[str, Any]:
    """The hypothesis as JSON has it: lists for tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(hypothesis).items()
    }


def differences(got: Any, expected: Any, where: str = "") -> list[str]:
    """Where two JSON values differ: numbers with a fraction by more than the tolerance, anything else at all."""
    if isinstance(got, dict) and isinstance(expected, dict) and got.keys() == expected.keys():
        return [line for key in got for line in differences(got[key], expected[key], f"{where}/{key}")]
    if isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        pairs = zip(got, expected, strict=True)
        return [line for i, (a, b) in enumerate(pairs) for line in differences(a, b, f"{where}/{i}")]
    if isinstance(got, float) and isinstance(expected, float):
        same = abs(got - expected) <= TOLERANCE
    else:
        same = got == expected
    return [] if same else [f"{where}: got {got!r}, the file has {expected!r}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    failed = False
    for name in CONFIGS:
        file = golden_file(name)
        if check:
            lines = differences(golden(name), json.loads(file.read_text(encoding="utf-8")))
            print("\n".join(lines) or f"{file} is up to date")
            failed = failed or bool(lines)
        else:
            file.write_text(json.dumps(golden(name), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"wrote {file}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
