"""seq2seq.interop.hugging_face and hugging_face_export: folders in and out, and what is refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import seq2seq.interop.hugging_face_weights
from seq2seq.bundle import Bundle
from seq2seq.config import DecodeConfig, PenaltyForm, PositionKind, Task, TokenizerConfig, Tying
from seq2seq.interop import export_hugging_face, import_hugging_face, is_hugging_face
from seq2seq.models import build_model
from seq2seq.nn.positions import sinusoids
from seq2seq.text.hugging_face import HuggingFaceTokenizer
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.tokenizer_training import train_tokenizer

LINES = ["the quick brown fox jumps over the lazy dog and the fox", "pack my box with five liquor jugs"] * 3
POWER = DecodeConfig(penalty_form=PenaltyForm.power, length_penalty=1.0)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(LINES, TokenizerConfig(vocab_size=41, byte_fallback=False))[0]


@pytest.fixture(scope="module")
def other_tokenizer():
    return train_tokenizer(LINES, TokenizerConfig(vocab_size=37, byte_fallback=False))[0]


@pytest.fixture
def make(families, tokenizer):
    """Makes a random bundle of a family, with options changed."""

    def build(name, task=None, **changes):
        config = families(name, **changes)
        torch.manual_seed(7)
        model = build_model(config, 41, 41).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        task = task or (Task.language_model if config.num_encoder_layers == 0 else Task.translation)
        return Bundle(model, config, tokenizer, tokenizer, decode=POWER, task=task)

    return build


@pytest.fixture
def folder(make, tmp_path):
    """A Hugging Face folder of a family, by its name."""

    def write(name, **changes):
        export_hugging_face(make(name, **changes), tmp_path / name)
        return tmp_path / name

    return write


def edit(folder, name="config.json", **changes):
    file = folder / name
    options = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps({k: v for k, v in options.items() if v != "left out"}), encoding="utf-8")


def edit_tensors(folder, **changes):
    file = folder / "model.safetensors"
    tensors = load_file(file) | {name.replace("/", "."): tensor for name, tensor in changes.items()}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, file)


@pytest.mark.parametrize("name", ["marian", "gpt2", "llama", "qwen3"])
def test_a_bundle_comes_back_as_it_was(make, tmp_path, name):
    bundle = make(name)
    export_hugging_face(bundle, tmp_path / "out")
    again = import_hugging_face(str(tmp_path / "out"))
    for (ours, weight), (theirs, other) in zip(
        bundle.model.named_parameters(), again.model.named_parameters(), strict=True
    ):
        assert ours == theirs
        assert torch.equal(weight, other)
    config = bundle.model_config
    if name in ("llama", "qwen3"):  # these write widths that we leave to be computed, and have no dropout
        config = replace(config, num_kv_heads=config.kv_heads, d_head=config.head_width, dropout=0.0)
    assert again.model_config == config
    assert again.task is bundle.task
    assert not again.model.training
    assert again.source_tokenizer is again.target_tokenizer


def test_a_decoder_only_model_that_translates_still_does_when_it_comes_back(make, tmp_path):
    export_hugging_face(make("gpt2", task=Task.translation), tmp_path / "out")
    bundle = import_hugging_face(tmp_path / "out")
    assert bundle.task is Task.translation
    export_hugging_face(replace(bundle, task=Task.language_model), tmp_path / "tuned")
    assert import_hugging_face(tmp_path / "tuned").task is Task.language_model


def test_a_model_with_the_papers_sinusoids_is_written_with_marians(make, tmp_path):
    bundle = make("original", d_head=6)
    export_hugging_face(bundle, tmp_path / "out")
    again = import_hugging_face(tmp_path / "out")
    assert again.model_config.positions is PositionKind.sinusoidal_halves
    assert torch.equal(again.model.output_bias, torch.zeros(41))
    src, tgt = torch.tensor([[5, 9, 17, 2]]), torch.tensor([[1, 8, 30]])
    valid = torch.ones_like(src, dtype=torch.bool)
    with torch.no_grad():
        expected = bundle.model.double()(src, valid, tgt)
        torch.testing.assert_close(again.model.double()(src, valid, tgt), expected, rtol=0, atol=1e-9)


def test_the_random_generator_is_left_alone_by_an_export(make, tmp_path):
    bundle = make("original")
    torch.manual_seed(11)
    expected = torch.rand(1)
    torch.manual_seed(11)
    export_hugging_face(bundle, tmp_path / "out")
    assert torch.equal(torch.rand(1), expected)


def test_only_weights_that_training_has_changed_are_written_in_float32(make, tmp_path):
    export_hugging_face(make("llama"), tmp_path / "one")
    half = {name: tensor.half() for name, tensor in load_file(tmp_path / "one" / "model.safetensors").items()}
    half["model.norm.weight"] = half["model.norm.weight"].float()
    save_file(half, tmp_path / "one" / "model.safetensors")
    bundle = import_hugging_face(tmp_path / "one")
    with torch.no_grad():
        bundle.model.decoder.layers[1].feed_forward.output.weight += 1e-6
    export_hugging_face(bundle, tmp_path / "two")
    written = load_file(tmp_path / "two" / "model.safetensors")
    wide = {name for name, tensor in written.items() if tensor.dtype is torch.float32}
    assert wide == {"model.norm.weight", "model.layers.1.mlp.down_proj.weight"}
    assert json.loads((tmp_path / "two" / "config.json").read_text())["dtype"] == "float16"


def test_a_fine_tuned_model_keeps_what_the_imported_one_had(folder, tmp_path):
    out = folder("llama")
    edit(out, initializer_range=0.07, eos_token_id=[2, 9])
    bundle = import_hugging_face(out)
    assert bundle.target_tokenizer.stop == (9,)
    tuned = replace(bundle, provenance={"step": 3, "init": {"from": "x", "provenance": bundle.provenance}})
    export_hugging_face(tuned, tmp_path / "tuned")
    before, after = (json.loads((path / "config.json").read_text()) for path in (out, tmp_path / "tuned"))
    assert before == after


def test_an_older_folder_is_replaced_and_nothing_else(folder, make, tmp_path):
    out = folder("gpt2")
    export_hugging_face(make("marian"), out)
    assert json.loads((out / "config.json").read_text())["model_type"] == "marian"
    assert not (out / "tokenizer.json").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(ValueError, match="exists and is not a Hugging Face folder"):
        export_hugging_face(make("gpt2"), tmp_path / "mine")


def test_a_failed_export_leaves_nothing(make, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(seq2seq.interop.hugging_face_weights, "save_file", full)
    with pytest.raises(OSError, match=r"could not be written .*is the disk full"):
        export_hugging_face(make("gpt2"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_files_can_be_read_by_others(folder):
    out = folder("marian")
    assert {file.stat().st_mode & 0o777 for file in out.iterdir()} == {0o644}
    assert out.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pre_ln", r"Nearest is marian, but for norm_placement=pre; needs post; train with these"),
        ("deepnorm", r"but for norm_placement=deepnorm; needs post;"),
        ("modern", r"norm=rms_norm; needs layer_norm.*num_kv_heads=2; needs as many as num_heads=4"),
        ("prefix_lm", r"Nearest is gpt2, but for .*norm_placement=post; needs pre.*prefix_lm=true; needs false"),
    ],
)
def test_a_model_that_fits_no_family_is_refused_with_the_options(make, tmp_path, name, said):
    with pytest.raises(ValueError, match=said):
        export_hugging_face(make(name), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_head_of_another_width_is_refused_where_the_family_has_no_word_for_it(make, tmp_path):
    with pytest.raises(ValueError, match=r"d_head=10; needs d_model / num_heads = 6"):
        export_hugging_face(make("marian", d_head=10), tmp_path / "out")


def test_search_options_without_a_counterpart_are_told(make, tmp_path, caplog):
    decode = DecodeConfig(min_length_factor=0.5)
    export_hugging_face(replace(make("marian"), decode=decode), tmp_path / "out")
    assert "nothing for penalty_form=gnmt with length_penalty=0.6, min_length_factor=0.5" in caplog.text


def test_search_options_come_back_changed_ones_too(make, tmp_path):
    decode = replace(POWER, beam_size=7, length_penalty=0.3, max_length=33, min_length=4, max_source_length=99)
    export_hugging_face(replace(make("marian"), decode=decode), tmp_path / "one")
    bundle = import_hugging_face(tmp_path / "one")
    assert bundle.decode == decode
    export_hugging_face(replace(bundle, decode=replace(decode, beam_size=2)), tmp_path / "two")
    assert import_hugging_face(tmp_path / "two").decode == replace(decode, beam_size=2)


def test_search_options_that_this_package_lacks_are_told(folder, caplog):
    out = folder("marian")
    edit(out, "generation_config.json", no_repeat_ngram_size=3, bad_words_ids=[[0], [5, 6]])
    import_hugging_face(out)
    assert "searches without no_repeat_ngram_size=3, bad_words_ids=[[5, 6]]" in caplog.text


def test_search_options_that_make_no_sense_are_refused(folder):
    out = folder("marian")
    edit(out, "generation_config.json", num_beams=-3)
    with pytest.raises(ValueError, match=r"generation_config\.json: beam_size=-3 is not positive.*take them out"):
        import_hugging_face(out)


def test_two_vocabularies_have_two_tables(families, tokenizer, other_tokenizer, tmp_path):
    config = families("marian", tying=Tying.two_way)
    bundle = Bundle(build_model(config, 41, 37), config, tokenizer, other_tokenizer, languages=("de", "en"))
    export_hugging_face(bundle, tmp_path / "out")
    again = import_hugging_face(tmp_path / "out")
    assert again.languages == ("de", "en")
    for mine, other in zip((tokenizer, other_tokenizer), (again.source_tokenizer, again.target_tokenizer), strict=True):
        assert isinstance(other, MarianTokenizer)
        assert other.encode(LINES[0]) == mine.encode(LINES[0])
        assert other.special == mine.special
    export_hugging_face(again, tmp_path / "again")
    for file in (tmp_path / "out").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_an_imported_tokenizer_of_the_wrong_kind_is_refused(folder, make, tmp_path):
    json_kind = import_hugging_face(folder("gpt2")).source_tokenizer
    assert isinstance(json_kind, HuggingFaceTokenizer)
    bundle = replace(make("marian"), source_tokenizer=json_kind, target_tokenizer=json_kind)
    with pytest.raises(ValueError, match=r"marian folder needs a SentencePiece model, .* format huggingface"):
        export_hugging_face(bundle, tmp_path / "out")
    spm = SentencePieceTokenizer(make("marian").source_tokenizer.model)
    table = json.dumps({piece: id_ for id_, piece in enumerate(spm.pieces(range(41)))}).encode()
    marian = MarianTokenizer(spm.model, table, bos=0)
    bundle = replace(make("gpt2"), source_tokenizer=marian, target_tokenizer=marian)
    with pytest.raises(ValueError, match=r"gpt2 folder needs a SentencePiece model or a tokenizer\.json"):
        export_hugging_face(bundle, tmp_path / "out")


def test_a_byte_level_tokenizer_goes_with_qwen_2_and_another_with_llama(make, tmp_path):
    export_hugging_face(make("qwen2"), tmp_path / "llama")
    config = json.loads((tmp_path / "llama" / "config.json").read_text())
    assert (config["model_type"], config["attention_bias"]) == ("llama", True)
    zeros = load_file(tmp_path / "llama" / "model.safetensors")["model.layers.1.self_attn.o_proj.bias"]
    assert torch.equal(zeros, torch.zeros(24))


def test_what_is_no_folder_of_a_model_is_told_apart(folder, tmp_path):
    assert is_hugging_face(folder("gpt2"))
    assert not is_hugging_face(tmp_path)
    for content in ("[1]", "{", '{"format_version": 2}'):
        (tmp_path / "config.json").write_text(content)
        assert not is_hugging_face(tmp_path)


def test_files_that_are_missing_or_damaged_are_named(folder):
    out = folder("gpt2")
    (out / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json is damaged .*; expected JSON"):
        import_hugging_face(out)
    (out / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json is damaged: it holds \[\]; expected an object"):
        import_hugging_face(out)
    (out / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing; expected the folder"):
        import_hugging_face(out)


@pytest.mark.parametrize("model_type", ["bert", "qwen2_moe", "mistral", None, 3])
def test_another_family_is_refused_with_those_that_are_read(folder, model_type):
    out = folder("gpt2")
    edit(out, model_type=model_type)
    with pytest.raises(ValueError, match=f"model_type={model_type!r}; this package reads marian, gpt2, qwen2, llama"):
        import_hugging_face(out)


def test_an_option_that_is_refused_is_told_with_its_file(folder):
    out = folder("gpt2")
    edit(out, scale_attn_by_inverse_layer_idx=True)
    with pytest.raises(ValueError, match=r"config\.json: scale_attn_by_inverse_layer_idx=true; this package computes"):
        import_hugging_face(out)
    edit(out, scale_attn_by_inverse_layer_idx=False, n_inner="wide")
    with pytest.raises(ValueError, match=r"config\.json: option 'd_ff' got 'wide', expected int"):
        import_hugging_face(out)


def test_rows_beyond_the_tokenizer_come_back(make, tmp_path):
    bundle = make("llama", vocab_multiple=64)
    export_hugging_face(bundle, tmp_path / "out")
    again = import_hugging_face(tmp_path / "out")
    assert again.model.output.shape == (64, 24)
    assert torch.equal(again.model.output, bundle.model.output)
    edit_tensors(
        tmp_path / "out", **{"lm_head/weight": torch.ones(53, 24), "model/embed_tokens/weight": torch.ones(53, 24)}
    )
    assert import_hugging_face(tmp_path / "out").model.output.shape == (53, 24)


def test_two_tables_padded_alike_are_read_and_others_refused(families, tokenizer, other_tokenizer, tmp_path):
    config = families("marian", tying=Tying.two_way, vocab_multiple=8)
    bundle = Bundle(build_model(config, 41, 37), config, tokenizer, other_tokenizer)
    export_hugging_face(bundle, tmp_path / "out")
    assert import_hugging_face(tmp_path / "out").model.output.shape == (40, 24)
    edit_tensors(tmp_path / "out", **{"model/encoder/embed_tokens/weight": torch.ones(83, 24)})
    with pytest.raises(ValueError, match="tokenizers of 41 and 37 pieces do not fit embeddings of 83 and 40 rows"):
        import_hugging_face(tmp_path / "out")


def test_a_tokenizer_with_more_pieces_than_rows_is_refused(folder):
    out = folder("gpt2")
    edit_tensors(out, **{"transformer/wte/weight": torch.ones(40, 24)})
    with pytest.raises(ValueError, match=r"tokenizer has 41 pieces, the model's embedding 40 rows.*resize_token_embed"):
        import_hugging_face(out)


def test_weights_that_do_not_fit_are_refused_one_by_one(folder):
    out = folder("gpt2")
    whole = (out / "model.safetensors").read_bytes()

    def refused(said, **changes):
        (out / "model.safetensors").write_bytes(whole)
        edit_tensors(out, **changes)
        with pytest.raises(ValueError, match=said):
            import_hugging_face(out)

    name = "transformer/h/1/mlp/c_fc/weight"
    refused(r"tensor transformer\.h\.1\.mlp\.c_fc\.weight is missing; config\.json says", **{name: None})
    refused(
        r"c_fc\.weight has shape \[20, 24\], config\.json and the tokenizer say \[24, 20\]",
        **{name: torch.ones(20, 24)},
    )
    refused("is float64; this package reads float32, float16, bfloat16", **{name: torch.ones(24, 20).double()})
    refused(
        r"tensor score\.weight has no place in a gpt2 model .* expected a GPT2LMHeadModel",
        **{"score/weight": torch.ones(2)},
    )
    refused(r"lm_head\.weight differs from the one that .* tied to", **{"lm_head/weight": torch.ones(41, 24)})
    refused(r"tensor transformer\.wte\.weight is missing; expected the embedding", **{"transformer/wte/weight": None})


def test_constants_and_copies_that_older_versions_saved_are_left_out(folder):
    out = folder("marian")
    shared = load_file(out / "model.safetensors")["model.shared.weight"]
    positions = {"model/encoder/embed_positions/weight": sinusoids(50, 24, halves=True).float()}
    edit_tensors(out, **positions, **{"lm_head/weight": shared, "model/decoder/embed_tokens/weight": shared.clone()})
    assert torch.equal(import_hugging_face(out).model.output, shared)
    edit_tensors(out, **{"model/encoder/embed_positions/weight": sinusoids(50, 24).float()})
    with pytest.raises(ValueError, match=r"embed_positions\.weight is not the table of sinusoids"):
        import_hugging_face(out)


def test_names_without_the_networks_prefix_are_read(folder):
    out = folder("gpt2")
    expected = import_hugging_face(out).model.output
    tensors = load_file(out / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    save_file(bare | {"h.0.attn.bias": torch.ones(1, 1, 9, 9)}, out / "model.safetensors")
    assert torch.equal(import_hugging_face(out).model.output, expected)


def test_pickled_weights_are_refused_and_no_weights_too(folder):
    out = folder("gpt2")
    (out / "model.safetensors").rename(out / "pytorch_model.bin")
    with pytest.raises(
        FileNotFoundError, match=r"pytorch_model\.bin, which is a pickle.*Convert it where you trust it"
    ):
        import_hugging_face(out)
    (out / "pytorch_model.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no model\.safetensors; expected the weights"):
        import_hugging_face(out)


def test_an_index_and_its_parts_are_checked(folder):
    out = folder("gpt2")
    index = out / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}), encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"model-1\.safetensors is missing; .*index\.json says"):
        import_hugging_face(out)
    (out / "model-1.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ValueError, match=r"model-1\.safetensors is damaged"):
        import_hugging_face(out)
    index.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"index\.json is damaged: KeyError.*expected JSON with a weight_map"):
        import_hugging_face(out)


def test_nothing_is_unpickled(folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    out = folder("llama")
    for owner, name in (("pickle", "load"), ("pickle", "loads"), ("pickle", "Unpickler"), ("torch", "load")):
        monkeypatch.setattr(f"{owner}.{name}", refuse)
    import_hugging_face(out)


def test_a_folder_can_be_moved(folder, tmp_path):
    shutil.move(folder("marian"), tmp_path / "elsewhere")
    assert import_hugging_face(tmp_path / "elsewhere").joint
