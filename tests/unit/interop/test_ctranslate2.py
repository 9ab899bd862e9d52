import builtins
import contextlib
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq.bundle import Bundle
from seq2seq.config import (
    Architecture,
    DecodeConfig,
    ModelConfig,
    PenaltyForm,
    PositionKind,
    RopeConfig,
    RopeScaling,
    Task,
    Tying,
)
from seq2seq.interop import export_hugging_face, import_hugging_face
from seq2seq.interop.ctranslate2 import (
    MOST_POSITIONS,
    check_quantization,
    export_ctranslate2,
    is_ctranslate2,
    num_positions,
    vocabulary,
)
from seq2seq.interop.ctranslate2_readme import readme
from seq2seq.interop.ctranslate2_weights import fill_output, fill_stack, quantize
from seq2seq.models import DecoderOnly, build_model
from seq2seq.nn.rotary import scaled_frequencies
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `interop` is not installed")


def fresh(tokenizer: Tokenizer, **options: Any) -> Bundle:
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 24, "num_encoder_layers": 1, "num_decoder_layers": 1}
    if options.get("architecture") is Architecture.decoder_only:
        sizes["num_encoder_layers"] = 0
    config = ModelConfig(**{"tying": Tying.none, **sizes, **options})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
    return Bundle(model, config, tokenizer, tokenizer)


def fresh_language_model(tokenizer: Tokenizer, **options: Any) -> Bundle:
    bundle = fresh(tokenizer, architecture=Architecture.decoder_only, **options)
    return dataclasses.replace(bundle, task=Task.language_model)


@pytest.fixture(scope="module")
def tokenizer(tiny_bundle: Bundle) -> Tokenizer:
    return tiny_bundle.source_tokenizer


def test_the_folder_has_the_model_the_vocabulary_the_tokenizers_and_a_readme(tiny_bundle, tmp_path):
    export_ctranslate2(tiny_bundle, tmp_path / "made" / "model")
    names = ["README.md", "config.json", "model.bin", "shared_vocabulary.json", "source.spm", "target.spm"]
    assert sorted(file.name for file in (tmp_path / "made" / "model").iterdir()) == names
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["model"]
    assert (tmp_path / "made" / "model" / "target.spm").read_bytes() == tiny_bundle.target_tokenizer.model
    config = json.loads((tmp_path / "made" / "model" / "config.json").read_text(encoding="utf-8"))
    expected = {
        "add_source_bos": False,
        "add_source_eos": True,
        "bos_token": "<s>",
        "decoder_start_token": "<s>",
        "eos_token": "</s>",
        "layer_norm_epsilon": 1e-5,
        "unk_token": "<unk>",
    }
    assert config.items() >= expected.items()
    pieces = json.loads((tmp_path / "made" / "model" / "shared_vocabulary.json").read_text(encoding="utf-8"))
    assert pieces == tiny_bundle.source_tokenizer.pieces(range(61))  # 64 rows, 3 of them without a piece
    assert is_ctranslate2(tmp_path / "made" / "model")
    assert not is_ctranslate2(tmp_path / "made")


def test_the_weights_of_the_bundle_stay_as_they_are(tokenizer, tmp_path):
    bundle = fresh(tokenizer)
    before = {name: weight.clone() for name, weight in bundle.model.state_dict().items()}
    export_ctranslate2(bundle, tmp_path / "model", "int8")
    for name, weight in bundle.model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_an_older_model_is_replaced_and_anything_else_is_not(tokenizer, tmp_path):
    target = tmp_path / "model"
    export_ctranslate2(fresh(tokenizer), target)
    size = (target / "model.bin").stat().st_size
    export_ctranslate2(fresh(tokenizer), target, "int8")
    assert (target / "model.bin").stat().st_size < size
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="other exists and is not a CTranslate2 model; choose another place"):
        export_ctranslate2(fresh(tokenizer), other)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "other"]


