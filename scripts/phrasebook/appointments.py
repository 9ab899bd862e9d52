"""Sentences about clock times, dates, events and appointments."""

from dataclasses import replace

from phrasebook import lexicon as lex
from phrasebook.clauses import BECAUSE, PAST, THAT, WILL, Clause, Predicate, joined
from phrasebook.dice import EMPTY, Dice, Pair, join, sentence
from phrasebook.inflection import DAT, MY, noun_phrase
from phrasebook.lexicon import VERBS, named
from phrasebook.numerals import year_de, year_en
from phrasebook.phrases import MYSELF, anyone, subject_of, the, third_person, with_pronoun
from phrasebook.times import (
    WEEKDAYS,
    any_clock,
    at_clock,
    date,
    day_of_month,
    duration,
    every_weekday,
    on_plain_weekday,
    on_weekday,
    past_day,
    timetable,
    with_clock,
)

APPOINTMENT = Pair("an appointment", "einen Termin")


def what_time(dice: Dice) -> Pair:
    time = any_clock(dice)
    word = dice.pick(
        (EMPTY, Pair("now", "jetzt"), Pair("already", "schon"), Pair("almost", "fast"), Pair("exactly", "genau"))
    )
    return sentence(join("it is", word.en, time.en), join("es ist", word.de, time.de))


def event_runs(dice: Dice) -> Pair:
    event, start, end = the(dice.pick(lex.EVENTS)), any_clock(dice, 1, 5), any_clock(dice, 6, 11)
    kind = dice.below(3)
    if kind == 0:
        day = on_plain_weekday(dice)
        return sentence(
            f"{event.en} begins at {start.en} {day.en} and ends at {end.en}",
            f"{event.nom} beginnt {day.de} um {start.de} und endet um {end.de}",
        )
    begins = dice.chance(0.6)
    predicate = Predicate(VERBS["beginnen" if begins else "enden"])
    clause = Clause(subject_of(event), predicate, time=timetable(dice))
    return sentence(*clause.statement(fronted=kind == 2))


def event_place(dice: Dice) -> Pair:
    place = the(
        dice.pick(named("castle, town hall, theatre, school, hotel, park, university, church, library, museum"))
    )
    predicate = Predicate(VERBS["stattfinden"], place=Pair(f"in {place.en}", place.after("in", DAT)))
    event = subject_of(the(dice.pick(lex.EVENTS)))
    kind = dice.below(4)
    if kind == 0:
        return sentence(*Clause(event, predicate, PAST, past_day(dice)).statement(fronted=dice.chance(0.4)))
    if kind == 1:
        return sentence(*Clause(event, predicate, WILL, date(dice)).statement(fronted=dice.chance(0.4)))
    clause = Clause(event, predicate, time=timetable(dice))
    if kind == 2:
        return sentence(*clause.statement(fronted=dice.chance(0.4)))
    return sentence(*joined(Clause(third_person(dice), Predicate(VERBS["sagen"])), THAT, clause))


def event_lasts(dice: Dice) -> Pair:
    event, time = the(dice.pick(lex.EVENTS)), duration(dice)
    if dice.chance(0.3):
        return sentence(f"{event.en} lasted {time.en}", f"{event.nom} hat {time.de} gedauert")
    return sentence(f"{event.en} lasts {time.en}", f"{event.nom} dauert {time.de}")


def opening_hours(dice: Dice) -> Pair:
    shop, start, end = the(dice.pick(lex.SHOPS)), any_clock(dice, 6, 11), any_clock(dice, 1, 8)
    day = dice.pick((EMPTY, on_plain_weekday(dice)))
    hours = Pair(f"from {start.en} to {end.en}", f"von {start.de} bis {end.de}")
    if day.en and dice.chance(0.5):
        return sentence(f"{day.en} {shop.en} is open {hours.en}", f"{day.de} ist {shop.nom} {hours.de} geöffnet")
    return sentence(
        f"{shop.en} is open {hours.en} {day.en}".rstrip(),
        " ".join(f"{shop.nom} ist {day.de} {hours.de} geöffnet".split()),
    )


def shop_opens(dice: Dice) -> Pair:
    predicate = Predicate(VERBS[dice.pick(("aufmachen", "zumachen"))])
    clause = Clause(subject_of(the(dice.pick(lex.SHOPS))), predicate, time=timetable(dice))
    kind = dice.below(5)
    if kind < 2:
        return sentence(*clause.statement(fronted=kind == 1))
    if kind == 2:
        clause = replace(clause, time=on_plain_weekday(dice))
        return sentence(f"do you know when {clause.english()}", f"wissen Sie, wann {clause.subordinate()}", "?")
    if kind == 3:
        return sentence(*clause.question(), mark="?")
    return sentence(*joined(Clause(MYSELF, Predicate(VERBS["glauben"])), THAT, clause))


def what_date(dice: Dice) -> Pair:
    day, month = day_of_month(dice, 0)
    weekday = dice.pick(WEEKDAYS)
    opening = dice.pick(
        (Pair("today is", "heute ist"), Pair("tomorrow is", "morgen ist"), Pair("yesterday was", "gestern war"))
    )
    if dice.chance(0.3):
        return sentence(f"{opening.en} the {day.en} of {month.en}", f"{opening.de} der {day.de} {month.de}")
    return sentence(
        f"{opening.en} {weekday.en}, the {day.en} of {month.en}", f"{opening.de} {weekday.de}, der {day.de} {month.de}"
    )


