"""What someone did, will, can, wants to or often does: clauses about the past, the future and habits."""

from dataclasses import replace

from phrasebook.actions import (
    board,
    buy,
    consume,
    daily,
    give,
    handle_vehicle,
    help_someone,
    home,
    meet,
    mishap,
    office,
    return_or_bring,
    travel,
)
from phrasebook.clauses import (
    CAN,
    COULD,
    HAD_TO,
    HAVE_TO,
    PAST,
    SHOULD,
    WANT,
    WANTED,
    WILL,
    WOULD_LIKE,
    Clause,
    Predicate,
    Subject,
)
from phrasebook.dice import Dice, Pair
from phrasebook.times import future_day, on_plain_weekday, past_day, with_clock

# Deeds are planned and can follow any modal verb; a mishap is only told in the past.
DEEDS = (
    buy,
    buy,
    handle_vehicle,
    consume,
    meet,
    meet,
    help_someone,
    give,
    give,
    daily,
    travel,
    travel,
    board,
    home,
    office,
)
HABITS = (consume, meet, daily, daily, daily, travel, board, home, office)
FAVOURS = (meet, meet, give, give, home, office, return_or_bring)
OFTEN = [
    Pair("often", "oft"),
    Pair("always", "immer"),
    Pair("sometimes", "manchmal"),
    Pair("never", "nie"),
    Pair("usually", "meistens"),
    Pair("rarely", "selten"),
]
PLANS = (WILL, WILL, CAN, HAVE_TO, SHOULD, WANT, WOULD_LIKE)
PAST_MOODS = (PAST, PAST, PAST, COULD, HAD_TO, WANTED)
RARELY_NEGATED = 0.2


def deed(dice: Dice, subject: Subject, negated: bool) -> Predicate:
    """Something planned, of a kind that can be negated if it has to be."""
    while True:
        predicate = dice.pick(DEEDS)(dice, subject)
        if predicate.negatable or not negated:
            return predicate


def told(dice: Dice, subject: Subject, timed: bool = True, negated: bool | None = None) -> Clause:
    """A clause about the past, negated or not, or at random."""
    if not negated and dice.chance(0.2):
        return _timed(dice, Clause(subject, mishap(dice, subject), PAST), past_day(dice), timed)
    if negated is None:
        negated = dice.chance(RARELY_NEGATED)
    # Only with "not" does "could" mean what "konnte" means; without, it is also "would be able to".
    mood = dice.pick(PAST_MOODS if negated else (PAST, PAST, PAST, HAD_TO, WANTED))
    return _timed(dice, Clause(subject, deed(dice, subject, negated), mood, negated=negated), past_day(dice), timed)


def planned(dice: Dice, subject: Subject, timed: bool = True, negated: bool | None = None) -> Clause:
    """A clause about what someone will, has to, wants to... do, negated or not, or at random."""
    mood = dice.pick(PLANS)
    if negated is None:
        negated = mood is not WOULD_LIKE and dice.chance(RARELY_NEGATED)
    return _timed(dice, Clause(subject, deed(dice, subject, negated), mood, negated=negated), future_day(dice), timed)


def question_about(dice: Dice, subject: Subject) -> Clause:
    """A clause to be asked: what someone did, or will, can, wants to... do."""
    predicate = dice.pick(DEEDS)(dice, subject)
    if dice.chance(0.4):
        return _timed(dice, Clause(subject, predicate, PAST), past_day(dice), True)
    # "Should you ...?" would be read as a condition.
    moods = [mood for mood in PLANS if mood is not SHOULD or subject.en != "you"]
    return _timed(dice, Clause(subject, predicate, dice.pick(moods)), future_day(dice), True)


def _timed(dice: Dice, clause: Clause, day: Pair, timed: bool) -> Clause:
    if not timed:
        return clause
    # A clock time next to "nicht" would be what is negated.
    if not clause.negated and dice.chance(0.2):
        day = with_clock(dice, on_plain_weekday(dice))
    return replace(clause, time=day)


def habitual(dice: Dice, subject: Subject) -> Clause:
    """What someone often, always, never... does."""
    return Clause(subject, dice.pick(HABITS)(dice, subject), adverb=dice.pick(OFTEN))


def favour(dice: Dice, subject: Subject) -> Predicate:
    """Something that one asks of others."""
    return dice.pick(FAVOURS)(dice, subject)


def errand(dice: Dice, subject: Subject) -> Clause:
    """Something in the past that other things come before: travelling, shopping, getting on a bus."""
    while True:
        predicate = dice.pick((travel, travel, daily, board))(dice, subject)
        # Staying and waiting have no moment that something could be before.
        if predicate.verb.infinitive not in ("bleiben", "warten"):
            return Clause(subject, predicate, PAST)
