"""Texts that bite, small corpora, and every family of models at a tiny size.

Tests run two at a time on two cores, so torch gets one thread each.
"""

import copy
import dataclasses
import gc
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start, too
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell's background job ignores interrupts, and would pass that on to the processes that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jaxtyping
import pytest
import torch

from seq2seq.bundle import Bundle, save_bundle
from seq2seq.config import (
    Accelerator,
    Activation,
    Architecture,
    AttentionBias,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    NormKind,
    NormPlacement,
    OptimConfig,
    PositionKind,
    RopeConfig,
    RopeScaling,
    TokenizerConfig,
    TrainConfig,
    TrainerConfig,
    Tying,
)
from seq2seq.models import Transformer, build_model
from seq2seq.text.tokenizer_training import train_tokenizer

torch.set_num_threads(1)

LAYERS_ABOVE = {"system", "config", "cli", "scripts"}
"""Folders of tests of commands and whole runs."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check shape annotations where a layer's own tests call it.

    Tests further up call the same functions thousands of times, and would take twice as long with the checks.
    """
    folders = item.path.relative_to(Path(__file__).parent).parts
    above = not LAYERS_ABOVE.isdisjoint(folders) or item.get_closest_marker("whole_runs") is not None
    jaxtyping.config.update("jaxtyping_disable", above)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what lives until the end, modules and thousands of tests, out of all later collections of garbage.

    The checks of annotations make much that is soon gone again: fewer collections are a tenth of the tests' time.
    """
    del session
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# each on a line of its own; together they hold everything that line readers are known to stumble over
_NASTY = [
    "",
    " ",
    "\t",
    "\u3000",
    "\u00a0",
    "\u200b",
    "a lone\rcarriage return",
    "line\u2028separator",
    "paragraph\u2029separator",
    "next\u0085line",
    "vertical\vtab",
    "form\ffeed",
    "file\x1cgroup\x1drecord\x1eseparators",
    "nul\0inside",
    '"',
    "NA",
    "null",
    "nan",
    "</s> and <unk> and <pad>",
    "family 👨‍👩‍👧‍👦 and flag 🏳️‍🌈",
    "caf\u00e9",
    "cafe\u0301",
    "שלום עולם مرحبا",
    "x" * 5000,
    "." * 400,
    "no newline at the end",
]


@dataclass(frozen=True)
class NastyText:
    """A file's bytes and the lines that the package must read from them."""

    content: bytes
    lines: list[str]


@pytest.fixture
def nasty_text() -> NastyText:
    """All nasty lines in one file: a BOM first, one line ended by CRLF, none at the end."""
    lines = ["byte-order mark first", *_NASTY[:6], "ended by CRLF", *_NASTY[6:]]
    content = "\ufeff" + "\n".join(lines).replace("ended by CRLF", "ended by CRLF\r")
    return NastyText(content.encode(), lines)


@pytest.fixture
def nasty_file(nasty_text: NastyText, tmp_path: Path) -> Path:
    """The nasty text as a file."""
    path = tmp_path / "nasty.txt"
    path.write_bytes(nasty_text.content)
    return path


@pytest.fixture
def uneven_pairs() -> list[tuple[str, str]]:
    """13 pairs of 1 to 30 words, so that no batch of 2, 3, 4 or 8 comes out even."""
    lengths = [1, 30, 2, 17, 5, 3, 23, 8, 1, 11, 4, 14, 6]
    return [
        (
            " ".join(f"wort{(7 * row + place) % 19}" for place in range(length)),
            " ".join(f"word{(7 * row + place) % 19}" for place in range(max(1, length - row % 3))),
        )
        for row, length in enumerate(lengths)
    ]


@pytest.fixture
def uneven_corpus(uneven_pairs: list[tuple[str, str]], tmp_path: Path) -> tuple[Path, Path]:
    """The uneven pairs as two files, source and target."""
    paths = tmp_path / "uneven.src", tmp_path / "uneven.tgt"
    for side, path in enumerate(paths):
        path.write_text("".join(pair[side] + "\n" for pair in uneven_pairs), encoding="utf-8", newline="\n")
    return paths


