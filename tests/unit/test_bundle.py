"""seq2seq.bundle: what is saved is what is loaded, whole or not at all, and nothing is ever unpickled."""

import io
import json
import pickle
import pickletools
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

import seq2seq.bundle
from seq2seq.bundle import FORMAT_VERSION, Bundle, load_bundle, read_config, save_bundle
from seq2seq.config import Architecture, DecodeConfig, ModelConfig, Task, TokenizerConfig, TokenizerKind, Tying
from seq2seq.corpus.shortlist import build_shortlist
from seq2seq.corpus.translation_table import learn_table
from seq2seq.models import build_model
from seq2seq.text.hugging_face import Conventions, HuggingFaceTokenizer
from seq2seq.text.marian import MarianTokenizer
from seq2seq.text.sentence_piece import SentencePieceTokenizer
from seq2seq.text.special import SpecialIds
from seq2seq.text.tokenizer_training import train_tokenizer
from seq2seq.translator import Translator

LINES = [
    f"the {size} {animal} sees a {other}"
    for size in ("big", "small", "old")
    for animal in ("cat", "dog", "cow")
    for other in ("bird", "fish", "worm")
]
VOCAB = 40


def tokenizer(lines=LINES, vocab_size=VOCAB):
    config = TokenizerConfig(kind=TokenizerKind.bpe, vocab_size=vocab_size, byte_fallback=False)
    return train_tokenizer(lines, config)[0]


def sizes(**changes):
    values = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 2, "num_decoder_layers": 3}
    return ModelConfig(**(values | changes))


def make(source, target, config):
    torch.manual_seed(1)
    return Bundle(
        model=build_model(config, source.vocab_size, target.vocab_size).eval(),
        model_config=config,
        source_tokenizer=source,
        target_tokenizer=target,
        decode=DecodeConfig(beam_size=7, length_penalty=-0.5),
        languages=("en", "de"),
        provenance={"step": 120, "versions": {"torch": "2"}, "valid/bleu": 31.5, "note": "Größe"},
    )


@pytest.fixture(scope="module")
def english():
    return tokenizer()


@pytest.fixture(scope="module")
def shouted():
    """As many pieces as the English one, but others."""
    return tokenizer([line.upper() for line in LINES])


@pytest.fixture(scope="module")
def larger():
    return tokenizer(vocab_size=VOCAB + 1)


@pytest.fixture
def joint(english):
    return make(english, english, sizes())


@pytest.fixture
def separate(english, larger):
    return make(english, larger, sizes(tying=Tying.two_way))


@pytest.fixture
def saved(joint, tmp_path):
    save_bundle(joint, tmp_path / "bundle")
    return tmp_path / "bundle"


def logits(bundle):
    src, valid, tgt_in = torch.tensor([[4, 9, 2]]), torch.ones(1, 3, dtype=torch.bool), torch.tensor([[1, 8]])
    with torch.inference_mode():
        return bundle.model(src, valid, tgt_in)


def edit_config(path, **changes):
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def assert_equal(loaded, original):
    assert torch.equal(logits(loaded), logits(original))
    assert loaded.model_config == original.model_config
    assert loaded.decode == original.decode
    assert loaded.languages == original.languages
    assert loaded.provenance == original.provenance
    assert loaded.source_tokenizer.model == original.source_tokenizer.model
    assert loaded.target_tokenizer.model == original.target_tokenizer.model
    assert not loaded.model.training


def test_a_joint_bundle_is_loaded_as_it_was_saved(joint, saved):
    loaded = load_bundle(saved)
    assert_equal(loaded, joint)
    assert loaded.joint
    assert loaded.source_tokenizer is loaded.target_tokenizer
    assert sorted(file.name for file in saved.iterdir()) == ["config.json", "model.safetensors", "source.spm"]


def test_a_bundle_with_two_vocabularies_is_loaded_as_it_was_saved(separate, tmp_path):
    save_bundle(separate, tmp_path / "deep" / "er" / "bundle")
    loaded = load_bundle(str(tmp_path / "deep" / "er" / "bundle"))
    assert_equal(loaded, separate)
    assert not loaded.joint
    assert (tmp_path / "deep" / "er" / "bundle" / "target.spm").read_bytes() == separate.target_tokenizer.model