@pytest.mark.parametrize("is_there", [False, True])
def test_what_cannot_be_written_leaves_nothing_behind(tokenizer, tmp_path, monkeypatch, is_there):
    target = tmp_path / "model"
    if is_there:
        export_ctranslate2(fresh(tokenizer), target)
    before = {file.name: file.read_bytes() for file in target.iterdir()} if is_there else {}

    def full(self: SentencePieceTokenizer, side: str) -> dict[str, bytes]:
        raise OSError("no space left on device")

    monkeypatch.setattr(SentencePieceTokenizer, "files", full)
    with pytest.raises(OSError, match="no space left"):
        export_ctranslate2(fresh(tokenizer), target, "int8")
    assert [file.name for file in tmp_path.iterdir()] == (["model"] if is_there else [])
    assert {file.name: file.read_bytes() for file in target.iterdir()} == before if is_there else not target.exists()


QUANTIZATIONS = {
    "float32": 1e-5,
    "float16": 0.05,
    "bfloat16": 0.3,
    "int16": 0.1,
    "int8": 0.8,
    "int8_float32": 0.8,
    "int8_float16": 0.8,
    "int8_bfloat16": 0.8,
}


@pytest.mark.parametrize(("quantization", "tolerance"), QUANTIZATIONS.items())
def test_each_quantization_computes_nearly_the_same(tiny_bundle, tmp_path, quantization, tolerance):
    tokenizer = tiny_bundle.source_tokenizer
    source = tokenizer.pieces(tokenizer.encode("der ant läuft und"))
    found = []
    for name, type_ in (("plain", None), ("other", quantization)):
        export_ctranslate2(tiny_bundle, tmp_path / name, type_)
        translator = ctranslate2.Translator(str(tmp_path / name), intra_threads=1, compute_type="float32")
        found.append(np.array(translator.score_batch([source], [source])[0].log_probs))
    difference = np.abs(found[0] - found[1]).max()
    assert difference <= tolerance
    assert (difference == 0) == (quantization == "float32")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("plain", "other")]
    assert (sizes[1] < sizes[0]) == (quantization != "float32")


