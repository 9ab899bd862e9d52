"""Sentences in shops and restaurants: prices, wishes, comparisons."""

from dataclasses import replace

from phrasebook import lexicon as lex
from phrasebook.clauses import PAST, Clause, Predicate
from phrasebook.dice import Dice, Pair, sentence
from phrasebook.inflection import BARE, THE, THIS, A, NounPhrase, noun_phrase
from phrasebook.lexicon import VERBS, named
from phrasebook.numerals import cardinal_de, cardinal_en
from phrasebook.phrases import (
    WE,
    I,
    anyone,
    clothes_qualities,
    fruit,
    furniture,
    garment,
    groceries,
    portion,
    price,
    refreshment,
    small_price,
    ware,
)
from phrasebook.times import past_day


def ware_costs(dice: Dice) -> Pair:
    thing = ware(dice, dice.pick((THE, THE, THIS)))
    cost = price(dice, 3, 999)
    only = dice.pick((Pair("", ""), Pair("", ""), Pair(" only", " nur")))
    return sentence(f"{thing.en} costs{only.en} {cost.en}", f"{thing.nom} kostet{only.de} {cost.de}")


def wares_cost(dice: Dice) -> Pair:
    things, cost = ware(dice, THE, plural=True), price(dice, 3, 999)
    if dice.chance(0.2):
        return sentence(f"how much do {things.en} cost", f"wie viel kosten {things.nom}", "?")
    return sentence(f"{things.en} cost {cost.en}", f"{things.nom} kosten {cost.de}")


def how_much(dice: Dice) -> Pair:
    thing = ware(dice, dice.pick((THE, THIS)))
    if dice.chance(0.5):
        return sentence(f"how much does {thing.en} cost", f"wie viel kostet {thing.nom}", "?")
    return sentence(
        f"can you tell me how much {thing.en} costs", f"können Sie mir sagen, wie viel {thing.nom} kostet", "?"
    )


def food_costs(dice: Dice) -> Pair:
    cost, kind = small_price(dice), dice.below(3)
    if kind == 0:
        noun = dice.pick(lex.FRUIT)
        return sentence(f"a kilo of {noun.en_plural} costs {cost.en}", f"ein Kilo {noun.de_plural} kostet {cost.de}")
    if kind == 1:
        amount = portion(1, lex.CUP, dice.pick(lex.HOT_DRINKS))
    else:
        amount = portion(1, dice.pick((lex.BOTTLE, lex.GLASS)), dice.pick(lex.DRINKS))
    return sentence(f"{amount.en} costs {cost.en}", f"{amount.de} kostet {cost.de}")


def would_like(dice: Dice) -> Pair:
    amount = groceries(dice) if dice.chance(0.6) else refreshment(dice)
    second = fruit(dice)
    if dice.chance(0.3) and second.en not in amount.en:
        amount = Pair(f"{amount.en} and {second.en}", f"{amount.de} und {second.de}")
    who = dice.pick(
        (Pair("I would like", "ich möchte"), Pair("we would like", "wir möchten"), Pair("we need", "wir brauchen"))
    )
    return sentence(f"{who.en} {amount.en}", f"{who.de} {amount.de}")


def please_bring(dice: Dice) -> Pair:
    amount = refreshment(dice)
    whom = dice.pick((Pair("me", "mir"), Pair("us", "uns"), Pair("him", "ihm"), Pair("her", "ihr")))
    return sentence(f"please bring {whom.en} {amount.en}", f"bringen Sie {whom.de} bitte {amount.de}")


def comparison(dice: Dice) -> Pair:
    clothes = dice.chance(0.6)
    noun = dice.pick(lex.CLOTHES if clothes else lex.FURNITURE + named("car, house, bicycle, suitcase"))
    quality = dice.pick(clothes_qualities(noun) if clothes else lex.QUALITIES)
    first, second = (noun_phrase(noun, THE, colour) for colour in dice.pick_two(lex.COLOURS))
    if dice.chance(0.25):
        return sentence(
            f"{first.en} is as {quality.en} as {second.en}", f"{first.nom} ist so {quality.de} wie {second.nom}"
        )
    return sentence(
        f"{first.en} is {quality.en_more} than {second.en}", f"{first.nom} ist {quality.de_more} als {second.nom}"
    )


def comparison_of_two(dice: Dice) -> Pair:
    noun, other = dice.pick_two(lex.FURNITURE + named("car, house, bicycle, suitcase, camera, watch, ring"))
    quality, first, second = dice.pick(lex.QUALITIES), noun_phrase(noun, THIS), noun_phrase(other, THE)
    return sentence(
        f"{first.en} is {quality.en_more} than {second.en}", f"{first.nom} ist {quality.de_more} als {second.nom}"
    )


