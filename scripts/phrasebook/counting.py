"""Sentences with numbers: sums, ages, sizes, rooms, amounts."""

from phrasebook import lexicon as lex
from phrasebook.clauses import Clause, Predicate, Subject
from phrasebook.dice import EMPTY, Dice, Pair, sentence
from phrasebook.inflection import DAT, MY, OUR, YOUR, A, noun_phrase
from phrasebook.lexicon import VERBS, named
from phrasebook.numerals import cardinal_de, cardinal_en
from phrasebook.phrases import anyone, count, counted, in_city, the, third_person
from phrasebook.times import measured


def total(dice: Dice) -> Pair:
    first, second = dice.between(1, 99), dice.between(1, 99)
    if dice.chance(0.5):
        sign, result = Pair("plus", "plus"), first + second
    else:
        first, second = max(first, second), min(first, second)
        sign, result = Pair("minus", "minus"), first - second
    return sentence(
        f"{cardinal_en(first)} {sign.en} {cardinal_en(second)} is {cardinal_en(result)}",
        f"{cardinal_de(first)} {sign.de} {cardinal_de(second)} ist {cardinal_de(result)}",
    )


def large_number(dice: Dice) -> int:
    """A number of three digits, or thousands and hundreds."""
    return dice.between(100, 999) if dice.chance(0.75) else 100 * dice.between(10, 99)


def room_number(dice: Dice) -> Pair:
    number = dice.between(1, 999)
    en, de = cardinal_en(number), cardinal_de(number)
    if dice.chance(0.5):
        room = noun_phrase(lex.NOUNS["room"], dice.pick((MY, OUR, YOUR)))
        return sentence(f"{room.en} has the number {en}", f"{room.nom} hat die Nummer {de}")
    predicate = Predicate(VERBS["wohnen"], place=Pair(f"in room {en}", f"in Zimmer {de}"))
    return sentence(*Clause(third_person(dice), predicate).statement())


def has_many(dice: Dice) -> Pair:
    owner, things = dice.pick(
        (
            ("book", "page"),
            ("village", "inhabitant"),
            ("school", "pupil"),
            ("hotel", "room"),
            ("theatre", "seat"),
            ("cinema", "seat"),
            ("library", "book"),
            ("university", "student"),
        )
    )
    phrase, noun = the(lex.NOUNS[owner]), lex.NOUNS[things]
    if dice.chance(0.08):
        return sentence(
            f"how many {noun.en_plural} does {phrase.en} have", f"wie viele {noun.de_plural} hat {phrase.nom}", "?"
        )
    number = large_number(dice)
    amount = counted(number + 1 if number % 100 == 1 else number, noun)
    return sentence(f"{phrase.en} has {amount.en}", f"{phrase.nom} hat {amount.acc}")


def years_of(dice: Dice, who: Subject) -> int:
    """An age that suits a person."""
    if any(word in who.en for word in ("grandfather", "grandmother")):
        return count(dice, 60, 99)
    young = any(word in who.en for word in ("son", "daughter", "boy", "child"))
    return count(dice, 2, 25) if young else count(dice, 18, 70)


def age(dice: Dice) -> Pair:
    who = third_person(dice)
    years = years_of(dice, who)
    en, de = f"{cardinal_en(years)} years old", f"{cardinal_de(years)} Jahre alt"
    if dice.chance(0.25):
        become = "werden" if who.person == 2 else "wird"
        return sentence(f"{who.en} will be {en} next year", f"{who.de} {become} nächstes Jahr {de}")
    return sentence(*Clause(who, Predicate(lex.BE, place=Pair(en, de))).statement())


def temperature(dice: Dice) -> Pair:
    place, degrees = in_city(dice), dice.between(2, 39)
    sign = Pair("minus ", "minus ") if degrees < 20 and dice.chance(0.4) else EMPTY
    warm = Pair(f"{sign.en}{cardinal_en(degrees)} degrees", f"{sign.de}{cardinal_de(degrees)} Grad")
    when = dice.pick((Pair("today it is", "heute sind es"), Pair("yesterday it was", "gestern waren es")))
    return sentence(f"{when.en} {warm.en} {place.en}", f"{when.de} {place.de} {warm.de}")