def test_a_quantization_that_there_is_not_is_refused_with_those_that_there_are(tokenizer, tmp_path):
    with pytest.raises(
        ValueError, match="quantization 'int4' is not one that CTranslate2 has; give int8, int8_float32"
    ):
        export_ctranslate2(fresh(tokenizer), tmp_path / "model", "int4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"architecture": Architecture.decoder_only, "prefix_lm": True}, "prefix_lm=true cannot be written"),
        ({"qk_norm": True}, "qk_norm=true of an encoder-decoder cannot be written"),
    ],
)
def test_what_ctranslate2_cannot_compute_is_refused_by_the_name_of_its_option(tokenizer, tmp_path, options, said):
    with pytest.raises(ValueError, match=said):
        export_ctranslate2(fresh(tokenizer, **options), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_it_is_said_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("ctranslate2"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"needs the package ctranslate2; pip install 'seq2seq\[interop\]'"):
        check_quantization(None)


def test_pieces_that_are_never_produced_have_probability_0_in_a_translator_only(tokenizer, tmp_path):
    names = vocabulary(tokenizer)
    row = [names[id_] for id_ in (7, 9, tokenizer.special.bos, 11)]
    probability = {}
    for task in Task:
        bundle = dataclasses.replace(fresh(tokenizer, architecture=Architecture.decoder_only), task=task)
        export_ctranslate2(bundle, tmp_path / task.name)
        generator = ctranslate2.Generator(str(tmp_path / task.name), intra_threads=1)
        logits = torch.from_numpy(np.array(generator.forward_batch([row])))
        probability[task] = logits.softmax(-1)[0, :, [tokenizer.special.pad, tokenizer.special.bos]]
    assert probability[Task.translation].max() == 0
    assert probability[Task.language_model].min() > 1e-4


@pytest.mark.parametrize("quantization", ["float16", "bfloat16", "int8_float16"])
def test_factors_of_rotary_positions_stay_in_single_precision(tokenizer, quantization):
    rope = RopeConfig(scaling=RopeScaling.yarn, factor=3.3, original_positions=64)
    bundle = fresh_language_model(tokenizer, positions=PositionKind.rope, rope=rope)
    assert isinstance(bundle.model, DecoderOnly)
    scaling = ctranslate2.specs.attention_spec.RotaryScalingType.Su
    decoder = ctranslate2.specs.TransformerDecoderSpec(
        1, 2, pre_norm=False, with_encoder_attention=False, rotary_dim=8, rotary_scaling_type=scaling
    )
    fill_stack(decoder, bundle.model.decoder, 10, 61)
    fill_output(decoder.projection, bundle.model.output, None, [], 61)
    spec = ctranslate2.specs.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(vocabulary(tokenizer))
    spec.validate()
    quantize(spec, quantization)
    attention = spec.decoder.layer[0].self_attention
    assert attention.linear[0].bias.dtype == quantization.removeprefix("int8_")
    expected = scaled_frequencies(8, RopeConfig())[0] / scaled_frequencies(8, rope)[0]
    for factors in (attention.rotary_scaling_long_factor, attention.rotary_scaling_short_factor):
        assert factors.dtype == "float32"
        torch.testing.assert_close(torch.from_numpy(factors.numpy()), expected.float(), rtol=1e-7, atol=0)


def test_sinusoids_reach_as_far_as_the_search_options_go(tokenizer):
    bundle = fresh(tokenizer)
    one_row = fresh(tokenizer, architecture=Architecture.decoder_only)

    def rows(of: Bundle, **options: Any) -> int:
        return num_positions(dataclasses.replace(of, decode=DecodeConfig(**options)))

    assert rows(bundle) == 2 * 1024 + 10
    assert rows(one_row) == 1024 + 2 * 1024 + 10
    assert rows(bundle, max_source_length=30) == 2048
    assert rows(bundle, max_source_length=3000, max_length=50) == 3000
    assert rows(one_row, max_source_length=3000, max_length=50) == 3050
    assert rows(bundle, max_source_length=10**6) == MOST_POSITIONS


def test_a_sequence_beyond_the_table_is_an_error_of_ctranslate2(tokenizer, tmp_path):
    export_ctranslate2(fresh(tokenizer), tmp_path / "model")
    translator = ctranslate2.Translator(str(tmp_path / "model"), intra_threads=1)
    with pytest.raises(RuntimeError, match="positions >= 2058"):
        translator.score_batch([["a"]], [["a"] * 2100], max_input_length=0)


class OddTokenizer(SentencePieceTokenizer):
    """Pieces that are alike, and special ones of other names."""

    def pieces(self, ids: Any) -> list[str]:
        odd = {2: "<end>", 3: "<?>", 5: "same", 6: "same", 7: "same#6", 8: "</s>", 9: 'q"\n\u2028'}
        return [odd.get(id_, f"p{id_}") for id_ in ids]


def test_pieces_that_are_alike_get_names_of_their_own(tokenizer):
    odd = OddTokenizer(tokenizer.model)
    assert vocabulary(odd)[4:10] == ["p4", "same", "same#6", "same#6#7", "</s>", 'q"\n\u2028']
    named = vocabulary(odd, {2: "</s>", 3: "same"})
    assert named[2:10] == ["</s>", "same", "p4", "same#5", "same#6", "same#6#7", "</s>#8", 'q"\n\u2028']
    assert len(set(named)) == len(named) == 61


def test_two_vocabularies_share_the_names_of_what_ctranslate2_has_one_name_for(tokenizer, tmp_path):
    odd = OddTokenizer(tokenizer.model)
    bundle = dataclasses.replace(fresh(tokenizer), source_tokenizer=odd)
    export_ctranslate2(bundle, tmp_path / "model")
    source = json.loads((tmp_path / "model" / "source_vocabulary.json").read_text(encoding="utf-8"))
    target = json.loads((tmp_path / "model" / "target_vocabulary.json").read_text(encoding="utf-8"))
    assert (source[2:4], source[8]) == (["</s>", "<unk>"], "</s>#8")
    assert target == vocabulary(tokenizer)
    ids = [5, 9, 60]
    translator = ctranslate2.Translator(str(tmp_path / "model"), intra_threads=1)
    found = translator.score_batch([[source[id_] for id_ in ids] + ["what is this"]], [["▁"]])[0].log_probs
    src = torch.tensor([[*ids, 3, 2]])
    with torch.no_grad():
        logits = bundle.model(src, torch.ones_like(src, dtype=torch.bool), torch.tensor([[1]]))[0, 0]
    logits[[0, 1]] = -torch.inf
    assert found[0] == pytest.approx(float(logits.log_softmax(-1)[target.index("▁")]), abs=1e-5)


def printed(folder: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the README's program prints for other lines."""
    (program,) = (folder / "README.md").read_text(encoding="utf-8").split("```")[1:-1]
    program = program.removeprefix("python\n")
    assert program.count("lines = [") == 1
    program = "\n".join(
        f"lines = {lines!r}" if row.startswith("lines = [") else row.replace('device="cpu"', "intra_threads=1")
        for row in program.split("\n")
    )
    monkeypatch.chdir(folder)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, "README.md", "exec"), {})
    return out.getvalue().split("\n")[:-1]


