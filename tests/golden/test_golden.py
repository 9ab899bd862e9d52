"""The golden files are what `scripts/make_golden.py` makes, and their numbers are what the networks compute."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_golden.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_golden", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["encoder_decoder", "decoder_only"])
def name(request):
    return request.param


@pytest.fixture
def stored(script, name):
    return json.loads(script.golden_file(name).read_text(encoding="utf-8"))


def test_there_is_a_file_for_each_model(script):
    assert sorted(path.stem for path in script.FOLDER.glob("*.json")) == sorted(script.CONFIGS)


def test_the_recipe_gives_the_stored_numbers(script, stored, name):
    assert script.differences(script.golden(name), stored) == []


def test_the_stored_recipe_is_the_scripts(script, stored):
    assert stored["recipe"] == script.RECIPE
    assert stored["made_by"] == str(SCRIPT.relative_to(ROOT))


def test_stored_log_probabilities_are_those_of_one_full_pass_over_the_stored_ids(script, stored, name):
    model = script.golden_model(name)
    for b, beams in enumerate(stored["beam"]):
        length = sum(piece != script.PAD for piece in stored["src"][b])
        src, valid = torch.tensor([stored["src"][b][:length]]), torch.ones(1, length, dtype=torch.bool)
        for found in (stored["greedy"][b], *beams):
            with torch.inference_mode():
                log_probs = model(src, valid, torch.tensor([[script.BOS, *found["ids"][:-1]]])).log_softmax(-1)[0]
            expected = [row[piece].item() for row, piece in zip(log_probs, found["ids"], strict=True)]
            assert found["token_log_probs"] == pytest.approx(expected, abs=1e-6)
            assert found["log_prob"] == pytest.approx(sum(expected), abs=1e-6)


def test_the_beam_finds_something_better_than_greedy_search_and_no_choice_is_close(script, stored):
    assert all(beams[0]["score"] >= best["score"] for beams, best in zip(stored["beam"], stored["greedy"], strict=True))
    assert any(beams[0]["ids"] != best["ids"] for beams, best in zip(stored["beam"], stored["greedy"], strict=True))
    assert all(beams[0]["score"] - beams[1]["score"] > 1e-3 for beams in stored["beam"])


def test_the_weights_do_not_depend_on_the_random_generator(script, name):
    torch.manual_seed(1)
    first = script.golden_model(name).state_dict()
    torch.manual_seed(2)
    second = script.golden_model(name).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("got", "expected", "where"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.00001]}, "/a/1: got 2.0, the file has 2.00001"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "/a/1: got 2, the file has 3"),
        ({"a": [1]}, {"a": [1, 3]}, r"/a: got \[1\]"),
        ({"a": 1}, {"b": 1}, ": got {'a': 1}"),
        ({"a": float("nan")}, {"a": 1.0}, "/a: got nan"),
    ],
)
def test_the_comparison_sees_every_kind_of_difference(script, got, expected, where):
    lines = script.differences(got, expected)
    assert len(lines) == 1
    assert re.match(where, lines[0])


def test_the_comparison_forgives_rounding(script):
    assert script.differences({"a": [1.0]}, {"a": [1.0 + 1e-8]}) == []


def test_the_script_checks_the_file_from_any_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("is up to date") == 2
