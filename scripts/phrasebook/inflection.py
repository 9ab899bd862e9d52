"""Words with their forms: nouns, adjectives and articles that agree in gender, number and case, and verbs."""

from dataclasses import dataclass

NOM, ACC, DAT = 0, 1, 2
PLURAL = "p"

# Rows are nominative, accusative, dative; columns masculine, feminine, neuter, plural.
_THE = (("der", "die", "das", "die"), ("den", "die", "das", "die"), ("dem", "der", "dem", "den"))
_THIS = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))
_A = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"))
_WEAK = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"))
_MIXED = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en"))
_COLUMN = {"m": 0, "f": 1, "n": 2, PLURAL: 3}
_CONTRACTED = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "an das": "ans",
    "zu dem": "zum",
    "zu der": "zur",
    "bei dem": "beim",
    "von dem": "vom",
}


@dataclass(frozen=True)
class Noun:
    """A noun in both languages; `weak` is the form outside the nominative of nouns such as der Kunde, den Kunden."""

    en: str
    en_plural: str
    de: str
    gender: str
    de_plural: str
    weak: str = ""

    def german(self, case: int, plural: bool = False) -> str:
        """The German form without article."""
        if plural:
            return self.de_plural + ("n" if case == DAT and self.de_plural[-1] not in "ns" else "")
        return self.weak if self.weak and case != NOM else self.de


@dataclass(frozen=True)
class Adjective:
    """An adjective, the stem that takes its endings (teuer, teur-), and its comparative."""

    en: str
    de: str
    stem: str
    en_more: str = ""
    de_more: str = ""


@dataclass(frozen=True)
class Determiner:
    """An article-like word: `table` gives its German endings, `adjective` those of an adjective after it."""

    en: str
    stem: str
    table: tuple[tuple[str, ...], ...] | None
    adjective: tuple[tuple[str, ...], ...] = _MIXED

    def german(self, case: int, gender: str) -> str:
        """The form that agrees with a gender ('m', 'f', 'n', or 'p' for the plural) and a case."""
        return self.stem + self.table[case][_COLUMN[gender]] if self.table else self.stem


THE = Determiner("the", "", _THE, _WEAK)
THIS = Determiner("this", "dies", _THIS, _WEAK)
A = Determiner("a", "ein", _A)
NO = Determiner("no", "kein", _A)
MY, OUR, HIS = Determiner("my", "mein", _A), Determiner("our", "unser", _A), Determiner("his", "sein", _A)
HER, THEIR, YOUR = Determiner("her", "ihr", _A), Determiner("their", "ihr", _A), Determiner("your", "Ihr", _A)
BARE = Determiner("", "", None, _THIS)


def number_word(en: str, de: str) -> Determiner:
    """A number from two on as a determiner; it does not change, and adjectives after it end as without an article."""
    return Determiner(en, de, None, _THIS)


@dataclass(frozen=True)
class NounPhrase:
    """A noun with determiner and adjective: English text, and German text for each case."""

    en: str
    cases: tuple[str, str, str]
    gender: str

    @property
    def nom(self) -> str:
        """The subject form."""
        return self.cases[NOM]

    @property
    def acc(self) -> str:
        """The direct object."""
        return self.cases[ACC]

    @property
    def dat(self) -> str:
        """The indirect object."""
        return self.cases[DAT]

    def after(self, preposition: str, case: int) -> str:
        """The phrase after a preposition, contracted where German contracts: "zum Bahnhof"."""
        article, _, rest = self.cases[case].partition(" ")
        short = _CONTRACTED.get(f"{preposition} {article}")
        return f"{short} {rest}" if short else f"{preposition} {self.cases[case]}"


def article_en(word: str) -> str:
    """The English indefinite article for the word that follows it."""
    return "an" if word[0] in "aeiou" and not word.startswith(("uni", "one")) else "a"


def ending_en(determiner: Determiner, text: str) -> str:
    """English determiner and text with "a" or "an" chosen."""
    word = article_en(text) if determiner is A else determiner.en
    return f"{word} {text}" if word else text


def noun_phrase(
    noun: Noun, determiner: Determiner, adjective: Adjective | None = None, plural: bool = False
) -> NounPhrase:
    """The noun with its determiner and adjective, in every case."""
    gender = PLURAL if plural else noun.gender
    text = (f"{adjective.en} " if adjective else "") + (noun.en_plural if plural else noun.en)
    cases = []
    for case in (NOM, ACC, DAT):
        words = [determiner.german(case, gender)]
        if adjective:
            words.append(adjective.stem + determiner.adjective[case][_COLUMN[gender]])
        words.append(noun.german(case, plural))
        cases.append(" ".join(word for word in words if word))
    return NounPhrase(ending_en(determiner, text), (cases[0], cases[1], cases[2]), gender)


def ending_de(stem: str, determiner: Determiner, case: int, gender: str) -> str:
    """An adjective stem, or that of an ordinal, with the ending it takes after the determiner."""
    return stem + determiner.adjective[case][_COLUMN[gender]]


@dataclass(frozen=True)
class Verb:
    """A verb in both languages.

    The German present has the forms of ich, er and wir, in this order; `prefix` is the part that a main clause puts
    last. Verbs with `preterite` (sein, haben) use it for the past, the others the perfect.
    """

    en: str
    en_third: str
    en_past: str
    stem_infinitive: str
    prefix: str
    present: tuple[str, str, str]
    participle: str
    auxiliary: str
    preterite: tuple[str, str, str] | None = None

    @property
    def infinitive(self) -> str:
        """The German infinitive, with its prefix."""
        return self.prefix + self.stem_infinitive


def _third_en(base: str) -> str:
    head, space, particle = base.partition(" ")
    if head.endswith(("s", "sh", "ch", "o")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeou":
        head = head[:-1] + "ies"
    else:
        head = "has" if head == "have" else head + "s"
    return head + space + particle


def verb(en: str, en_past: str, infinitive: str, er_form: str, participle: str, auxiliary: str = "haben") -> Verb:
    """A verb from its dictionary forms; a bar in the infinitive, "ab|fahren", marks a prefix that separates."""
    prefix, _, stem = infinitive.rpartition("|")
    ich_form = stem.removesuffix("en") + "e"
    return Verb(en, _third_en(en), en_past, stem, prefix, (ich_form, er_form, stem), participle, auxiliary)
