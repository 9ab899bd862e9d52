import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2seq import __version__
from seq2seq.cli import UsageError
from seq2seq.cli.app import app
from seq2seq.cli.options import check_overrides, explain, option_names
from seq2seq.cli.train import conf_dir, run
from seq2seq.config import DataKind, Task, Tying

FILES = ("data.train_source=a.de", "data.train_target=a.en", "logger=none")


class Fit:
    """Stands in for training: keeps what it was called with, and does what a test wants."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.argv: list[str] = []
        self.raises: dict[int, BaseException] = {}
        self.writes = ""
        self.score = 1.5

    def __call__(self, config, run_dir, loggers=(), callbacks=()):
        self.calls.append((config, run_dir, list(loggers), list(callbacks)))
        self.argv = list(sys.argv)
        if self.writes:
            logging.getLogger("seq2seq.training").info(self.writes)
        if len(self.calls) in self.raises:
            raise self.raises[len(self.calls)]
        task = Task.language_model if config.data.kind is DataKind.text else Task.translation
        return types.SimpleNamespace(bundle=run_dir / "bundle", task=task, steps=7, best_score=self.score)


@pytest.fixture
def fit(monkeypatch, tmp_path: Path) -> Iterator[Fit]:
    """The stand-in, in an empty folder; logging is put back as it was."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("seq2seq.training.fit")
    module.fit = Fit()
    monkeypatch.setitem(sys.modules, "seq2seq.training.fit", module)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield module.fit
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("pytorch_lightning").setLevel(logging.NOTSET)


def test_options_reach_training_and_the_run_folder_lies_where_the_command_was_typed(fit, tmp_path):
    run([*FILES, "model=transformer_tiny", "model.tying=two_way", "name=first", "decode.length_penalty=-1"])

    ((config, run_dir, loggers, callbacks),) = fit.calls
    assert (config.model.d_model, config.model.tying, config.decode.length_penalty) == (32, Tying.two_way, -1.0)
    assert config.data.train_source == "a.de"
    assert run_dir.parent == tmp_path / "outputs" / "first"
    assert Path.cwd() == tmp_path
    assert (loggers, callbacks) == ([], [])


def test_stdout_has_the_bundle_and_messages_go_to_stderr_and_to_a_log_in_the_run_folder(fit, capsys):
    fit.writes = "29,000 pairs and ümläute"

    run([*FILES, "hydra.run.dir=outputs/here"])

    captured = capsys.readouterr()
    assert captured.out == "outputs/here/bundle\n"
    assert "29,000 pairs and ümläute" in captured.err
    assert "next: seq2seq translate outputs/here/bundle INPUT -o OUTPUT" in captured.err
    assert "29,000 pairs and ümläute" in Path("outputs/here/train.log").read_text(encoding="utf-8")


def test_after_a_language_model_the_next_command_is_to_generate(fit, capsys):
    run(["model=gpt_tiny", "data=text", "data.train_text=a.txt", "logger=none", "hydra.run.dir=here"])

    captured = capsys.readouterr()
    assert captured.out == "here/bundle\n"
    assert "next: seq2seq generate here/bundle --prompt TEXT --temperature 0.8" in captured.err
    assert "translate" not in captured.err


def test_a_bundle_to_fine_tune_is_named_by_init_from(fit):
    run([*FILES, "init.from=some/bundle", "init.freeze_encoder=true", "model.dropout=0.3"])

    config = fit.calls[0][0]
    assert (config.init.from_, config.init.freeze_encoder, config.init.freeze_decoder) == ("some/bundle", True, False)
    assert config.model.dropout == 0.3


