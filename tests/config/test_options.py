import dataclasses
import json
import math

import pytest

from seq2seq.config import (
    DataConfig,
    DecodeConfig,
    ModelConfig,
    OptimConfig,
    PenaltyForm,
    RopeConfig,
    ScheduledSamplingConfig,
    TokenizerConfig,
    TokenizerKind,
    TrainConfig,
    TrainerConfig,
    Tying,
    Utility,
    from_dict,
    nearest,
    to_dict,
)

MODEL = {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 3, "num_decoder_layers": 4}
DATA = {"train_source": "a.de", "train_target": "a.en"}
TRAINER = {"max_steps": 5}
TRAIN = {"model": MODEL, "data": DATA, "trainer": TRAINER}
GPT = MODEL | {"architecture": "decoder_only", "num_encoder_layers": 0, "tying": "two_way"}
LEARNED = {"positions": "learned", "max_positions": 40}
TEXT = {"kind": "text", "train_text": "a.txt"}

REFUSED = [
    (ModelConfig, MODEL | {"d_model": 0}, "d_model=0 is not positive; choose d_model > 0"),
    (ModelConfig, MODEL | {"num_heads": -2}, "num_heads=-2 is not positive"),
    (ModelConfig, MODEL | {"d_ff": 0}, "d_ff=0 is not positive"),
    (ModelConfig, MODEL | {"num_encoder_layers": 0}, "num_encoder_layers=0 is not positive"),
    (ModelConfig, MODEL | {"num_decoder_layers": 0}, "num_decoder_layers=0 is not positive"),
    (ModelConfig, MODEL | {"vocab_multiple": 0}, "vocab_multiple=0 is not positive"),
    (
        ModelConfig,
        MODEL | {"num_heads": 3},
        "d_model=8 is not divisible by num_heads=3; choose d_model as a multiple of",
    ),
    (ModelConfig, MODEL | {"d_model": 9, "num_heads": 3}, "d_model=9 is odd; .* choose an even width"),
    (ModelConfig, MODEL | {"dropout": 1.0}, "dropout=1.0 is not a probability below 1"),
    (ModelConfig, MODEL | {"attention_dropout": -0.1}, "attention_dropout=-0.1 is not a probability"),
    (ModelConfig, MODEL | {"activation_dropout": 2}, "activation_dropout=2.0 is not a probability"),
    (ModelConfig, MODEL | {"norm_eps": 0}, "norm_eps=0.0 is not positive"),
    (ModelConfig, MODEL | {"num_kv_heads": 0}, "num_kv_heads=0 is not positive"),
    (ModelConfig, MODEL | {"d_head": 0}, "d_head=0 is not positive"),
    (ModelConfig, MODEL | {"positions": "rope", "d_head": 3}, "d_head=3 is odd; rotary positions turn pairs, choose"),
    (ModelConfig, MODEL | {"positions": "learned"}, "positions=learned needs max_positions, the number of rows"),
    (ModelConfig, LEARNED | MODEL | {"max_positions": 0}, "max_positions=0 is not positive"),
    (ModelConfig, MODEL | {"prefix_lm": True}, "prefix_lm=true is for architecture=decoder_only; an encoder sees"),
    (ModelConfig, GPT | {"num_encoder_layers": 3}, "decoder_only has no encoder, got num_encoder_layers=3; give 0"),
    (ModelConfig, GPT | {"tying": "three_way"}, "has one embedding, so tying=three_way means nothing; choose two_way"),
    (RopeConfig, {"base": 0}, r"rope\.base=0\.0 is not positive"),
    (RopeConfig, {"original_positions": 0}, r"rope\.original_positions=0 is not positive"),
    (RopeConfig, {"attention_factor": 0}, r"rope\.attention_factor=0\.0 is not positive"),
    (RopeConfig, {"scaling": "yarn"}, r"rope\.scaling=yarn needs rope\.original_positions, the length that the model"),
    (RopeConfig, {"scaling": "llama3"}, r"rope\.scaling=llama3 needs rope\.original_positions"),
    (
        RopeConfig,
        {"low_freq_factor": 4, "high_freq_factor": 4},
        r"rope\.high_freq_factor=4\.0 is not more than rope\.low_freq_factor=4\.0",
    ),
    (RopeConfig, {"beta_fast": 1}, r"rope\.beta_fast=1\.0 is not more than rope\.beta_slow=1\.0"),
    (
        TokenizerConfig,
        {"keep_whitespace": True, "normalization": "nfkc"},
        r"keep_whitespace=true needs data\.tokenizer\.normalization=identity, got nfkc, which replaces and joins",
    ),
    (
        TokenizerConfig,
        {"vocab_size": 260},
        "vocab_size=260 leaves no room beside 260 .* or data.tokenizer.byte_fallback=false",
    ),
    (TokenizerConfig, {"vocab_size": 4, "byte_fallback": False}, "choose more than 4$"),
    (TokenizerConfig, {"character_coverage": 1.1}, "character_coverage=1.1 is not between 0.98 and 1"),
    (TokenizerConfig, {"character_coverage": 0}, "character_coverage=0.0 is not between 0.98 and 1, which"),
    (TokenizerConfig, {"sampling_alpha": -1}, "sampling_alpha=-1.0 is negative or infinite; 0 is off"),
    (TokenizerConfig, {"sampling_alpha": math.inf}, "sampling_alpha=inf is negative or infinite"),
    (TokenizerConfig, {"vocab_size": 2**31}, "data.tokenizer.vocab_size=2147483648 is too large; choose"),
    (TokenizerConfig, {"sampling_nbest": 1}, "sampling_nbest=1 must be at least 2"),
    (TokenizerConfig, {"bpe_dropout": 1.0, "kind": "bpe"}, "bpe_dropout=1.0 is not a probability"),
    (TokenizerConfig, {"max_sentence_bytes": 0}, "max_sentence_bytes=0 is not between 10 and"),
    (
        TokenizerConfig,
        {"bpe_dropout": 0.1},
        "bpe_dropout=0.1 needs data.tokenizer.kind=bpe, got unigram; .*sampling_alpha",
    ),
    (
        TokenizerConfig,
        {"sampling_alpha": 0.1, "kind": "bpe"},
        "needs data.tokenizer.kind=unigram, got bpe; .*bpe_dropout",
    ),
    (TokenizerConfig, {"source_model": "a", "target_model": "b"}, "target_model is for separate vocabularies"),
    (TokenizerConfig, {"joint": False, "source_model": "a"}, "needs both data.tokenizer.source_model and"),
    (DataConfig, DATA | {"valid_size": 0}, "valid_size=0 is not positive"),
    (DataConfig, DATA | {"max_length": 0}, "max_length=0 is not positive"),
    (DataConfig, DATA | {"batch_tokens": -1}, "batch_tokens=-1 is not positive"),
    (DataConfig, DATA | {"num_workers": -1}, "num_workers=-1 is negative"),
    (DataConfig, DATA | {"max_length": 20, "batch_tokens": 19}, "max_length=20 is more than batch_tokens=19"),
    (DataConfig, DATA | {"valid_source": "v.de"}, "give both valid_source and valid_target, or neither"),
    (DataConfig, DATA | {"block_length": 1}, "block_length=1 is too short; choose at least 2"),
    (DataConfig, DATA | {"valid_share": 1}, "valid_share=1.0 is not between 0 and 1; 0.1 is usual"),
    (DataConfig, DATA | {"train_text": "a"}, r"data\.train_text is not for data\.kind=parallel; leave it out"),
    (DataConfig, {"kind": "text"}, r"option 'data\.train_text' is missing; give data\.train_text=\.\.\."),
    (DataConfig, TEXT | DATA, r"data\.train_source is not for data\.kind=text; leave it out or choose another data="),
    (DataConfig, TEXT | {"block_length": 80, "batch_tokens": 79}, "block_length=80 is more than batch_tokens=79"),
    (
        DataConfig,
        TEXT | {"tokenizer": {"sampling_alpha": 0.1}},
        "sampling_alpha=0.1 and data.tokenizer.bpe_dropout=0.0 are for pairs; set both to 0",
    ),
    (OptimConfig, {"warmup_steps": -1}, "warmup_steps=-1 is negative"),
    (OptimConfig, {"warmup_steps": 0}, "optim.warmup_steps=0 leaves noam's learning rate.* without a peak; choose 1"),
    (OptimConfig, {"warmup_steps": 0, "schedule": "cosine"}, "which optim.lr=null stands for too, without a peak"),
    (OptimConfig, {"lr": 0.0, "schedule": "cosine"}, "lr=0.0 is not positive"),
    (OptimConfig, {"lr": 0.1}, "optim.lr=0.1 is not for optim.schedule=noam, whose height optim.lr_factor sets"),
    (OptimConfig, {"min_lr_ratio": 1.5, "schedule": "linear"}, "min_lr_ratio=1.5 is no share; choose 0 to 1"),
    (OptimConfig, {"min_lr_ratio": 0.1}, "optim.min_lr_ratio=0.1 is not for optim.schedule=noam, which has no end"),
    (OptimConfig, {"total_steps": 9000}, "optim.total_steps=9000 is not for optim.schedule=noam, which has no end"),
    (OptimConfig, {"total_steps": 9, "schedule": "linear"}, "total_steps=9 is over before optim.warmup_steps=1000"),
    (OptimConfig, {"decay_share": 0.0}, "decay_share=0.0 is no share; choose more than 0, up to 1"),
    (OptimConfig, {"weight_decay": 0.1}, "optim.weight_decay=0.1 is not for optim.optimizer=adam; choose .*=adamw"),
    (OptimConfig, {"weight_decay": -0.1}, "weight_decay=-0.1 is negative"),
    (OptimConfig, {"weight_decay": math.inf}, "weight_decay=inf is too large"),
    (OptimConfig, {"r_drop": math.inf}, "r_drop=inf is too large"),
    (OptimConfig, {"r_drop": math.nan}, "r_drop=nan is negative"),
    (ScheduledSamplingConfig, {"passes": 101}, "passes=101 are more than 100"),
    (OptimConfig, {"max_bad_steps": 0}, "max_bad_steps=0 is not positive"),
    (OptimConfig, {"ema_decay": 1.0}, "ema_decay=1.0 is not a probability below 1"),
    (OptimConfig, {"muon_lr": 0.0}, "muon_lr=0.0 is not positive"),
    (OptimConfig, {"lr_factor": 0}, "lr_factor=0.0 is not positive"),
    (OptimConfig, {"eps": -1e-9}, "eps=-1e-09 is not positive"),
    (OptimConfig, {"beta1": 1.0}, "beta1=1.0 is not a probability below 1"),
    (OptimConfig, {"beta2": -0.1}, "beta2=-0.1 is not a probability"),
    (OptimConfig, {"label_smoothing": 1.0}, "label_smoothing=1.0 is not a probability"),
    (OptimConfig, {"clip_norm": 0.0}, "clip_norm=0.0 is not positive"),
    (DecodeConfig, {"beam_size": 0}, "beam_size=0 is not positive"),
    (DecodeConfig, {"beam_size": 10**20}, "beam_size=100000000000000000000 is too large; choose beam_size < 21"),
    (DecodeConfig, {"max_length_factor": math.inf}, "max_length_factor=inf is too large"),
    (DecodeConfig, {"length_penalty": math.nan}, "length_penalty=nan is not between -20 and 20; 0.6 to 1 is usual"),
    (DecodeConfig, {"length_penalty": 1000}, "length_penalty=1000.0 is not between -20 and 20"),
    (DecodeConfig, {"n_best": 0}, "n_best=0 is not positive"),
    (DecodeConfig, {"max_length_factor": 0}, "max_length_factor=0.0 is not positive"),
    (DecodeConfig, {"max_source_length": 0}, "max_source_length=0 is not positive"),
    (DecodeConfig, {"batch_tokens": 0}, "batch_tokens=0 is not positive"),
    (DecodeConfig, {"min_length": 0}, "min_length=0 is not positive"),
    (DecodeConfig, {"n_best": 5}, "n_best=5 is more than beam_size=4; choose a beam at least as large"),
    (DecodeConfig, {"mbr": Utility.chrf, "num_candidates": 5}, "num_candidates=5 is more than beam_size=4; choose a"),
    (DecodeConfig, {"mbr": Utility.chrf, "beam_size": 1}, "mbr=chrf chooses among translations, but only one is"),
    (DecodeConfig, {"mbr": Utility.bleu, "num_candidates": 1}, "mbr=bleu chooses among translations, but only one is"),
    (
        DecodeConfig,
        {"mbr": Utility.chrf, "beam_size": 1, "n_best": 3, "temperature": 1.0},
        "mbr=chrf chooses among translations that are drawn, but not how many; give num_candidates, 30 or more",
    ),
    (DecodeConfig, {"num_candidates": 3}, "num_candidates=3 is for minimum Bayes risk; choose mbr=chrf or mbr=bleu"),
    (
        DecodeConfig,
        {"mbr": Utility.chrf, "n_best": 3, "num_candidates": 2},
        "n_best=3 is more than num_candidates=2; choose at least as many candidates",
    ),
    (DecodeConfig, {"min_length_factor": -0.5}, "min_length_factor=-0.5 is negative"),
    (DecodeConfig, {"max_length_offset": 0}, "max_length_offset=0 must be at least 1"),
    (DecodeConfig, {"min_length_factor": 2.5}, "min_length_factor=2.5 is more than max_length_factor=2.0"),
    (DecodeConfig, {"max_length": 3, "min_length": 4}, "max_length=3 is less than min_length=4"),
    (ScheduledSamplingConfig, {"rate": 1.1}, "rate=1.1 is no share of the target's pieces; choose 0 to 1"),
    (ScheduledSamplingConfig, {"start_step": -1}, "start_step=-1 is negative"),
    (ScheduledSamplingConfig, {"start_step": 9, "end_step": 8}, "end_step=8 is before start_step=9; choose a later"),
    (ScheduledSamplingConfig, {"temperature": 0.0}, "temperature=0.0 is not positive"),
    (ScheduledSamplingConfig, {"passes": 1}, "passes=1 leaves none for the predictions; choose 2 or more"),
    (
        ScheduledSamplingConfig,
        {"sure": 0.8, "surest": 0.7},
        "sure=0.8 and surest=0.7 are no probabilities in order; choose 0 <= sure <= surest <= 1",
    ),
    (TrainerConfig, {}, "training would never end; give trainer.max_epochs, trainer.max_steps or"),
    (TrainerConfig, {"max_epochs": 0}, "max_epochs=0 is not positive"),
    (TrainerConfig, {"max_steps": -1}, "max_steps=-1 is not positive"),
    (TrainerConfig, {"max_minutes": 0}, "max_minutes=0.0 is not positive"),
    (TrainerConfig, TRAINER | {"validate_every": 0}, "validate_every=0 is not positive"),
    (TrainerConfig, TRAINER | {"patience": 0}, "patience=0 is not positive"),
    (TrainerConfig, TRAINER | {"num_threads": 0}, "num_threads=0 is not positive"),
    (TrainerConfig, TRAINER | {"num_threads": 100_000}, "num_threads=100000 is more than 1024; choose at most"),
    (TrainerConfig, TRAINER | {"accumulate": 0}, "accumulate=0 is not positive"),
    (TrainerConfig, TRAINER | {"log_every": 0}, "log_every=0 is not positive"),
    (TrainerConfig, TRAINER | {"keep_best": -1}, "keep_best=-1 is negative"),
    (TrainerConfig, TRAINER | {"keep_best": 0}, "trainer.final_weights=best needs trainer.keep_best > 0"),
    (TrainerConfig, TRAINER | {"average_last": -1}, "average_last=-1 is negative"),
    (TrainerConfig, TRAINER | {"num_samples": -1}, "num_samples=-1 is negative"),
    (TrainerConfig, TRAINER | {"final_weights": "average", "average_last": 0}, "needs trainer.average_last > 0"),
    (
        TrainConfig,
        TRAIN | {"optim": {"schedule": "cosine"}, "trainer": {"max_minutes": 5.0}},
        "optim.schedule=cosine goes down towards a last step, .* give optim.total_steps or trainer.max_steps",
    ),
    (
        TrainConfig,
        TRAIN | {"optim": {"optimizer": "muon"}, "trainer": {"max_steps": 5, "strategy": "fsdp"}},
        "optim.optimizer=muon looks at whole matrices, which trainer.strategy=fsdp divides",
    ),
    (
        TrainConfig,
        TRAIN | {"optim": {"ema_decay": 0.99}, "trainer": {"max_steps": 5, "strategy": "fsdp"}},
        "optim.ema_decay=0.99 keeps whole weights, which trainer.strategy=fsdp divides",
    ),
    (TrainConfig, TRAIN | {"seed": -1}, "seed=-1 is out of range; choose 0 <= seed < 4294967296"),
    (TrainConfig, TRAIN | {"data": DATA | {"tokenizer": {"joint": False}}}, "three_way needs one vocabulary"),
    (
        TrainConfig,
        TRAIN | {"data": TEXT},
        "data.kind=text trains a language model, which is decoder-only; choose model=",
    ),
    (TrainConfig, TRAIN | {"model": GPT | {"prefix_lm": True}, "data": TEXT}, "model.prefix_lm=true is for pairs"),
    (
        TrainConfig,
        TRAIN | {"model": GPT, "data": DATA | {"tokenizer": {"joint": False}}},
        "architecture=decoder_only has one vocabulary for source and target",
    ),
    (
        TrainConfig,
        TRAIN | {"optim": {"loss_on_source": True}},
        "loss_on_source=true is for architecture=decoder_only and",
    ),
    (
        TrainConfig,
        TRAIN | {"model": GPT, "data": TEXT, "optim": {"loss_on_source": True}},
        "loss_on_source=true is for architecture=decoder_only and data.kind=parallel; leave it out",
    ),
    (
        TrainConfig,
        TRAIN | {"model": GPT | {"prefix_lm": True}, "optim": {"loss_on_source": True}},
        "loss_on_source=true with model.prefix_lm=true asks the source for pieces that it sees",
    ),
    (
        TrainConfig,
        TRAIN | {"model": GPT, "data": TEXT, "optim": {"source_word_dropout": 0.1}},
        "optim.source_word_dropout=0.1 is for data.kind=parallel; plain text has no source",
    ),
    (
        TrainConfig,
        TRAIN | {"optim": {"r_drop": 5.0}, "scheduled_sampling": {"rate": 0.5}},
        "optim.r_drop=5.0 compares two passes .* scheduled_sampling.rate=0.5 changes it .* choose one of them",
    ),
    (
        TrainConfig,
        TRAIN | {"model": MODEL | LEARNED, "data": DATA | {"max_length": 41}},
        "max_length=41 lets pairs of up to 41 pieces a side into training, but model.max_positions=40 .* choose "
        "model.max_positions=41 or more",
    ),
    (
        TrainConfig,
        TRAIN | {"model": GPT | LEARNED, "data": DATA | {"max_length": 21}},
        "pairs of up to 21 pieces a side, 41 in a row, into training, but model.max_positions=40 .*=41 or more",
    ),
    (
        TrainConfig,
        TRAIN | {"model": GPT | LEARNED, "data": TEXT | {"block_length": 41}},
        "data.block_length=41 lets blocks of 41 pieces into training, .* lower data.block_length, or choose",
    ),
    (TrainConfig, TRAIN | {"init": {"freeze_decoder": True}}, "init.freeze_decoder=true keeps random weights for ever"),
    (
        TrainConfig,
        TRAIN | {"init": {"from": "b"}, "data": DATA | {"tokenizer": {"source_model": "s.model"}}},
        "init.from=b keeps its own tokenizers, which its weights belong to, so data.tokenizer.source_model=s",
    ),
    (TrainConfig, TRAIN | {"init": {"form": "a"}}, "unknown option 'init.form'; did you mean 'from'"),
    # names, presence and types, by from_dict
    (TrainConfig, TRAIN | {"modle": MODEL}, "unknown option 'modle'; did you mean 'model'?"),
    (TrainConfig, TRAIN | {"model": MODEL | {"dmodel": 4}}, "unknown option 'model.dmodel'; did you mean 'd_model'?"),
    (TrainConfig, TRAIN | {"data": DATA | {"tokenizer": {"alpha": 1.0}}}, "unknown option 'data.tokenizer.alpha'; "),
    (ModelConfig, MODEL | {"zzz": 1}, "unknown option 'zzz'; expected one of d_model, num_heads, "),
    (TrainConfig, {"data": DATA}, "option 'model' is missing; give model="),
    (
        TrainConfig,
        TRAIN | {"data": {"train_source": "a"}},
        "option 'data.train_target' is missing; give data.train_tar",
    ),
    (TrainConfig, TRAIN | {"data": DATA | {"train_source": "???"}}, "option 'data.train_source' is missing"),
    (TrainConfig, TRAIN | {"model": 3}, "option 'model' is a group of options, got 3"),
    (
        TrainConfig,
        TRAIN | {"model": MODEL | {"tying": "threeway"}},
        "'model.tying' got 'threeway'; did you mean 'three_w",
    ),
    (ModelConfig, MODEL | {"d_model": "8"}, "option 'd_model' got '8', expected int"),
    (ModelConfig, MODEL | {"d_model": 8.0}, "option 'd_model' got 8.0, expected int"),
    (ModelConfig, MODEL | {"d_model": True}, "option 'd_model' got True, expected int"),
    (ModelConfig, MODEL | {"dropout": "a"}, "option 'dropout' got 'a', expected float"),
    (TokenizerConfig, {"joint": 1}, "option 'joint' got 1, expected bool"),
    (TrainConfig, TRAIN | {"name": 3}, "option 'name' got 3, expected str"),
    (TrainConfig, TRAIN | {"logger": []}, r"option 'logger' got \[\], expected dict"),
]


