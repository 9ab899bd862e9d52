import dataclasses
import itertools
from pathlib import Path

import pytest
import yaml

from seq2seq.cli.options import option_names
from seq2seq.cli.train import conf_dir
from seq2seq.config import Architecture, DataKind, DecodeConfig, OptimConfig, Tying, to_dict

CONF = conf_dir()
GROUPS = ("model", "data", "optim", "decode", "trainer", "logger", "experiment")
FILES = sorted(
    path.relative_to(CONF).with_suffix("").as_posix() for group in GROUPS for path in CONF.glob(f"{group}/*")
)

REQUIRED = {
    "files": ("data.train_source=a.de", "data.train_target=a.en"),
    "folder": ("data.dir=corpus", "data.source_lang=de", "data.target_lang=en"),
    "multi30k": ("data.dir=corpus",),
    "phrasebook": (),
    "text": ("data.train_text=a.txt",),
}
"""What a user must say beside data=..."""

EXPERIMENTS = {
    "multi30k_de_en": ("data.dir=corpus",),
    "multi30k_de_en_gpt": ("data.dir=corpus",),
    "tinyshakespeare_gpt": ("data.dir=corpus",),
    "demo": (),
    "smoke": (),
}


def stems(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def test_the_lists_of_this_file_name_every_data_group_and_every_experiment():
    assert sorted(REQUIRED) == stems("data")
    assert sorted(EXPERIMENTS) == stems("experiment")


@pytest.mark.parametrize("model", stems("model"))
def test_every_model_composes_and_passes_the_checks(composed, model):
    config = composed(f"model={model}", "data=phrasebook").model

    assert (config.architecture is Architecture.decoder_only) == model.startswith(("gpt", "llama", "qwen"))


@pytest.mark.parametrize(("model", "data"), list(itertools.product(("transformer_tiny", "gpt_tiny"), stems("data"))))
def test_every_data_group_composes_with_both_architectures_and_passes_the_checks(composed, model, data):
    if (model, data) == ("transformer_tiny", "text"):
        with pytest.raises(ValueError, match="a language model, which is decoder-only; choose model=gpt_small"):
            composed(f"model={model}", f"data={data}", *REQUIRED[data])
        return
    config = composed(f"model={model}", f"data={data}", *REQUIRED[data]).data

    files = (config.train_source, config.train_target) if data != "text" else (config.train_text,)
    assert all(file and "$" not in file for file in files)


@pytest.mark.parametrize("group", ["optim", "decode", "trainer", "logger"])
def test_every_choice_of_a_group_composes_and_passes_the_checks(composed, group):
    for choice in stems(group):
        composed(f"{group}={choice}", "data=phrasebook")


@pytest.mark.parametrize("experiment", stems("experiment"))
def test_every_experiment_composes_with_other_models_and_the_word_typed_wins(composed, experiment):
    config = composed(f"experiment={experiment}", *EXPERIMENTS[experiment])
    assert config.name == experiment
    encoder_decoder = () if config.data.kind is DataKind.text else ("transformer_deepnorm",)
    for model in (*encoder_decoder, "gpt_base"):
        config = composed(f"experiment={experiment}", f"model={model}", *EXPERIMENTS[experiment])
        assert config.model.num_decoder_layers == {"transformer_deepnorm": 18, "gpt_base": 12}[model]


@pytest.mark.parametrize("file", FILES)
def test_a_file_only_sets_options_that_exist(file):
    group, _, _ = file.partition("/")
    content = yaml.safe_load((CONF / f"{file}.yaml").read_text(encoding="utf-8")) or {}
    content.pop("defaults", None)
    if group == "logger":
        assert all("_target_" in logger for logger in content.values())
        return
    names = set(option_names())
    prefix = "" if group == "experiment" else group + "."
    for name in flat(content, prefix):
        assert name in names


def flat(content: dict, prefix: str) -> list[str]:
    found: list[str] = []
    for name, value in content.items():
        found += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
    return found


def test_without_overrides_the_defaults_are_those_of_the_dataclasses(composed):
    config = composed(*REQUIRED["files"])

    assert to_dict(config.optim) == to_dict(OptimConfig())
    assert to_dict(config.decode) == to_dict(DecodeConfig())
    assert (config.name, config.seed, config.resume) == ("default", 1, None)
    assert config.trainer.max_epochs is not None


def test_the_sizes_are_those_of_the_paper(composed):
    base = composed("model=transformer_base", "data=phrasebook").model
    big = composed("model=transformer_big", "data=phrasebook").model

    assert (base.d_model, base.num_heads, base.d_ff, base.num_encoder_layers, base.dropout) == (512, 8, 2048, 6, 0.1)
    assert (big.d_model, big.num_heads, big.d_ff, big.num_decoder_layers, big.dropout) == (1024, 16, 4096, 6, 0.3)
    assert base.tying is big.tying is Tying.three_way


def test_file_names_follow_the_folder_and_the_languages(composed):
    data = composed("data=folder", "data.dir=/corpora/x", "data.source_lang=fr", "data.target_lang=mi").data

    assert (data.train_source, data.train_target) == ("/corpora/x/train.fr", "/corpora/x/train.mi")
    assert (data.valid_source, data.valid_target) == ("/corpora/x/valid.fr", "/corpora/x/valid.mi")


def test_multi30k_calls_its_validation_text_val_and_translates_from_german(composed):
    data = composed("data=multi30k", "data.dir=m").data

    assert (data.train_source, data.valid_target) == ("m/train.de", "m/val.en")


def test_validation_files_of_a_folder_can_be_switched_off(composed):
    data = composed(
        "data=folder", *REQUIRED["folder"], "data.valid_source=null", "data.valid_target=null", "data.valid_size=7"
    ).data

    assert (data.valid_source, data.valid_target, data.valid_size) == (None, None, 7)


def test_plain_text_keeps_its_white_space_and_is_a_vocabulary_of_its_own(composed):
    data = composed("model=gpt_tiny", "data=text", "data.train_text=a.txt", "data.tokenizer.kind=char").data

    assert (data.kind, data.train_text, data.valid_text) == (DataKind.text, "a.txt", None)
    assert (data.tokenizer.keep_whitespace, data.tokenizer.normalization) == (True, "identity")


def test_the_two_multi30k_experiments_differ_in_the_model_alone(composed):
    two = [composed(f"experiment={name}", "data.dir=m") for name in ("multi30k_de_en", "multi30k_de_en_gpt")]

    assert two[0].model.dropout == two[1].model.dropout
    changed = [dataclasses.replace(config, model=two[0].model, name="") for config in two]
    assert changed[0] == changed[1]


def test_loggers_write_into_the_folder_of_the_run(composed, tmp_path: Path):
    logger = composed("data=phrasebook").logger

    assert {name: options["save_dir"] for name, options in logger.items()} == {
        "csv": str(tmp_path),
        "tensorboard": str(tmp_path),
    }
    assert composed("data=phrasebook", "logger=none").logger == {}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data=multi30k",), r"option 'data.dir' is missing; give data.dir=\.\.\."),
        (("data=folder", "data.dir=x", "data.source_lang=de"), r"option 'data.target_lang' is missing; give"),
        (("data.train_source=a",), r"option .data.train_target. is missing; give data.train_target=\.\.\."),
        ((), r"option .data.train_source. is missing; give data.train_source=\.\.\."),
        (("model=gpt_tiny", "data=text"), r"option .data.train_text. is missing; give data.train_text=\.\.\."),
        (("experiment=tinyshakespeare_gpt",), r"option 'data.dir' is missing; give data.dir=\.\.\."),
        (("data=phrasebook", "data.dir=${data.dri}"), "option 'data.train_source': Interpolation key 'data.dri' not"),
        (("data=phrasebook", "+model.typo=1"), "unknown option 'model.typo'; "),
        (("data=phrasebook", "model.d_model=7"), "d_model=7 is not divisible by num_heads=4"),
        (("data=phrasebook", "trainer.max_epochs=null"), "training would never end"),
    ],
)
def test_composing_refuses_what_is_missing_unknown_or_does_not_fit(composed, overrides, message):
    with pytest.raises(ValueError, match=message):
        composed(*overrides)
