"""Special ids that would make a vocabulary useless are refused."""

import pytest

from seq2seq.text.special import SpecialIds


def test_four_different_ids_inside_the_vocabulary_are_fine():
    SpecialIds().check(4)
    SpecialIds(pad=10, bos=3, eos=0, unk=7).check(11)


def test_missing_symbols_are_all_named_with_the_remedy():
    message = r"has no pad, eos symbol \(got pad=-1, bos=1, eos=-1, unk=3\); .*--pad_id=0 --bos_id=1 --eos_id=2"
    with pytest.raises(ValueError, match=message):
        SpecialIds(pad=-1, eos=-1).check(11)


def test_equal_ids_are_refused():
    with pytest.raises(ValueError, match="must differ from one another, got pad=0, bos=1, eos=1, unk=2"):
        SpecialIds(pad=0, bos=1, eos=1, unk=2).check(11)


def test_an_id_beyond_the_vocabulary_is_refused():
    message = "must be below the vocabulary size 11, got pad=0, bos=1, eos=2, unk=11"
    with pytest.raises(ValueError, match=message):
        SpecialIds(unk=11).check(11)