def weight(dice: Dice) -> Pair:
    thing, kilos = (
        the(dice.pick(lex.FURNITURE + named("suitcase, backpack, bag, bicycle, washing machine"))),
        count(dice, 2, 199),
    )
    return sentence(f"{thing.en} weighs {cardinal_en(kilos)} kilos", f"{thing.nom} wiegt {cardinal_de(kilos)} Kilo")


def dimensions(dice: Dice) -> Pair:
    high = dice.chance(0.5)
    thing = the(dice.pick(named("tower, church, tree, castle" if high else "bridge, street, ship, train")))
    size, quality = measured(count(dice, 2, 399), lex.METRE), Pair("high", "hoch") if high else Pair("long", "lang")
    return sentence(f"{thing.en} is {size.en} {quality.en}", f"{thing.nom} ist {size.de} {quality.de}")


def there_are(dice: Dice) -> Pair:
    room = the(dice.pick(lex.ROOMS))
    number = dice.between(1, 20)
    noun = dice.pick(lex.FURNITURE + named("window, door"))
    thing = noun_phrase(noun, A) if number == 1 else counted(number, noun)
    return sentence(
        f"there {'is' if number == 1 else 'are'} {thing.en} in {room.en}",
        f"{room.after('in', DAT)} gibt es {thing.acc}",
    )


def owns(dice: Dice) -> Pair:
    who, number = anyone(dice), dice.pick((1, 1, 2, 3, 4, 5, 6))
    noun = dice.pick(named("brother, sister, uncle, aunt, son, daughter, child, bicycle, car, house, boat, camera"))
    thing = noun_phrase(noun, A) if number == 1 else counted(number, noun)
    nothing = Pair(thing.en, "k" + thing.acc) if number == 1 else None
    predicate = Predicate(lex.HAVE, Pair(thing.en, thing.acc), no_object=nothing)
    return sentence(*Clause(who, predicate, negated=number == 1 and dice.chance(0.4)).statement())


def bus_number(dice: Dice) -> Pair:
    number, goal = dice.between(1, 199), the(dice.pick(lex.BUILDINGS))
    bus = dice.pick((Pair("bus", "Bus"), Pair("tram", "Straßenbahn")))
    article, other = ("der", "den") if bus.en == "bus" else ("die", "die")
    name = Pair(f"{bus.en} number {cardinal_en(number)}", f"{bus.de} Nummer {cardinal_de(number)}")
    if dice.chance(0.5):
        return sentence(f"{name.en} goes to {goal.en}", f"{article} {name.de} fährt {goal.after('zu', DAT)}")
    return sentence(
        f"please take {name.en} to {goal.en}", f"nehmen Sie bitte {other} {name.de} {goal.after('zu', DAT)}"
    )


def invited_guests(dice: Dice) -> Pair:
    event, guests = the(dice.pick(named("concert, party, game, lecture, guided tour"))), count(dice, 10, 399)
    kind = dice.pick((Pair("people", "Leute"), Pair("guests", "Gäste")))
    en, de = f"{cardinal_en(guests)} {kind.en}", f"{cardinal_de(guests)} {kind.de}"
    when = dice.pick(
        (Pair("last year", "letztes Jahr"), Pair("yesterday", "gestern"), Pair("last week", "letzte Woche"))
    )
    return sentence(f"{when.en} {en} came to {event.en}", f"{when.de} sind {de} {event.after('zu', DAT)} gekommen")


TEMPLATES = (
    (6, total),
    (5, room_number),
    (6, has_many),
    (4, age),
    (2, temperature),
    (3, weight),
    (3, dimensions),
    (3, there_are),
    (2, owns),
    (4, bus_number),
    (4, invited_guests),
)
