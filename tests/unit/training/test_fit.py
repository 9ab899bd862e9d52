"""Whole runs of a tiny model: what is kept, what is written, how a run goes on."""

import csv
import dataclasses
import json
import logging
import math

import pytest
import torch
from pytorch_lightning import Callback

from seq2seq.bundle import load_bundle
from seq2seq.config import (
    Accelerator,
    Direction,
    Documents,
    FinalWeights,
    GenerateConfig,
    ModelConfig,
    PositionKind,
    Task,
    TokenizerConfig,
    to_dict,
)
from seq2seq.evaluation.metrics import corpus_scores
from seq2seq.generator import Ended, Generator
from seq2seq.text.lines import read_lines
from seq2seq.training.averaging import average_checkpoints, checkpoint_weights
from seq2seq.training.fit import fit
from seq2seq.training.metrics_file import MetricsCsv
from seq2seq.training.run_folder import bundle_from_checkpoints, read_run
from seq2seq.training.text import read_text
from seq2seq.training.validation import describe_decoding
from seq2seq.translator import Translator


def change(config, **trainer):
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, **trainer))


def rows(run_dir):
    with (run_dir / "metrics.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


class Steps(Callback):
    """Notes the pairs of every step and its learning rate."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append(
            (trainer.global_step, [part.indices for part in batch], trainer.optimizers[0].param_groups[0]["lr"])
        )


class Blocks(Callback):
    """Notes the pieces of every step."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append((trainer.global_step, [part.ids.tolist() for part in batch]))


def test_a_run_writes_all_that_its_folder_promises(train_config, tmp_path, caplog):
    run = tmp_path / "run"
    with caplog.at_level(logging.INFO):
        result = fit(train_config, run, [MetricsCsv(str(run))])
    assert (result.steps, result.bundle) == (6, run / "bundle")
    names = {path.name for path in (run / "checkpoints").iterdir()}
    assert {"last.ckpt", "recent_step_000003.ckpt", "recent_step_000006.ckpt"} <= names
    assert all("=" not in name for name in names)
    config, tokenizers, facts = read_run(run)
    assert config == train_config
    assert tokenizers.source.vocab_size == 280
    assert {"torch", "sentencepiece", "seq2seq"} <= facts["versions"].keys()
    assert {record["lines"] for record in facts["data"].values()} == {200}
    logged = [row for row in rows(run) if row["train/loss"]]
    assert [row["step"] for row in logged] == ["2", "4", "6"]
    assert all(float(row["train/target_tokens_per_second"]) > 0 for row in logged)
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [sample["step"] for sample in samples] == [3, 3, 3, 6, 6, 6]
    assert "bundle written from" in caplog.text
    assert not (run / "report.html").exists()


def test_a_run_ends_with_its_report(train_config, tmp_path, caplog):
    run = tmp_path / "run"
    config = dataclasses.replace(train_config, trainer=dataclasses.replace(train_config.trainer, report=True))
    with caplog.at_level(logging.INFO):
        fit(config, run, [MetricsCsv(str(run))])
    page = (run / "report.html").read_text(encoding="utf-8")
    for metric in ("Loss (nats a piece)", "Share of right pieces", "Learning rate", "Norm of the gradients"):
        assert metric in page
    assert f"options and versions are in {run / 'report.html'}" in caplog.text


def test_a_report_that_cannot_be_written_does_not_undo_the_run(train_config, tmp_path, caplog):
    run = tmp_path / "run"
    (run / "report.html").mkdir(parents=True)
    trainer = dataclasses.replace(train_config.trainer, report=True, max_steps=1)
    result = fit(dataclasses.replace(train_config, trainer=trainer), run)
    assert result.bundle.is_dir()
    assert "report.html could not be written: " in caplog.text
    assert f"`seq2seq report {run}` tries again" in caplog.text


def test_e4_validation_bleu_is_the_bleu_of_the_bundle_with_the_settings_printed(train_config, tmp_path, caplog):
    run = tmp_path / "run"
    with caplog.at_level(logging.INFO):
        fit(change(train_config, final_weights=FinalWeights.last), run, [MetricsCsv(str(run))])
    text = read_text(train_config.data, train_config.seed).raw_valid
    answers = [answer.text for answer in Translator.load(run / "bundle", device="cpu").translate(text.source)]
    (bleu,) = corpus_scores(answers, [text.target], metrics=("bleu",))
    logged = [float(row["valid/bleu"]) for row in rows(run) if row["valid/bleu"]]
    assert logged[-1] == pytest.approx(bleu.score, abs=1e-9)
    assert describe_decoding(train_config.decode) in caplog.text
    assert bleu.signature in caplog.text


def test_e7_names_say_what_is_teacher_forced_and_what_is_decoded(train_config, tmp_path):
    run = tmp_path / "run"
    fit(train_config, run, [MetricsCsv(str(run))])
    names = {name for row in rows(run) for name in row}
    assert {"valid/bleu", "valid/chrf", "valid/teacher_forced_accuracy", "valid/nll", "valid/perplexity"} <= names
    assert not {"valid/accuracy", "accuracy", "valid/acc"} & names


@pytest.mark.parametrize("weights", list(FinalWeights))
def test_the_bundle_holds_the_chosen_weights(train_config, tmp_path, weights):
    run = tmp_path / "run"
    fit(change(train_config, final_weights=weights, average_last=2, validate_every=2), run)
    folder = run / "checkpoints"
    assert len(list(folder.glob("recent_*"))) == 2
    expected = {
        FinalWeights.best: [*folder.glob("best_*")][:1],
        FinalWeights.last: [folder / "last.ckpt"],
        FinalWeights.average: sorted(folder.glob("recent_*")),
    }[weights]
    if weights is FinalWeights.best:
        best = max(folder.glob("best_*"), key=lambda path: float(path.stem.rpartition("_")[2]))
        assert json.loads((run / "bundle" / "config.json").read_text())["provenance"]["best_score"] == pytest.approx(
            float(best.stem.rpartition("_")[2]), abs=1e-3
        )
        return
    state = load_bundle(run / "bundle").model.state_dict()
    for name, value in average_checkpoints(expected).items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=0)