def test_a_resumed_run_goes_on_in_its_own_folder_unless_another_is_given(fit, tmp_path):
    (tmp_path / "old run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "old run" / "config.yaml").write_text("", encoding="utf-8")
    resume = "resume=old run/checkpoints/last.ckpt"

    run([*FILES, resume])
    run([*FILES, resume, "hydra.run.dir=other"])
    run([*FILES, "resume='old run/checkpoints/last.ckpt'"])

    assert [call[1] for call in fit.calls] == [tmp_path / "old run", tmp_path / "other", tmp_path / "old run"]


def test_a_run_is_resumed_from_inside_its_checkpoints(fit, tmp_path, monkeypatch):
    checkpoints = tmp_path / "old" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (tmp_path / "old" / "config.yaml").write_text("", encoding="utf-8")
    monkeypatch.chdir(checkpoints)

    run([*FILES, "resume=last.ckpt"])

    assert fit.calls[0][1] == tmp_path / "old"


@pytest.mark.parametrize(("folder", "up"), [("one", ".."), ("two/deeper", "../..")])
def test_r7_relative_paths_start_where_the_command_is_typed(fit, tmp_path, monkeypatch, capsys, folder, up):
    seen = []

    def noted(config, run_dir, loggers=(), callbacks=()):
        paths = [config.data.train_source, config.data.train_target, config.resume or "none"]
        seen.append([run_dir, *(Path(path).resolve() for path in paths)])
        return fit(config, run_dir, loggers, callbacks)

    monkeypatch.setattr(sys.modules["seq2seq.training.fit"], "fit", noted)
    here = tmp_path / folder
    (here / "old" / "checkpoints").mkdir(parents=True)
    (here / "old" / "config.yaml").write_text("", encoding="utf-8")
    monkeypatch.chdir(here)

    text = [f"data.train_source={up}/a.de", f"data.train_target={up}/a.en", "logger=csv"]
    run([*text, "hydra.run.dir=new"])
    run([*text, "resume=old/checkpoints/last.ckpt"])

    files = [tmp_path / "a.de", tmp_path / "a.en"]
    assert seen == [
        [here / "new", *files, here / "none"],
        [here / "old", *files, here / "old" / "checkpoints" / "last.ckpt"],
    ]
    assert capsys.readouterr().out.splitlines() == ["new/bundle", "old/bundle"]
    assert fit.calls[0][2][0].save_dir == str(here / "new")


def test_the_next_command_is_printed_as_a_shell_takes_it(fit, capsys):
    run([*FILES, "hydra.run.dir='a b'"])
    assert "seq2seq translate 'a b/bundle' INPUT" in capsys.readouterr().err


def test_a_process_started_again_for_another_device_would_find_the_word_train(fit, monkeypatch):
    typed = ["/usr/bin/seq2seq", "train", *FILES]
    monkeypatch.setattr(sys, "argv", typed)

    result = CliRunner().invoke(app, typed[1:])

    assert result.exit_code == 0
    assert fit.argv == typed
    assert sys.argv == typed


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.dmodel=1", "unknown option 'model.dmodel'; did you mean 'model.d_model'?"),
        ("+model.typo=1", "unknown option 'model.typo'; did you mean 'model.tying'?"),
        ("++model.zzz=1", "unknown option 'model.zzz'; model has d_model, num_heads, "),
        ("modle=transformer_base", "unknown option 'modle'; did you mean 'model'?"),
        ("modle.d_model=4", "unknown option 'modle.d_model'; did you mean 'model.d_model'?"),
        ("dropout=0.1", "unknown option 'dropout'; did you mean 'model.dropout'?"),
        ("data.vocab_size=9", "unknown option 'data.vocab_size'; did you mean 'data.tokenizer.vocab_size'?"),
        ("~modle", "unknown option 'modle'; did you mean 'model'?"),
        ("init.form=x", "unknown option 'init.form'; did you mean 'init.from'?"),
        ("init.from_=x", "unknown option 'init.from_'; did you mean 'init.from'?"),
        ("data=txet", "'data=txet': no such choice; did you mean 'text'?"),
        ("zzz=1", "unknown option 'zzz'; `seq2seq train --help` lists the options"),
        ("model=transformer_bse", "'model=transformer_bse': no such choice; did you mean 'transformer_base'?"),
        ("model=zzz", "no such choice; expected one of gpt_base, gpt_mini, "),
        ("experiment=dmo", "no such choice; did you mean 'demo'?"),
        ("model.d_model", "cannot read 'model.d_model'; write NAME=VALUE"),
        ("name=a b", None),
        ("name=[a", r"cannot read 'name=\[a'; write NAME=VALUE"),
        ("model.tying=oneway", r"'model.tying': Invalid value 'oneway', expected one of \[three_way, two_way, none\]"),
        ("model.d_model=abc", "option 'model.d_model': Value 'abc' of type 'str' could not be converted to Integer"),
        ("+model.dropout=0.3", "Could not append to config. An item is already at 'model.dropout'"),
        ("decode=beam,greedy", "add --multirun"),
        ("name=${nope}", "option 'hydra.run.dir': Interpolation key 'nope' not found"),
        ("--config-name=nope", "Cannot find primary config 'nope'. Check that it's in your config search path.$"),
        ("--config-dir=nope", "--config-dir nope: there is no such folder"),
    ],
)
def test_a_misspelt_command_is_refused_with_what_to_type_and_nothing_is_trained(fit, override, message):
    if message is None:
        run([*FILES, override])
        assert fit.calls[0][0].name == "a b"
        return
    with pytest.raises(UsageError, match=message) as refused:
        run([*FILES, override])

    assert "\n" not in str(refused.value)
    assert fit.calls == []


