import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seq2seq.bundle import load_tokenizers
from seq2seq.cli.data import app
from seq2seq.corpus.shortlist import read_shortlist


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["shortlist", *map(str, arguments)])


@pytest.fixture
def bundle(tiny_bundle_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle_folder, tmp_path / "bundle"))


@pytest.fixture
def files(tiny_lines: list[str], tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "train.de", tmp_path / "train.en"
    for path, lines in zip(
        paths, (tiny_lines[:150], [line.replace("ant", "bee") for line in tiny_lines[:150]]), strict=True
    ):
        path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return paths


def test_a_shortlist_is_written_into_the_bundle(bundle, files):
    result = run(bundle, "--source", files[0], "--target", files[1], "--candidates", "3", "--frequent", "9")
    assert result.exit_code == 0
    assert result.stdout == f"{bundle / 'shortlist.safetensors'}\n"
    assert "learned from 150 pairs (1 blank on a side or too long)" in result.stderr
    learned = read_shortlist(bundle / "shortlist.safetensors")
    source, target = load_tokenizers(bundle)
    learned.check(source, target)
    ant, bee = source.encode("ant")[-1], target.encode("bee")[-1]
    assert learned.candidates.shape == (source.vocab_size, 3)
    assert bee in learned.candidates[ant]
    assert len(learned.frequent) == 9


def test_its_coverage_of_other_text_is_printed_for_several_sizes(bundle, files, tmp_path):
    options = (
        bundle,
        "--source",
        files[0],
        "--target",
        files[1],
        "-o",
        tmp_path / "s",
        "--candidates",
        "4",
        "--frequent",
        "8",
    )
    unrelated = tmp_path / "unrelated"
    unrelated.write_text("\n".join(files[1].read_text(encoding="utf-8").split("\n")[-2::-1]) + "\n", encoding="utf-8")
    against = ("--against", files[0], unrelated)
    table = run(*options, *against)
    assert table.exit_code == 0
    assert re.search(r"candidates\W+frequent\W+pieces", table.stdout)
    assert table.stdout.endswith(f"{tmp_path / 's'}\n")
    assert not (bundle / "shortlist.safetensors").exists()
    printed = run(*options, *against, "--format", "json").stdout
    rows = json.loads(printed.rsplit("\n", 2)[0])
    assert [(row["candidates"], row["frequent"]) for row in rows] == [
        (candidates, frequent) for frequent in (2, 4, 8) for candidates in (1, 2, 4)
    ]
    assert rows[0]["covered"] < rows[-1]["covered"] <= rows[-1]["num_pieces"]
    assert rows[0]["mean_size"] < rows[-1]["mean_size"]


def test_mistakes_are_errors_and_nothing_is_written(bundle, files, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    for arguments, said in (
        ((tmp_path, "--source", files[0], "--target", files[1]), "is not a bundle"),
        ((bundle, "--source", files[0], "--target", tmp_path / "none"), "no such file: .*none"),
        ((bundle, "--source", files[0], "--target", files[1], "-o", tmp_path / "no/s"), "there is no folder .*no"),
        ((bundle, "--source", files[0], "--target", bundle / "config.json"), "lines but"),
    ):
        result = run(*arguments)
        assert result.exit_code != 0
        assert re.search(said, str(result.exception)), (said, result.exception)
    config = bundle / "config.json"
    config.write_text(config.read_text().replace('"task": "translation"', '"task": "language_model"'))
    result = run(bundle, "--source", files[0], "--target", files[1])
    assert "is a language model, which does not translate" in str(result.exception)
    assert sorted(tmp_path.rglob("*")) == before
