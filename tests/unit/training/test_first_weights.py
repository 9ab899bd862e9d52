"""Fine-tuning: what is taken from a bundle, what is refused, what is frozen."""

import dataclasses
import logging
import shutil

import pytest
import torch

from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.config import (
    DataConfig,
    DataKind,
    InitConfig,
    PositionKind,
    Task,
    TokenizerConfig,
    TokenizerKind,
    TrainConfig,
    Tying,
)
from seq2seq.models import build_model
from seq2seq.training.averaging import checkpoint_weights
from seq2seq.training.first_weights import fine_tuned, freeze, read_first_weights
from seq2seq.training.fit import fit
from seq2seq.training.run_folder import read_run
from seq2seq.translator import Translator


@pytest.fixture
def bundle_of(families, tokenizers, tmp_path):
    """Writes a bundle of a family with random weights."""

    def write(name: str, task: Task = Task.translation, languages=("de", "en"), **changes: object) -> str:
        config = families(name, **changes)
        tokenizer = tokenizers.source
        torch.manual_seed(7)
        model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size)
        folder = tmp_path / f"{name}_{task.name}"
        save_bundle(Bundle(model, config, tokenizer, tokenizer, languages=languages, task=task), folder)
        return str(folder)

    return write


def tuned(config: TrainConfig, bundle: str, **init: bool) -> TrainConfig:
    return dataclasses.replace(config, init=InitConfig(from_=bundle, **init))


def as_text(config: TrainConfig, **changes: object) -> TrainConfig:
    data = DataConfig(
        kind=DataKind.text, train_text=config.data.train_source, block_length=16, batch_tokens=64, **changes
    )
    return dataclasses.replace(config, data=data)


def steps(config: TrainConfig, number: int) -> TrainConfig:
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, max_steps=number, validate_every=2))


def test_sizes_tokenizers_and_weights_are_the_bundles_and_dropouts_the_options(train_config, bundle_of, caplog):
    path = bundle_of("pre_ln")
    typed = dataclasses.replace(train_config.model, dropout=0.4, attention_dropout=0.05, activation_dropout=0.07)
    config = tuned(dataclasses.replace(train_config, model=typed), path)
    with caplog.at_level(logging.INFO):
        first = read_first_weights(config)
    changed = fine_tuned(config, first)
    bundle = load_bundle(path)
    assert (changed.model.dropout, changed.model.attention_dropout, changed.model.activation_dropout) == (
        0.4,
        0.05,
        0.07,
    )
    own = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    assert dataclasses.replace(changed.model, **own) == dataclasses.replace(bundle.model_config, **own)
    assert first.tokenizers.source.sha256 == bundle.source_tokenizer.sha256
    assert all(torch.equal(value, first.weights[name]) for name, value in bundle.model.state_dict().items())
    assert (changed.data.source_lang, changed.data.target_lang) == ("de", "en")
    assert "weights, sizes and tokenizers are its own, and of model.* only the dropouts count" in caplog.text


def test_without_a_bundle_there_is_nothing_to_begin_with(train_config):
    assert read_first_weights(train_config) is None


def test_a_bundle_that_is_not_there_is_refused(train_config, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a bundle"):
        fit(tuned(train_config, str(tmp_path / "nowhere")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_text_of_other_languages_than_the_bundles_is_warned_about(train_config, bundle_of, caplog):
    path = bundle_of("original")
    other = dataclasses.replace(train_config.data, source_lang="fr", target_lang="en")
    config = tuned(dataclasses.replace(train_config, data=other), path)
    changed = fine_tuned(config, read_first_weights(config))
    assert "translates from de to en, the text of this run is fr to en; its tokenizer may not suit it" in caplog.text
    assert changed.data.source_lang == "fr"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "original",
            {},
            "is an encoder-decoder, which goes on from no text without a source; give a decoder-only bundle",
        ),
        (
            "gpt2",
            {"max_positions": 15},
            r"does not suit this run: data\.block_length=16 .*, or fine-tune a model with 16 positions or more",
        ),
    ],
)
def test_a_bundle_that_cannot_learn_from_plain_text_is_refused(train_config, bundle_of, name, changes, message):
    config = as_text(tuned(train_config, bundle_of(name, **changes)))
    with pytest.raises(ValueError, match=message):
        fine_tuned(config, read_first_weights(config))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("prefix_lm", "does not suit this run: optim.loss_on_source=true with model.prefix_lm=true"),
        ("original", "does not suit this run: optim.loss_on_source=true is for architecture=decoder_only"),
    ],
)
def test_a_bundle_that_does_not_suit_the_loss_is_refused(train_config, bundle_of, name, message):
    optim = dataclasses.replace(train_config.optim, loss_on_source=True)
    config = dataclasses.replace(tuned(train_config, bundle_of(name)), optim=optim)
    with pytest.raises(ValueError, match=message):
        fine_tuned(config, read_first_weights(config))


def test_a_prefix_language_model_reads_plain_text_without_a_prefix(train_config, bundle_of):
    config = as_text(tuned(train_config, bundle_of("prefix_lm")))
    assert not fine_tuned(config, read_first_weights(config)).model.prefix_lm


FROZEN = {
    "freeze_embeddings": ("encoder.embedding.", "decoder.embedding.", "output"),
    "freeze_encoder": ("encoder.layers.", "encoder.final_norm."),
    "freeze_decoder": ("decoder.layers.", "decoder.final_norm."),
}


