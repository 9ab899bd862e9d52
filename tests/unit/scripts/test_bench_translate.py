"""scripts/bench_translate.py: that it runs, what it prints, and that it counts what it says."""

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seq2seq.bundle import Bundle, save_bundle
from seq2seq.config import ModelConfig, PositionKind
from seq2seq.corpus.shortlist import Shortlist, write_shortlist
from seq2seq.models import build_model

Script = Callable[[str], Any]

SPREAD = {"median", "min", "max"}
MODES = {
    *("batch_beam3", "batch_greedy", "batch_beam3_own_stop"),
    *("single_beam3", "single_greedy", "single_beam3_own_stop"),
}
PARTS = {"matrix_products", "attention", "selection", "cache", "compiled_code", "other_operators", "python"}
ECHO = f"{sys.executable} -c 'import sys; sys.stdout.write(sys.stdin.read())'"


@pytest.fixture
def text(tiny_lines: list[str], tmp_path: Path) -> Path:
    """Nine lines, more than a quick run takes."""
    path = tmp_path / "text"
    path.write_text("\n".join(tiny_lines[3:12]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def with_shortlist(tiny_bundle: Bundle, tiny_bundle_folder: Path, tmp_path: Path) -> Path:
    """The tiny bundle with a shortlist that leaves the last ten pieces out."""
    tokenizer = tiny_bundle.source_tokenizer
    none = np.full((tokenizer.vocab_size, 1), -1, dtype=np.int32)
    always = np.arange(tokenizer.vocab_size - 10, dtype=np.int32)
    sums = (tokenizer.sha256, tokenizer.sha256)
    shortlist = Shortlist(tokenizer.vocab_size, none, none[:, 0], np.zeros(0, dtype=np.int32), always, sums)
    folder: Path = shutil.copytree(tiny_bundle_folder, tmp_path / "with shortlist")
    write_shortlist(shortlist, folder / "shortlist.safetensors")
    return folder


@pytest.fixture
def no_start_up(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting processes to see how long the command takes is left out."""
    monkeypatch.setattr(script("start_up"), "start_up", lambda *arguments: {"help_seconds": 0.25})


@pytest.mark.usefixtures("no_start_up")
def test_everything_is_measured_and_printed_as_one_json_object(
    run_script: Callable[..., dict[str, Any]], with_shortlist: Path, text: Path
) -> None:
    pytest.importorskip("ctranslate2")
    files = [with_shortlist, "--input", text, "--reference", text, "--beam-size", 3]
    others = ["--peers", "ctranslate2", "--peer-command", "echo", ECHO, "--max-length", 9]
    found = run_script("bench_translate", *files, *others, "--quick", "--profile")
    int8 = {"int8"} - found["missing"].keys()  # not every CPU has it
    assert found["engines"].keys() - int8 == {
        *("ours", "shortlist", "ctranslate2", "ctranslate2_int8", "backend_int8", "echo"),
        *("ctranslate2_workers", "ctranslate2_int8_workers"),
    }
    assert (found["ratio_int8_beam3"] is None) == (not int8)
    modes = {name: table["modes"] for name, table in found["engines"].items()}
    assert modes["ours"].keys() == MODES
    assert modes["ctranslate2"].keys() == {name for name in MODES if "own_stop" not in name}
    assert modes["ctranslate2_workers"].keys() == {"batch_beam3", "batch_greedy"}
    assert modes["echo"].keys() == {"batch_beam3"}
    assert modes["echo"]["batch_beam3"]["bleu"] == 100
    for table in (modes[name] for name in modes if name != "echo"):
        for name, mode in table.items():
            assert mode["lines"] == (1 if name.startswith("single") else 4)
            rates = {figure: values["median"] for figure, values in mode.items() if isinstance(values, dict)}
            assert rates["milliseconds_per_sentence"] * rates["sentences_per_second"] == pytest.approx(1000, rel=1e-3)
            assert rates["target_tokens_per_second"] >= rates["sentences_per_second"]
            assert rates["cpu_seconds"] > 0
            assert "tok:13a" in mode["bleu_signature"]
    rate, time = "sentences_per_second", "milliseconds_per_sentence"
    for ratio, engine, other, mode, figure in (
        ("ratio_batch_beam3", "ours", "ctranslate2", "batch_beam3", rate),
        ("ratio_single_greedy", "ours", "ctranslate2", "single_greedy", time),
        ("ratio_shortlist_beam3", "shortlist", "ctranslate2", "batch_beam3", rate),
        *(("ratio_int8_beam3", "int8", "ctranslate2", "batch_beam3", rate) for _ in int8),
        ("ratio_backend_int8", "backend_int8", "ctranslate2_int8", "batch_beam3", rate),
        ("ratio_backend_int8_workers", "backend_int8", "ctranslate2_int8_workers", "batch_beam3", rate),
        ("ratio_workers_greedy", "ours", "ctranslate2_workers", "batch_greedy", rate),
    ):
        ours, theirs = (modes[name][mode][figure]["median"] for name in (engine, other))
        assert found[ratio]["median"] == pytest.approx(ours / theirs, rel=1e-3)
    assert found["ratio_echo_beam3"]["median"] > 0
    for name in ("hugging_face_beam3", "hugging_face_greedy", "joeynmt_beam3"):
        assert found[f"ratio_{name}"] is None
    assert found["missing"]["ratio_hugging_face_beam3"] == "--peers does not name hugging_face"
    assert found["missing"]["ratio_joeynmt_beam3"] == "--peer-command does not name joeynmt"
    for name in ("step_cost_ratio_24_9", "cache_memory_ratio"):
        assert found[name].keys() == SPREAD
    assert found["help_seconds"]["median"] == 0.25
    assert found["profile"]["shares"].keys() == PARTS
    assert sum(found["profile"]["shares"].values()) == pytest.approx(1, abs=1e-3)
    assert found["profile"]["shares"]["matrix_products"] > 0


def test_greedy_search_is_the_same_in_all_engines(
    script: Script, tiny_bundle: Bundle, tiny_lines: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("ctranslate2")
    bundle = dataclasses.replace(tiny_bundle, model=_float(tiny_bundle))
    save_bundle(bundle, tmp_path / "bundle")
    engines, rounds = script("translation_engines"), script("translation_rounds")
    rounds.convert(str(tmp_path / "bundle"), str(tmp_path / "other"), "float32")
    ours = engines.Ours(str(tmp_path / "bundle"), 1).load()
    theirs = engines.CTranslate2(str(tmp_path / "other"), 1, batch_lines=3).load()
    for alone in (False, True):
        search = engines.Search(1, 30, alone)
        pairs = list(zip(ours.translate(tiny_lines[:9], search), theirs.translate(tiny_lines[:9], search), strict=True))
        ended = [(one, other) for one, other in pairs if other.num_tokens < 30]
        assert len(ended) > 3
        assert ended == [(other, other) for _, other in ended]


def _float(bundle: Bundle) -> Any:
    """The model in float32."""
    model = build_model(bundle.model_config, bundle.source_tokenizer.vocab_size, bundle.target_tokenizer.vocab_size)
    model.load_state_dict({name: value.float() for name, value in bundle.model.state_dict().items()})
    return model


def test_engines_take_turns_and_every_other_round_backwards(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, calls = script("translation_rounds"), []

    class Recorder:
        def __enter__(self) -> "Recorder":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def call(self, function: Any, wanted: str, *arguments: Any) -> Any:
            if function is rounds.engines.load:
                return 0.5, "cpu"
            calls.append(wanted)
            return SimpleNamespace(figures={}, texts=[])

    monkeypatch.setattr(rounds.measuring, "Worker", Recorder)
    plan: Any = SimpleNamespace(
        wanted={"ours": "A", "other": "B"},
        searches={"batch": None, "single": None},
        args=SimpleNamespace(peer_command=[]),
        modes_of=lambda name: ["batch", "single"],
        lines_of=lambda mode: [],
    )
    for backwards, expected in ((False, "ABAB"), (True, "BABA")):
        calls.clear()
        found = rounds.one_round(plan, backwards)
        assert "".join(calls) == expected
        assert found.startup == {"ours": 0.5, "other": 0.5}


@pytest.mark.parametrize(
    ("program", "message"),
    [("print()", "gave 1 lines for 2 and ended with 0"), ("raise SystemExit('no model')", r"ended with 1: no model")],
)
def test_a_peer_that_fails_ends_the_benchmark(script: Script, program: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"--peer-command peer {message}" if "gave" in message else message):
        script("translation_rounds").by_command("peer", f'{sys.executable} -c "{program}"', ["a", "b"])


def test_the_time_of_a_peers_first_line_is_its_start_up(script: Script) -> None:
    program = "import sys, time; lines = list(sys.stdin); time.sleep(0.1 * len(lines)); print(*lines, sep='', end='')"
    figures, texts = script("translation_rounds").by_command(
        "peer", f'{sys.executable} -c "{program}"', ["a", "b", "c"]
    )
    assert texts == ["a", "b", "c"]
    assert figures["milliseconds_per_sentence"] == pytest.approx(100, rel=0.5)
    assert figures["first_line_seconds"] > 0.1


@pytest.mark.usefixtures("no_start_up")
def test_models_that_others_do_not_have_are_measured_alone(
    run_script: Callable[..., dict[str, Any]], tiny_bundle: Bundle, text: Path, tmp_path: Path
) -> None:
    config = dataclasses.replace(tiny_bundle.model_config, positions=PositionKind.learned, max_positions=30)
    pieces = tiny_bundle.source_tokenizer.vocab_size
    bundle = dataclasses.replace(tiny_bundle, model=build_model(config, pieces, pieces), model_config=config)
    save_bundle(bundle, tmp_path / "bundle")
    options = ["--quick", "--max-length", 10, "--peers", "hugging_face"]
    found = run_script("bench_translate", tmp_path / "bundle", "--input", text, *options)
    assert found["step_cost_ratio_24_9"] is None
    assert found["missing"]["steps"] == "the model has learned positions for 30 pieces, 34 are needed"
    assert found["ratio_hugging_face_beam5"] is None
    assert "positions" in found["missing"]["ratio_hugging_face_beam5"]
    assert "bleu" not in found["engines"]["ours"]["modes"]["batch_greedy"]


def test_the_formula_of_the_cache_counts_hypotheses_and_sources(script: Script) -> None:
    config = ModelConfig(d_model=24, num_heads=4, d_ff=5, num_encoder_layers=1, num_decoder_layers=3, num_kv_heads=2)
    # keys and values * 3 layers * (6 rows * 7 pieces + 2 sentences * 11 pieces) * 2 heads * 6 wide * 4 bytes
    found = script("decode_costs").cache_bytes(config, target=7, source=11, rows=6, sentences=2, size=4)
    assert found == 2 * 3 * (6 * 7 + 2 * 11) * 2 * 6 * 4


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "matrix_products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::topk", "selection"),
        ("seq2seq::packed_product", "matrix_products"),
        ("seq2seq::ranking", "selection"),
        ("aten::index_select", "cache"),
        ("aten::native_layer_norm", "other_operators"),
    ],
)
def test_what_an_operator_does_in_a_search_is_known_by_its_name(script: Script, name: str, kind: str) -> None:
    assert script("decode_costs").kind_of(name) == kind


def test_the_clock_of_a_first_answer_stops_at_the_first_line(script: Script) -> None:
    program = "import time; print(input(), flush=True); time.sleep(0.4)"
    start_up = script("start_up")
    started = start_up.time.perf_counter()
    seconds, cpu_seconds = start_up.first_output([sys.executable, "-c", program], "line\n")
    assert seconds + 0.4 <= start_up.time.perf_counter() - started
    assert 0 < cpu_seconds < 1


def test_a_command_that_fails_is_told_with_what_it_said(script: Script) -> None:
    with pytest.raises(ValueError, match=r"-c raise SystemExit\('no such model'\) ended with 1: no such model"):
        script("start_up").first_output([sys.executable, "-c", "raise SystemExit('no such model')"])


def test_starting_up_is_help_first_translation_and_torch_alone(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    start_up, calls = script("start_up"), []
    times = iter([(2.0, 1.5), (0.25, 0.2), (2.75, 2.0)])

    def first_output(arguments: list[str], text: str = "", threads: int = 1) -> tuple[float, float]:
        calls.append((arguments[-6:], text, threads))
        return next(times)

    monkeypatch.setattr(start_up, "first_output", first_output)
    found = start_up.start_up("bundle", "ein Hund", 2, "aoti")
    assert [arguments[-1] for arguments, _, _ in calls] == ["import torch", "--help", "aoti"]
    assert calls[2] == (["translate", "bundle", "--device", "cpu", "--backend", "aoti"], "ein Hund\n", 2)
    assert found["help_seconds"] == 0.25
    assert found["first_translation_over_import_torch_seconds"] == 0.75


def test_bleu_of_the_first_lines_is_against_the_first_references(script: Script) -> None:
    references = ["the cat sat on the mat", "something else entirely is here"]
    assert script("bench_translate").bleu(references[:1], references, "en")["bleu"] == 100


@pytest.mark.parametrize(
    ("source", "reference", "message"),
    [("", "", "has no lines; give text"), ("one\ntwo\n", "one\n", r"has 2 lines and .*reference 1; line n")],
)
def test_text_that_cannot_be_measured_is_refused_before_anything_runs(
    script: Script, tmp_path: Path, source: str, reference: str, message: str
) -> None:
    (tmp_path / "source").write_text(source)
    (tmp_path / "reference").write_text(reference)
    bench = script("bench_translate")
    files = ["--input", str(tmp_path / "source"), "--reference", str(tmp_path / "reference")]
    with pytest.raises(ValueError, match=message):
        bench.run(bench.options().parse_args([str(tmp_path / "no bundle"), *files]))


def test_peers_are_not_measured_on_a_gpu(script: Script, tmp_path: Path) -> None:
    bench = script("bench_translate")
    args = bench.options().parse_args(["bundle", "--input", "text", "--device", "cuda"])
    plan = script("translation_rounds").Plan(args, ["a line"], tmp_path)
    assert plan.wanted.keys() == {"ours"}
    assert {plan.missing[name] for name in ("ctranslate2", "backend_int8", "hugging_face")} <= {
        "peers are measured on the CPU; give --device cpu",
        *(f"the package {package} is not installed" for package in ("ctranslate2", "transformers")),
    }


def test_language_models_and_decoder_only_translators_have_no_peer(
    script: Script, tiny_writer_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="only encoder-decoders are compared"):
        script("translation_rounds").convert(str(tiny_writer_folder), str(tmp_path / "other"), "float32")


def test_cpu_seconds_of_short_processes_are_counted(script: Script) -> None:
    start_up = script("start_up")
    for _ in range(3):
        _, cpu_seconds = start_up.first_output(["true"])
        assert 0 < cpu_seconds < 1