def test_a_misspelt_name_ends_the_command_with_code_2_and_one_line(fit):
    result = CliRunner().invoke(app, ["train", *FILES, "model.dmodel=1"])

    assert result.exit_code == 2
    assert result.stderr == "error: unknown option 'model.dmodel'; did you mean 'model.d_model'?\n"


@pytest.mark.parametrize("error", [ValueError("8 lines against 9"), FileNotFoundError("no file a.de")])
def test_what_training_refuses_ends_the_command_with_code_1_and_one_line(fit, error):
    fit.raises = {1: error}

    result = CliRunner().invoke(app, ["train", *FILES])

    assert result.exit_code == 1
    assert result.stderr == f"error: {error}\n"


def test_options_that_do_not_fit_together_end_the_command_with_code_1(fit):
    result = CliRunner().invoke(app, ["train", *FILES, "model.d_model=255"])

    assert result.exit_code == 1
    assert result.stderr.startswith("error: d_model=255 is not divisible by num_heads=4")


@pytest.mark.parametrize("in_lightning", [False, True])
def test_an_interrupt_ends_the_command_with_code_130(fit, in_lightning):
    stopped = SystemExit(1)
    stopped.__context__ = KeyboardInterrupt()
    fit.raises = {1: stopped if in_lightning else KeyboardInterrupt()}

    assert CliRunner().invoke(app, ["train", *FILES]).exit_code == 130


def test_an_interrupt_says_how_to_go_on_if_there_is_a_checkpoint(fit):
    stopped = SystemExit(1)
    stopped.__context__ = KeyboardInterrupt()
    fit.raises = {1: stopped, 2: stopped}
    typed = ["train", *FILES, "hydra.run.dir=a b"]
    assert "resume=" not in CliRunner().invoke(app, typed).stderr

    Path("a b/checkpoints").mkdir()
    Path("a b/checkpoints/last.ckpt").touch()

    assert "type the same command with resume='a b/checkpoints/last.ckpt'" in CliRunner().invoke(app, typed).stderr


def test_another_exit_of_training_keeps_its_code(fit):
    fit.raises = {1: SystemExit(3)}

    assert CliRunner().invoke(app, ["train", *FILES]).exit_code == 3


def test_help_lists_groups_choices_and_every_option_with_its_explanation(fit):
    result = CliRunner().invoke(app, ["train", "--help"])

    assert result.exit_code == 0
    for group, some in {
        "model": ("gpt_small", "llama_small", "qwen3_small", "transformer_base, transformer_big"),
        "data": ("files", "phrasebook", "text"),
        "experiment": ("multi30k_de_en, multi30k_de_en_gpt", "tinyshakespeare_gpt"),
    }.items():
        (line,) = [line for line in result.stdout.splitlines() if line.startswith(f"{group}: ")]
        assert all(choice in line for choice in some)
    assert "seq2seq train data=text data.train_text=my.txt model=gpt_small" in result.stdout
    assert "  init.from=null                           A bundle to fine-tune: its weights" in result.stdout
    assert "seq2seq train experiment=multi30k_de_en data.dir=" in result.stdout
    assert "  trainer.patience=null                    Validations without improvement before" in result.stdout
    for name, _, text in explain():
        assert f"  {name}=" in result.stdout
        assert text
    assert fit.calls == []


