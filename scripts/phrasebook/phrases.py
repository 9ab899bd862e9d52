"""Pieces of a sentence: people as subjects and objects, things to buy, counts and prices, places."""

from phrasebook import lexicon as lex
from phrasebook.clauses import Subject
from phrasebook.dice import Dice, Pair
from phrasebook.inflection import (
    DAT,
    HER,
    HIS,
    MY,
    OUR,
    THE,
    THEIR,
    YOUR,
    A,
    Adjective,
    Determiner,
    Noun,
    NounPhrase,
    noun_phrase,
    number_word,
)
from phrasebook.numerals import cardinal_de, cardinal_en, ordinal_en, ordinal_stem_de
from phrasebook.times import measured

MYSELF, WE, YOU = Subject("I", "ich", 0, MY), Subject("we", "wir", 2, OUR), Subject("you", "Sie", 2, YOUR)
HE, SHE = Subject("he", "er", 1, HIS, "m"), Subject("she", "sie", 1, HER, "f")
_NAMES = [
    *(Subject(name, name, 1, HIS, "m") for name in ("Peter", "Thomas", "Martin", "Paul")),
    *(Subject(name, name, 1, HER, "f") for name in ("Anna", "Maria", "Julia", "Laura")),
]


def _subject(phrase: NounPhrase, own: Determiner, gender: str) -> Subject:
    return Subject(phrase.en, phrase.nom, 2 if phrase.gender == "p" else 1, own, gender)


def person(dice: Dice) -> NounPhrase:
    """A person other than the speaker and the listener, as a noun phrase."""
    kind = dice.below(10)
    if kind < 5:
        return noun_phrase(dice.pick(lex.MY_MEN + lex.MY_WOMEN), MY)
    if kind < 8:
        return noun_phrase(dice.pick(lex.MEN + lex.WOMEN), THE)
    if kind == 8:
        return noun_phrase(dice.pick((lex.CHILD, lex.GIRL)), THE)
    return noun_phrase(lex.PARENTS, MY) if dice.chance(0.5) else noun_phrase(lex.CHILD, THE, plural=True)


def third_person(dice: Dice) -> Subject:
    """He, she, a name, or a person with a noun; always someone whose "own" things have a clear pronoun."""
    kind = dice.below(10)
    if kind < 2:
        return dice.pick((HE, SHE))
    if kind < 4:
        return dice.pick(_NAMES)
    if kind < 6:
        return _subject(noun_phrase(dice.pick(lex.MY_MEN), MY), HIS, "m")
    if kind < 8:
        return _subject(noun_phrase(dice.pick(lex.MY_WOMEN), MY), HER, "f")
    if kind == 8:
        men = dice.chance(0.6)
        return _subject(
            noun_phrase(dice.pick(lex.MEN if men else lex.WOMEN), THE), HIS if men else HER, "m" if men else "f"
        )
    many = dice.pick(
        (
            noun_phrase(lex.PARENTS, MY),
            noun_phrase(lex.CHILD, THE, plural=True),
            noun_phrase(dice.pick(lex.MEN), THE, plural=True),
        )
    )
    return _subject(many, THEIR, "p")


def anyone(dice: Dice) -> Subject:
    """Any subject of a statement."""
    return dice.pick((MYSELF, MYSELF, WE)) if dice.chance(0.3) else third_person(dice)


def asked(dice: Dice) -> Subject:
    """The subject of a question: most often the listener."""
    return YOU if dice.chance(0.5) else third_person(dice)


def pronoun_of(subject: Subject) -> Subject | None:
    """The pronoun for a subject in the next clause; None for a plural, where German "sie" would be unclear."""
    return {"m": HE, "f": SHE}.get(subject.gender, subject if subject in (MYSELF, WE, YOU) else None)


def with_pronoun(dice: Dice) -> tuple[Subject, Subject]:
    """A subject that a pronoun can take up in the next clause, and that pronoun."""
    while True:
        subject = anyone(dice)
        pronoun = pronoun_of(subject)
        if pronoun:
            return subject, pronoun