def test_a_run_without_a_validation_boundary_is_validated_at_its_end(train_config, tmp_path):
    run = tmp_path / "run"
    fit(change(train_config, max_steps=None, max_epochs=1, validate_every=1000), run, [MetricsCsv(str(run))])
    assert (run / "checkpoints" / "last.ckpt").exists()
    assert len([row for row in rows(run) if row["valid/bleu"]]) == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_resumed_run_takes_the_same_path_bit_for_bit(train_config, tmp_path, num_workers):
    data = dataclasses.replace(
        train_config.data,
        num_workers=num_workers,
        tokenizer=TokenizerConfig(vocab_size=280, sampling_alpha=0.3, sampling_nbest=8),
    )
    config = change(dataclasses.replace(train_config, data=data), accumulate=2, validate_every=4, max_steps=13)
    straight, stopped, resumed = Steps(), Steps(), Steps()
    fit(config, tmp_path / "a", callbacks=[straight])
    fit(change(config, max_steps=7), tmp_path / "b", callbacks=[stopped])
    last = tmp_path / "b" / "checkpoints" / "last.ckpt"
    fit(dataclasses.replace(config, resume=str(last)), tmp_path / "b", callbacks=[resumed])
    assert straight.seen == stopped.seen + resumed.seen
    one = torch.load(tmp_path / "a" / "checkpoints" / "last.ckpt", weights_only=True)
    two = torch.load(last, weights_only=True)
    assert all(torch.equal(value, two["state_dict"][name]) for name, value in one["state_dict"].items())
    moments = [checkpoint["optimizer_states"][0]["state"] for checkpoint in (one, two)]
    assert all(torch.equal(moments[0][i]["exp_avg_sq"], moments[1][i]["exp_avg_sq"]) for i in moments[0])


def test_metrics_of_a_resumed_run_go_on_in_the_same_file(train_config, tmp_path):
    run = tmp_path / "run"
    fit(change(train_config, max_steps=4), run, [MetricsCsv(str(run))])
    last = str(run / "checkpoints" / "last.ckpt")
    fit(dataclasses.replace(train_config, resume=last), run, [MetricsCsv(str(run))])
    assert [row["step"] for row in rows(run) if row["train/loss"]] == ["2", "4", "6"]


def test_a_missing_checkpoint_to_resume_from_is_refused(train_config, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"resume=none\.ckpt does not exist"):
        fit(dataclasses.replace(train_config, resume="none.ckpt"), tmp_path / "run")


@pytest.fixture
def stopped(train_config, tmp_path):
    """A run that has ended, and everything in its folder."""
    fit(change(train_config, max_steps=3), tmp_path / "run")
    return tmp_path / "run"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["config.yaml", "best", "bundle/model.safetensors"])
