from pathlib import Path

import pytest

from seq2seq.translator import Request, Terminology, read_phrases


@pytest.fixture
def write(tmp_path: Path):
    def write(content: str) -> Path:
        path = tmp_path / "file.tsv"
        path.write_bytes(content.encode())
        return path

    return write


def test_each_line_of_a_file_has_the_phrases_of_an_input_line(write):
    path = write("\ufeffblue shirt\tman\r\n\r\n# five|#5\t\t dog \n\t\nlast")
    assert read_phrases(path) == [("blue shirt", "man"), (), ("# five|#5", "dog"), (), ("last",)]
    assert [Request("x", phrases=phrases).phrases for phrases in read_phrases(path)] == read_phrases(path)


@pytest.mark.parametrize("phrase", ["a|", "|", "a||b", "| a"])
def test_an_empty_alternative_is_refused_with_its_line(write, phrase):
    with pytest.raises(ValueError, match=r"file\.tsv: line 2: phrase .* has an empty alternative; expected words"):
        read_phrases(write(f"fine\nfine\t{phrase}\n"))


def test_a_request_refuses_an_empty_alternative():
    with pytest.raises(ValueError, match="phrase 'a\\|' has an empty alternative"):
        Request("x", phrases=("fine", "a|"))


def test_terms_are_read_with_comments_empty_lines_and_crlf(write):
    terms = Terminology.load(write("\ufeff# German\tEnglish\r\n\r\nHaus\thouse\r\n \t \nneues  Haus \t new home \n"))
    assert len(terms) == 2
    assert terms.phrases("das Haus") == ("house",)
    assert terms.phrases("ein neues \tHaus") == ("new home",)


@pytest.mark.parametrize("line", ["Haus", "Haus house", "Haus\thouse\tnoun"])
def test_a_line_without_two_fields_is_refused(write, line):
    fields = line.count("\t") + 1
    with pytest.raises(ValueError, match=rf"file\.tsv: line 2 has {fields} fields, expected 2: a term, a tab"):
        Terminology.load(write(f"a\tb\n{line}\n"))


@pytest.mark.parametrize("line", ["\thouse", "Haus\t", "\u3000\thouse"])
def test_a_blank_side_is_refused(write, line):
    with pytest.raises(ValueError, match=r"file\.tsv: line 1: got the term .*, expected words on both sides"):
        Terminology.load(write(line))


def test_an_empty_alternative_of_a_translation_is_refused(write):
    with pytest.raises(ValueError, match=r"file\.tsv: line 1: phrase 'house\|' has an empty alternative"):
        Terminology.load(write("Haus\thouse|\n"))


def test_two_translations_of_one_term_are_refused_with_both_lines(write):
    with pytest.raises(
        ValueError, match=r"file\.tsv: line 3: the term 'Haus' is to be 'home' and 'house'.*; line 1 has the other"
    ):
        Terminology.load(write("Haus\thouse\nHund\tdog\nHaus\thome\n"))


def test_the_same_line_twice_is_one_term(write):
    assert len(Terminology.load(write("Haus\thouse\nHaus\thouse\n"))) == 1


def test_terms_that_differ_in_case_only_contradict_each_other_where_case_is_folded(write):
    path = write("Haus\thouse\nhaus\thome\n")
    assert len(Terminology.load(path)) == 2
    with pytest.raises(ValueError, match="line 2: the term 'haus' is to be 'home' and 'house'"):
        Terminology.load(path, fold_case=True)


def test_a_file_without_terms_is_refused(write):
    with pytest.raises(ValueError, match=r"file\.tsv has no terms, expected lines of a term, a tab"):
        Terminology.load(write("# nothing\n\n"))


def test_a_file_that_is_not_utf_8_or_not_there_is_refused(tmp_path):
    path = tmp_path / "latin.tsv"
    path.write_bytes("Tür\tdoor\n".encode("latin-1"))
    with pytest.raises(ValueError, match="line 1 is not UTF-8"):
        Terminology.load(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_phrases(tmp_path / "none.tsv")


def test_terms_are_found_as_whole_words_only():
    terms = Terminology({"Haus": "house", "Boot": "boat"})
    assert terms.phrases("Das Hausboot liegt am Haus.") == ("house",)
    assert terms.phrases("Haus-Boot") == ("house", "boat")
    assert terms.phrases("Rathaus, Häuser") == ()


def test_the_longest_term_takes_its_words_from_the_others():
    terms = Terminology({"neues Haus": "new home", "Haus": "house", "ein neues": "a new", "Haus am See": "lake house"})
    assert terms.phrases("ein neues Haus am See") == ("a new", "lake house")
    assert terms.phrases("neues Haus, Haus") == ("new home", "house")


def test_translations_come_in_the_order_of_the_line_and_once():
    terms = Terminology({"Hund": "dog", "Katze": "cat", "Kater": "cat"})
    assert terms.phrases("Katze Hund Kater Hund") == ("cat", "dog")


def test_case_counts_unless_it_is_folded():
    terms = {"house": "Haus", "STRASSE": "street"}
    assert Terminology(terms).phrases("House of the Straße") == ()
    assert Terminology(terms, fold_case=True).phrases("House of the Straße") == ("Haus", "street")


def test_accents_and_widths_may_be_written_either_way():
    terms = Terminology({"caf\u00e9": "coffee house", "ＧＰＵ": "graphics card"})
    assert terms.phrases("Das Cafe, cafe\u0301, GPU") == ("coffee house", "graphics card")


def test_languages_without_spaces_have_terms_anywhere():
    terms = Terminology({"看见": "see", "看": "look", "GPU": "graphics card", "猫": "cat|kitten"})
    assert terms.phrases("我们看见猫。") == ("see", "cat|kitten")
    assert terms.phrases("用GPU看") == ("graphics card", "look")
    assert terms.phrases("用GPUs") == ()


def test_a_line_without_terms_asks_for_nothing():
    assert Terminology({"Haus": "house"}).phrases("") == ()
