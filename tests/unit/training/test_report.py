import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
import yaml

from seq2seq.config import to_dict
from seq2seq.training.report import report_page, some_of, write_report
from seq2seq.training.report_curves import CHARTS, chart_svg, charts_of, thinned
from seq2seq.training.run_history import Series, changed_options, read_history

METRICS = """\
step,train/loss,train/lr,valid/bleu,valid/nll,train/skipped_steps
2,5.0,0.1,,,0
4,4.0,0.2,,,0
4,,,12.5,3.5,
6,nan,0.3,,,0
6,3.0,0.3,,,0
8,,,25.0,2.5,
"""


@pytest.fixture
def run_dir(tmp_path, train_config):
    folder = tmp_path / "demo" / "2026-01-02_03-04-05"
    folder.mkdir(parents=True)
    config = dataclasses.replace(train_config, optim=dataclasses.replace(train_config.optim, lr_factor=0.25))
    (folder / "config.yaml").write_text(yaml.safe_dump(to_dict(config)), encoding="utf-8")
    facts = {"started": "then", "seed": 3, "versions": {"torch": "9.9"}, "data": {"a.de": {"sha256": "ab", "lines": 7}}}
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    (folder / "metrics.csv").write_text(METRICS, encoding="utf-8")
    rows = [
        {"step": step, "line": line, "source": f"s{line} <b>", "reference": f"r{line} & Co", "translation": f"t{step}"}
        for step in (4, 8)
        for line in (1, 5)
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_a_history_has_the_metrics_by_step_and_the_answers_by_line(run_dir):
    history = read_history(run_dir)
    assert history.name == "demo/2026-01-02_03-04-05"
    assert history.metrics["train/loss"] == Series([2, 4, 6], [5.0, 4.0, 3.0])
    assert history.metrics["valid/bleu"] == Series([4, 8], [12.5, 25.0])
    assert history.last("valid/nll") == 2.5
    assert history.last("valid/chrf") is None
    assert history.num_steps == 8
    assert [(line.place, line.reference, line.answers) for line in history.samples] == [
        (1, "r1 & Co", [(4, "t4"), (8, "t8")]),
        (5, "r5 & Co", [(4, "t4"), (8, "t8")]),
    ]


def test_continuations_of_a_language_model_are_samples_too(run_dir):
    row = {"step": 4, "prompt": "\nROMEO:\n", "continuation": "O\nhappy", "ended": False}
    (run_dir / "samples.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"step": 8}), encoding="utf-8")
    history = read_history(run_dir)
    assert [(line.source, line.place, line.answers) for line in history.samples] == [
        ("\nROMEO:\n", None, [(4, "O\nhappy"), (8, "O\nhappy")])
    ]
    assert ">prompt<" in report_page([history])


def test_the_page_is_one_file_that_asks_for_nothing_from_elsewhere(run_dir, tmp_path):
    file = tmp_path / "page.html"
    write_report([run_dir], file)
    page = file.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img|iframe)\b", page)
    assert not re.search(r'(src|href)="(?!#)[^"]', page.replace("xlink:href", "href"))
    assert "@import" not in page


def test_the_page_tells_figures_samples_options_versions_and_text(run_dir):
    page = report_page([read_history(run_dir)])
    for expected in (
        "BLEU<b>25.0</b>",
        "Steps<b>8</b>",
        "s5 &lt;b&gt;",
        "r1 &amp; Co",
        "step 4",
        "t8",
        "optim.lr_factor",
        "torch 9.9",
        "7 lines",
        "sha256 ab",
        "started then, seed 3",
    ):
        assert expected in page, expected


def test_two_runs_are_laid_over_each_other_under_their_names(run_dir):
    one = read_history(run_dir)
    other = dataclasses.replace(one, name="demo/other")
    page = report_page([one, other])
    assert "demo/other: BLEU" in page
    assert "Samples over time: demo/other" in page
    assert page.count("<svg") == len(charts_of([one]))


def test_charts_without_values_or_with_zeros_alone_are_left_out(run_dir):
    titles = [chart.title for chart in charts_of([read_history(run_dir)])]
    assert titles == ["Loss (nats a piece)", "BLEU and chrF2++", "Learning rate"]


def test_a_chart_is_an_svg_element_with_its_title_and_the_same_each_time(run_dir):
    history = read_history(run_dir)
    svg = chart_svg(CHARTS[0], [history])
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert CHARTS[0].title in svg
    assert svg == chart_svg(CHARTS[0], [history])


def test_every_chart_can_be_drawn(run_dir):
    series = Series([1, 2, 3], [1.0, 20.0, 3000.0])
    for chart in CHARTS:
        history = dataclasses.replace(read_history(run_dir), metrics={metric: series for metric, _ in chart.curves})
        assert chart.title in chart_svg(chart, [history])


def test_a_long_curve_is_averaged_in_groups():
    series = thinned(Series(list(range(1, 1001)), [float(i % 2) for i in range(1000)]), most=100)
    assert len(series.steps) == 100
    assert series.steps == sorted(set(series.steps))
    assert series.values == [0.5] * 100
    short = Series([1, 5], [2.0, 3.0])
    assert thinned(short, most=2) == short


def test_of_many_answers_the_first_and_last_and_some_between_are_shown():
    answers = [(step, str(step)) for step in range(20)]
    assert [step for step, _ in some_of(answers, 4)] == [0, 6, 12, 19]
    assert some_of(answers[:3], 4) == answers[:3]


def test_only_options_that_differ_from_their_defaults_are_listed(train_config):
    changed = changed_options(to_dict(train_config))
    assert changed["optim.warmup_steps"] == 20
    assert changed["model.d_model"] == 16
    assert "optim.beta1" not in changed
    assert "model.tying" not in changed


def test_a_run_without_metrics_says_why_it_has_no_curves(run_dir):
    (run_dir / "metrics.csv").unlink()
    (run_dir / "samples.jsonl").unlink()
    page = report_page([read_history(run_dir)])
    assert "wrote no metrics.csv" in page
    assert "<svg" not in page


def test_a_folder_that_is_no_run_and_damaged_files_are_refused(run_dir, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not the folder of a run: it has no config\.yaml"):
        read_history(tmp_path)
    (run_dir / "samples.jsonl").write_text('{"step": 1}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"samples\.jsonl, line 1: expected a sample of a validation"):
        read_history(run_dir)
    (run_dir / "metrics.csv").write_text("step,train/loss\n2,much\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"metrics\.csv, line 2: expected a step and numbers"):
        read_history(run_dir)


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("config.yaml", b"{{{", r"config\.yaml is damaged: while parsing"),
        ("config.yaml", b"", r"config\.yaml is damaged: expected the options of a run, got None"),
        ("config.yaml", b"\xff", r"config\.yaml is damaged: 'utf-8'"),
        ("config.yaml", b"modle: {}\n", r"config\.yaml: .*modle"),
        ("run.json", b"{", r"run\.json is damaged: Expecting property name"),
        ("run.json", b"[1]", r"run\.json is damaged: expected the facts of a run, got \[1\]"),
        ("run.json", b'{"versions": [1]}', r"run\.json is damaged: expected names and values as versions, got \[1\]"),
        ("run.json", b'{"data": {"train.en": 3}}', r"run\.json is damaged: expected lines and sha256 of train\.en"),
        ("metrics.csv", b"step,train/loss\ninf,2\n", r"metrics\.csv, line 2: expected a step and numbers"),
        ("metrics.csv", b"step,train/loss\n1," + b"1" * 200_000, r"metrics\.csv is damaged: field larger than"),
        ("metrics.csv", b"step,train/loss\n\xff,1\n", r"metrics\.csv is damaged: 'utf-8'"),
        ("samples.jsonl", b"\xff\n", r"samples\.jsonl is damaged: 'utf-8'"),
    ],
)
def test_a_damaged_file_of_a_run_is_told_by_its_name(run_dir, file, content, told):
    (run_dir / file).write_bytes(content)
    with pytest.raises(ValueError, match=told):
        read_history(run_dir)
