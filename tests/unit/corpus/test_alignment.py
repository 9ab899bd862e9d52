import random

import pytest

from seq2seq.corpus.alignment import first_shifted_line

SUBJECTS = {"the old captain": "der alte Kapitän", "Anna": "Anna", "my neighbour": "mein Nachbar", "we": "wir"}
VERBS = {"bought": "kaufte", "carefully painted": "bemalte sorgfältig", "saw": "sah", "forgot": "vergaß"}
OBJECTS = {"a house": "ein Haus", "the green bicycle": "das grüne Fahrrad", "tea": "Tee", "some bread": "etwas Brot"}
ENDS = {"on Monday": "am Montag", "near the railway station": "in der Nähe des Bahnhofs", "in Berlin": "in Berlin"}


def parallel(num_lines: int) -> tuple[list[str], list[str]]:
    """Sentences of differing length, some with a number, with a German side word by word."""
    draw = random.Random(11)
    source, target = [], []
    for _ in range(num_lines):
        chosen = [draw.choice(list(words.items())) for words in (SUBJECTS, VERBS, OBJECTS, ENDS)]
        chosen = chosen[: draw.randint(2, 4)]
        if draw.random() < 0.3:
            chosen.append((str(draw.randint(2, 99)),) * 2)
        end = draw.choice(".?!")
        source.append(" ".join(english for english, _ in chosen) + end)
        target.append(" ".join(german for _, german in chosen) + end)
    return source, target


@pytest.mark.parametrize("gone", [1, 57, 150, 296])
@pytest.mark.parametrize("side", [0, 1])
def test_a_missing_line_is_found_within_a_few_lines(gone, side):
    sides = parallel(300)
    del sides[side][gone - 1]
    assert first_shifted_line(*sides) == pytest.approx(gone, abs=3)


@pytest.mark.parametrize("num_gone", [3, 20])
def test_the_first_of_several_missing_lines_is_found(num_gone):
    source, target = parallel(2000)
    gone = sorted(random.Random(5).sample(range(100, 2000), num_gone))
    target = [line for place, line in enumerate(target) if place not in gone]
    assert first_shifted_line(source, target) == pytest.approx(gone[0] + 1, abs=6)


def test_a_block_of_missing_lines_is_found():
    source, target = parallel(400)
    del target[80:84]
    assert first_shifted_line(source, target) == pytest.approx(81, abs=3)


def test_lines_missing_at_the_end_are_no_shift():
    source, target = parallel(300)
    assert first_shifted_line(source, target[:-5]) is None


def test_the_search_ends_early_once_the_shift_is_plain(monkeypatch):
    from seq2seq.corpus import alignment

    read = []
    true_profile = alignment._profile
    monkeypatch.setattr(alignment, "_profile", lambda line: read.append(line) or true_profile(line))
    source, target = parallel(5000)
    del target[56]
    assert first_shifted_line(source, target) == pytest.approx(57, abs=3)
    assert len(read) < 1000


def test_lines_without_any_text_do_not_disturb():
    source, target = parallel(200)
    source[10] = target[10] = ""
    del source[99]
    assert first_shifted_line(source, target) == pytest.approx(100, abs=3)
    assert first_shifted_line(["", ""], [""]) is None
