import hashlib
import importlib
import re
import runpy
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_phrasebook.py"
CORPUS = ROOT / "data" / "phrasebook_en_de"
SPLITS = ("train", "valid", "test")
FILES = [f"{split}.{side}" for split in SPLITS for side in ("en", "de")]


def lines_of(name: str) -> list[str]:
    return (CORPUS / name).read_text(encoding="utf-8").split("\n")[:-1]


def words_of(lines: list[str]) -> set[str]:
    return {word.strip(".,?") for line in lines for word in line.split()}


@pytest.fixture(scope="module")
def grammar():
    """The modules of the grammar, which stand outside the package, beside the script."""
    sys.path.insert(0, str(ROOT / "scripts"))
    names = ("actions", "clauses", "corpus", "dice", "inflection", "lexicon", "numerals", "phrases", "times")
    modules = {name: importlib.import_module(f"phrasebook.{name}") for name in names}
    sys.path.remove(str(ROOT / "scripts"))
    return SimpleNamespace(**modules)


@pytest.fixture(scope="module")
def made(grammar):
    return grammar.corpus.make()


def test_regenerating_gives_the_same_bytes_as_the_committed_files(grammar, made, tmp_path, monkeypatch):
    # The script itself runs; only the sentences, which take seconds to make, are shared with another test.
    monkeypatch.setattr(grammar.corpus, "make", lambda seed: {1: made}[seed])
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--out", str(tmp_path / "new" / "phrasebook")])
    monkeypatch.syspath_prepend(SCRIPT.parent)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    written = {path.name: path.read_bytes() for path in (tmp_path / "new" / "phrasebook").iterdir()}
    assert sorted(written) == sorted([*FILES, "README.md"])
    for name, data in written.items():
        assert data == (CORPUS / name).read_bytes(), name


def test_another_seed_gives_other_sentences(grammar):
    first, second = (grammar.corpus.draw(50, grammar.dice.Dice(seed)) for seed in (1, 2))
    assert first != second
    assert first == grammar.corpus.draw(50, grammar.dice.Dice(1))


def test_files_are_plain_text_of_the_promised_size():
    assert sum((CORPUS / name).stat().st_size for name in FILES) < 4_000_000
    for name in FILES:
        data = (CORPUS / name).read_bytes()
        assert data.endswith((b".\n", b"?\n"))
        assert b"\r" not in data
        assert b"\n\n" not in data
        assert not data.startswith(b"\xef\xbb\xbf")
    for split, expected in (("train", 20_000), ("valid", 500), ("test", 500)):
        assert len(lines_of(f"{split}.en")) == len(lines_of(f"{split}.de")) == expected


def test_readme_tells_the_true_checksum_and_line_count_of_every_file():
    readme = (CORPUS / "README.md").read_text(encoding="utf-8")
    for name in FILES:
        digest = hashlib.sha256((CORPUS / name).read_bytes()).hexdigest()
        assert re.search(rf"\| {name} \| {len(lines_of(name)):,} \|.*`{digest}`", readme), name


def test_no_sentence_of_either_language_is_in_the_corpus_twice():
    for side in ("en", "de"):
        lines = [line for split in SPLITS for line in lines_of(f"{split}.{side}")]
        assert len(set(lines)) == len(lines)


def test_every_word_of_valid_and_test_is_in_at_least_three_training_sentences():
    for side in ("en", "de"):
        seen = Counter(word for line in lines_of(f"train.{side}") for word in words_of([line]))
        for split in ("valid", "test"):
            rare = {word for word in words_of(lines_of(f"{split}.{side}")) if seen[word] < 3}
            assert not rare


def test_every_template_is_in_every_split(grammar, made):
    names = {template.__name__ for _, template in grammar.corpus.TEMPLATES}
    assert len(names) == len(grammar.corpus.TEMPLATES) > 80
    for split, examples in made.items():
        assert {example.template for example in examples} == names, split


def test_sentences_are_3_to_25_words_long_and_marked_alike_on_both_sides():
    for split in SPLITS:
        for en, de in zip(lines_of(f"{split}.en"), lines_of(f"{split}.de"), strict=True):
            assert 3 <= len(en.split()) <= 25
            assert 3 <= len(de.split()) <= 25
            assert en[-1] == de[-1]
            assert en[0].isupper()
            assert de[0].isupper()
            assert "  " not in en + de


