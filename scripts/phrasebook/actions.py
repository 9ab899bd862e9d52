"""What people do: each function draws one predicate that suits a subject."""

from phrasebook import lexicon as lex
from phrasebook.clauses import Predicate, Subject
from phrasebook.dice import EMPTY, Dice, Pair
from phrasebook.inflection import ACC, DAT, THE, A, Noun, NounPhrase, noun_phrase
from phrasebook.phrases import (
    groceries,
    in_city,
    object_pronoun,
    person,
    refreshment,
    the,
    to_place,
    ware,
)

V = lex.VERBS
LENT = lex.named("book, umbrella, suitcase, camera, bicycle, watch, car, city map")
GAMES = [Pair("the piano", "Klavier"), Pair("football", "Fußball"), Pair("cards", "Karten"), Pair("tennis", "Tennis")]
MARKETS = [Pair("at the market", "auf dem Markt"), Pair("at the supermarket", "im Supermarkt")]
WORKPLACES = [Pair("in the office", "im Büro"), Pair("in the garden", "im Garten"), Pair("at home", "zu Hause")]


def _acc(phrase: NounPhrase) -> Pair:
    return Pair(phrase.en, phrase.acc)


def _own(dice: Dice, subject: Subject, nouns: list[Noun]) -> NounPhrase:
    return noun_phrase(dice.pick(nouns), subject.own)


def _transitive(verb: str, obj: NounPhrase) -> Predicate:
    return Predicate(V[verb], _acc(obj))


def buy(dice: Dice, subject: Subject) -> Predicate:
    """Buy, look for or sell goods."""
    state = dice.below(4)
    if state == 0:
        return Predicate(V["kaufen"], groceries(dice), negatable=False)
    verb = V[dice.pick(("kaufen", "kaufen", "suchen", "verkaufen"))]
    if state == 1:
        return Predicate(verb, _acc(ware(dice, THE)))
    with_article = ware(dice, A)
    return Predicate(verb, _acc(with_article), no_object=_without(with_article))


def _without(phrase: NounPhrase) -> Pair:
    """The object of a negated sentence: ein becomes kein, English keeps "a"."""
    return Pair(phrase.en, "k" + phrase.acc)


def mishap(dice: Dice, subject: Subject) -> Predicate:
    """What happens to people rather than what they plan: lose, find, miss, fall asleep."""
    verb = dice.pick(("verlieren", "finden", "verpassen", "einschlafen", "ankommen"))
    if verb == "verpassen":
        return _transitive(verb, the(dice.pick(lex.named("train, bus, tram, ferry, concert, meeting"))))
    if verb == "einschlafen":
        place = the(dice.pick(lex.named("cinema, theatre, kitchen, living room")))
        return Predicate(V[verb], place=Pair(f"in {place.en}", place.after("in", DAT)))
    if verb == "ankommen":
        return Predicate(V[verb], place=in_city(dice))
    return _transitive(verb, _own(dice, subject, lex.BELONGINGS))


def handle_vehicle(dice: Dice, subject: Subject) -> Predicate:
    """Sell or repair one's car, bicycle, boat."""
    verb = dice.pick(("verkaufen", "reparieren"))
    return _transitive(verb, _own(dice, subject, lex.named("car, bicycle, boat, camera, watch")))


def consume(dice: Dice, subject: Subject) -> Predicate:
    """Eat, drink, order, pay for something."""
    kind = dice.below(4)
    if kind == 0:
        drink = dice.pick(lex.DRINKS + lex.HOT_DRINKS)
        vessel = noun_phrase(lex.CUP if drink in lex.HOT_DRINKS else lex.GLASS, A)
        obj = Pair(f"{vessel.en} of {drink.en}", f"{vessel.acc} {drink.de}")
        return Predicate(V["trinken"], obj, no_object=Pair(obj.en, "k" + obj.de))
    if kind == 1:
        food = noun_phrase(dice.pick(lex.named("apple, pear, orange, banana, roll, egg, sausage")), A)
        return Predicate(V["essen"], _acc(food), no_object=_without(food))
    if kind == 2:
        return Predicate(V["bestellen"], refreshment(dice), negatable=False)
    return _transitive("bezahlen", the(dice.pick(lex.named("coffee, tea, wine, beer, cake, bread, taxi, ticket"))))


