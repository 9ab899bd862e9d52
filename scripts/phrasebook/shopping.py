"""Sentences in shops and restaurants: prices, wishes, comparisons."""

from dataclasses import replace

from phrasebook import lexicon as lex
from phrasebook.clauses import ALTHOUGH, BECAUSE, PAST, Clause, Predicate, Subject, joined
from phrasebook.dice import EMPTY, Dice, Pair, sentence
from phrasebook.inflection import BARE, THE, THIS, A, Adjective, Determiner, Noun, NounPhrase, noun_phrase
from phrasebook.lexicon import BE, VERBS, named
from phrasebook.numerals import cardinal_de, cardinal_en
from phrasebook.phrases import (
    MYSELF,
    WE,
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
    subject_of,
    ware,
)
from phrasebook.times import past_day


def priced(dice: Dice, determiner: Determiner, plural: bool = False) -> tuple[NounPhrase, Pair]:
    """Something that a shop sells, and what it costs."""
    if dice.chance(0.6):
        return garment(dice, determiner, plural), price(dice, 5, 400)
    return furniture(dice, determiner, plural), price(dice, 30, 999)


def ware_costs(dice: Dice) -> Pair:
    thing, cost = priced(dice, dice.pick((THE, THE, THIS)))
    only = dice.pick((EMPTY, EMPTY, Pair(" only", " nur")))
    return sentence(f"{thing.en} costs{only.en} {cost.en}", f"{thing.nom} kostet{only.de} {cost.de}")


def wares_cost(dice: Dice) -> Pair:
    things, cost = priced(dice, THE, plural=True)
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
    kind = dice.below(3)
    cost = small_price(dice, 12 if kind else 24)
    if kind == 0:
        noun = dice.pick(lex.FRUIT)
        return sentence(f"a kilo of {noun.en_plural} costs {cost.en}", f"ein Kilo {noun.de_plural} kostet {cost.de}")
    if kind == 1:
        amount = portion(1, lex.CUP, dice.pick(lex.HOT_DRINKS))
    else:
        amount = portion(1, dice.pick((lex.BOTTLE, lex.GLASS)), dice.pick(lex.DRINKS))
    return sentence(f"{amount.en} costs {cost.en}", f"{amount.de} kostet {cost.de}")


def would_like(dice: Dice) -> Pair:
    shopping, second = dice.chance(0.6), fruit(dice)
    amount = groceries(dice) if shopping else refreshment(dice)
    if shopping and dice.chance(0.4) and second.en not in amount.en:
        amount = Pair(f"{amount.en} and {second.en}", f"{amount.de} und {second.de}")
    wishes = (Pair("I would like", "ich möchte"), Pair("we would like", "wir möchten"), Pair("we need", "wir brauchen"))
    wish = dice.pick(wishes if shopping else wishes[:2])
    return sentence(f"{wish.en} {amount.en}", f"{wish.de} {amount.de}")


def please_bring(dice: Dice) -> Pair:
    amount = refreshment(dice)
    whom = dice.pick((Pair("me", "mir"), Pair("us", "uns"), Pair("him", "ihm"), Pair("her", "ihr")))
    return sentence(f"please bring {whom.en} {amount.en}", f"bringen Sie {whom.de} bitte {amount.de}")


def comparison(dice: Dice) -> Pair:
    noun, quality = with_quality(dice)
    first, second = (noun_phrase(noun, THE, colour) for colour in dice.pick_two(lex.COLOURS))
    if dice.chance(0.25):
        return sentence(
            f"{first.en} is as {quality.en} as {second.en}", f"{first.nom} ist so {quality.de} wie {second.nom}"
        )
    return sentence(
        f"{first.en} is {quality.en_more} than {second.en}", f"{first.nom} ist {quality.de_more} als {second.nom}"
    )


def comparison_of_two(dice: Dice) -> Pair:
    noun, other = dice.pick_two(lex.FURNITURE + named("car, bicycle, suitcase, camera, boat"))
    first, second = noun_phrase(noun, THIS), noun_phrase(other, THE)
    quality = dice.pick([quality for quality in lex.QUALITIES if quality.en not in ("big", "small", "beautiful")])
    return sentence(
        f"{first.en} is {quality.en_more} than {second.en}", f"{first.nom} ist {quality.de_more} als {second.nom}"
    )


def with_quality(dice: Dice) -> tuple[Noun, Adjective]:
    """A thing and a quality that it can have."""
    if dice.chance(0.6):
        garment_noun = dice.pick(lex.CLOTHES)
        return garment_noun, dice.pick(clothes_qualities(garment_noun))
    return dice.pick(lex.FURNITURE), dice.pick(lex.QUALITIES)


def faulty(dice: Dice, plural: bool = False) -> tuple[NounPhrase, Pair]:
    """A thing, with a colour or without, and what is wrong with it: too small, very expensive."""
    while True:
        noun, quality = with_quality(dice)
        if quality.en not in ("new", "beautiful", "cheap"):
            break
    thing = noun_phrase(noun, THE, dice.pick((None, *lex.COLOURS)), plural)
    degree = dice.pick((Pair("too", "zu"), Pair("very", "sehr")))
    return thing, Pair(f"{degree.en} {quality.en}", f"{degree.de} {quality.de}")


def too_expensive(dice: Dice) -> Pair:
    plural = dice.chance(0.3)
    thing, fault = faulty(dice, plural)
    return sentence(*Clause(subject_of(thing), Predicate(BE, place=fault)).statement())


def bought_although(dice: Dice) -> Pair:
    (thing, fault), bought = faulty(dice), dice.chance(0.6)
    pronoun = {"m": "er", "f": "sie", "n": "es"}[thing.gender]
    main = Clause(anyone(dice), Predicate(VERBS["kaufen"], Pair(thing.en, thing.acc)), PAST, negated=not bought)
    flaw = Clause(Subject("it", pronoun, 1), Predicate(BE, place=fault), PAST)
    return sentence(*joined(main, ALTHOUGH if bought else BECAUSE, flaw))


def that_i_bought(dice: Dice) -> Pair:
    thing, fault = faulty(dice)
    relative = {"m": "den", "f": "die", "n": "das"}[thing.gender]
    clause = Clause(anyone(dice), Predicate(VERBS["kaufen"]), PAST, past_day(dice))
    return sentence(
        f"{thing.en} that {clause.english()} is {fault.en}",
        f"{thing.nom}, {relative} {clause.subordinate()}, ist {fault.de}",
    )


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
    who = dice.pick((MYSELF, WE, anyone(dice)))
    predicate = Predicate(VERBS["brauchen"], Pair(thing.en, thing.acc), no_object=Pair(thing.en, "k" + thing.acc))
    return sentence(*Clause(who, predicate, negated=dice.chance(0.25)).statement())


def my_ware(dice: Dice) -> Pair:
    who, kind = anyone(dice), dice.pick(lex.CLOTHES + named("car, bicycle, house, suitcase, watch, camera"))
    colour = dice.pick(lex.COLOURS)
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