def test_translation_is_a_function_in_both_directions(grammar):
    german, english = {}, {}
    dice = grammar.dice.Dice(3)
    for _ in range(60):
        for _, template in grammar.corpus.TEMPLATES:
            pair = template(dice)
            assert german.setdefault(pair.en, pair.de) == pair.de
            assert english.setdefault(pair.de, pair.en) == pair.en


def noun_forms(grammar) -> set[str]:
    forms = set()
    for noun in grammar.lexicon.NOUNS.values():
        forms |= {noun.german(case) for case in (0, 1, 2)}
        if noun.de_plural != "-":
            forms |= {noun.german(case, plural=True) for case in (0, 1, 2)}
    forms |= {word for trade in grammar.lexicon.TRADES for word in (trade.man, trade.woman)}
    return forms


def test_german_nouns_are_capitalised(grammar):
    nouns = noun_forms(grammar)
    assert all(form[0].isupper() for form in nouns)
    lowered = {form.lower() for form in nouns}
    verbs = {form for verb in grammar.lexicon.VERBS.values() for form in (*verb.present, verb.infinitive)}
    for split in SPLITS:
        assert not words_of(lines_of(f"{split}.de")) & (lowered - verbs)


def test_other_german_words_are_not_capitalised_inside_a_sentence(grammar):
    allowed = noun_forms(grammar) | {de for _, de in grammar.lexicon.CITIES}
    days = [day.de for day in grammar.times.WEEKDAYS]
    allowed |= {day + part for day in days for part in ("", "morgen", "nachmittag", "abend")}
    allowed |= {month.de for month, _ in grammar.times.MONTHS}
    allowed |= {colour.de.capitalize() for colour in grammar.lexicon.COLOURS}
    names = "Peter Thomas Martin Paul Anna Maria Julia Laura"
    polite = "Sie Ihnen Ihr Ihre Ihren Ihrem Ihrer"
    fixed = "Abend Morgen Nachmittag Viertel Hause Markt Garten Musik Klavier Fußball Karten Tennis Gleis Weg"
    fixed += " Verspätung Geburtstag Zeit Geld Nummer Grad Kilo Gramm Leute Gäste Sonne Nähe"
    allowed |= set(f"{names} {polite} {fixed}".split())
    inside = {word.strip(".,?") for split in SPLITS for line in lines_of(f"{split}.de") for word in line.split()[1:]}
    assert {word for word in inside if word[0].isupper()} - allowed == set()


def test_german_has_a_comma_before_every_subordinate_clause():
    conjunction = re.compile(r"(?<!,) (weil|dass|wenn|ob|obwohl|bevor|wann|wo|wie) (?!viele? )")
    for split in SPLITS:
        for line in lines_of(f"{split}.de"):
            found = conjunction.search(line)
            # "so groß wie der Hut" compares, and begins no clause.
            assert not found or re.search(r" so \w+ wie ", line), line


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (70, "seventy", "siebzig"),
        (100, "one hundred", "hundert"),
        (101, "one hundred and one", "hunderteins"),
        (112, "one hundred and twelve", "hundertzwölf"),
        (237, "two hundred and thirty-seven", "zweihundertsiebenunddreißig"),
        (701, "seven hundred and one", "siebenhunderteins"),
        (1000, "one thousand", "tausend"),
        (1001, "one thousand and one", "tausendeins"),
        (1021, "one thousand and twenty-one", "tausendeinundzwanzig"),
        (1100, "one thousand one hundred", "tausendeinhundert"),
        (2005, "two thousand and five", "zweitausendfünf"),
        (9999, "nine thousand nine hundred and ninety-nine", "neuntausendneunhundertneunundneunzig"),
    ],
)
def test_cardinal_numbers_are_spelled_right(grammar, number, english, german):
    assert grammar.numerals.cardinal_en(number) == english
    assert grammar.numerals.cardinal_de(number) == german


