"""Sentences about trains, buses, tickets and distances."""

from dataclasses import replace

from phrasebook import lexicon as lex
from phrasebook.clauses import HAVE_TO, IF, PAST, THAT, WANT, WHETHER, WILL, Clause, Predicate, joined
from phrasebook.dice import EMPTY, Dice, Pair, sentence
from phrasebook.inflection import A, noun_phrase
from phrasebook.lexicon import VERBS, named
from phrasebook.numerals import cardinal_de, cardinal_en
from phrasebook.phrases import (
    MYSELF,
    WE,
    YOU,
    anyone,
    count,
    counted,
    in_city,
    price,
    route,
    service,
    the,
    third_person,
)
from phrasebook.times import WEEKDAYS, at_clock, date, duration, measured, on_plain_weekday, timetable

LEAVE, ARRIVE = Predicate(VERBS["abfahren"]), Predicate(VERBS["ankommen"])


def platform(dice: Dice, en: str, de: str) -> Pair:
    """From platform twelve."""
    number = dice.between(1, 24)
    return Pair(f"{en} platform {cardinal_en(number)}", f"{de} Gleis {cardinal_de(number)}")


def departure(dice: Dice) -> Clause:
    """The train to Berlin leaves at nine o'clock from platform three."""
    subject = service(dice)
    place = platform(dice, "from", "von") if "train" in subject.en and dice.chance(0.35) else EMPTY
    return Clause(subject, Predicate(VERBS["abfahren"], place=place), time=timetable(dice))


def arrival(dice: Dice) -> Clause:
    """The train from Berlin arrives in Cologne at nine o'clock."""
    subject = service(dice, arriving=True)
    if "train" in subject.en and dice.chance(0.4):
        return Clause(subject, Predicate(VERBS["ankommen"], place=platform(dice, "on", "auf")), time=timetable(dice))
    place = in_city(dice) if dice.chance(0.4) else EMPTY
    return Clause(subject, Predicate(VERBS["ankommen"], place=place), time=timetable(dice))


def delay(dice: Dice) -> Pair:
    """The English and the German predicate of lateness."""
    minutes = measured(dice.between(1, 90), lex.MINUTE)
    return Pair(f"{minutes.en} late", f"{minutes.de} Verspätung")


def train_leaves(dice: Dice) -> Pair:
    return sentence(*departure(dice).statement(fronted=dice.chance(0.3)))


def train_arrives(dice: Dice) -> Pair:
    return sentence(*arrival(dice).statement(fronted=dice.chance(0.3)))


def train_left(dice: Dice) -> Pair:
    clause = Clause(service(dice), LEAVE, PAST, at_clock(dice))
    return sentence(*clause.statement())


def does_train_leave(dice: Dice) -> Pair:
    clause = departure(dice) if dice.chance(0.6) else arrival(dice)
    return sentence(*clause.question(), mark="?")


def when_does_train_leave(dice: Dice) -> Pair:
    day = dice.pick((on_plain_weekday, date))(dice) if dice.chance(0.6) else EMPTY
    leaving = dice.chance(0.5)
    clause = Clause(service(dice, arriving=not leaving), LEAVE if leaving else ARRIVE, time=day)
    kind = dice.below(3)
    if kind == 0:
        return sentence(f"when {clause.english_question()}", f"wann {clause.inverted()}", "?")
    if kind == 1:
        return sentence(f"do you know when {clause.english()}", f"wissen Sie, wann {clause.subordinate()}", "?")
    return sentence(
        f"can you tell me when {clause.english()}", f"können Sie mir sagen, wann {clause.subordinate()}", "?"
    )


def which_platform(dice: Dice) -> Pair:
    noun = dice.pick(named("train, express train"))
    clause = Clause(route(dice, the(noun), noun.gender), LEAVE, time=timetable(dice) if dice.chance(0.4) else EMPTY)
    if dice.chance(0.5):
        return sentence(
            f"from which platform {clause.english_question()}", f"von welchem Gleis {clause.inverted()}", "?"
        )
    return sentence(
        f"I do not know from which platform {clause.english()}",
        f"ich weiß nicht, von welchem Gleis {clause.subordinate()}",
    )


def someone_says_train_leaves(dice: Dice) -> Pair:
    speaker = third_person(dice)
    matrix = dice.pick(
        (
            Clause(speaker, Predicate(VERBS["sagen"])),
            Clause(speaker, Predicate(VERBS["glauben"])),
            Clause(speaker, Predicate(VERBS["hoffen"])),
            Clause(MYSELF, Predicate(VERBS["wissen"])),
            Clause(MYSELF, Predicate(VERBS["glauben"])),
        )
    )
    return sentence(*joined(matrix, THAT, departure(dice) if dice.chance(0.6) else arrival(dice)))


def whether_train_leaves(dice: Dice) -> Pair:
    clause = departure(dice) if dice.chance(0.6) else arrival(dice)
    if dice.chance(0.5):
        return sentence(f"do you know whether {clause.english()}", f"wissen Sie, ob {clause.subordinate()}", "?")
    if dice.chance(0.5):
        return sentence(f"I do not know whether {clause.english()}", f"ich weiß nicht, ob {clause.subordinate()}")
    return sentence(*joined(Clause(third_person(dice), Predicate(VERBS["fragen"])), WHETHER, clause))


def train_is_late(dice: Dice) -> Pair:
    late, subject = delay(dice), service(dice, arriving=dice.chance(0.6))
    if dice.chance(0.3):
        return sentence(f"{subject.en} was {late.en}", f"{subject.de} hatte {late.de}")
    return sentence(f"{subject.en} is {late.en}", f"{subject.de} hat {late.de}")