@pytest.mark.parametrize("tying", [Tying.three_way, Tying.two_way, Tying.none])
def test_tied_weights_are_stored_once_and_tied_again(english, tmp_path, tying):
    bundle = make(english, english, sizes(tying=tying))
    save_bundle(bundle, tmp_path / "bundle")
    stored = load_file(tmp_path / "bundle" / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == bundle.model.num_parameters()
    loaded = load_bundle(tmp_path / "bundle").model
    assert loaded.num_parameters() == bundle.model.num_parameters()
    assert (loaded.output is loaded.decoder.embedding.rows.weight) == (tying is not Tying.none)
    assert (loaded.output is loaded.encoder.embedding.rows.weight) == (tying is Tying.three_way)


def test_rows_beyond_the_vocabulary_are_kept(english, tmp_path):
    bundle = make(english, english, sizes(vocab_multiple=64))
    save_bundle(bundle, tmp_path / "bundle")
    assert load_bundle(tmp_path / "bundle").model.output.shape == (64, 8)
    assert torch.equal(logits(load_bundle(tmp_path / "bundle")), logits(bundle))


def test_a_bundle_works_after_the_folder_was_moved(joint, saved, tmp_path):
    shutil.move(saved, tmp_path / "elsewhere")
    assert_equal(load_bundle(tmp_path / "elsewhere"), joint)


def test_a_model_is_loaded_onto_the_device_asked_for(saved):
    assert load_bundle(saved, device="meta").model.output.device.type == "meta"


def test_the_config_is_plain_json_with_a_format_version(saved, english):
    config = read_config(saved)
    assert config["format_version"] == FORMAT_VERSION
    assert config["model"]["tying"] == "three_way"
    assert config["source_tokenizer"]["sha256"] == english.sha256
    assert config["source_tokenizer"]["vocab_size"] == VOCAB
    assert config["source_tokenizer"]["special_ids"] == {"pad": 0, "bos": 1, "eos": 2, "unk": 3}
    assert "Größe" in (saved / "config.json").read_text(encoding="utf-8")


def test_nothing_is_unpickled(saved, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, refuse)
    load_bundle(saved)


def test_no_file_of_a_bundle_is_a_pickle(saved):
    for file in saved.iterdir():
        with pytest.raises((pickle.UnpicklingError, ValueError)):
            pickletools.dis(file.read_bytes(), out=io.StringIO())
    with safe_open(saved / "model.safetensors", framework="pt") as weights:
        assert "output" in weights.keys() or "decoder.embedding.rows.weight" in weights.keys()  # noqa: SIM118


def test_pickled_weights_are_refused_and_not_run(saved, joint):
    torch.save(joint.model.state_dict(), saved / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors does not fit .*config\.json"):
        load_bundle(saved)


def test_a_place_without_a_bundle_is_named(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"is not a bundle: it has no config\.json; expected the folder"):
            load_bundle(path)


@pytest.mark.parametrize("name", ["model.safetensors", "source.spm", "target.spm"])
def test_a_missing_file_is_named(separate, tmp_path, name):
    save_bundle(separate, tmp_path / "bundle")
    (tmp_path / "bundle" / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name} is missing; expected the"):
        load_bundle(tmp_path / "bundle")


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "{}", '{"format_version": "new"}', '{"format_version": null}'])
def test_a_damaged_config_is_refused(saved, content):
    (saved / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json is damaged: .* expected JSON with a format_version"):
        load_bundle(saved)


def test_a_config_that_is_not_text_is_refused(saved):
    (saved / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        load_bundle(saved)


def test_a_config_without_its_parts_is_refused(saved):
    (saved / "config.json").write_text('{"format_version": 2, "joint": true}', encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"config\.json is damaged: it lacks architecture, task, source_lang, target_lang"
    ):
        load_bundle(saved)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("decode", None, r"decode is None, expected dict; put the original file back"),
        ("model", [1], r"model is \[1\], expected dict"),
        ("target_lang", 5, r"target_lang is 5, expected str or null"),
        ("joint", "no", r"joint is 'no', expected bool"),
        ("source_tokenizer", "x", r"source_tokenizer is 'x', expected dict"),
        ("source_tokenizer", {"vocab_size": 40}, r"source_tokenizer lacks its sha256 or vocab_size"),
        ("target_tokenizer", {"sha256": "0"}, r"target_tokenizer lacks its sha256 or vocab_size"),
    ],
)
def test_a_config_with_a_part_of_another_type_is_refused(saved, key, value, said):
    edit_config(saved, **{key: value})
    with pytest.raises(ValueError, match=r"config\.json is damaged: " + said):
        load_bundle(saved)