def test_all_numbers_to_9999_have_different_names(grammar):
    for spell in (grammar.numerals.cardinal_en, grammar.numerals.cardinal_de):
        assert len({spell(number) for number in range(10_000)}) == 10_000


@pytest.mark.parametrize("number", [-1, 10_000])
@pytest.mark.parametrize("spell", ["cardinal_en", "cardinal_de", "ordinal_en", "ordinal_stem_de"])
def test_a_number_out_of_range_is_refused_with_the_number(grammar, spell, number):
    with pytest.raises(ValueError, match=f"from 0 to 9999 are spelled out, got {number}"):
        getattr(grammar.numerals, spell)(number)


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (1, "first", "erst"),
        (2, "second", "zweit"),
        (3, "third", "dritt"),
        (5, "fifth", "fünft"),
        (7, "seventh", "siebt"),
        (8, "eighth", "acht"),
        (9, "ninth", "neunt"),
        (12, "twelfth", "zwölft"),
        (16, "sixteenth", "sechzehnt"),
        (20, "twentieth", "zwanzigst"),
        (21, "twenty-first", "einundzwanzigst"),
        (30, "thirtieth", "dreißigst"),
        (31, "thirty-first", "einunddreißigst"),
        (100, "one hundredth", "hundertst"),
        (101, "one hundred and first", "hunderterst"),
        (103, "one hundred and third", "hundertdritt"),
    ],
)
def test_ordinal_numbers_are_spelled_right(grammar, number, english, german):
    assert grammar.numerals.ordinal_en(number) == english
    assert grammar.numerals.ordinal_stem_de(number) == german


@pytest.mark.parametrize(
    ("year", "english", "german"),
    [
        (1889, "eighteen eighty-nine", "achtzehnhundertneunundachtzig"),
        (1900, "nineteen hundred", "neunzehnhundert"),
        (1905, "nineteen oh five", "neunzehnhundertfünf"),
        (2000, "two thousand", "zweitausend"),
        (2001, "two thousand and one", "zweitausendeins"),
    ],
)
def test_years_are_said_as_years(grammar, year, english, german):
    assert grammar.numerals.year_en(year) == english
    assert grammar.numerals.year_de(year) == german


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (9, 0, "nine o'clock", "neun Uhr"),
        (9, 5, "five past nine", "fünf nach neun"),
        (9, 15, "a quarter past nine", "Viertel nach neun"),
        (9, 20, "twenty past nine", "zwanzig nach neun"),
        (9, 25, "twenty-five past nine", "fünf vor halb zehn"),
        (9, 30, "half past nine", "halb zehn"),
        (9, 35, "twenty-five to ten", "fünf nach halb zehn"),
        (9, 40, "twenty to ten", "zwanzig vor zehn"),
        (9, 45, "a quarter to ten", "Viertel vor zehn"),
        (9, 55, "five to ten", "fünf vor zehn"),
        (12, 30, "half past twelve", "halb eins"),
        (12, 45, "a quarter to one", "Viertel vor eins"),
    ],
)
def test_clock_times_are_said_as_in_speech(grammar, hour, minute, english, german):
    assert grammar.times.clock(hour, minute) == (english, german)


def test_all_clock_times_have_different_names(grammar):
    times = [grammar.times.clock(hour, minute) for hour in range(1, 13) for minute in range(0, 60, 5)]
    assert len({time.en for time in times}) == len({time.de for time in times}) == 144