@pytest.mark.parametrize(("cls", "values", "message"), REFUSED, ids=[message[:40] for _, _, message in REFUSED])
def test_an_option_that_cannot_work_is_refused_with_what_to_do(cls, values, message):
    with pytest.raises(ValueError, match=message):
        from_dict(cls, values)


def test_plain_values_become_nested_options_with_defaults_for_the_rest():
    config = from_dict(TrainConfig, TRAIN | {"decode": {"penalty_form": "power", "max_length_factor": 3}})

    assert config.model == ModelConfig(**MODEL)
    assert config.decode == DecodeConfig(penalty_form=PenaltyForm.power, max_length_factor=3.0)
    assert isinstance(config.decode.max_length_factor, float)
    assert config.optim == OptimConfig()


def test_options_survive_the_way_through_json():
    config = from_dict(
        TrainConfig,
        TRAIN
        | {
            "model": MODEL | {"tying": "two_way"},
            "data": DATA | {"tokenizer": {"kind": "bpe", "bpe_dropout": 0.1, "joint": False}},
            "logger": {"csv": {"_target_": "somewhere.CSV", "flush": 3}},
        },
    )

    assert from_dict(TrainConfig, json.loads(json.dumps(to_dict(config)))) == config
    assert config.model.tying is Tying.two_way
    assert config.data.tokenizer.kind is TokenizerKind.bpe


