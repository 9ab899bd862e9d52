"""Sentences about ways and places: directions in town, things in a room."""

from phrasebook import lexicon as lex
from phrasebook.clauses import CAN, HAVE_TO, PAST, SHOULD, THAT, WANT, WILL, Clause, Predicate, joined
from phrasebook.dice import Dice, Pair, join, sentence
from phrasebook.inflection import ACC, DAT, MY, NO, THE, YOUR, A, noun_phrase
from phrasebook.lexicon import BUILDINGS, VERBS, named
from phrasebook.phrases import FURNITURE_SPOTS, MYSELF, SPOTS, WE, YOU, anyone, ordinal, spot, the, to_place
from phrasebook.times import measured

SIDES = [Pair("on the left", "links"), Pair("on the right", "rechts")]


def take_street(dice: Dice) -> Pair:
    street = ordinal(dice.between(1, 12), dice.pick(named("street, street, crossing")))
    side, goal = dice.pick(SIDES), to_place(dice)
    if street.en.endswith("crossing"):
        turn = dice.pick((Pair("left", "links"), Pair("right", "rechts")))
        return sentence(
            f"turn {turn.en} at {street.en} and walk {goal.en}",
            f"biegen Sie {street.after('an', DAT)} {turn.de} ab und gehen Sie {goal.de}",
        )
    if dice.chance(0.3):
        return sentence(f"take {street.en} {side.en}", f"nehmen Sie {street.acc} {side.de}")
    return sentence(
        f"take {street.en} {side.en} if you want to walk {goal.en}",
        f"nehmen Sie {street.acc} {side.de}, wenn Sie {goal.de} gehen wollen",
    )


def turn_at(dice: Dice) -> Pair:
    landmark = the(dice.pick(BUILDINGS + named("traffic lights, crossing, stop")))
    turn = dice.pick((Pair("left", "links"), Pair("right", "rechts")))
    at = Pair(f"at {landmark.en}", landmark.after("an", DAT))
    kind = dice.below(4)
    if kind == 0:
        return sentence(f"please turn {turn.en} {at.en}", f"biegen Sie bitte {at.de} {turn.de} ab")
    if kind == 1:
        return sentence(
            f"go straight on as far as {landmark.en} and then turn {turn.en}",
            f"gehen Sie geradeaus bis {landmark.after('zu', DAT)} und biegen Sie dann {turn.de} ab",
        )
    turning = Predicate(VERBS["abbiegen"], place=Pair(f"{turn.en} {at.en}", f"{at.de} {turn.de}"))
    clause = Clause(dice.pick((YOU, WE, MYSELF)), turning, HAVE_TO)
    if kind == 2:
        return sentence(*clause.statement())
    return sentence(*joined(Clause(MYSELF, Predicate(VERBS["glauben"])), THAT, clause))


def get_off_at(dice: Dice) -> Pair:
    stop = ordinal(dice.between(1, 20), lex.NOUNS["stop"])
    if dice.chance(0.5):
        return sentence(f"please get off at {stop.en}", f"steigen Sie bitte {stop.after('an', DAT)} aus")
    who = anyone(dice)
    predicate = Predicate(VERBS["aussteigen"], place=Pair(f"at {stop.en}", stop.after("an", DAT)))
    return sentence(*Clause(who, predicate, dice.pick((WILL, HAVE_TO, PAST))).statement())


def in_which_street(dice: Dice) -> Pair:
    thing = noun_phrase(dice.pick(named("hotel, house, bank, school, car")), dice.pick((MY, YOUR)))
    street, side = ordinal(dice.between(1, 12), lex.NOUNS["street"]), dice.pick(SIDES)
    return sentence(f"{thing.en} is in {street.en} {side.en}", f"{thing.nom} ist {street.after('in', DAT)} {side.de}")


def which_door(dice: Dice) -> Pair:
    shop, door = the(dice.pick(lex.SHOPS)), ordinal(dice.between(1, 20), dice.pick(named("house, building")))
    side = dice.pick(SIDES)
    return sentence(f"{shop.en} is {door.en} {side.en}", f"{shop.nom} ist {door.nom} {side.de}")


def floor(dice: Dice) -> Pair:
    number = dice.between(1, 25)
    level = ordinal(number, lex.NOUNS["floor"])
    what = dice.pick(
        (
            the(lex.NOUNS["office"]),
            the(lex.NOUNS["flat"]),
            noun_phrase(lex.NOUNS["room"], MY),
            noun_phrase(lex.NOUNS["room"], YOUR),
            the(lex.NOUNS["restaurant"]),
            the(lex.NOUNS["library"]),
        )
    )
    if dice.chance(0.5):
        return sentence(f"{what.en} is on {level.en}", f"{what.nom} ist {level.after('in', DAT)}")
    predicate = Predicate(VERBS["wohnen"], place=Pair(f"on {level.en}", level.after("in", DAT)))
    return sentence(*Clause(anyone(dice), predicate).statement())


def where_is(dice: Dice) -> Pair:
    building = noun_phrase(dice.pick(BUILDINGS), THE, lex.NEAREST)
    kind = dice.below(4)
    if kind == 0:
        return sentence(f"where is {building.en}", f"wo ist {building.nom}", "?")
    opening = dice.pick(
        (
            Pair("can you tell me", "können Sie mir sagen"),
            Pair("do you know", "wissen Sie"),
        )
    )
    if kind == 1:
        return sentence(f"{opening.en} where {building.en} is", f"{opening.de}, wo {building.nom} ist", "?")
    goal = to_place(dice)
    if kind == 2:
        return sentence(f"how do I get {goal.en}", f"wie komme ich {goal.de}", "?")
    who = dice.pick((Pair("I get", "ich komme"), Pair("we get", "wir kommen")))
    pronoun, form = who.de.split()
    return sentence(f"{opening.en} how {who.en} {goal.en}", f"{opening.de}, wie {pronoun} {goal.de} {form}", "?")