@pytest.mark.parametrize("part", FROZEN)
@pytest.mark.parametrize("name", ["original", "multi_query", "gpt2"])
def test_frozen_parts_do_not_change_by_a_bit_and_the_others_do(families, name, part):
    if (name, part) == ("gpt2", "freeze_encoder"):
        pytest.skip("has no encoder")
    torch.manual_seed(0)
    config = families(name)
    model = build_model(config, 19, 19)
    freeze(model, InitConfig(from_="b", **{part: True}))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    src, tgt = torch.tensor([[5, 6, 2]]), torch.tensor([[1, 7]])
    model(src, torch.ones_like(src, dtype=torch.bool), tgt).square().sum().backward()
    torch.optim.Adam(trained, lr=0.1).step()
    tied = config.tying is not Tying.none
    for key, value in model.state_dict().items():
        frozen = key.startswith(FROZEN[part]) and (key != "output" or tied)
        if frozen:
            assert torch.equal(value, before[key]), key
        elif "norm.bias" not in key and "query_key_value.bias" not in key:
            assert not torch.equal(value, before[key]), key
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_freezing_what_is_not_there_or_everything_is_refused(families):
    freeze_all = InitConfig(from_="b", freeze_embeddings=True, freeze_encoder=True, freeze_decoder=True)
    with pytest.raises(ValueError, match=r"init\.freeze_\* leaves no weight to train; leave one of them out"):
        freeze(build_model(families("original"), 19, 19), freeze_all)
    with pytest.raises(
        ValueError, match=r"init\.freeze_encoder=true, but init\.from=b is decoder-only; use init\.freeze_d"
    ):
        freeze(build_model(families("gpt2"), 19, 19), InitConfig(from_="b", freeze_encoder=True))
    freeze(build_model(families("multi_query"), 19, 19), freeze_all)  # its output matrix is one of its own


def test_a_fine_tuned_run_begins_with_the_bundles_weights_and_leaves_frozen_ones_alone(
    train_config, bundle_of, tmp_path, caplog
):
    path = bundle_of("pre_ln")
    config = steps(tuned(train_config, path, freeze_encoder=True, freeze_embeddings=True), 2)
    with caplog.at_level(logging.INFO):
        result = fit(config, tmp_path / "run")
    before, after = load_bundle(path), load_bundle(result.bundle)
    weights = after.model.state_dict()
    same = {name for name, value in before.model.state_dict().items() if torch.equal(value, weights[name])}
    assert {name for name in weights if name.startswith(("encoder.", "decoder.embedding.", "output"))} <= same
    assert "decoder.layers.0.self_attention.output.weight" not in same
    assert after.languages == ("de", "en")
    assert after.provenance["init"]["from"] == path
    assert "parameters are trained, the others are frozen" in caplog.text
    last = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    trained = last["optimizer_states"][0]["param_groups"][0]["params"]
    assert len(trained) == sum(not name.startswith(("encoder.", "decoder.embedding.", "output")) for name in weights)
    Translator(after).translate(["alpha beta"])


def test_a_resumed_fine_tuning_takes_the_same_path_without_the_bundle_and_after_a_move(
    train_config, bundle_of, tmp_path
):
    path = bundle_of("gpt2")
    model = dataclasses.replace(train_config.model, dropout=0.2)
    data = dataclasses.replace(train_config.data, max_length=40)
    config = tuned(dataclasses.replace(train_config, model=model, data=data), path, freeze_embeddings=True)
    fit(steps(config, 5), tmp_path / "straight")
    fit(steps(config, 3), tmp_path / "stopped")
    shutil.rmtree(path)
    shutil.move(tmp_path / "stopped", tmp_path / "moved")
    last = tmp_path / "moved" / "checkpoints" / "last.ckpt"
    resumed = dataclasses.replace(steps(config, 5), resume=str(last))
    with pytest.raises(
        ValueError, match=r"has trained \d+ matrices and vectors of the model, the options train \d+; give"
    ):
        fit(dataclasses.replace(resumed, init=InitConfig(from_=path)), tmp_path / "moved")
    result = fit(resumed, tmp_path / "moved")
    one, two = (
        checkpoint_weights(run / "checkpoints" / "last.ckpt") for run in (tmp_path / "straight", tmp_path / "moved")
    )
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert load_bundle(result.bundle).provenance["init"]["from"] == path
    assert read_run(tmp_path / "moved")[0].model.positions is PositionKind.learned


@pytest.mark.parametrize("task", list(Task))
def test_a_decoder_only_bundle_of_either_task_learns_the_other(train_config, bundle_of, tmp_path, task):
    config = steps(tuned(train_config, bundle_of("llama", task)), 1)
    result = fit(as_text(config) if task is Task.translation else config, tmp_path / "run")
    other = Task.language_model if task is Task.translation else Task.translation
    assert result.task is load_bundle(result.bundle).task is other


def test_sampling_that_the_bundles_tokenizer_cannot_do_is_refused(train_config, bundle_of, tmp_path):
    how = TokenizerConfig(kind=TokenizerKind.bpe, bpe_dropout=0.1)
    config = dataclasses.replace(train_config, data=dataclasses.replace(train_config.data, tokenizer=how))
    with pytest.raises(ValueError, match=r"data\.tokenizer\.bpe_dropout=0\.1 needs a bpe model, got unigram"):
        fit(tuned(config, bundle_of("original")), tmp_path / "run")