def meet(dice: Dice, subject: Subject) -> Predicate:
    """Call, visit, meet, pick up, invite someone (accusative)."""
    verb = dice.pick(("anrufen", "besuchen", "treffen", "abholen", "einladen"))
    place = EMPTY
    if verb == "besuchen" and dice.chance(0.5):
        place = in_city(dice)
    elif verb == "treffen" and dice.chance(0.6):
        spot = the(dice.pick(lex.SIGHTS))
        place = Pair(f"in front of {spot.en}", spot.after("vor", DAT))
    elif verb == "abholen":
        spot = the(dice.pick(lex.named("station, airport, school, hospital, hotel")))
        place = Pair(f"from {spot.en}", spot.after("von", DAT))
    elif verb == "einladen":
        event = the(dice.pick(lex.named("concert, party, game, lecture")))
        place = Pair(f"to {event.en}", event.after("zu", DAT))
    if dice.chance(0.4):
        en, acc, _ = object_pronoun(dice, subject)
        return Predicate(V[verb], pronoun=Pair(en, acc), place=place)
    return Predicate(V[verb], _acc(_other(dice, subject)), place)


def _other(dice: Dice, subject: Subject) -> NounPhrase:
    """Someone who is not the subject."""
    while True:
        other = person(dice)
        if other.en != subject.en:
            return other


def help_someone(dice: Dice, subject: Subject) -> Predicate:
    """Help or thank someone (dative)."""
    verb = V[dice.pick(("helfen", "danken"))]
    if dice.chance(0.4):
        en, _, dat = object_pronoun(dice, subject)
        return Predicate(verb, pronoun=Pair(en, dat))
    other = _other(dice, subject)
    return Predicate(verb, Pair(other.en, other.dat))


def give(dice: Dice, subject: Subject) -> Predicate:
    """Give, show, send, lend someone something (dative and accusative)."""
    verb = dice.pick(("geben", "zeigen", "schicken", "leihen", "bringen"))
    gifts = LENT if verb == "leihen" else lex.GIFTS
    definite = dice.chance(0.5)
    gift = noun_phrase(dice.pick(gifts), THE if definite else A)
    if dice.chance(0.4):
        en, _, dat = object_pronoun(dice, subject)
        no_object = None if definite else _without(gift)
        return Predicate(V[verb], _acc(gift), pronoun=Pair(en, dat), no_object=no_object)
    other = _other(dice, subject)
    obj = Pair(f"{other.en} {gift.en}", f"{other.dat} {gift.acc}")
    no_object = None if definite else Pair(obj.en, f"{other.dat} k{gift.acc}")
    return Predicate(V[verb], obj, no_object=no_object)


def daily(dice: Dice, subject: Subject) -> Predicate:
    """Verbs without object, most of them separable."""
    verb = dice.pick(("aufstehen", "einkaufen", "fernsehen", "arbeiten", "hören", "spielen"))
    if verb == "hören":
        return Predicate(V[verb], place=Pair("", "Musik"), negatable=False)
    if verb == "spielen":
        return Predicate(V[verb], place=dice.pick(GAMES), negatable=False)
    if verb == "einkaufen" and dice.chance(0.6):
        return Predicate(V[verb], place=dice.pick((*MARKETS, in_city(dice))))
    if verb == "arbeiten":
        return Predicate(V[verb], place=dice.pick((*WORKPLACES, in_city(dice))))
    return Predicate(V[verb])


