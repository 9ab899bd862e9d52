"""Sentences about what people do, did and plan, alone and in subordinate clauses."""

from dataclasses import replace

from phrasebook import lexicon as lex
from phrasebook.actions import habitual, planned, question_about, told
from phrasebook.clauses import (
    ALTHOUGH,
    BECAUSE,
    BEFORE,
    CAN,
    COULD,
    HAD_TO,
    HAVE_TO,
    IF,
    PAST,
    THAT,
    WHETHER,
    WILL,
    Clause,
    Predicate,
    dependent_first,
    joined,
)
from phrasebook.dice import Dice, Pair, sentence
from phrasebook.inflection import DAT
from phrasebook.lexicon import BE, HAVE, VERBS
from phrasebook.phrases import WE, YOU, I, Subject, anyone, asked, in_city, pronoun_of, third_person
from phrasebook.times import measured

STATES = [
    Pair("ill", "krank"),
    Pair("tired", "müde"),
    Pair("hungry", "hungrig"),
    Pair("thirsty", "durstig"),
    Pair("late", "spät dran"),
    Pair("happy", "glücklich"),
    Pair("healthy", "gesund"),
]


def past_statement(dice: Dice) -> Pair:
    return sentence(*told(dice, anyone(dice)).statement(fronted=dice.chance(0.3)))


def plan_statement(dice: Dice) -> Pair:
    return sentence(*planned(dice, anyone(dice)).statement(fronted=dice.chance(0.3)))


def habit_statement(dice: Dice) -> Pair:
    return sentence(*habitual(dice, anyone(dice)).statement())


def question(dice: Dice) -> Pair:
    return sentence(*question_about(dice, asked(dice)).question(), mark="?")


def saying(dice: Dice) -> Pair:
    speaker = third_person(dice)
    verb = dice.pick(("sagen", "glauben", "hoffen", "wissen"))
    matrix = Clause(dice.pick((speaker, I, WE)) if verb != "sagen" else speaker, Predicate(VERBS[verb]))
    other = dice.pick((third_person(dice), third_person(dice), I, WE, YOU))
    content = told(dice, other) if dice.chance(0.5) else planned(dice, other)
    return sentence(*joined(matrix, THAT, content))


def asking(dice: Dice) -> Pair:
    content = told(dice, third_person(dice)) if dice.chance(0.5) else planned(dice, third_person(dice))
    kind = dice.below(3)
    if kind == 0:
        return sentence(f"do you know whether {content.english()}", f"wissen Sie, ob {content.subordinate()}", "?")
    if kind == 1:
        return sentence(f"I do not know whether {content.english()}", f"ich weiß nicht, ob {content.subordinate()}")
    asking_one = Clause(third_person(dice), Predicate(VERBS["fragen"]))
    return sentence(*joined(asking_one, WHETHER, replace(content, subject=dice.pick((content.subject, WE)))))


def state(dice: Dice, subject: Subject) -> Clause:
    """Being tired, having no time, having to work: a reason in the past."""
    kind = dice.below(4)
    if kind < 2:
        return Clause(subject, Predicate(BE, place=dice.pick(STATES)), PAST, negated=dice.chance(0.2))
    if kind == 2:
        thing = dice.pick((Pair("time", "Zeit"), Pair("money", "Geld")))
        return Clause(
            subject,
            Predicate(HAVE, thing, no_object=Pair(thing.en, f"k{'eine' if thing.en == 'time' else 'ein'} {thing.de}")),
            PAST,
            negated=True,
        )
    verb = dice.pick(("arbeiten", "einkaufen", "aufstehen", "umsteigen", "abreisen"))
    return Clause(subject, Predicate(VERBS[verb]), HAD_TO)


def because(dice: Dice) -> Pair:
    subject = anyone(dice)
    cause = state(dice, pronoun_of(subject) or subject)
    if dice.chance(0.3):
        who = pronoun_of(subject) or subject
        return sentence(*dependent_first(BECAUSE, replace(cause, subject=subject), told(dice, who, timed=False)))
    return sentence(*joined(told(dice, subject, timed=dice.chance(0.5)), BECAUSE, cause))


def although(dice: Dice) -> Pair:
    subject = anyone(dice)
    contrast = state(dice, pronoun_of(subject) or subject)
    if dice.chance(0.3):
        who = pronoun_of(subject) or subject
        return sentence(*dependent_first(ALTHOUGH, replace(contrast, subject=subject), told(dice, who, timed=False)))
    return sentence(*joined(told(dice, subject, timed=dice.chance(0.5)), ALTHOUGH, contrast))