def test_the_composed_options_are_shown_on_stdout_without_training(fit):
    result = CliRunner().invoke(app, ["train", "--cfg", "job", "experiment=demo", "-p", "optim"])

    assert result.exit_code == 0
    assert "warmup_steps: 400" in result.stdout
    assert fit.calls == []


def test_a_multirun_goes_on_after_a_failed_job_and_says_which_and_how_many(fit, capsys):
    fit.raises = {1: ValueError("first one failed")}

    with pytest.raises(ValueError, match="1 of the jobs failed, as said above"):
        run([*FILES, "--multirun", "model.dropout=0.2,0.3"])

    assert [call[0].model.dropout for call in fit.calls] == [0.2, 0.3]
    assert len({call[1] for call in fit.calls}) == 2
    assert "error: job 0: first one failed" in capsys.readouterr().err


def test_a_refused_run_leaves_no_folder(fit):
    fit.raises = {1: ValueError("refused")}
    with pytest.raises(ValueError, match="refused"):
        run([*FILES, "hydra.run.dir=outputs/refused"])
    assert not Path("outputs/refused").exists()


def test_a_refused_run_leaves_no_folder_of_its_name_but_those_of_other_runs(fit):
    fit.raises = {1: ValueError("refused"), 2: ValueError("refused")}
    for kept in (False, True):
        other = Path("outputs/tried/other")
        if kept:
            other.mkdir(parents=True)
        with pytest.raises(ValueError, match="refused"):
            run([*FILES, "name=tried"])
        assert Path("outputs/tried").exists() is other.exists() is kept


def test_the_version_is_ours_and_not_that_of_hydra(fit, capsys):
    run(["--version"])
    assert capsys.readouterr().out == f"seq2seq {__version__}\n"
    assert fit.calls == []


def test_a_users_own_folder_is_found_beside_ours(fit, tmp_path):
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "own.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /model: transformer_tiny\nname: own\nseed: 7\n", encoding="utf-8"
    )

    run([*FILES, "--config-dir", "mine", "experiment=own"])

    config = fit.calls[0][0]
    assert (config.name, config.seed, config.model.d_model) == ("own", 7, 32)


def test_an_unknown_key_in_a_users_own_file_is_refused(fit, tmp_path):
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "own.yaml").write_text("d_model: 8\ndmodel: 9\n", encoding="utf-8")

    with pytest.raises(UsageError, match="Key 'dmodel' not in 'ModelConfig'"):
        run([*FILES, "--config-dir", "mine", "model=own"])


def test_a_users_logger_is_built_and_handed_to_training(fit):
    run([*FILES, "+logger.mine._target_=pytorch_lightning.loggers.CSVLogger", "+logger.mine.save_dir=here"])

    (logger,) = fit.calls[0][2]
    assert type(logger).__name__ == "CSVLogger"


def test_the_loggers_write_metrics_into_the_run_folder_itself(fit):
    run(FILES[:2])

    _, run_dir, loggers, _ = fit.calls[0]
    assert [Path(logger.log_dir) for logger in loggers] == [run_dir, run_dir / "tensorboard"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("+callbacks.mine.patience=3",), "callbacks.mine has no _target_; give the class"),
        (("+logger.mine._target_=nowhere.Logger",), "logger: .*nowhere"),
    ],
)
def test_a_logger_or_callback_that_cannot_be_built_is_refused(fit, overrides, message):
    with pytest.raises(ValueError, match=message):
        run([*FILES, *overrides])


def test_every_option_name_is_accepted_and_hydras_own_too():
    check_overrides([f"{name}=1" for name in option_names() if "." in name], [conf_dir()])
    check_overrides(["hydra.run.dir=x", "hydra/launcher=basic", "~logger", "model=[a,b]"], [conf_dir()])
