"""Imported models compute what `transformers` computes: logits, caches, searches, and the way back.

The cases and the comparisons are those of scripts/parity_table.py, which prints what is asserted here.

What `transformers` computes in float32 whatever the precision of the model (RMSNorm, rotary angles, Marian's table of
sinusoids) is patched to float64 for the comparison in float64; the comparison in float32 takes it as it is.
"""

import gzip
import json
import logging
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sacrebleu
import torch

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.config import DecodeConfig, GenerateConfig, PenaltyForm, Task, TokenizerConfig
from seq2seq.generator import Generator
from seq2seq.interop import export_hugging_face, import_hugging_face
from seq2seq.models import DecoderOnly, build_model
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.translator import Translator

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SHARED = Path(__file__).resolve().parents[3] / "shared"
REAL = SHARED / "models" / "multi30k_de_en_marian"
FLOAT32, FLOAT64 = 1e-5, 1e-10
CASES = [
    "marian relu", "marian swish", "marian two tables", "gpt2", "gpt2 untied", "llama", "llama grouped, linear",
    "llama grouped, yarn", "llama multi-query, llama3", "qwen2", "qwen2 padded rows", "qwen3",
]  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


@pytest.fixture(scope="module")
def parity() -> Any:
    """The script."""
    pytest.importorskip("transformers")
    sys.path.insert(0, str(SCRIPTS))
    try:
        script: ModuleType = __import__("parity_table")
    finally:
        sys.path.remove(str(SCRIPTS))
    script.quiet()
    return script


def test_every_case_of_the_script_is_tested(parity):
    assert list(parity.CASES) == CASES


@pytest.mark.parametrize("case", CASES)
def test_logits_and_searches_are_those_of_transformers_and_the_folder_comes_back(parity, tmp_path, case):
    found = parity.compare(case, tmp_path)
    assert found.float32 < FLOAT32
    assert found.cached32 < FLOAT32
    assert found.float64 < FLOAT64
    assert found.cached64 < FLOAT64
    assert found.greedy_tokens > 0
    assert found.beam_tokens > 0
    assert (found.greedy_differing, found.beam_differing, found.changed) == (0, 0, ())


@pytest.mark.parametrize("case", ["marian relu", "qwen2"])
def test_weights_in_several_files_are_those_of_one(parity, tmp_path, case):
    parity.write_case(case, tmp_path / "one")
    parity.write_case(case, tmp_path / "many", max_shard_size="10KB")
    assert len(list((tmp_path / "many").glob("model-*.safetensors"))) > 2
    export_hugging_face(import_hugging_face(tmp_path / "many"), tmp_path / "again")
    assert parity.round_trip_differences(tmp_path / "one", tmp_path / "again")[1] == ()