def late_because_of_train(dice: Dice) -> Pair:
    late, subject, person = delay(dice), service(dice, arriving=dice.chance(0.5)), anyone(dice)
    missed = the(dice.pick(named("concert, meeting, ferry, exam, game, lecture, guided tour")))
    clause = Clause(person, Predicate(VERBS["verpassen"], Pair(missed.en, missed.acc)), PAST)
    return sentence(
        f"{clause.english()} because {subject.en} was {late.en}", f"{clause.main()}, weil {subject.de} {late.de} hatte"
    )


def if_train_is_late(dice: Dice) -> Pair:
    subject, person = service(dice, arriving=dice.chance(0.5)), anyone(dice)
    taxi = noun_phrase(lex.NOUNS["taxi"], A)
    mother = noun_phrase(dice.pick(lex.MY_MEN + lex.MY_WOMEN), person.own)
    main = Clause(
        person,
        dice.pick(
            (
                Predicate(VERBS["nehmen"], Pair(taxi.en, taxi.acc)),
                Predicate(VERBS["anrufen"], Pair(mother.en, mother.acc)),
                Predicate(VERBS["bleiben"], place=Pair("in the hotel", "im Hotel")),
                Predicate(VERBS["verpassen"], Pair("the meeting", "die Besprechung")),
                Predicate(VERBS["umsteigen"], place=in_city(dice)),
            )
        ),
        WILL,
    )
    return sentence(
        f"if {subject.en} is late, {main.english()}", f"wenn {subject.de} Verspätung hat, {main.inverted()}"
    )


def train_that_leaves(dice: Dice) -> Pair:
    noun, time = dice.pick(named("train, bus, express train, ferry, ship")), at_clock(dice)
    phrase = the(noun)
    # The relative pronoun has the form of the article.
    relative = Pair(f"{phrase.en} that leaves {time.en}", f"{phrase.nom}, {phrase.nom.split()[0]} {time.de} abfährt,")
    if noun.en in ("ferry", "ship") or dice.chance(0.5):
        late = delay(dice)
        return sentence(f"{relative.en} is {late.en}", f"{relative.de} hat {late.de}")
    en, de = dice.pick(lex.CITIES)
    return sentence(f"{relative.en} goes to {en}", f"{relative.de} fährt nach {de}")


def ticket_price(dice: Dice) -> Pair:
    (en, de), cost = dice.pick(lex.CITIES), price(dice, 5, 299)
    number = dice.pick((1, 1, 2, 3, 4, 5, 6))
    if number == 1:
        return sentence(f"a ticket to {en} costs {cost.en}", f"eine Fahrkarte nach {de} kostet {cost.de}")
    return sentence(
        f"{cardinal_en(number)} tickets to {en} cost {cost.en}",
        f"{cardinal_de(number)} Fahrkarten nach {de} kosten {cost.de}",
    )


def tickets_please(dice: Dice) -> Pair:
    (en, de), number = dice.pick(lex.CITIES), dice.between(1, 9)
    ticket = noun_phrase(lex.NOUNS["ticket"], A) if number == 1 else counted(number, lex.NOUNS["ticket"])
    when = dice.pick((EMPTY, *(Pair(f" for {day.en}", f" für {day.de}") for day in WEEKDAYS)))
    who = dice.pick(
        (Pair("I would like", "ich möchte"), Pair("we would like", "wir möchten"), Pair("I need", "ich brauche"))
    )
    return sentence(f"{who.en} {ticket.en} to {en}{when.en}", f"{who.de} {ticket.acc} nach {de}{when.de}")


def city_distance(dice: Dice) -> Pair:
    first, second = dice.pick_two(lex.CITIES)
    far = measured(count(dice, 20, 999), lex.KILOMETRE)
    return sentence(
        f"it is {far.en} from {first[0]} to {second[0]}", f"von {first[1]} nach {second[1]} sind es {far.de}"
    )


def journey_takes(dice: Dice) -> Pair:
    noun, (first, second) = dice.pick(named("journey, flight")), dice.pick_two(lex.CITIES)
    route_en, route_de = (
        f"the {noun.en} from {first[0]} to {second[0]}",
        f"{the(noun).nom} von {first[1]} nach {second[1]}",
    )
    if dice.chance(0.25):
        return sentence(f"how long does {route_en} take", f"wie lange dauert {route_de}", "?")
    time = duration(dice)
    return sentence(f"{route_en} takes {time.en}", f"{route_de} dauert {time.de}")


def change_trains(dice: Dice) -> Pair:
    (to_en, to_de), (in_en, in_de) = dice.pick_two(lex.CITIES)
    subject = dice.pick((MYSELF, WE, YOU))
    change = Clause(subject, Predicate(VERBS["umsteigen"], place=Pair(f"in {in_en}", f"in {in_de}")), HAVE_TO)
    if dice.chance(0.5):
        goal = Predicate(VERBS["fahren"], place=Pair(f"to {to_en}", f"nach {to_de}"))
        return sentence(*joined(change, IF, Clause(subject, goal, WANT)))
    on_the_way = Pair(f"on the way to {to_en}", f"auf dem Weg nach {to_de}")
    return sentence(*replace(change, time=on_the_way).statement(fronted=True))


TEMPLATES = (
    (5, train_leaves),
    (5, train_arrives),
    (2, train_left),
    (4, does_train_leave),
    (4, when_does_train_leave),
    (3, which_platform),
    (6, someone_says_train_leaves),
    (5, whether_train_leaves),
    (4, train_is_late),
    (4, late_because_of_train),
    (3, if_train_is_late),
    (3, train_that_leaves),
    (4, ticket_price),
    (2, tickets_please),
    (5, city_distance),
    (3, journey_takes),
    (3, change_trains),
)