def _too(dice: Dice, thing: NounPhrase, clothes: bool) -> Pair:
    quality = dice.pick([q for q in (lex.CLOTHES_QUALITIES if clothes else lex.QUALITIES) if q.en != "beautiful"])
    degree = dice.pick((Pair("too", "zu"), Pair("very", "sehr")))
    return Pair(f"{degree.en} {quality.en}", f"{degree.de} {quality.de}")


def too_expensive(dice: Dice) -> Pair:
    clothes, plural = dice.chance(0.65), dice.chance(0.3)
    thing = (garment if clothes else furniture)(dice, THE, plural)
    too = _too(dice, thing, clothes)
    return sentence(
        f"{thing.en} {'are' if plural else 'is'} {too.en}", f"{thing.nom} {'sind' if plural else 'ist'} {too.de}"
    )


def bought_although(dice: Dice) -> Pair:
    clothes, who = dice.chance(0.65), anyone(dice)
    thing = (garment if clothes else furniture)(dice, THE)
    too, past = _too(dice, thing, clothes), dice.chance(0.7)
    pronoun = {"m": "er", "f": "sie", "n": "es"}[thing.gender]
    clause = Clause(who, Predicate(VERBS["kaufen"], Pair(thing.en, thing.acc)), PAST, negated=not past)
    link = Pair("although", "obwohl") if past else Pair("because", "weil")
    return sentence(
        f"{clause.english()} {link.en} it was {too.en}", f"{clause.main()}, {link.de} {pronoun} {too.de} war"
    )


def that_i_bought(dice: Dice) -> Pair:
    clothes, who = dice.chance(0.65), anyone(dice)
    thing = (garment if clothes else furniture)(dice, THE)
    relative = {"m": "den", "f": "die", "n": "das"}[thing.gender]
    too = _too(dice, thing, clothes)
    clause = Clause(who, Predicate(VERBS["kaufen"]), PAST, past_day(dice))
    en, de = f"{thing.en} that {clause.english()} is", f"{thing.nom}, {relative} {clause.subordinate()}, ist"
    return sentence(f"{en} {too.en}", f"{de} {too.de}")


def have_in_colour(dice: Dice) -> Pair:
    thing, colour = noun_phrase(dice.pick(lex.CLOTHES + lex.FURNITURE), THIS), dice.pick(lex.COLOURS)
    return sentence(f"do you have {thing.en} in {colour.en}", f"haben Sie {thing.acc} in {colour.de.capitalize()}", "?")


def likes_colours(dice: Dice) -> Pair:
    noun, colour = dice.pick(lex.CLOTHES + lex.WORN_IN_PAIRS), dice.pick(lex.COLOURS)
    things = noun_phrase(noun, BARE, colour, plural=True)
    who = anyone(dice)
    if dice.chance(0.5):
        predicate = Predicate(VERBS["suchen"], Pair(things.en, things.acc))
        return sentence(*Clause(who, predicate, PAST).statement())
    number = dice.between(2, 12)
    predicate = Predicate(
        VERBS["kaufen"], Pair(f"{cardinal_en(number)} {things.en}", f"{cardinal_de(number)} {things.acc}")
    )
    return sentence(*Clause(who, predicate, PAST, past_day(dice)).statement())


def need_new(dice: Dice) -> Pair:
    thing = ware(dice, A)
    who = dice.pick((I, WE, anyone(dice)))
    predicate = Predicate(VERBS["brauchen"], Pair(thing.en, thing.acc), no_object=Pair(thing.en, "k" + thing.acc))
    return sentence(*Clause(who, predicate, negated=dice.chance(0.25)).statement())


def my_ware(dice: Dice) -> Pair:
    who, kind = anyone(dice), dice.pick(lex.CLOTHES + named("car, bicycle, house, suitcase, watch, camera"))
    colour = dice.pick(lex.COLOURS)
    assert who.own is not None
    thing = noun_phrase(kind, who.own, colour)
    other = dice.pick(("suchen", "verkaufen", "brauchen"))
    clause = Clause(who, Predicate(VERBS[other], Pair(thing.en, thing.acc)), negated=False)
    if other != "brauchen":
        clause = replace(clause, mood=PAST, time=past_day(dice))
    return sentence(*clause.statement())


TEMPLATES = (
    (7, ware_costs),
    (4, wares_cost),
    (3, how_much),
    (4, food_costs),
    (5, would_like),
    (2, please_bring),
    (5, comparison),
    (3, comparison_of_two),
    (3, too_expensive),
    (5, bought_although),
    (5, that_i_bought),
    (2, have_in_colour),
    (3, likes_colours),
    (3, need_new),
    (4, my_ware),
)