def test_the_folder_of_a_run_is_answered_with_the_bundle_in_it(saved):
    with pytest.raises(FileNotFoundError, match=r"is not a bundle.*; did you mean .*bundle\?"):
        load_bundle(saved.parent)


def test_a_newer_format_is_refused_with_both_versions(saved):
    edit_config(saved, format_version=FORMAT_VERSION + 1)
    with pytest.raises(
        ValueError, match=f"format version {FORMAT_VERSION + 1}, this package reads up to {FORMAT_VERSION}"
    ):
        load_bundle(saved)


def test_an_architecture_that_this_package_does_not_know_is_refused(saved):
    edit_config(saved, architecture="mamba")
    with pytest.raises(ValueError, match=r"has architecture 'mamba', this package reads encoder_decoder, decoder_only"):
        load_bundle(saved)


def test_a_task_that_this_package_does_not_know_is_refused(saved):
    edit_config(saved, task="parsing")
    with pytest.raises(ValueError, match=r"has task 'parsing', this package reads translation, language_model; update"):
        load_bundle(saved)


def test_an_architecture_other_than_the_models_is_refused(saved):
    edit_config(saved, architecture="decoder_only")
    with pytest.raises(ValueError, match=r"its architecture is decoder_only, that of its model encoder_decoder; put"):
        load_bundle(saved)


def test_an_option_that_this_package_does_not_know_is_refused(saved):
    edit_config(saved, model=read_config(saved)["model"] | {"num_head": 2})
    with pytest.raises(ValueError, match=r"unknown option 'model\.num_head'; did you mean 'num_heads'\?"):
        load_bundle(saved)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_weights_are_refused(saved, share):
    file = saved / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(
        ValueError, match=r"model\.safetensors does not fit .*config\.json and a vocabulary of 40 source"
    ):
        load_bundle(saved)


def test_weights_of_another_size_are_refused(saved):
    edit_config(saved, model=read_config(saved)["model"] | {"d_ff": 14})
    with pytest.raises(ValueError, match=r"expected the weights that were saved with them") as refused:
        load_bundle(saved)
    assert "size mismatch for" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_weights_with_one_missing_are_refused(saved):
    weights = load_file(saved / "model.safetensors")
    del weights["decoder.layers.2.feed_forward.inner.bias"]
    save_file(weights, saved / "model.safetensors")
    with pytest.raises(ValueError, match=r"decoder\.layers\.2\.feed_forward\.inner\.bias"):
        load_bundle(saved)


def test_a_bundle_of_format_version_1_is_read(joint, saved):
    config = read_config(saved)
    assert config["format_version"] == 2
    old = ["d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers", "dropout", "attention_dropout"]
    old += ["activation_dropout", "tying", "activation", "norm_eps", "vocab_multiple"]
    config["model"] = {name: config["model"][name] for name in old}
    for side in ("source_tokenizer", "target_tokenizer"):
        for newer in ("format", "byte_fallback", "keeps_whitespace"):
            del config[side][newer]
    del config["task"]
    (saved / "config.json").write_text(json.dumps(config | {"format_version": 1}), encoding="utf-8")
    loaded = load_bundle(saved)
    assert_equal(loaded, joint)
    assert loaded.task is Task.translation


def test_loading_draws_no_random_numbers_and_leaves_no_memory_unset(joint, saved):
    state = torch.get_rng_state()
    loaded = load_bundle(saved)
    assert torch.equal(torch.get_rng_state(), state)
    weights = loaded.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in joint.model.state_dict().items())
    assert torch.rand(1) != torch.rand(1), "drawing works again"


@pytest.mark.parametrize("task", list(Task))
def test_a_decoder_only_bundle_is_loaded_as_it_was_saved(english, tmp_path, task):
    config = sizes(architecture=Architecture.decoder_only, num_encoder_layers=0, tying=Tying.two_way)
    original = replace(make(english, english, config), task=task)
    save_bundle(original, tmp_path / "bundle")
    assert read_config(tmp_path / "bundle")["architecture"] == "decoder_only"
    loaded = load_bundle(tmp_path / "bundle")
    assert_equal(loaded, original)
    assert loaded.task is task