@pytest.mark.parametrize("case", ["marian two tables", "gpt2", "llama multi-query, llama3"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_byte_for_byte_through_a_bundle(parity, tmp_path, case, dtype):
    parity.write_case(case, tmp_path / "half", dtype)
    bundle = import_hugging_face(tmp_path / "half")
    assert bundle.model.output.dtype is torch.float32
    save_bundle(bundle, tmp_path / "bundle")
    export_hugging_face(load_bundle(tmp_path / "bundle"), tmp_path / "again")
    tensors, changed = parity.round_trip_differences(tmp_path / "half", tmp_path / "again")
    assert tensors > 30
    assert changed == ()


def tokenizer():
    lines = [
        "the quick brown fox jumps over the lazy dog and the fox and the box",
        "pack my box with five liquor jugs",
    ] * 3
    return train_tokenizer(lines, TokenizerConfig(vocab_size=41, byte_fallback=False))[0]


@pytest.mark.parametrize("name", ["original", "marian", "gpt2", "qwen2", "llama", "qwen3"])
def test_a_model_trained_here_is_read_by_transformers(parity, families, tmp_path, name):
    config = families(name, vocab_multiple=8)
    own = tokenizer()
    torch.manual_seed(3)
    model = build_model(config, own.vocab_size, own.vocab_size).eval()
    task = Task.language_model if isinstance(model, DecoderOnly) else Task.translation
    export_hugging_face(Bundle(model, config, own, own, task=task), tmp_path / "out")
    theirs = parity.load_theirs(tmp_path / "out")
    again = import_hugging_face(tmp_path / "out")
    assert again.task is task
    for bundle in (Bundle(model, config, own, own), again):
        assert max(parity.logit_differences(bundle, theirs)) < FLOAT32
    their_tokenizer = parity.transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for line in ("the fox jumps", "  my  jugs and the Größe ", "liquor", ""):
        ids = own.encode(line)
        assert their_tokenizer(line, add_special_tokens=False)["input_ids"] == ids
        assert again.source_tokenizer.encode(line) == ids
        if own.special.unk not in ids:
            assert their_tokenizer.decode(ids) == own.decode(ids)


def opus_folder(parity: Any, folder: Path) -> None:
    """A folder as OPUS-MT has them: two SentencePiece models, one table, translations that start from padding."""
    parity.write_case("marian swish", folder)
    tokenizers = [
        tokenizer(),
        train_tokenizer(["he ate the cake"] * 3, TokenizerConfig(vocab_size=12, byte_fallback=False))[0],
    ]
    pieces = ["</s>", "<unk>"]
    for own, side in zip(tokenizers, ("source", "target"), strict=True):
        (folder / f"{side}.spm").write_bytes(own.model)
        pieces += [piece for piece in own.pieces(range(4, own.vocab_size)) if piece not in pieces]
    table = {piece: id_ for id_, piece in enumerate([*pieces[:40], "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(table), encoding="utf-8")
    own = {"source_lang": "deu", "target_lang": "eng", "tokenizer_class": "MarianTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(own), encoding="utf-8")
    ids = {"eos_token_id": 0, "pad_token_id": 40, "decoder_start_token_id": 40}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | ids
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    search = {"num_beams": 3, "max_length": 12, "length_penalty": 0.8, "bad_words_ids": [[40]]}
    (folder / "generation_config.json").write_text(json.dumps(ids | search), encoding="utf-8")


def test_translate_does_what_generate_does_with_an_opus_folder(parity, tmp_path, caplog):
    opus_folder(parity, tmp_path)
    with caplog.at_level(logging.WARNING):
        bundle = import_hugging_face(tmp_path)
    assert caplog.records == []
    assert bundle.languages == ("deu", "eng")
    assert bundle.decode == DecodeConfig(
        beam_size=3, penalty_form=PenaltyForm.power, length_penalty=0.8, max_length=11, max_source_length=40
    )
    theirs, reader = parity.load_theirs(tmp_path), parity.transformers.AutoTokenizer.from_pretrained(tmp_path)
    lines = ["the fox", "the lazy box and the jugs", "quick", "and the dog over my liquor the brown fox"]
    expected = theirs.generate(**reader(lines, return_tensors="pt", padding=True), num_beams=1)
    for found, row in zip(
        Translator(bundle).translate(lines, replace(bundle.decode, beam_size=1)), expected.tolist(), strict=True
    ):
        best = found.candidates[0]
        # Where the maximum length is reached, theirs is cut off and ours ended.
        own = list(best.ids[:-1] if best.hit_limit else best.ids)
        assert own == row[1 : len(own) + 1]


@pytest.mark.parametrize("case", ["gpt2", "llama grouped, linear", "qwen3"])
def test_generate_does_what_generate_does_with_uneven_prompts(parity, tmp_path, case):
    parity.write_case(case, tmp_path)
    bundle, theirs = import_hugging_face(tmp_path), parity.load_theirs(tmp_path)
    prompts = ["the fox", "pack my box with five jugs", "q", "the dog over the lazy box"]
    reader = parity.transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    reader.pad_token, reader.padding_side = "<pad>", "left"
    rows = reader(prompts, return_tensors="pt", padding=True, add_special_tokens=False, return_token_type_ids=False)
    found = Generator(bundle).generate(prompts, GenerateConfig(max_new_pieces=9))
    expected = theirs.generate(**rows, max_new_tokens=9, do_sample=False)[:, rows["input_ids"].shape[1] :].tolist()
    for one, row in zip(found, expected, strict=True):
        end = row.index(parity.EOS) + 1 if parity.EOS in row else len(row)
        assert list(one.ids) == row[:end]


@dataclass(frozen=True)
class Real:
    """The trained model, and what it is tried on."""

    bundle: Bundle
    theirs: Any
    sources: list[str]
    references: list[str]

    def differing(self, parity: Any, lines: int, beam_size: int, limit: int) -> tuple[list[int], float]:
        """Numbers of the first so many lines for which other pieces are found, and our BLEU on them.

        Both searches cut hypotheses off at the limit, which theirs needs; `translate` would end them with EOS.
        """
        tokenizer, differing, texts = self.bundle.source_tokenizer, [], []
        ids = [tokenizer.encode(line) for line in self.sources[:lines]]
        for start in range(0, lines, 20):
            batch = ids[start : start + 20]
            expected = parity.their_search(self.theirs, batch, beam_size, 1.0, limit)
            found = parity.our_search(self.bundle, batch, beam_size, 1.0, limit)
            differing += [
                number for number, pair in enumerate(zip(found, expected, strict=True), start) if pair[0] != pair[1]
            ]
            texts += [tokenizer.decode(row) for row in found]
        return differing, sacrebleu.corpus_bleu(texts, [self.references[:lines]]).score


@pytest.fixture(scope="module")
def real(parity: Any) -> Real:
    if not REAL.is_dir():
        pytest.skip(f"{REAL} is not there")
    texts = []
    for language in ("de", "en"):
        with gzip.open(SHARED / "data" / "multi30k" / f"test2016.{language}.gz", "rt", encoding="utf-8") as file:
            texts.append(file.read().splitlines())
    return Real(import_hugging_face(REAL), parity.load_theirs(REAL), *texts)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_a_trained_model_translates_as_transformers_does(parity, real, beam_size):
    assert real.differing(parity, 20, beam_size, limit=40)[0] == []


def test_a_trained_model_comes_back_byte_for_byte(parity, real, tmp_path):
    export_hugging_face(real.bundle, tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (REAL / "model.safetensors").read_bytes()
    for name in ("config.json", "generation_config.json", "vocab.json"):
        texts = [(folder / name).read_text(encoding="utf-8") for folder in (REAL, tmp_path / "again")]
        assert json.loads(texts[0]) == json.loads(texts[1])


@pytest.mark.slow
@pytest.mark.parametrize(("beam_size", "limit", "lowest", "highest"), [(1, 100, 32.66, 32.68), (5, 64, 34.2, 34.4)])
def test_a_trained_model_translates_the_whole_test_set_as_transformers_does(
    parity, real, beam_size, limit, lowest, highest
):
    differing, score = real.differing(parity, 1000, beam_size, limit)
    assert differing == []
    assert lowest <= score <= highest


@pytest.mark.slow
def test_translate_reaches_the_bleu_of_the_trained_model(real):
    for beam_size, lowest, highest in ((1, 32.6, 33.1), (5, 34.2, 34.4)):
        decode = replace(real.bundle.decode, beam_size=beam_size)
        texts = [translation.text for translation in Translator(real.bundle).translate(real.sources, decode)]
        assert lowest <= sacrebleu.corpus_bleu(texts, [real.references]).score <= highest