def test_null_is_taken_where_an_option_may_be_absent():
    assert from_dict(OptimConfig, {"clip_norm": None}).clip_norm is None
    assert from_dict(DecodeConfig, {"max_length": None}).max_length is None


def test_learned_positions_that_are_just_enough_are_taken():
    from_dict(TrainConfig, TRAIN | {"model": MODEL | LEARNED, "data": DATA | {"max_length": 40}})
    from_dict(TrainConfig, TRAIN | {"model": GPT | LEARNED, "data": DATA | {"max_length": 20}})
    from_dict(TrainConfig, TRAIN | {"model": GPT | LEARNED, "data": TEXT | {"block_length": 40}})
    from_dict(TrainConfig, TRAIN | {"model": GPT, "data": DATA | {"max_length": 400}})  # sinusoids go on


def test_the_network_is_not_checked_where_a_bundle_decides_what_it_is():
    config = from_dict(TrainConfig, TRAIN | {"data": TEXT, "init": {"from": "bundle"}})

    assert config.init.from_ == "bundle"
    assert to_dict(config)["init"]["from"] == "bundle"
    with pytest.raises(ValueError, match="decoder-only"):
        config.check_model()


def test_options_cannot_be_changed_once_checked():
    config = ModelConfig(**MODEL)

    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 7


def test_the_nearest_known_word_is_suggested_and_all_of_them_if_none_is_near():
    assert nearest("dropuot", ["d_model", "dropout"]) == "; did you mean 'dropout'?"
    assert nearest("zzz", ["d_model", "dropout"]) == "; expected one of d_model, dropout"