def weather_plan(dice: Dice) -> Pair:
    weather = dice.pick(
        (
            Pair("if it rains tomorrow", "wenn es morgen regnet"),
            Pair("if it snows tomorrow", "wenn es morgen schneit"),
            Pair("if the sun shines tomorrow", "wenn morgen die Sonne scheint"),
            Pair("if it is cold tomorrow", "wenn es morgen kalt ist"),
            Pair("if it is warm tomorrow", "wenn es morgen warm ist"),
        )
    )
    main = replace(planned(dice, anyone(dice), timed=False), mood=WILL)
    return sentence(f"{weather.en}, {main.english()}", f"{weather.de}, {main.inverted()}")


def if_possible(dice: Dice) -> Pair:
    subject = anyone(dice)
    who = pronoun_of(subject) or subject
    condition = dice.pick(
        (
            Clause(who, Predicate(HAVE, Pair("time", "Zeit"))),
            Clause(who, Predicate(HAVE, Pair("time", "Zeit"), no_object=Pair("time", "keine Zeit")), negated=True),
            Clause(who, Predicate(BE, place=dice.pick(STATES))),
            Clause(who, Predicate(BE, place=dice.pick(STATES)), negated=True),
            Clause(who, Predicate(VERBS["arbeiten"]), HAVE_TO),
        )
    )
    main = replace(planned(dice, subject, timed=False), mood=dice.pick((WILL, CAN)))
    if dice.chance(0.4):
        return sentence(*dependent_first(IF, replace(condition, subject=subject), replace(main, subject=who)))
    return sentence(*joined(main, IF, condition))


def before(dice: Dice) -> Pair:
    subject = anyone(dice)
    who = pronoun_of(subject) or subject
    first = told(dice, subject, timed=False)
    second = replace(told(dice, who, timed=False), negated=False)
    if COULD in (first.mood, second.mood) or first.negated or HAD_TO in (second.mood,):
        first, second = replace(first, mood=PAST, negated=False), replace(second, mood=PAST)
    second = replace(second, mood=PAST)
    if dice.chance(0.3):
        return sentence(*dependent_first(BEFORE, replace(second, subject=subject), replace(first, subject=who)))
    return sentence(*joined(first, BEFORE, second))


def since(dice: Dice) -> Pair:
    years = measured(dice.between(1, 12), dice.pick(lex.PERIODS[1:]), DAT)
    verb = VERBS[dice.pick(("wohnen", "arbeiten"))]
    who, place = anyone(dice), in_city(dice)
    has = "has" if who.third else "have"
    clause = Clause(who, Predicate(verb, place=place), time=Pair("", f"seit {years.de}"))
    return sentence(f"{who.en} {has} {verb.en_past} {place.en} for {years.en}", clause.main())


def occupation(dice: Dice) -> Pair:
    while True:
        who = third_person(dice)
        if who.gender in ("m", "f") and who.en.removeprefix("the ") not in lex.NOUNS:
            break
    trade = dice.pick(lex.TRADES)
    word = trade.man if who.gender == "m" else trade.woman
    article = "an" if trade.en[0] in "aeiou" else "a"
    kind = dice.below(3)
    if kind == 0:
        place = in_city(dice)
        return sentence(
            f"{who.en} works {place.en} as {article} {trade.en}", f"{who.de} arbeitet {place.de} als {word}"
        )
    if kind == 1:
        return sentence(f"{who.en} wants to become {article} {trade.en}", f"{who.de} will {word} werden")
    return sentence(f"{who.en} is {article} {trade.en}", f"{who.de} ist {word}")


def please_do(dice: Dice) -> Pair:
    clause = planned(dice, YOU)
    while clause.predicate.verb.infinitive in ("aufstehen", "fernsehen", "suchen", "danken"):
        clause = planned(dice, YOU)
    pred, time = clause.predicate, clause.time
    verb = pred.verb
    en = " ".join(part for part in ("please", verb.en, pred.pronoun.en, pred.object.en, pred.place.en, time.en) if part)
    de = (verb.present[2], "Sie", pred.pronoun.de, "bitte", time.de, pred.object.de, pred.place.de, verb.prefix)
    return sentence(en, " ".join(part for part in de if part))


TEMPLATES = (
    (16, past_statement),
    (16, plan_statement),
    (7, habit_statement),
    (12, question),
    (9, saying),
    (8, asking),
    (10, because),
    (6, although),
    (4, weather_plan),
    (6, if_possible),
    (6, before),
    (3, since),
    (3, occupation),
    (5, please_do),
)