LINES = ["der ant läuft!", "die cat.", "owl und pig"]


@pytest.mark.parametrize("architecture", Architecture)
def test_the_program_in_the_readme_translates(tokenizer, tmp_path, monkeypatch, architecture):
    bundle = fresh(tokenizer, architecture=architecture, output_bias=True)
    with torch.no_grad():
        bundle.model.output_bias[tokenizer.special.eos] = 1.5 if architecture is Architecture.decoder_only else 0.5
    decode = DecodeConfig(beam_size=1, penalty_form=PenaltyForm.none)
    bundle = dataclasses.replace(bundle, decode=decode, languages=("de", "en"))
    export_ctranslate2(bundle, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"It translates from de to en and has {bundle.model.num_parameters():,} parameters" in text
    assert "stored as float32" in text
    assert "beam_size=1, length_penalty=0, return_end_token=True, min_" in text
    assert ("BOS as the one separator" in text) == (architecture is Architecture.decoder_only)
    answers = Translator(bundle, "cpu").translate(LINES)
    found = printed(tmp_path / "model", LINES, monkeypatch)
    assert len(found) == len(LINES)
    assert not all(answer.candidates[0].hit_limit for answer in answers)
    for line, answer in zip(found, answers, strict=True):
        assert answer.text
        # CTranslate2's default limit is far above ours
        assert line.startswith(answer.text) if answer.candidates[0].hit_limit else line == answer.text


def test_the_program_in_the_readme_goes_on_from_a_text(tokenizer, tmp_path, monkeypatch):
    export_ctranslate2(fresh_language_model(tokenizer), tmp_path / "model", "int8")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "goes on from a text" in text
    assert "stored as int8" in text
    assert "patience" not in text
    (line,) = printed(tmp_path / "model", ["der ant"], monkeypatch)
    assert line.strip()


def test_the_readme_says_what_is_not_the_same_as_here(tiny_bundle):
    names = vocabulary(tiny_bundle.target_tokenizer)
    power = dataclasses.replace(tiny_bundle, decode=DecodeConfig(penalty_form=PenaltyForm.power, length_penalty=0.7))
    assert "length_penalty=0.7" in readme(power, "float32", names)
    assert "((5 + length) / 6)^p" not in readme(power, "float32", names)
    assert "((5 + length) / 6)^p" in readme(tiny_bundle, "float32", names)


class SeveralEnds(SentencePieceTokenizer):
    """Ends a text with two ids, and begins it with BOS."""

    stop = (17,)

    def prompt(self, text: str) -> list[int]:
        return [self.special.bos, *self.encode(text)]


def test_the_program_in_the_readme_begins_and_ends_as_the_model_does(tokenizer):
    several = SeveralEnds(tokenizer.model)
    bundle = fresh_language_model(several)
    names = vocabulary(several)
    text = readme(bundle, "float32", names)
    assert "pieces = [['<s>'] + source.encode(line, out_type=str) for line in lines]" in text
    assert f"end_token=['</s>', {names[17]!r}]" in text
    assert f"if piece not in ['</s>', {names[17]!r}, '<unk>']" in text


def with_json_tokenizer(bundle: Bundle, folder: Path) -> Bundle:
    """The bundle as it comes back from a Hugging Face folder, with its tokenizer as tokenizer.json."""
    export_hugging_face(bundle, folder)
    made = import_hugging_face(folder)
    assert made.source_tokenizer.format == "huggingface"
    return made


@pytest.mark.parametrize("task", Task)
def test_the_program_in_the_readme_reads_a_tokenizer_json(families, tokenizer, tmp_path, monkeypatch, task):
    config = families("llama", output_bias=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
    bundle = with_json_tokenizer(Bundle(model, config, tokenizer, tokenizer, task=task), tmp_path / "hub")
    bundle = dataclasses.replace(bundle, decode=DecodeConfig(beam_size=1, max_length=9, penalty_form=PenaltyForm.none))
    export_ctranslate2(bundle, tmp_path / "model")
    names = json.loads((tmp_path / "model" / "vocabulary.json").read_text(encoding="utf-8"))
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    for line in LINES:
        found = library.encode(line, add_special_tokens=False)
        assert [names[id_] for id_ in found.ids] == found.tokens
        assert found.ids == bundle.source_tokenizer.encode(line)
    assert (tmp_path / "model" / "target_tokenizer.json").exists() == (task is Task.translation)
    lines = printed(tmp_path / "model", LINES, monkeypatch)
    if task is Task.translation:
        for line, answer in zip(lines, Translator(bundle, "cpu").translate(LINES), strict=True):
            assert answer.text
            assert line.startswith(answer.text)
    else:
        assert any(lines)


def test_a_marian_tokenizer_has_ids_of_its_own_and_starts_from_its_padding(families, tokenizer, tmp_path, monkeypatch):
    pieces = tokenizer.pieces(range(61))
    order = [2, 3, *range(4, 61), 0]  # </s>, <unk>, ..., <pad>, and no <s>
    table = {pieces[id_]: place for place, id_ in enumerate(order)} | {">>fra<<": 60}
    marian = MarianTokenizer(tokenizer.model, json.dumps(table).encode("utf-8"), bos=59)
    config = families("marian", output_bias=True)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(2)
        model = build_model(config, 61, 61).eval()
        model.output_bias[marian.special.eos] = 0.5
    decode = DecodeConfig(beam_size=1, penalty_form=PenaltyForm.none)
    bundle = Bundle(model, config, marian, marian, decode=decode)
    export_ctranslate2(bundle, tmp_path / "model")
    described = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert (described["decoder_start_token"], described["bos_token"], described["eos_token"]) == (
        "<pad>",
        "<pad>",
        "</s>",
    )
    assert "['>>fra<<', *source.encode(line, out_type=str)]" in (tmp_path / "model" / "README.md").read_text("utf-8")
    answers = Translator(bundle, "cpu").translate(LINES)
    assert any(answer.text for answer in answers)
    for line, answer in zip(printed(tmp_path / "model", LINES, monkeypatch), answers, strict=True):
        assert line.startswith(answer.text) if answer.candidates[0].hit_limit else line == answer.text