@pytest.mark.parametrize(
    ("noun", "determiner", "adjective", "plural", "cases"),
    [
        ("coat", "THE", "red", False, ("der rote Mantel", "den roten Mantel", "dem roten Mantel")),
        ("coat", "A", "expensive", False, ("ein teurer Mantel", "einen teuren Mantel", "einem teuren Mantel")),
        ("street", "A", "old", False, ("eine alte Straße", "eine alte Straße", "einer alten Straße")),
        ("house", "A", "small", False, ("ein kleines Haus", "ein kleines Haus", "einem kleinen Haus")),
        ("house", "OUR", "new", False, ("unser neues Haus", "unser neues Haus", "unserem neuen Haus")),
        ("apple", "THE", "green", True, ("die grünen Äpfel", "die grünen Äpfel", "den grünen Äpfeln")),
        ("apple", "BARE", "green", True, ("grüne Äpfel", "grüne Äpfel", "grünen Äpfeln")),
        ("customer", "THIS", None, False, ("dieser Kunde", "diesen Kunden", "diesem Kunden")),
        ("car", "HIS", None, True, ("seine Autos", "seine Autos", "seinen Autos")),
    ],
)
def test_articles_and_adjectives_agree_in_gender_number_and_case(grammar, noun, determiner, adjective, plural, cases):
    lexicon = grammar.lexicon
    qualities = {entry.en: entry for entry in lexicon.COLOURS + lexicon.QUALITIES}
    phrase = grammar.inflection.noun_phrase(
        lexicon.NOUNS[noun], getattr(grammar.inflection, determiner), qualities.get(adjective), plural
    )
    assert phrase.cases == cases


def test_prepositions_contract_with_the_article(grammar):
    station = grammar.phrases.the(grammar.lexicon.NOUNS["station"])
    kitchen = grammar.phrases.the(grammar.lexicon.NOUNS["kitchen"])
    hotel = grammar.phrases.the(grammar.lexicon.NOUNS["hotel"])
    assert station.after("zu", 2) == "zum Bahnhof"
    assert kitchen.after("zu", 2) == "zur Küche"
    assert hotel.after("in", 1) == "ins Hotel"
    assert hotel.after("in", 2) == "im Hotel"
    assert station.after("hinter", 2) == "hinter dem Bahnhof"


def test_separable_verb_stands_apart_in_a_main_clause_and_together_in_the_others(grammar):
    clauses, times = grammar.clauses, grammar.dice.Pair("at nine o'clock", "um neun Uhr")
    train = clauses.Subject("the train", "der Zug", 1)
    leave = clauses.Clause(train, clauses.Predicate(grammar.lexicon.VERBS["abfahren"]), time=times)
    assert leave.main() == "der Zug fährt um neun Uhr ab"
    assert leave.inverted() == "fährt der Zug um neun Uhr ab"
    assert leave.subordinate() == "der Zug um neun Uhr abfährt"
    assert leave.statement(fronted=True).de == "um neun Uhr fährt der Zug ab"
    assert leave.question() == ("does the train leave at nine o'clock", "fährt der Zug um neun Uhr ab")
    past = clauses.Clause(train, leave.predicate, clauses.PAST, times)
    assert past.main() == "der Zug ist um neun Uhr abgefahren"
    assert past.subordinate() == "der Zug um neun Uhr abgefahren ist"
    must = clauses.Clause(train, leave.predicate, clauses.HAVE_TO, times)
    assert must.main() == "der Zug muss um neun Uhr abfahren"
    assert must.subordinate() == "der Zug um neun Uhr abfahren muss"
    assert must.english() == "the train has to leave at nine o'clock"


def test_negation_is_kein_for_a_thing_with_ein_and_nicht_elsewhere(grammar):
    clauses, pair = grammar.clauses, grammar.dice.Pair
    buy = grammar.lexicon.VERBS["kaufen"]
    indefinite = clauses.Predicate(buy, pair("a hat", "einen Hut"), no_object=pair("a hat", "keinen Hut"))
    definite = clauses.Predicate(buy, pair("the hat", "den Hut"), place=pair("in Bern", "in Bern"))
    we = grammar.phrases.WE
    assert clauses.Clause(we, indefinite, clauses.PAST, negated=True).statement() == (
        "we did not buy a hat",
        "wir haben keinen Hut gekauft",
    )
    assert clauses.Clause(we, definite, clauses.CAN, negated=True).statement() == (
        "we cannot buy the hat in Bern",
        "wir können den Hut nicht in Bern kaufen",
    )


def test_an_english_pronoun_stands_before_the_particle_of_its_verb(grammar):
    clauses = grammar.clauses
    fetch = clauses.Predicate(grammar.lexicon.VERBS["abholen"], pronoun=grammar.dice.Pair("us", "uns"))
    clause = clauses.Clause(grammar.phrases.HE, fetch, clauses.PAST)
    assert clause.statement() == ("he picked us up", "er hat uns abgeholt")