def is_there_near(dice: Dice) -> Pair:
    noun = dice.pick([noun for noun in lex.IN_TOWN if noun.en != "post office"])
    building = noun_phrase(noun, A)
    where = dice.pick((Pair("near here", "hier in der Nähe"), spot(dice, lex.IN_TOWN, SPOTS, DAT)))
    if noun.en in where.en:
        where = Pair("near here", "hier in der Nähe")
    kind = dice.below(3)
    if kind == 0:
        return sentence(f"is there {building.en} {where.en}", f"gibt es {where.de} {building.acc}", "?")
    if kind == 1:
        return sentence(f"there is {building.en} {where.en}", f"es gibt {where.de} {building.acc}")
    missing = noun_phrase(noun, NO)
    return sentence(f"there is {missing.en} {where.en}", f"es gibt {where.de} {missing.acc}")


def stands_next_to(dice: Dice) -> Pair:
    first, second = dice.pick_two(lex.IN_TOWN)
    preposition, here, there = dice.pick(SPOTS), the(first), the(second)
    if dice.chance(0.3):
        third = the(dice.pick(named("tower, bridge, market square, park")))
        if third.en not in (here.en, there.en):
            return sentence(
                f"{here.en} is between {there.en} and {third.en}",
                f"{here.nom} ist zwischen {there.dat} und {third.dat}",
            )
    return sentence(f"{here.en} is {preposition.en} {there.en}", f"{here.nom} ist {there.after(preposition.de, DAT)}")


def how_far(dice: Dice) -> Pair:
    first, second = dice.pick_two(BUILDINGS)
    here, there = the(first), the(second)
    number = dice.between(1, 12) if dice.chance(0.3) else 50 * dice.between(2, 19)
    far = measured(number, lex.KILOMETRE if number < 13 else lex.METRE)
    if dice.chance(0.15):
        return sentence(
            f"how far is {here.en} from {there.en}", f"wie weit ist {here.nom} {there.after('von', DAT)} entfernt", "?"
        )
    return sentence(
        f"{here.en} is {far.en} from {there.en}", f"{here.nom} ist {far.de} {there.after('von', DAT)} entfernt"
    )


def put_there(dice: Dice) -> Pair:
    lying = dice.chance(0.5)
    colour = None if lying else dice.pick((None, None, *lex.COLOURS[:4]))
    thing = noun_phrase(dice.pick(lex.LYING if lying else lex.STANDING), THE, colour)
    place = spot(dice, lex.BASES, FURNITURE_SPOTS, ACC)
    verb = VERBS["legen" if lying else "stellen"]
    predicate = Predicate(verb, Pair(thing.en, thing.acc), place)
    if dice.chance(0.3):
        return sentence(
            f"please put {join(thing.en, place.en)}", f"{verb.infinitive} Sie bitte {join(thing.acc, place.de)}"
        )
    return sentence(*Clause(anyone(dice), predicate, dice.pick((WILL, HAVE_TO, CAN, SHOULD, WANT))).statement())


def hang_there(dice: Dice) -> Pair:
    thing = the(dice.pick(named("picture, mirror, lamp, photo")))
    place = Pair("on the wall", "an die Wand")
    if dice.chance(0.6):
        place = spot(dice, lex.BASES, [Pair("above", "über")], ACC)
    predicate = Predicate(VERBS["hängen"], Pair(thing.en, thing.acc), place)
    return sentence(*Clause(anyone(dice), predicate, dice.pick((PAST, WILL, HAVE_TO, WANT))).statement())


def lies_there(dice: Dice) -> Pair:
    lying = dice.chance(0.5)
    determiner = dice.pick((THE, THE, MY, YOUR))
    thing = noun_phrase(dice.pick(lex.LYING if lying else lex.STANDING), determiner)
    place = spot(dice, lex.BASES, FURNITURE_SPOTS, DAT)
    verb_de = "liegt" if lying else "steht"
    if dice.chance(0.25):
        return sentence(f"I think that {thing.en} is {place.en}", f"ich glaube, dass {thing.nom} {place.de} {verb_de}")
    return sentence(f"{thing.en} is {place.en}", f"{thing.nom} {verb_de} {place.de}")


def walk_because(dice: Dice) -> Pair:
    who, goal = dice.pick((MYSELF, WE, anyone(dice))), to_place(dice)
    reason = dice.pick(
        (
            Pair("the bus was late", "der Bus Verspätung hatte"),
            Pair("the sun shone", "die Sonne geschienen hat"),
            Pair("the way was short", "der Weg kurz war"),
            Pair("there was no taxi", "es kein Taxi gab"),
        )
    )
    clause = Clause(who, Predicate(VERBS["gehen"], place=goal), PAST)
    return sentence(f"{clause.english()} because {reason.en}", f"{clause.main()}, weil {reason.de}")


TEMPLATES = (
    (4, take_street),
    (4, turn_at),
    (3, get_off_at),
    (2, in_which_street),
    (3, which_door),
    (3, floor),
    (4, where_is),
    (4, is_there_near),
    (4, stands_next_to),
    (5, how_far),
    (5, put_there),
    (2, hang_there),
    (4, lies_there),
    (3, walk_because),
)