# English object, German accusative, German dative.
OBJECT_PRONOUNS = [
    ("me", "mich", "mir"),
    ("us", "uns", "uns"),
    ("you", "Sie", "Ihnen"),
    ("him", "ihn", "ihm"),
    ("her", "sie", "ihr"),
]


def object_pronoun(dice: Dice, subject: Subject) -> tuple[str, str, str]:
    """A pronoun for someone other than the subject."""
    taken = {"I": ("me", "us"), "we": ("me", "us"), "you": ("you",), "he": ("him",), "she": ("her",)}.get(
        subject.en, ()
    )
    return dice.pick([entry for entry in OBJECT_PRONOUNS if entry[0] not in taken])


def count(dice: Dice, low: int, high: int) -> int:
    """A number to count nouns with; 101, 201, ... are left out because German inflects their "eins"."""
    number = dice.between(low, high)
    return number + 1 if number > 1 and number % 100 == 1 else number


def counted(number: int, noun: Noun, adjective: Adjective | None = None) -> NounPhrase:
    """Two or more things: "three red shoes"."""
    return noun_phrase(noun, number_word(cardinal_en(number), cardinal_de(number)), adjective, plural=True)


def garment(dice: Dice, determiner: Determiner, plural: bool = False) -> NounPhrase:
    """A piece of clothing, usually with a colour or another adjective."""
    noun = dice.pick(lex.CLOTHES + lex.WORN_IN_PAIRS if plural else lex.CLOTHES)
    return noun_phrase(noun, determiner, any_quality(dice, clothes_qualities(noun)), plural)


def clothes_qualities(noun: Noun) -> list[Adjective]:
    """The adjectives, apart from colours, that suit a piece of clothing."""
    long = noun.en in ("coat", "jacket", "dress", "skirt", "scarf", "sock")
    return lex.LONG_CLOTHES_QUALITIES if long else lex.CLOTHES_QUALITIES


def furniture(dice: Dice, determiner: Determiner, plural: bool = False) -> NounPhrase:
    """A piece of furniture, usually with an adjective."""
    return noun_phrase(dice.pick(lex.FURNITURE), determiner, any_quality(dice, lex.QUALITIES), plural)


def any_quality(dice: Dice, qualities: list[Adjective]) -> Adjective | None:
    """A colour, a quality, or nothing."""
    return dice.pick((None, dice.pick(lex.COLOURS), dice.pick(lex.COLOURS), dice.pick(qualities)))


def ware(dice: Dice, determiner: Determiner, plural: bool = False) -> NounPhrase:
    """Something that a shop sells."""
    return (garment if dice.chance(0.65) else furniture)(dice, determiner, plural)


def groceries(dice: Dice) -> Pair:
    """An amount of food or drink from a shop (German accusative)."""
    kind = dice.below(4)
    if kind == 0:
        return portion(dice.between(1, 8), lex.BOTTLE, dice.pick(lex.DRINKS))
    if kind == 1:
        return fruit(dice)
    if kind == 2:
        food, grams = dice.pick(lex.GROCERIES), 50 * dice.between(2, 19)
        return Pair(f"{cardinal_en(grams)} grams of {food.en}", f"{cardinal_de(grams)} Gramm {food.de}")
    food = dice.pick(lex.FRUIT + lex.SNACKS)
    taste = dice.pick((None, dice.pick(lex.TASTES))) if food in lex.FRUIT else None
    phrase = counted(dice.between(2, 12), food, taste)
    return Pair(phrase.en, phrase.acc)


def refreshment(dice: Dice) -> Pair:
    """What guests order: cups, glasses, pieces of cake (German accusative)."""
    number = dice.pick((1, 1, 2, 2, 3, 4, 5, 6))
    kind = dice.below(4)
    if kind == 0:
        return portion(number, lex.PIECE, lex.NOUNS["cake"])
    if kind == 1:
        return portion(number, lex.CUP, dice.pick(lex.HOT_DRINKS))
    return portion(number, dice.pick((lex.BOTTLE, lex.GLASS)), dice.pick(lex.DRINKS))


