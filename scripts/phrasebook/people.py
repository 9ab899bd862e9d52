"""Sentences about what people do, did and plan, alone and in subordinate clauses."""

from dataclasses import replace

from phrasebook import lexicon as lex
from phrasebook.clauses import (
    ALTHOUGH,
    BECAUSE,
    BEFORE,
    CAN,
    HAD_TO,
    HAVE_TO,
    IF,
    PAST,
    THAT,
    WHETHER,
    WILL,
    Clause,
    Predicate,
    Subject,
    dependent_first,
    joined,
)
from phrasebook.dice import Dice, Pair, join, sentence
from phrasebook.inflection import DAT, Verb, article_en
from phrasebook.lexicon import BE, HAVE, VERBS
from phrasebook.phrases import MYSELF, WE, YOU, anyone, asked, in_city, third_person, with_pronoun
from phrasebook.plans import deed, errand, favour, habitual, planned, question_about, told
from phrasebook.times import future_day, measured

UNWELL = [Pair("ill", "krank"), Pair("tired", "müde"), Pair("hungry", "hungrig"), Pair("thirsty", "durstig")]
NO_TIME = Predicate(HAVE, Pair("time", "Zeit"), no_object=Pair("time", "keine Zeit"))
NO_MONEY = Predicate(HAVE, Pair("money", "Geld"), no_object=Pair("money", "kein Geld"))
WEATHER = [
    Pair("if it rains tomorrow", "wenn es morgen regnet"),
    Pair("if it snows tomorrow", "wenn es morgen schneit"),
    Pair("if the sun shines tomorrow", "wenn morgen die Sonne scheint"),
    Pair("if it is cold tomorrow", "wenn es morgen kalt ist"),
    Pair("if it is warm tomorrow", "wenn es morgen warm ist"),
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
    verb = dice.pick(("sagen", "glauben", "hoffen", "wissen"))
    speaker = third_person(dice)
    if verb != "sagen":
        speaker = dice.pick((speaker, MYSELF, WE))
    other = dice.pick((third_person(dice), third_person(dice), MYSELF, WE, YOU))
    if verb == "hoffen":
        content = replace(planned(dice, other, negated=False), mood=dice.pick((WILL, CAN)))
    else:
        content = told(dice, other) if dice.chance(0.5) else planned(dice, other)
    return sentence(*joined(Clause(speaker, Predicate(VERBS[verb])), THAT, content))


def asking(dice: Dice) -> Pair:
    content = dice.pick((told, planned))(dice, third_person(dice), negated=False)
    kind = dice.below(3)
    if kind == 0:
        return sentence(f"do you know whether {content.english()}", f"wissen Sie, ob {content.subordinate()}", "?")
    if kind == 1:
        return sentence(f"I do not know whether {content.english()}", f"ich weiß nicht, ob {content.subordinate()}")
    asking_one = Clause(third_person(dice), Predicate(VERBS["fragen"]))
    return sentence(*joined(asking_one, WHETHER, replace(content, subject=dice.pick((content.subject, WE)))))


def hindrance(dice: Dice, subject: Subject, kept_from: Verb) -> Clause:
    """What kept someone from doing something: being tired, having no time, having to do something else."""
    kind = dice.below(4)
    if kind < 2:
        return Clause(subject, Predicate(BE, place=dice.pick(UNWELL)), PAST)
    if kind == 2:
        return Clause(subject, dice.pick((NO_TIME, NO_TIME, NO_MONEY)), PAST, negated=True)
    duties = [VERBS[name] for name in ("arbeiten", "einkaufen", "abreisen") if VERBS[name] is not kept_from]
    return Clause(subject, Predicate(dice.pick(duties)), HAD_TO)


def _in_either_order(
    dice: Dice, conjunction: Pair, subjects: tuple[Subject, Subject], clauses: tuple[Clause, Clause]
) -> Pair:
    """Main clause first, or dependent clause first; the first clause has the full subject, the second its pronoun."""
    (subject, pronoun), (main, dependent) = subjects, clauses
    if dice.chance(0.3):
        return sentence(
            *dependent_first(conjunction, replace(dependent, subject=subject), replace(main, subject=pronoun))
        )
    return sentence(*joined(replace(main, subject=subject), conjunction, replace(dependent, subject=pronoun)))


def because(dice: Dice) -> Pair:
    subject, pronoun = with_pronoun(dice)
    main = told(dice, subject, timed=dice.chance(0.5), negated=True)
    return _in_either_order(dice, BECAUSE, (subject, pronoun), (main, hindrance(dice, pronoun, main.predicate.verb)))


def although(dice: Dice) -> Pair:
    subject, pronoun = with_pronoun(dice)
    main = told(dice, subject, timed=dice.chance(0.5), negated=False)
    return _in_either_order(dice, ALTHOUGH, (subject, pronoun), (main, hindrance(dice, pronoun, main.predicate.verb)))


def weather_plan(dice: Dice) -> Pair:
    weather = dice.pick(WEATHER)
    main = replace(planned(dice, anyone(dice), timed=False), mood=WILL)
    return sentence(f"{weather.en}, {main.english()}", f"{weather.de}, {main.inverted()}")


def if_possible(dice: Dice) -> Pair:
    subject, pronoun = with_pronoun(dice)
    negated = dice.chance(0.4)
    free = (
        Clause(pronoun, NO_TIME, negated=negated),
        Clause(pronoun, NO_MONEY, negated=negated),
        Clause(pronoun, Predicate(BE, place=dice.pick(UNWELL)), negated=not negated),
        Clause(pronoun, Predicate(VERBS["arbeiten"]), HAVE_TO, negated=not negated),
    )
    main = replace(planned(dice, subject, timed=False, negated=negated), mood=dice.pick((WILL, CAN)))
    conditions = [clause for clause in free if clause.predicate.verb is not main.predicate.verb]
    return _in_either_order(dice, IF, (subject, pronoun), (main, dice.pick(conditions)))


def before(dice: Dice) -> Pair:
    subject, pronoun = with_pronoun(dice)
    main = Clause(subject, deed(dice, subject, negated=False), PAST)
    return _in_either_order(dice, BEFORE, (subject, pronoun), (main, errand(dice, pronoun)))


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
    en = f"{article_en(trade.en)} {trade.en}"
    kind = dice.below(3)
    if kind == 0 and trade.en != "student":
        place = in_city(dice)
        return sentence(f"{who.en} works {place.en} as {en}", f"{who.de} arbeitet {place.de} als {word}")
    if kind == 1:
        return sentence(f"{who.en} wants to become {en}", f"{who.de} will {word} werden")
    return sentence(f"{who.en} is {en}", f"{who.de} ist {word}")


def please_do(dice: Dice) -> Pair:
    pred, time = favour(dice, YOU), future_day(dice)
    en = join("please", pred.english(pred.verb.en), pred.object.en, pred.place.en, time.en)
    start, end = f"{pred.verb.present[2]} Sie", pred.verb.prefix
    return sentence(en, join(start, pred.pronoun.de, "bitte", time.de, pred.object.de, pred.place.de, end))


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
