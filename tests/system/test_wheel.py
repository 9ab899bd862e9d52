"""The installed package: the wheel holds conf/, and its commands work from any folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the files that go into it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for name in ("seq2seq", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_its_configuration_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "seq2seq/conf/train.yaml" in names
    assert "seq2seq/conf/model/transformer_base.yaml" in names
    assert "seq2seq/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"seq2seq"}


def test_an_installed_wheel_composes_its_configuration_from_any_folder(wheel, tmp_path):
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-m", "seq2seq", "train", "--cfg", "job", "model=transformer_base"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "d_model: 512" in done.stdout.decode()
    where = "import seq2seq; print(seq2seq.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True
    )
    assert str(site) in found.stdout.decode()