def portion(number: int, vessel: Noun, content: Noun) -> Pair:
    """A cup of coffee, "eine Tasse Kaffee"; two pieces of cake, "zwei Stück Kuchen"."""
    phrase = noun_phrase(vessel, A) if number == 1 else counted(number, vessel)
    # A piece is a measure here, and German measures stay in the singular.
    german = f"{cardinal_de(number)} Stück" if vessel is lex.PIECE and number > 1 else phrase.acc
    return Pair(f"{phrase.en} of {content.en}", f"{german} {content.de}")


def fruit(dice: Dice) -> Pair:
    """Kilos of fruit or vegetables."""
    noun, number = dice.pick(lex.FRUIT), dice.between(1, 12)
    if number == 1:
        return Pair(f"a kilo of {noun.en_plural}", f"ein Kilo {noun.de_plural}")
    return Pair(f"{cardinal_en(number)} kilos of {noun.en_plural}", f"{cardinal_de(number)} Kilo {noun.de_plural}")


def price(dice: Dice, low: int, high: int) -> Pair:
    """A price in whole euros (German accusative)."""
    return measured(count(dice, low, high), lex.EURO)


def small_price(dice: Dice, high: int) -> Pair:
    """A price in euros and cents: "three euros fifty", "drei Euro fünfzig"."""
    euros = measured(dice.between(1, high), lex.EURO)
    cents = dice.pick((0, 10, 20, 25, 30, 40, 45, 50, 60, 70, 75, 80, 90, 95))
    if not cents:
        return euros
    return Pair(f"{euros.en} {cardinal_en(cents)}", f"{euros.de} {cardinal_de(cents)}")


def ordinal(number: int, noun: Noun, determiner: Determiner = THE) -> NounPhrase:
    """The third house."""
    return noun_phrase(
        noun, determiner, Adjective(ordinal_en(number), ordinal_stem_de(number), ordinal_stem_de(number))
    )


def the(noun: Noun) -> NounPhrase:
    """The noun with the definite article."""
    return noun_phrase(noun, THE)


# English preposition, German preposition: with the dative for where, with the accusative for where to.
SPOTS = [Pair("next to", "neben"), Pair("behind", "hinter"), Pair("in front of", "vor")]
FURNITURE_SPOTS = [*SPOTS, Pair("on", "auf"), Pair("under", "unter")]


def spot(dice: Dice, nouns: list[Noun], spots: list[Pair], case: int) -> Pair:
    """A place next to, behind, in front of... something."""
    preposition, thing = dice.pick(spots), the(dice.pick(nouns))
    return Pair(f"{preposition.en} {thing.en}", thing.after(preposition.de, case))


def to_place(dice: Dice) -> Pair:
    """To a building: "to the station", "zum Bahnhof"."""
    building = the(dice.pick(lex.BUILDINGS))
    return Pair(f"to {building.en}", building.after("zu", DAT))


def in_city(dice: Dice) -> Pair:
    """In a city."""
    en, de = dice.pick(lex.CITIES)
    return Pair(f"in {en}", f"in {de}")


def service(dice: Dice, arriving: bool = False) -> Subject:
    """The train to Berlin; the bus from Cologne."""
    noun = dice.pick(lex.named("train, train, express train, bus"))
    return route(dice, the(noun), noun.gender, arriving)


def route(dice: Dice, phrase: NounPhrase, gender: str, arriving: bool = False) -> Subject:
    """The vehicle with the city that it goes to or comes from."""
    en, de = dice.pick(lex.CITIES)
    if arriving:
        return Subject(f"{phrase.en} from {en}", f"{phrase.nom} aus {de}", 1, THE, gender)
    return Subject(f"{phrase.en} to {en}", f"{phrase.nom} nach {de}", 1, THE, gender)


def subject_of(phrase: NounPhrase) -> Subject:
    """A thing as a subject."""
    return Subject(phrase.en, phrase.nom, 2 if phrase.gender == "p" else 1)