def travel(dice: Dice, subject: Subject) -> Predicate:
    """Travel, fly, walk, arrive, come back, change, stay."""
    en, de = dice.pick(lex.CITIES)
    verb = dice.pick(
        ("fahren", "fahren", "fliegen", "gehen", "gehen", "zurückkommen", "umsteigen", "bleiben", "abreisen")
    )
    if verb == "fahren":
        means = the(dice.pick(lex.named("train, bus, car, bicycle")))
        return Predicate(V[verb], place=Pair(f"to {en} by {means.en[4:]}", f"{means.after('mit', DAT)} nach {de}"))
    if verb == "gehen":
        return Predicate(V[verb], place=to_place(dice))
    if verb == "bleiben":
        return Predicate(V[verb], place=dice.pick((WORKPLACES[2], Pair("in the hotel", "im Hotel"), in_city(dice))))
    if verb == "abreisen":
        return Predicate(V[verb])
    places = {"fliegen": ("to", "nach"), "zurückkommen": ("from", "aus")}
    prep_en, prep_de = places.get(verb, ("in", "in"))
    return Predicate(V[verb], place=Pair(f"{prep_en} {en}", f"{prep_de} {de}"))


def board(dice: Dice, subject: Subject) -> Predicate:
    """Get on, get off, wait for, take a train, bus or tram."""
    verb = dice.pick(("einsteigen", "aussteigen", "warten", "nehmen"))
    phrase = the(dice.pick(lex.named("train, bus, tram, express train")))
    if verb == "einsteigen":
        return Predicate(V[verb], place=Pair(phrase.en, phrase.after("in", ACC)))
    if verb == "aussteigen":
        return Predicate(V[verb], place=Pair(phrase.en, phrase.after("aus", DAT)))
    if verb == "warten":
        return Predicate(V[verb], place=Pair(f"for {phrase.en}", phrase.after("auf", ACC)))
    if verb == "nehmen" and dice.chance(0.4):
        taxi = noun_phrase(lex.NOUNS["taxi"], A)
        return Predicate(V[verb], _acc(taxi), no_object=_without(taxi))
    return _transitive(verb, phrase)


def home(dice: Dice, subject: Subject) -> Predicate:
    """Housework: tidy up, clean, turn on, open, try on, pack."""
    kind = dice.below(5)
    if kind == 0:
        return _transitive(dice.pick(("aufräumen", "putzen")), the(dice.pick(lex.ROOMS)))
    if kind == 1:
        device = dice.pick(lex.named("lamp, radio, computer, washing machine"))
        return _transitive(dice.pick(("einschalten", "ausschalten")), the(device))
    if kind == 2:
        opening = dice.pick(lex.named("door, window, shop, cupboard, letter"))
        verb = "öffnen" if opening.en == "letter" else dice.pick(("öffnen", "schließen"))
        return _transitive(verb, the(opening))
    if kind == 3:
        return _transitive("packen", _own(dice, subject, lex.named("suitcase, backpack")))
    return _transitive("anprobieren", noun_phrase(dice.pick(lex.CLOTHES[:-1]), THE, dice.pick(lex.COLOURS)))


def office(dice: Dice, subject: Subject) -> Predicate:
    """Appointments, forms, letters and meetings."""
    kind = dice.below(6)
    if kind == 0:
        event = dice.pick([*lex.named("appointment, appointment"), *lex.EVENTS])
        return _transitive(dice.pick(("absagen", "verschieben")), the(event))
    occasion = the(dice.pick(lex.EVENTS))
    if kind == 1:
        return _transitive("vorbereiten", occasion)
    if kind == 2:
        return Predicate(V["teilnehmen"], place=Pair(f"in {occasion.en}", occasion.after("an", DAT)))
    if kind == 3:
        return _transitive("ausfüllen", the(lex.NOUNS["form"]))
    if kind == 4:
        letter = noun_phrase(dice.pick(lex.named("letter, postcard")), A)
        return Predicate(V["schreiben"], _acc(letter), no_object=_without(letter))
    return return_or_bring(dice, subject)


def return_or_bring(dice: Dice, subject: Subject) -> Predicate:
    """Give something back or bring something along."""
    if dice.chance(0.5):
        return _transitive("zurückgeben", the(dice.pick(lex.named("key, camera, book, bicycle, umbrella, city map"))))
    item = noun_phrase(dice.pick(lex.named("cake, present, city map, camera, umbrella, bottle")), A)
    return Predicate(V["mitbringen"], _acc(item), no_object=_without(item))