@pytest.fixture
def copy_corpus(tmp_path: Path) -> tuple[Path, Path]:
    """200 lines of 1 to 6 of eight words, and the same again: a tiny model learns to copy them in seconds."""
    words = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]
    lines = [
        " ".join(words[(row * row + row // 8 + 3 * place) % 8] for place in range(1 + row % 6)) for row in range(200)
    ]
    paths = tmp_path / "copy.src", tmp_path / "copy.tgt"
    for path in paths:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return paths


@pytest.fixture
def small_run(copy_corpus: tuple[Path, Path]) -> Callable[..., TrainConfig]:
    """Gives the options of a run on the copied lines that takes a second, some changed, by the names of their groups.

    `small_run(data={"batch_tokens": 60}, trainer={"max_steps": 10})`
    """
    base = TrainConfig(
        model=ModelConfig(d_model=16, num_heads=2, d_ff=24, num_encoder_layers=1, num_decoder_layers=1),
        data=DataConfig(
            train_source=str(copy_corpus[0]),
            train_target=str(copy_corpus[1]),
            valid_size=5,
            max_length=64,
            tokenizer=TokenizerConfig(vocab_size=280),
        ),
        optim=OptimConfig(warmup_steps=5),
        decode=DecodeConfig(beam_size=1, max_length=4),
        trainer=TrainerConfig(
            max_steps=10, log_every=3, num_samples=0, accelerator=Accelerator.cpu, num_threads=1, report=False
        ),
    )

    def changed(**groups: dict[str, object]) -> TrainConfig:
        parts = {name: dataclasses.replace(getattr(base, name), **values) for name, values in groups.items()}
        return dataclasses.replace(base, **parts)

    return changed


@pytest.fixture(scope="session")
def tiny_lines() -> list[str]:
    """200 lines of 1 to 11 words with sentence-final punctuation, and three of Chinese."""
    words = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "owl", "pig", "ram", "yak"]
    words += ["läuft", "schläft", "sieht", "und", "der", "die", "das", "3", "17"]
    lines = [
        " ".join(words[(row * row + 5 * place + row // 7) % 21] for place in range(1 + row % 11)) + ".!?。"[row % 4]
        for row in range(200)
    ]
    return [*lines, *["我们看见猫。你好！"] * 3]


@pytest.fixture(scope="session")
def tiny_bundle(tiny_lines: list[str]) -> Bundle:
    """A random model in float64, scaled so that some of its translations end early and others reach their limit.

    The vocabulary of 61 pieces is rounded up to 64 rows. Shared by all tests: leave it as it is.
    """
    tokenizer, _ = train_tokenizer(tiny_lines, TokenizerConfig(vocab_size=61, byte_fallback=False))
    config = ModelConfig(16, 2, 24, 2, 2, tying=Tying.none, vocab_multiple=8)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).double().eval()
        model.output.mul_(2)
        model.output[tokenizer.special.eos].mul_(3)
        for weight in model.decoder.layers.parameters():
            if weight.dim() > 1:
                weight.mul_(1.5)
    return Bundle(model, config, tokenizer, tokenizer, languages=("de", "en"))


@pytest.fixture(scope="session")
def tiny_bundle_folder(tiny_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model on disk, in float32."""
    folder = tmp_path_factory.mktemp("tiny") / "bundle"
    model = copy.deepcopy(tiny_bundle.model).float()
    save_bundle(dataclasses.replace(tiny_bundle, model=model), folder)
    return folder


PRE = {"norm_placement": NormPlacement.pre, "tying": Tying.two_way}
RMS = PRE | {"norm": NormKind.rms_norm}
ROPE = {"positions": PositionKind.rope, "rope": RopeConfig(base=500.0)}
LLAMA_3 = RopeConfig(base=500.0, scaling=RopeScaling.llama3, factor=4.0, original_positions=16)
ALONE = {"architecture": Architecture.decoder_only, "num_encoder_layers": 0, "tying": Tying.two_way}
SWIGLU = {"activation": Activation.silu, "gated": True, "feed_forward_bias": False}
NO_BIAS = {"attention_bias": AttentionBias.none}
LLAMA = RMS | ALONE | ROPE | SWIGLU | NO_BIAS | {"num_kv_heads": 2, "scale_embedding": False}

FAMILIES: dict[str, dict[str, object]] = {
    "original": {},
    "pre_ln": PRE | {"activation": Activation.gelu, "encoder_d_ff": 36, "decoder_d_ff": 10},
    "modern": RMS | ROPE | SWIGLU | NO_BIAS | {"num_kv_heads": 2},
    "multi_query": PRE
    | {"num_kv_heads": 1, "positions": PositionKind.learned, "max_positions": 80, "tying": Tying.none},
    "deepnorm": {"norm_placement": NormPlacement.deepnorm, "num_encoder_layers": 3},
    "marian": {"positions": PositionKind.sinusoidal_halves, "activation": Activation.silu, "output_bias": True},
    "gpt2": PRE
    | ALONE
    | {"positions": PositionKind.learned, "max_positions": 80, "activation": Activation.gelu_tanh}
    | {"scale_embedding": False},
    "llama": LLAMA | {"tying": Tying.none, "rope": LLAMA_3},
    "qwen2": LLAMA | {"attention_bias": AttentionBias.qkv},
    "qwen3": LLAMA | {"qk_norm": True, "d_head": 10, "tying": Tying.none},
    "prefix_lm": ALONE | {"prefix_lm": True, "activation": Activation.gelu_sigmoid},
}
"""What each family changes in a tiny configuration. All dimensions differ: D=24 H=4 G=2 K=6 F=20 V=19."""


def family_config(name: str, **changes: object) -> ModelConfig:
    """The tiny configuration of a family."""
    sizes = {"d_model": 24, "num_heads": 4, "d_ff": 20, "num_encoder_layers": 1, "num_decoder_layers": 2}
    return ModelConfig(**(sizes | {"dropout": 0.0} | FAMILIES[name] | changes))


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> ModelConfig:
    """Each family's configuration in turn."""
    return family_config(request.param)


@pytest.fixture(scope="session")
def families() -> Callable[..., ModelConfig]:
    """Gives a family's configuration by its name, with options changed."""
    return family_config


@pytest.fixture(scope="session")
def scrambled() -> Callable[..., Transformer]:
    """Builds a model of 19 pieces in float64, in evaluation mode, without gradients.

    No weight is left as it starts: also norms and biases, which start as 1 and 0, are random.
    """

    def build(config: ModelConfig, seed: int = 1) -> Transformer:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = build_model(config, 19, 19).double().eval().requires_grad_(False)
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        return model

    return build


@pytest.fixture
def family_model(family: ModelConfig, scrambled: Callable[..., Transformer]) -> Transformer:
    """A scrambled model of each family in turn."""
    return scrambled(family, seed=2)
