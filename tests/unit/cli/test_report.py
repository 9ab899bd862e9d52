import pytest
import yaml
from typer.testing import CliRunner

from seq2seq.cli.app import app


@pytest.fixture
def run_dir(tmp_path):
    config = {
        "model": {"d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "data": {"train_source": "a", "train_target": "b"},
        "trainer": {"max_steps": 3},
    }
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return tmp_path / "run"


def test_the_page_of_a_run_goes_into_its_folder_or_where_it_is_told(run_dir, tmp_path):
    done = CliRunner().invoke(app, ["report", str(run_dir)])
    assert done.exit_code == 0
    assert done.stdout == f"{run_dir / 'report.html'}\n"
    assert (run_dir / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    done = CliRunner().invoke(app, ["report", str(run_dir), str(run_dir), "-o", str(tmp_path / "both.html")])
    assert done.exit_code == 0
    assert (tmp_path / "both.html").exists()


def test_several_runs_need_a_place_for_their_page(run_dir):
    done = CliRunner().invoke(app, ["report", str(run_dir), str(run_dir)])
    assert done.exit_code == 2
    assert "got 2 runs; say with -o where their common page goes" in done.stderr
