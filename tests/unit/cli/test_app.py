import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

import seq2seq
from seq2seq.cli import UsageError, app
from seq2seq.cli.commands import COMMANDS, load


@pytest.fixture
def failing(monkeypatch):
    """A function that makes `seq2seq info x` raise what it is given; the runner's result of that."""

    def run(error: BaseException):
        def raise_it(*_: object, **__: object) -> None:
            raise error

        broken = typer.Typer(cls=app.Commands, callback=lambda: None)
        broken.command("info")(lambda: raise_it())
        return CliRunner().invoke(broken, ["info"])

    return run


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("d_model=7 is odd"), 1, "error: d_model=7 is odd\n"),
        (UsageError("unknown option 'x'"), 2, "error: unknown option 'x'\n"),
        (FileNotFoundError(2, "No such file or directory", "a.de"), 1, "error: a.de: No such file or directory\n"),
        (FileNotFoundError("no checkpoint at x"), 1, "error: no checkpoint at x\n"),
        (IsADirectoryError(21, "Is a directory", "corpus"), 1, "error: corpus: Is a directory\n"),
        (PermissionError(13, "Permission denied", "a.de"), 1, "error: a.de: Permission denied\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_a_user_can_mend_is_told_in_one_line_with_a_fitting_exit_code(failing, error, code, message):
    result = failing(error)

    assert (result.exit_code, result.stderr, result.stdout) == (code, message, "")


@pytest.mark.parametrize(
    ("error", "amount"),
    [
        (MemoryError(), ""),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to "
                "allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)"
            ),
            " for a tensor of 40000000000 bytes",
        ),
        (RuntimeError("Storage size calculation overflowed with sizes=[9]"), ""),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.45 GiB."), " for a tensor of 7.45 GiB"),
    ],
)
def test_a_tensor_that_there_is_no_room_for_is_told_in_one_line(failing, error, amount):
    result = failing(error)

    assert result.exit_code == 1
    assert result.stderr == (
        f"error: out of memory: there is no room{amount}; give less at once (--batch-tokens or --batch, in training "
        "data.batch_tokens), shorter text, or a smaller model\n"
    )


def test_torch_says_it_in_the_words_that_are_looked_for(failing):
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60, dtype=torch.uint8)
    assert failing(raised.value).exit_code == 1
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**40, 2**40)
    assert failing(raised.value).exit_code == 1


@pytest.mark.parametrize("error", [AssertionError("beams out of order"), RuntimeError("mat1 and mat2 do not fit")])
def test_our_own_bugs_keep_their_traceback(failing, error):
    result = failing(error)

    assert result.exception is error


def test_the_debug_switch_shows_the_traceback_before_the_message(failing, monkeypatch):
    monkeypatch.setenv("SEQ2SEQ_DEBUG", "1")

    result = failing(ValueError("d_model=7 is odd"))

    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("error: d_model=7 is odd\n")


def test_every_subcommand_stands_in_the_help():
    text = CliRunner().invoke(app.app, ["--help"]).stdout

    for name in ("train", "translate", "evaluate", "score", "data", "average", "info"):
        assert f" {name} " in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_help_of_each_command_begins_with(name):
    command = load(name)

    assert command.name == name
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name][2]


def test_a_misspelt_subcommand_is_named_with_the_nearest_one():
    assert "Did you mean 'train'" in CliRunner().invoke(app.app, ["trian"]).stderr


def test_help_of_a_group_lists_its_commands_alone():
    text = CliRunner().invoke(app.app, ["inspect", "--help"]).stdout

    assert "heads" in text
    assert "completion" not in text


def test_version_is_that_of_the_package():
    assert CliRunner().invoke(app.app, ["--version"]).stdout == f"seq2seq {seq2seq.__version__}\n"


def test_an_unknown_subcommand_is_a_usage_error():
    assert CliRunner().invoke(app.app, ["trian"]).exit_code == 2


def test_help_does_not_wait_for_torch_lightning_or_hydra():
    heavy = "{'torch', 'pytorch_lightning', 'hydra', 'numpy', 'sentencepiece', 'sacrebleu'}"
    code = (
        "import atexit, sys, seq2seq.cli.app\n"
        f"atexit.register(lambda: print(sorted({heavy} & set(sys.modules)), file=sys.stderr))\n"
        "seq2seq.cli.app.main(['--help'])"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "translate" in result.stdout
    assert result.stderr == "[]\n"


def test_translating_imports_nothing_heavy_but_torch(tiny_bundle_folder: Path):
    heavy = ["pytorch_lightning", "lightning_fabric", "hydra", "omegaconf", "transformers", "tokenizers", "ctranslate2"]
    heavy += ["torch._dynamo", "torch._inductor", "sympy", "scipy", "pandas", "sacrebleu", "matplotlib", "networkx"]
    code = (
        "import atexit, sys, seq2seq.cli.app\n"
        f"atexit.register(lambda: print(sorted(set({heavy}) & set(sys.modules)), file=sys.stderr))\n"
        f"seq2seq.cli.app.main(['translate', {str(tiny_bundle_folder)!r}, '--max-length', '5'])"
    )

    result = subprocess.run([sys.executable, "-c", code], input=b"die cat.\n", capture_output=True, check=False)

    assert (result.stdout.count(b"\n"), result.stderr) == (1, b"[]\n")


def test_streams_are_utf8_in_a_c_locale_and_the_module_is_the_command(tmp_path: Path):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}

    result = subprocess.run(
        [sys.executable, "-m", "seq2seq", "data", "check", "bündel-火", "x"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )

    assert result.returncode == 1
    assert result.stderr.decode("utf-8").startswith("error: no such file: bündel-火")


@pytest.mark.parametrize(("closed", "code"), [("<&- >&-", 0), ("2>&-", 0)])
def test_a_stream_that_the_caller_has_closed_is_no_crash(tmp_path: Path, closed, code):
    (tmp_path / "text").write_text("a b\n", encoding="utf-8")
    typed = f"'{sys.executable}' -m seq2seq evaluate --hypothesis text --reference text --metric bleu {closed}"

    result = subprocess.run(["sh", "-c", typed], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr


def test_main_ends_the_process_with_the_exit_code_and_takes_arguments(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True))

    with pytest.raises(SystemExit) as ended:
        app.main(["info", "nowhere"])

    assert ended.value.code == 1
    assert sys.stdout.encoding == "utf-8"
    assert "error: nowhere is not a bundle" in capsys.readouterr().err


def test_a_reader_that_has_gone_is_not_an_error():
    code = (
        "import typer, sys\nfrom seq2seq.cli.app import Commands\n"
        "tool = typer.Typer(cls=Commands, callback=lambda: None)\n"
        "@tool.command()\ndef count():\n    for n in range(100000): print(n)\n"
        "tool(['count'])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()

    assert (process.returncode, complaint) == (0, b"")


def test_an_interrupt_while_python_executes_text_ends_with_130_as_any_other(tmp_path):
    (tmp_path / "interrupted.py").write_text(
        "from seq2seq.cli import app\n"
        "TEXT = 'import os, signal\\nos.kill(os.getpid(), signal.SIGINT)\\nfor _ in range(10**7): pass'\n"
        "app.app = lambda arguments: exec(TEXT)\n"
        "app.main()\n",
        encoding="utf-8",
    )
    found = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")