@pytest.fixture(scope="module")
def marian(english, shouted):
    """Two SentencePiece models and one table, as MarianMT has them."""
    pieces = sorted({*english.pieces(range(VOCAB)), *shouted.pieces(range(VOCAB))})
    table = json.dumps({piece: id_ for id_, piece in enumerate(pieces)}).encode()
    bos = pieces.index("<pad>")
    return MarianTokenizer(english.model, table, bos), MarianTokenizer(shouted.model, table, bos)


def test_two_marian_tokenizers_with_one_table_serve_a_model_with_three_way_tying(marian, tmp_path):
    original = make(*marian, sizes())
    save_bundle(original, tmp_path / "bundle")
    names = {file.name for file in (tmp_path / "bundle").iterdir()}
    assert names >= {"source.spm", "vocab.json", "target.spm", "target_vocab.json"}
    loaded = load_bundle(tmp_path / "bundle")
    assert_equal(loaded, original)
    assert not loaded.joint
    assert loaded.target_tokenizer.vocabulary_sha256 == loaded.source_tokenizer.vocabulary_sha256
    assert loaded.source_tokenizer.special == marian[0].special
    Translator(loaded)


def test_a_tokenizer_json_is_in_the_bundle_of_a_language_model(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 0, "cat": 1, "?": 2, "end": 3}, unk_token="?"))
    tokenizer = HuggingFaceTokenizer(words.to_str().encode(), Conventions(SpecialIds(3, 3, 3, 2), stop=(1,)))
    config = sizes(architecture=Architecture.decoder_only, num_encoder_layers=0, tying=Tying.none, vocab_multiple=8)
    original = replace(make(tokenizer, tokenizer, config), task=Task.language_model)
    save_bundle(original, tmp_path / "bundle")
    loaded = load_bundle(tmp_path / "bundle")
    assert loaded.joint
    assert loaded.source_tokenizer.describe() == tokenizer.describe()
    assert loaded.source_tokenizer.stop == (1,)


def test_v8_another_table_beside_the_same_sentence_piece_model_is_refused(marian, tmp_path):
    save_bundle(make(*marian, sizes()), tmp_path / "bundle")
    file = tmp_path / "bundle" / "target_vocab.json"
    swapped = {piece: id_ for id_, piece in enumerate(reversed(json.loads(file.read_bytes())))}
    file.write_bytes(json.dumps(swapped).encode())
    with pytest.raises(
        ValueError, match=r"target\.spm with target_vocab\.json is not the tokenizer that the model was"
    ):
        load_bundle(tmp_path / "bundle")


def test_v8_a_tokenizer_one_piece_larger_is_refused_with_both_sizes(saved, larger):
    (saved / "source.spm").write_bytes(larger.model)
    with pytest.raises(ValueError, match=r"is not the tokenizer .*: it has 41 pieces .*, expected 40 pieces"):
        load_bundle(saved)


def test_v8_a_tokenizer_of_equal_size_with_other_pieces_is_refused_with_both_checksums(saved, english, shouted):
    (saved / "source.spm").write_bytes(shouted.model)
    message = f"has 40 pieces and SHA-256 {shouted.sha256[:12]}, expected 40 pieces and {english.sha256[:12]}"
    with pytest.raises(ValueError, match=message):
        load_bundle(saved)


def test_v8_swapped_tokenizers_are_refused(separate, tmp_path, english):
    save_bundle(separate, tmp_path / "bundle")
    (tmp_path / "bundle" / "target.spm").write_bytes(english.model)
    with pytest.raises(ValueError, match=r"target\.spm is not the tokenizer that the model was trained with"):
        load_bundle(tmp_path / "bundle")


def test_a_damaged_tokenizer_is_refused(saved):
    (saved / "source.spm").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"source\.spm is not a SentencePiece model"):
        load_bundle(saved)


