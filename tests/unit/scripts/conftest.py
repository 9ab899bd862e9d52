"""How tests use what stands in scripts/."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A module of scripts/ by name, imported as the scripts import one another."""
    monkeypatch.syspath_prepend(str(SCRIPTS))

    def load(name: str) -> ModuleType:
        return __import__(name)

    return load


class SameProcess:
    """Takes the place of a process of one's own."""

    def __enter__(self) -> "SameProcess":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def call(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


@pytest.fixture
def run_script(
    script: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Gives the JSON object that a script prints; all of its processes are this one."""
    monkeypatch.setattr(script("measuring"), "Worker", SameProcess)

    def run(name: str, *arguments: object, rounds: int = 1) -> dict[str, Any]:
        counts = ["--rounds", str(rounds), "--threads", "1", "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments), *counts])
        script(name).main()
        printed = capsys.readouterr()
        assert f"round {rounds} of {rounds}" in printed.err
        found: dict[str, Any] = json.loads(printed.out)
        assert found["machine"].keys() == {"cpu", "logical_cpus", "system", "load_1_minute", "device"}
        assert found["versions"]["torch"] == torch.__version__
        assert found["settings"]["threads"] == 1
        return found

    return run
