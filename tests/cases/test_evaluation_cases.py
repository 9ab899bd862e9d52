"""The faults E1, E3, E5, V9 and S9: each test fails on code that has the fault."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from seq2seq.evaluation import (
    BleuStatistics,
    bleu_statistics,
    corpus_bleu_from_statistics,
    corpus_scores,
    looks_tokenized,
    sentence_bleu,
)

ROOT = Path(__file__).resolve().parents[2]
EVALUATE = "import typer; from seq2seq.cli.evaluate import evaluate; typer.run(evaluate)"
WORDS = [
    "a",
    "the",
    "house",
    "dog",
    "cat",
    "runs",
    "sleeps",
    "red",
    "never",
    ",",
    ".",
    "!",
    "Straße",
    "42",
    "1,000",
    "it's",
]


def run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SACREBLEU_FORMAT": "json", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sacrebleu_command(hypothesis: Path, *references: Path, width: int = 9) -> dict[str, dict[str, Any]]:
    printed = run(
        *("-m", "sacrebleu", *map(str, references), "-i", str(hypothesis), "-m", "bleu", "chrf", "ter"),
        *("--chrf-word-order", "2", "-w", str(width)),
    )
    return {entry["name"]: entry for entry in json.loads(printed)}


def evaluate_command(hypothesis: Path, *references: Path) -> dict[str, dict[str, Any]]:
    given = [word for reference in references for word in ("--reference", str(reference))]
    scores = json.loads(run("-c", EVALUATE, "--hypothesis", str(hypothesis), *given, "--format", "json"))["scores"]
    return {entry["name"]: entry for entry in scores.values()}


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def random_sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 12)))


def random_corpus(num_sentences: int) -> tuple[list[str], list[str], list[str]]:
    draw = random.Random(7)
    references = [random_sentence(draw) for _ in range(num_sentences)]
    others = [random_sentence(draw) for _ in range(num_sentences)]
    hypotheses = [
        " ".join(word if draw.random() < 0.8 else draw.choice(WORDS) for word in line.split()) for line in references
    ]
    return hypotheses, references, others


def test_e1_only_the_first_of_three_is_identical_and_every_path_gives_the_number_of_the_sacrebleu_command(
    tmp_path: Path,
) -> None:
    hypotheses = ["The cat sat on the mat.", "A dog.", ""]
    references = ["The cat sat on the mat.", "Nobody came to the party.", "Two men in a boat."]
    others = ["A cat sat on a mat.", "No one came.", "Two men sit in a boat."]
    hypothesis, reference = write(tmp_path / "hyp", hypotheses), write(tmp_path / "ref", references)
    other = write(tmp_path / "other", others)
    theirs = sacrebleu_command(hypothesis, reference, other)
    assert theirs["BLEU"]["score"] < 60

    python = {score.name: score for score in corpus_scores(hypotheses, [references, others])}
    command = evaluate_command(hypothesis, reference, other)
    for name, entry in theirs.items():
        assert python[name].score == pytest.approx(entry["score"], abs=1e-8)
        assert command[name]["score"] == python[name].score
        assert python[name].signature == command[name]["signature"] == entry["signature"]

    summed = corpus_bleu_from_statistics(bleu_statistics(hypotheses, [references, others]), num_references=2)
    assert summed == python["BLEU"]

    line = run(str(ROOT / "scripts" / "evaluate_bleu.py"), str(hypothesis), str(reference), str(other), "--width", "9")
    text = f"BLEU|{theirs['BLEU']['signature']} = {theirs['BLEU']['score']:.9f} {theirs['BLEU']['verbose_score']}"
    assert line.strip() == text


def test_e1_one_list_for_each_sentence_is_refused_by_every_python_path() -> None:
    hypotheses = ["The cat sat.", "A dog.", "Yes."]
    for_each_sentence = [["The cat sat."], ["Nobody came."], ["No."]]
    with pytest.raises(ValueError, match=r"has 1 sentences, but there are 3 hypotheses; .* one list for each sentence"):
        corpus_scores(hypotheses, for_each_sentence)
    with pytest.raises(ValueError, match=r"has 1 sentences, but there are 3 hypotheses; .* one list for each sentence"):
        bleu_statistics(hypotheses, for_each_sentence)


@pytest.mark.parametrize("batch_size", [1, 4, 13])
def test_e3_thirteen_pairs_give_the_corpus_score_whatever_the_batches(batch_size: int) -> None:
    hypotheses, references, others = random_corpus(13)
    (whole,) = corpus_scores(hypotheses, [references, others], metrics=["bleu"])
    parts = [
        bleu_statistics(hypotheses[begin : begin + batch_size], [lines[begin : begin + batch_size] for lines in sets])
        for sets in [(references, others)]
        for begin in range(0, 13, batch_size)
    ]
    assert len(parts) == -(-13 // batch_size)
    assert corpus_bleu_from_statistics(sum(parts, BleuStatistics()), num_references=2) == whole


def test_e3_the_mean_over_batches_would_be_another_number() -> None:
    hypotheses, references, _ = random_corpus(13)
    (whole,) = corpus_scores(hypotheses, [references], metrics=["bleu"])
    parts = [
        corpus_scores(hypotheses[begin : begin + 4], [references[begin : begin + 4]], metrics=["bleu"])[0].score
        for begin in range(0, 13, 4)
    ]
    assert abs(sum(parts) / len(parts) - whole.score) > 0.1


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["▁The ▁cat ▁s at", "▁A ▁do g"], "SentencePiece"),
        (["The c@@ at", "A do@@ g"], "BPE"),
        (["The cat sat .", "A dog ."], "full stop"),
        (["It &apos;s a cat", "A dog"], "escapes"),
    ],
)
def test_e5_text_that_looks_tokenised_is_noticed_and_the_signature_is_there_all_the_same(
    lines: list[str], what: str
) -> None:
    reason = looks_tokenized(lines)
    assert reason is not None
    assert what in reason
    for score in corpus_scores(lines, [["The cat sat.", "A dog."]]):
        assert score.signature in score.line()
        assert "version:" in score.signature


def test_e5_plain_text_is_left_alone() -> None:
    assert looks_tokenized(["The cat sat.", "It's a dog, isn't it?", "Qui est là ? Moi !"]) is None


def test_v9_a_reference_with_an_emoji_is_scored_as_the_raw_text(tmp_path: Path) -> None:
    hypotheses = ["I love this \U0001f984 very much.", "A dog\u2009barks at night.", "Ein schönes Haus in Köln."]
    references = ["I love this \U0001f984 very much!", "A dog barks at night.", "Ein schönes Haus in Ko\u0308ln."]
    hypothesis, reference = write(tmp_path / "hyp", hypotheses), write(tmp_path / "ref", references)
    python = {score.name: score.score for score in corpus_scores(hypotheses, [references])}
    command = evaluate_command(hypothesis, reference)
    theirs = sacrebleu_command(hypothesis, reference)
    for name, score in python.items():
        assert command[name]["score"] == score
        assert theirs[name]["score"] == pytest.approx(score, abs=1e-8)
    rebuilt = [line.replace("\U0001f984", "<unk>") for line in references]
    (from_ids,) = corpus_scores(hypotheses, [rebuilt], metrics=["bleu"])
    assert from_ids.score != python["BLEU"]


def test_s9_an_empty_hypothesis_scores_zero_and_an_identical_one_a_hundred() -> None:
    assert sentence_bleu("", ["Two men in a boat."]).score == 0.0
    assert sentence_bleu("   ", ["Two men in a boat."]).score == 0.0
    assert sentence_bleu("Boat", ["Two men in a boat."]).score < 20
    for text in ("Yes", "Yes.", "Two men in a boat."):
        assert sentence_bleu(text, [text]).score == pytest.approx(100.0)


def test_s9_sentence_scores_equal_those_of_sacrebleu_on_random_pairs() -> None:
    draw = random.Random(11)
    metric = sacrebleu.BLEU(effective_order=True)
    different = set()
    for _ in range(200):
        hypothesis, references = random_sentence(draw), [random_sentence(draw) for _ in range(draw.randint(1, 3))]
        ours = sentence_bleu(hypothesis, references)
        assert ours.score == metric.sentence_score(hypothesis, references).score
        different.add(ours.score)
    assert len(different) > 50