def test_what_a_run_cannot_go_on_from_is_refused_and_the_run_left_as_it_was(train_config, stopped, name):
    file = next((stopped / "checkpoints").glob("best*")) if name == "best" else stopped / name
    before = contents(stopped)
    message = "holds weights alone" if name == "best" else "is not a readable training checkpoint"
    with pytest.raises(ValueError, match=message + ".*; expected a"):
        fit(dataclasses.replace(train_config, resume=str(file)), stopped)
    assert contents(stopped) == before


def test_a_checkpoint_of_another_model_is_refused_and_the_run_left_as_it_was(train_config, stopped):
    before = contents(stopped)
    model = dataclasses.replace(train_config.model, d_ff=26)
    last = str(stopped / "checkpoints" / "last.ckpt")
    with pytest.raises(ValueError, match=r"not of the model that the options .* is \[24, 16\], expected \[26, 16\]"):
        fit(dataclasses.replace(train_config, model=model, resume=last), stopped)
    assert contents(stopped) == before


def test_v8_a_run_does_not_go_on_with_another_tokenizer_of_the_same_size(train_config, stopped):
    before = contents(stopped)
    tokenizer = TokenizerConfig(vocab_size=280, normalization="identity")
    data = dataclasses.replace(train_config.data, tokenizer=tokenizer)
    last = str(stopped / "checkpoints" / "last.ckpt")
    with pytest.raises(ValueError, match=r"the run to resume has another tokenizer, .*source\.spm: give it"):
        fit(dataclasses.replace(train_config, data=data, resume=last), stopped)
    assert contents(stopped) == before


def test_a_new_run_does_not_go_into_the_folder_of_another(train_config, stopped):
    with pytest.raises(ValueError, match="already holds a run; choose another folder, remove it, or go on with it"):
        fit(train_config, stopped)


def test_a_run_that_has_nothing_left_to_do_in_another_folder_says_so(train_config, stopped, tmp_path):
    config = dataclasses.replace(train_config, resume=str(stopped / "checkpoints" / "last.ckpt"))
    with pytest.raises(ValueError, match=r"no step was taken: resume=.* has reached the limits already; raise trainer"):
        fit(change(config, max_steps=3), tmp_path / "other")