def birthday(dice: Dice) -> Pair:
    who, day = noun_phrase(dice.pick(lex.MY_MEN + lex.MY_WOMEN), MY), date(dice)
    return sentence(f"{who.en}'s birthday is {day.en}", f"{who.nom} hat {day.de} Geburtstag")


def born(dice: Dice) -> Pair:
    who = third_person(dice)
    grown_up = who.en.startswith("my ") and who.en not in ("my son", "my daughter")
    year = dice.between(1935, 1985) if grown_up else dice.between(1975, 2020)
    city = dice.pick(lex.CITIES)
    place = Pair(f" in {city[0]}", f" in {city[1]}") if dice.chance(0.5) else EMPTY
    verb_de = "wurden" if who.person == 2 else "wurde"
    return sentence(
        f"{who.en} {who.be(past=True)} born{place.en} in {year_en(year)}",
        f"{who.de} {verb_de} {year_de(year)}{place.de} geboren",
    )


def built(dice: Dice) -> Pair:
    building = the(dice.pick([place for place in lex.BUILDINGS if place.en not in ("park", "market square")]))
    year = dice.between(1850, 2020)
    return sentence(f"{building.en} was built in {year_en(year)}", f"{building.nom} wurde {year_de(year)} gebaut")


def appointment(dice: Dice) -> Pair:
    host = the(dice.pick(named("doctor, boss, teacher, nurse")))
    who, day = anyone(dice), dice.pick((on_weekday(dice), date(dice), with_clock(dice, on_plain_weekday(dice))))
    mood = dice.pick(("present", "past"))
    predicate = Predicate(
        lex.HAVE,
        APPOINTMENT,
        Pair(f"with {host.en}", host.after("bei", DAT)),
        no_object=Pair("an appointment", "keinen Termin"),
    )
    clause = Clause(who, predicate, time=day) if mood == "present" else Clause(who, predicate, PAST, past_day(dice))
    if dice.chance(0.15):
        clause = replace(clause, negated=True)
    return sentence(*clause.statement(fronted=dice.chance(0.4)))


def appointment_moved(dice: Dice) -> Pair:
    event = the(dice.pick([*named("appointment"), *lex.EVENTS]))
    if dice.chance(0.5):
        (first, second) = dice.pick_two(WEEKDAYS)
        old, new = Pair(f"from {first.en}", f"von {first.de}"), Pair(f"to {second.en}", f"auf {second.de}")
    else:
        start, end = any_clock(dice), any_clock(dice)
        old, new = Pair(f"from {start.en}", f"von {start.de}"), Pair(f"to {end.en}", f"auf {end.de}")
    return sentence(f"{event.en} was moved {old.en} {new.en}", f"{event.nom} wurde {old.de} {new.de} verschoben")


def have_time(dice: Dice) -> Pair:
    day = dice.pick((with_clock(dice, on_plain_weekday(dice)), date(dice), on_weekday(dice), at_clock(dice)))
    if dice.chance(0.6):
        return sentence(f"do you have time {day.en}", f"haben Sie {day.de} Zeit", "?")
    who = anyone(dice)
    clause = Clause(
        who, Predicate(lex.HAVE, Pair("time", "Zeit"), no_object=Pair("time", "keine Zeit")), time=day, negated=True
    )
    return sentence(*clause.statement(fronted=dice.chance(0.3)))


def does_every_day(dice: Dice) -> Pair:
    time, day = any_clock(dice), every_weekday(dice)
    verb = dice.pick(("aufstehen", "fernsehen", "einkaufen", "zurückkommen"))
    when = Pair(f"at {time.en} {day.en}", f"{day.de} um {time.de}")
    return sentence(*Clause(anyone(dice), Predicate(VERBS[verb]), time=when).statement(fronted=dice.chance(0.2)))


def tired_because(dice: Dice) -> Pair:
    subject, pronoun = with_pronoun(dice)
    tired = Clause(subject, Predicate(lex.BE, place=Pair("tired", "müde")), negated=dice.chance(0.4))
    verb = VERBS[dice.pick(("aufstehen", "zurückkommen", "ankommen", "einschlafen"))]
    time = any_clock(dice)
    reason = Clause(pronoun, Predicate(verb), PAST, Pair(f"at {time.en}", f"um {time.de}"))
    return sentence(*joined(tired, BECAUSE, reason))


def last_until(dice: Dice) -> Pair:
    who, time = anyone(dice), any_clock(dice)
    verb, place = dice.pick(
        (
            ("arbeiten", Pair("in the office", "im Büro")),
            ("bleiben", Pair("at home", "zu Hause")),
            ("warten", Pair("at the station", "am Bahnhof")),
        )
    )
    until = Pair(f"until {time.en}", f"bis {time.de}")
    return sentence(*Clause(who, Predicate(VERBS[verb], place=place), dice.pick((PAST, WILL)), until).statement())


TEMPLATES = (
    (2, what_time),
    (5, event_runs),
    (5, event_place),
    (2, event_lasts),
    (3, opening_hours),
    (4, shop_opens),
    (3, what_date),
    (2, birthday),
    (4, born),
    (3, built),
    (4, appointment),
    (3, appointment_moved),
    (3, have_time),
    (3, does_every_day),
    (4, tired_because),
    (2, last_until),
)