def test_an_older_bundle_is_replaced_whole(separate, joint, tmp_path):
    save_bundle(separate, tmp_path / "bundle")
    save_bundle(joint, tmp_path / "bundle")
    assert not (tmp_path / "bundle" / "target.spm").exists()
    assert_equal(load_bundle(tmp_path / "bundle"), joint)
    assert [file.name for file in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.parametrize("place", ["save_model", "_describe"])
def test_a_save_that_fails_leaves_the_older_bundle_and_nothing_else(joint, saved, monkeypatch, place):
    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(seq2seq.bundle, place, fail)
    with pytest.raises(OSError, match="disk full"):
        save_bundle(replace(joint, languages=("fr", "nl")), saved)
    monkeypatch.undo()
    assert_equal(load_bundle(saved), joint)
    assert [file.name for file in saved.parent.iterdir()] == ["bundle"]


def test_weights_that_find_no_room_on_the_disk_are_an_error_of_the_system(joint, tmp_path, monkeypatch):
    def full(*_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(seq2seq.bundle, "save_model", full)
    with pytest.raises(
        OSError, match=rf"the weights could not be written in {tmp_path} \(.*No space left.*\); is the disk full"
    ):
        save_bundle(joint, tmp_path / "b")
    assert not list(tmp_path.iterdir())


def test_the_older_bundle_is_put_back_when_the_new_one_cannot_take_its_place(joint, saved, monkeypatch):
    rename = type(saved).rename
    calls = []

    def second_fails(self, target):
        calls.append(self)
        if len(calls) == 2:
            raise OSError("disk full")
        return rename(self, target)

    monkeypatch.setattr(type(saved), "rename", second_fails)
    with pytest.raises(OSError, match="disk full"):
        save_bundle(replace(joint, languages=("fr", "nl")), saved)
    monkeypatch.undo()
    assert_equal(load_bundle(saved), joint)
    assert [file.name for file in saved.parent.iterdir()] == ["bundle"]


def test_a_bundle_behind_a_link_is_replaced_where_it_is(joint, saved, tmp_path):
    (tmp_path / "link").symlink_to(saved)
    save_bundle(replace(joint, languages=("fr", "nl")), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load_bundle(saved).languages == ("fr", "nl")


def test_what_is_not_a_bundle_is_not_replaced(joint, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "important.txt").write_text("keep me")
    (tmp_path / "file").write_text("keep me")
    foreign = tmp_path / "foreign"  # other people's models have these files too
    foreign.mkdir()
    (foreign / "config.json").write_text('{"model_type": "marian"}')
    (foreign / "source.spm").write_bytes(b"keep me")
    for path in (tmp_path / "notes", tmp_path / "file", foreign):
        with pytest.raises(ValueError, match="exists and is not a bundle; choose another place or remove it first"):
            save_bundle(joint, path)
    assert (tmp_path / "notes" / "important.txt").read_text() == "keep me"
    assert (tmp_path / "file").read_text() == "keep me"
    assert (foreign / "source.spm").read_bytes() == b"keep me"


def test_other_users_may_read_a_bundle(saved):
    assert saved.stat().st_mode & 0o555 == 0o555
    assert all(file.stat().st_mode & 0o444 == 0o444 for file in saved.iterdir())


def test_the_tokenizer_file_is_an_ordinary_sentencepiece_model(saved, english):
    assert SentencePieceTokenizer.load(saved / "source.spm").encode(LINES[0]) == english.encode(LINES[0])


def with_shortlist(bundle):
    source, target = bundle.source_tokenizer, bundle.target_tokenizer
    pairs = [(source.encode(line), target.encode(line)) for line in LINES]
    table = learn_table(lambda: pairs, source.vocab_size, target.vocab_size, passes=2)
    return replace(bundle, shortlist=build_shortlist(table, source, target, candidates=3, frequent=5))


def test_a_shortlist_is_saved_and_loaded_with_the_bundle(english, tmp_path):
    bundle = with_shortlist(make(english, english, sizes()))
    save_bundle(bundle, tmp_path / "b")
    loaded = load_bundle(tmp_path / "b")
    assert loaded.shortlist.candidates.tolist() == bundle.shortlist.candidates.tolist()
    save_bundle(replace(loaded, shortlist=None), tmp_path / "b")
    assert load_bundle(tmp_path / "b").shortlist is None


def test_a_shortlist_of_other_tokenizers_or_a_damaged_one_is_refused(english, tmp_path):
    other = tokenizer([line.upper() for line in LINES])
    save_bundle(with_shortlist(make(other, other, sizes())), tmp_path / "other")
    save_bundle(make(english, english, sizes()), tmp_path / "b")
    file = shutil.copy(tmp_path / "other" / "shortlist.safetensors", tmp_path / "b")
    with pytest.raises(ValueError, match=r"shortlist\.safetensors: .* another source tokenizer: .* or remove it"):
        load_bundle(tmp_path / "b")
    (tmp_path / "b" / "shortlist.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"shortlist\.safetensors is damaged"):
        load_bundle(tmp_path / "b")
    (tmp_path / "b" / file).unlink()
    assert load_bundle(tmp_path / "b").shortlist is None