def test_a_device_that_is_not_there_is_refused_before_any_work(train_config, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for accelerator in (Accelerator.gpu, Accelerator.mps):
        with pytest.raises(ValueError, match=f"trainer.accelerator={accelerator.name} is not there: .* or auto"):
            fit(change(train_config, accelerator=accelerator), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_validation_line_that_is_too_long_is_refused_before_training(train_config, tmp_path):
    decode = dataclasses.replace(train_config.decode, max_source_length=2)
    with pytest.raises(
        ValueError, match=r"the validation source cannot be translated: line \d+ has \d+ pieces, max_source_"
    ):
        fit(dataclasses.replace(train_config, decode=decode), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_t7_a_nan_is_never_best_and_is_warned_about(train_config, tmp_path, caplog):
    class Fake(Callback):
        values = iter([math.nan, 3.0, 2.0])

        def on_validation_epoch_end(self, trainer, pl_module):
            pl_module.log("valid/fake", next(self.values))

    config = change(
        train_config, monitor="valid/fake", monitor_direction=Direction.min, validate_every=2, keep_best=1, patience=5
    )
    result = fit(config, tmp_path / "run", callbacks=[Fake()])
    assert result.best_score == 2.0
    (best,) = (tmp_path / "run" / "checkpoints").glob("best_*")
    assert best.name == "best_step_000006_fake_2.0000.ckpt"
    assert "valid/fake is NaN at step 2" in caplog.text


def test_a_run_of_nothing_but_nan_ends_with_the_last_weights(train_config, tmp_path, caplog):
    class Fake(Callback):
        def on_validation_epoch_end(self, trainer, pl_module):
            pl_module.log("valid/fake", math.nan)

    run = tmp_path / "run"
    result = fit(
        change(train_config, monitor="valid/fake", monitor_direction=Direction.max, keep_best=1),
        run,
        callbacks=[Fake()],
    )
    assert result.best_score is None
    assert "no validation had a usable valid/fake" in caplog.text
    state = load_bundle(run / "bundle").model.state_dict()
    weights = checkpoint_weights(run / "checkpoints" / "last.ckpt")
    assert all(torch.equal(state[name], value) for name, value in weights.items())


def test_training_stops_when_patience_is_out_after_the_warmup_and_says_so(train_config, tmp_path, caplog):
    class Worse(Callback):
        value = 10.0

        def on_validation_epoch_end(self, trainer, pl_module):
            self.value -= 1
            pl_module.log("valid/fake", self.value)

    watched = {"monitor": "valid/fake", "monitor_direction": Direction.max}
    config = change(train_config, **watched, patience=2, validate_every=1, max_steps=50)
    config = dataclasses.replace(config, optim=dataclasses.replace(config.optim, warmup_steps=3))
    with caplog.at_level(logging.INFO):
        assert fit(config, tmp_path / "run", callbacks=[Worse()]).steps == 5
    assert "ended at step 5: valid/fake has not improved in 2 validations (trainer.patience)" in caplog.text


def test_an_unknown_metric_to_monitor_is_refused(train_config, tmp_path):
    with pytest.raises(
        ValueError, match=r"trainer\.monitor=valid/blue is not a metric of .*kind=parallel; did you mean 'valid/bleu'\?"
    ):
        fit(change(train_config, monitor="valid/blue"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_metric_that_no_callback_logs_is_refused_at_the_first_validation(train_config, tmp_path):
    config = change(train_config, monitor="valid/mine", monitor_direction=Direction.min)
    with pytest.raises(
        ValueError, match=r"trainer\.monitor=valid/mine is not a logged metric; expected one of valid/bleu"
    ):
        fit(config, tmp_path / "run", callbacks=[Steps()])


def test_r4_a_checkpoint_holds_only_plain_types_and_loads_weights_only(train_config, tmp_path):
    fit(train_config, tmp_path / "run")
    for file in (tmp_path / "run" / "checkpoints").iterdir():
        content = torch.load(file, weights_only=True)
        assert "hyper_parameters" not in content


def test_validating_more_often_does_not_change_the_training_path(train_config, tmp_path):
    fit(change(train_config, validate_every=1), tmp_path / "a")
    fit(change(train_config, validate_every=6), tmp_path / "b")
    one, two = (checkpoint_weights(tmp_path / name / "checkpoints" / "last.ckpt") for name in "ab")
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_a_folder_that_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not the folder of a run: it has no config\.yaml"):
        bundle_from_checkpoints(tmp_path, [tmp_path / "x.ckpt"])


def test_options_survive_the_run_folder(train_config, tmp_path):
    fit(change(train_config, max_steps=1), tmp_path / "run")
    config, _, _ = read_run(tmp_path / "run")
    assert to_dict(config)["trainer"]["max_steps"] == 1
    assert read_lines(tmp_path / "run" / "config.yaml")[0] == "model:"


def test_v7_a_model_trained_with_sampling_translates_a_line_the_same_way_twice(train_config, tmp_path):
    sampling = TokenizerConfig(vocab_size=280, sampling_alpha=0.3, sampling_nbest=8)
    data = dataclasses.replace(train_config.data, tokenizer=sampling)
    result = fit(change(dataclasses.replace(train_config, data=data), max_steps=1), tmp_path / "run")
    translator = Translator.load(result.bundle, device="cpu")
    first, second = (translator.translate(["alpha beta gamma delta"]) for _ in range(2))
    assert first == second
    assert first[0].source_ids == ((*translator.bundle.source_tokenizer.encode("alpha beta gamma delta"), 2),)


def test_a_run_that_would_be_mostly_warmup_is_warned_about(train_config, tmp_path, caplog):
    fit(change(train_config, max_steps=1), tmp_path / "run")
    assert "this run takes at most 1 steps" in caplog.text
    assert "of which optim.warmup_steps=20 are warm-up" in caplog.text
    caplog.clear()
    enough = dataclasses.replace(train_config, optim=dataclasses.replace(train_config.optim, warmup_steps=1))
    fit(change(enough, max_steps=2), tmp_path / "other")
    assert "warm-up" not in caplog.text


def test_a_resumed_run_says_where_it_goes_on(train_config, tmp_path, caplog):
    fit(change(train_config, max_steps=2), tmp_path / "run")
    last = str(tmp_path / "run" / "checkpoints" / "last.ckpt")
    with caplog.at_level(logging.INFO):
        fit(dataclasses.replace(change(train_config, max_steps=3), resume=last), tmp_path / "run")
    assert "going on from step 2, epoch 0" in caplog.text


def test_a_decoder_only_run_translates_as_any_other(gpt_config, tmp_path):
    run = tmp_path / "run"
    result = fit(change(gpt_config, max_steps=2, validate_every=2), run, [MetricsCsv(str(run))])
    bundle = load_bundle(result.bundle)
    assert (result.task, bundle.task) == (Task.translation, Task.translation)
    text = read_text(gpt_config.data, gpt_config.seed).raw_valid
    answers = [answer.text for answer in Translator(bundle).translate(text.source)]
    (bleu,) = corpus_scores(answers, [text.target], metrics=("bleu",))
    assert [float(row["valid/bleu"]) for row in rows(run) if row["valid/bleu"]] == [pytest.approx(bleu.score, abs=1e-6)]


def test_a_run_on_plain_text_is_judged_by_its_likelihood_and_ends_in_a_language_model(text_config, tmp_path, caplog):
    run = tmp_path / "run"
    with caplog.at_level(logging.INFO):
        result = fit(change(text_config, max_steps=12, validate_every=6), run, [MetricsCsv(str(run))])
    bundle = load_bundle(result.bundle)
    assert (result.task, bundle.task) == (Task.language_model, Task.language_model)
    logged = [row for row in rows(run) if row["valid/nll"]]
    assert [row["step"] for row in logged] == ["6", "12"]
    assert result.best_score == pytest.approx(min(float(row["valid/nll"]) for row in logged), abs=1e-6)
    assert bundle.provenance["monitor"] == "valid/nll"
    assert len([*(run / "checkpoints").glob("best_step_*_nll_*.ckpt")]) == 2
    assert all(float(row["valid/bits_per_byte"]) > 0 and float(row["valid/nll_per_character"]) > 0 for row in logged)
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [sample["step"] for sample in samples] == [6, 6, 6, 12, 12, 12]
    assert "the last 10% of the text is for validation" in caplog.text
    (written,) = Generator(bundle).generate(["alpha "], GenerateConfig(max_new_pieces=5))
    assert len(written.ids) == 5 or written.ended is Ended.eos


@pytest.mark.parametrize("apart", [True, False])
def test_a_resumed_run_on_plain_text_takes_the_same_path_bit_for_bit(text_config, tmp_path, apart):
    changes = {"documents_apart": apart, "documents": Documents.line if apart else Documents.file}
    data = dataclasses.replace(text_config.data, **changes)
    config = change(
        dataclasses.replace(text_config, data=data), accumulate=2, validate_every=5, max_steps=11, num_samples=0
    )
    straight, stopped, resumed = Blocks(), Blocks(), Blocks()
    fit(config, tmp_path / "a", callbacks=[straight])
    fit(change(config, max_steps=4), tmp_path / "b", callbacks=[stopped])
    last = tmp_path / "b" / "checkpoints" / "last.ckpt"
    fit(dataclasses.replace(config, resume=str(last)), tmp_path / "b", callbacks=[resumed])
    assert straight.seen == stopped.seen + resumed.seen
    one, two = (checkpoint_weights(tmp_path / name / "checkpoints" / "last.ckpt") for name in "ab")
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_a_resumed_decoder_only_run_takes_the_same_path_bit_for_bit(gpt_config, tmp_path):
    optim = dataclasses.replace(gpt_config.optim, loss_on_source=True)
    decode = dataclasses.replace(gpt_config.decode, max_length=4)
    config = dataclasses.replace(gpt_config, optim=optim, decode=decode)
    config = change(config, accumulate=2, validate_every=5, max_steps=8)
    straight, stopped, resumed = Steps(), Steps(), Steps()
    fit(config, tmp_path / "a", callbacks=[straight])
    fit(change(config, max_steps=4), tmp_path / "b", callbacks=[stopped])
    last = tmp_path / "b" / "checkpoints" / "last.ckpt"
    fit(dataclasses.replace(config, resume=str(last)), tmp_path / "b", callbacks=[resumed])
    assert straight.seen == stopped.seen + resumed.seen
    one, two = (checkpoint_weights(tmp_path / name / "checkpoints" / "last.ckpt") for name in "ab")
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_a_validation_pair_beyond_the_learned_positions_is_refused_before_training(gpt_config, tmp_path):
    for side, words in (("v.src", 30), ("v.tgt", 60)):
        (tmp_path / side).write_text("alpha\n" + "alpha " * words + "\n", encoding="utf-8")
    files = {"valid_source": str(tmp_path / "v.src"), "valid_target": str(tmp_path / "v.tgt")}
    config = dataclasses.replace(gpt_config, data=dataclasses.replace(gpt_config.data, **files))
    with pytest.raises(
        ValueError, match=r"pair 2 of the validation text takes \d+ positions, model\.max_positions=80 is"
    ):
        fit(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    few = ModelConfig(24, 4, 20, 1, 1, positions=PositionKind.learned, max_positions=40)
    with pytest.raises(
        ValueError, match=r"pair 2 of the validation text takes \d\d positions, model\.max_positions=40"
    ):
        fit(dataclasses.replace(config, model=few), tmp_path / "run")
