"""seq2seq.translator.side_by_side: several batches at once, answers in their order."""

import dataclasses
import threading
import time

import pytest
import torch

from seq2seq.translator import Translator
from seq2seq.translator.side_by_side import side_by_side


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_answers_come_in_the_order_of_the_tasks_and_several_are_worked_on_at_once(four_threads):
    working, most, lock = set(), [0], threading.Lock()

    def square(number):
        with lock:
            working.add(number)
            most[0] = max(most[0], len(working))
        time.sleep(0.02 if number % 2 else 0.001)
        with lock:
            working.discard(number)
        return number**2, torch.get_num_threads()

    found = list(side_by_side(square, list(range(9))))
    assert [answer for answer, _ in found] == [number**2 for number in range(9)]
    assert {threads for _, threads in found} == {1}
    assert 1 < most[0] <= 4
    assert torch.get_num_threads() == 4


def test_threads_are_shared_out_among_few_tasks(four_threads):
    assert list(side_by_side(lambda _: torch.get_num_threads(), [1, 2])) == [2, 2]
    assert list(side_by_side(lambda _: torch.get_num_threads(), [1])) == [4]
    assert list(side_by_side(lambda _: 1, [])) == []


def test_an_error_comes_in_its_place_and_what_has_not_begun_is_given_up(four_threads):
    begun = []

    def fail(number):
        begun.append(number)
        if number == 1:
            raise ValueError("number 1 fails")
        time.sleep(0.01)
        return number

    answers = side_by_side(fail, list(range(50)))
    assert next(answers) == 0
    with pytest.raises(ValueError, match="number 1 fails"):
        next(answers)
    assert len(begun) < 20
    assert torch.get_num_threads() == 4


def test_an_iterator_that_is_left_gives_the_threads_back(four_threads):
    answers = side_by_side(lambda number: number, list(range(50)))
    assert next(answers) == 0
    answers.close()
    assert torch.get_num_threads() == 4


def test_lines_are_translated_the_same_side_by_side(tiny_bundle, four_threads):
    lines = ["der ant läuft!", "", "die cat.", "17 elk sieht und das yak schläft?", "owl", "das 3 hen owl"] * 4
    small = dataclasses.replace(tiny_bundle.decode, batch_tokens=24)
    together = Translator(tiny_bundle).translate(lines, small)
    torch.set_num_threads(1)
    alone = Translator(tiny_bundle).translate(lines, small)
    assert [answer.text for answer in together] == [answer.text for answer in alone]
