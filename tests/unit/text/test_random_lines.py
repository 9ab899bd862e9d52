from seq2seq.text.lines import is_blank
from seq2seq.text.random_lines import LONGEST, UNUSUAL, random_lines


def test_the_lines_are_short_and_long_and_some_are_blank_or_have_an_unknown_character(tiny_bundle):
    tokenizer = tiny_bundle.source_tokenizer
    lines = random_lines(tokenizer, 40)
    assert len(lines) == 40
    lengths = [len(tokenizer.encode(line)) for line in lines]
    assert min(lengths) == 0
    assert max(lengths) >= LONGEST // 2
    assert sum(map(is_blank, lines)) >= 4
    unknown = [line for line in lines if tokenizer.special.unk in tokenizer.encode(line)]
    assert any(character in line for line in unknown for character in UNUSUAL)


def test_no_line_has_a_line_end_in_it_also_where_pieces_are_bytes(tiny_writer):
    lines = random_lines(tiny_writer.target_tokenizer, 200)
    assert not any("\n" in line or "\r" in line for line in lines)
    assert sum(map(bool, lines)) > 150


def test_the_seed_decides(tiny_bundle):
    tokenizer = tiny_bundle.source_tokenizer
    assert random_lines(tokenizer, 9, seed=2) == random_lines(tokenizer, 12, seed=2)[:9]
    assert random_lines(tokenizer, 9, seed=2) != random_lines(tokenizer, 9, seed=3)
