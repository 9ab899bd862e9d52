"""When: clock times, weekdays, dates, and the phrases that place an action in time."""

from phrasebook.dice import EMPTY, Dice, Pair
from phrasebook.inflection import ACC, BARE, DAT, THE, A, Determiner, Noun, ending_de, noun_phrase, number_word
from phrasebook.lexicon import HOUR, MINUTE, PERIODS
from phrasebook.numerals import cardinal_de, cardinal_en, ordinal_en, ordinal_stem_de

WEEKDAYS = [
    Pair("Monday", "Montag"),
    Pair("Tuesday", "Dienstag"),
    Pair("Wednesday", "Mittwoch"),
    Pair("Thursday", "Donnerstag"),
    Pair("Friday", "Freitag"),
    Pair("Saturday", "Samstag"),
    Pair("Sunday", "Sonntag"),
]
MONTHS = [
    (Pair("January", "Januar"), 31),
    (Pair("February", "Februar"), 29),
    (Pair("March", "März"), 31),
    (Pair("April", "April"), 30),
    (Pair("May", "Mai"), 31),
    (Pair("June", "Juni"), 30),
    (Pair("July", "Juli"), 31),
    (Pair("August", "August"), 31),
    (Pair("September", "September"), 30),
    (Pair("October", "Oktober"), 31),
    (Pair("November", "November"), 30),
    (Pair("December", "Dezember"), 31),
]
YESTERDAY = [
    Pair("yesterday", "gestern"),
    Pair("yesterday evening", "gestern Abend"),
    Pair("yesterday afternoon", "gestern Nachmittag"),
]
TOMORROW = [
    Pair("tomorrow", "morgen"),
    Pair("tomorrow evening", "morgen Abend"),
    Pair("tomorrow afternoon", "morgen Nachmittag"),
    Pair("today", "heute"),
    Pair("this evening", "heute Abend"),
]
ONE = Determiner("one", "ein", A.table)


def clock(hour: int, minute: int) -> Pair:
    """The time on a twelve-hour clock: (9, 30) is "half past nine", "halb zehn".

    Args:
        hour: 1 to 12.
        minute: A multiple of five, 0 to 55.
    """
    following = hour % 12 + 1
    now_en, next_en = cardinal_en(hour), cardinal_en(following)
    now_de, next_de = cardinal_de(hour), cardinal_de(following)
    if minute == 0:
        return Pair(f"{now_en} o'clock", "ein Uhr" if hour == 1 else f"{now_de} Uhr")
    if minute == 15:
        return Pair(f"a quarter past {now_en}", f"Viertel nach {now_de}")
    if minute == 30:
        return Pair(f"half past {now_en}", f"halb {next_de}")
    if minute == 45:
        return Pair(f"a quarter to {next_en}", f"Viertel vor {next_de}")
    # German counts the five minutes on either side of the half hour from the half hour.
    en = f"{cardinal_en(minute)} past {now_en}" if minute < 30 else f"{cardinal_en(60 - minute)} to {next_en}"
    if minute in (25, 35):
        return Pair(en, f"fünf {'vor' if minute == 25 else 'nach'} halb {next_de}")
    if minute < 30:
        return Pair(en, f"{cardinal_de(minute)} nach {now_de}")
    return Pair(en, f"{cardinal_de(60 - minute)} vor {next_de}")


def any_clock(dice: Dice, first: int = 1, last: int = 12) -> Pair:
    """A time of day in some hours; the full and the half hours are more frequent."""
    minute = dice.pick((0, 0, 0, 15, 15, 30, 30, 30, 45, 45, 5, 10, 20, 25, 35, 40, 50, 55))
    return clock(dice.between(first, last), minute)


def at_clock(dice: Dice) -> Pair:
    """At a time of day, sometimes with the part of the day."""
    time = any_clock(dice)
    if not dice.chance(0.15):
        return Pair(f"at {time.en}", f"um {time.de}")
    low, high, part = dice.pick(
        (
            (5, 11, Pair("in the morning", "morgens")),
            (1, 5, Pair("in the afternoon", "nachmittags")),
            (6, 11, Pair("in the evening", "abends")),
        )
    )
    time = clock(dice.between(low, high), 0)
    return Pair(f"at {time.en} {part.en}", f"um {time.de} {part.de}")


def day_of_month(dice: Dice, determiner_case: int) -> tuple[Pair, Pair]:
    """The ordinal with its German ending after "the", and the month."""
    month, days = dice.pick(MONTHS)
    day = dice.between(1, days)
    return Pair(ordinal_en(day), ending_de(ordinal_stem_de(day), THE, determiner_case, "m")), month


def date(dice: Dice) -> Pair:
    """On a date: "on the third of May", "am dritten Mai"."""
    day, month = day_of_month(dice, DAT)
    return Pair(f"on the {day.en} of {month.en}", f"am {day.de} {month.de}")


def on_weekday(dice: Dice) -> Pair:
    """On a weekday, sometimes with the part of the day."""
    day = dice.pick(WEEKDAYS)
    part = dice.pick(
        (EMPTY,) * 5 + (Pair(" morning", "morgen"), Pair(" afternoon", "nachmittag"), Pair(" evening", "abend"))
    )
    return Pair(f"on {day.en}{part.en}", f"am {day.de}{part.de}")


def every_weekday(dice: Dice) -> Pair:
    """Every Monday, every day: the German accusative without a preposition."""
    day = dice.pick([*WEEKDAYS, Pair("day", "Tag"), Pair("morning", "Morgen"), Pair("evening", "Abend")])
    return Pair(f"every {day.en}", f"jeden {day.de}")


def _next_or_last(dice: Dice, en: str, de_stem: str) -> Pair:
    unit = dice.pick([*((day, "m") for day in WEEKDAYS), (Pair("week", "Woche"), "f"), (Pair("year", "Jahr"), "n")])
    (unit_en, unit_de), gender = unit
    return Pair(f"{en} {unit_en}", f"{ending_de(de_stem, BARE, ACC, gender)} {unit_de}")


def past_day(dice: Dice) -> Pair:
    """A day in the past."""
    kind = dice.below(6)
    if kind == 0:
        return _next_or_last(dice, "last", "letzt")
    if kind == 1:
        period = measured(dice.between(1, 12), dice.pick(PERIODS), DAT)
        return Pair(f"{period.en} ago", f"vor {period.de}")
    if kind == 2:
        return dice.pick(YESTERDAY)
    return on_weekday(dice) if kind < 5 else date(dice)


def future_day(dice: Dice) -> Pair:
    """A day in the future."""
    kind = dice.below(6)
    if kind == 0:
        return _next_or_last(dice, "next", "nächst")
    if kind == 1:
        period = measured(dice.between(1, 12), dice.pick(PERIODS[:2]), DAT)
        return Pair(f"in {period.en}", f"in {period.de}")
    if kind == 2:
        return dice.pick(TOMORROW)
    return on_weekday(dice) if kind < 5 else date(dice)


def with_clock(dice: Dice, day: Pair) -> Pair:
    """A day with a clock time: English puts the clock first, German the day."""
    time = any_clock(dice)
    return Pair(f"at {time.en} {day.en}", f"{day.de} um {time.de}")


def timetable(dice: Dice) -> Pair:
    """A clock time, with or without the day."""
    if dice.chance(0.4):
        return at_clock(dice)
    return with_clock(dice, dice.pick((on_plain_weekday, date, every_plain_weekday, today_or_tomorrow))(dice))


def on_plain_weekday(dice: Dice) -> Pair:
    """On a weekday, without part of the day."""
    day = dice.pick(WEEKDAYS)
    return Pair(f"on {day.en}", f"am {day.de}")


def every_plain_weekday(dice: Dice) -> Pair:
    """Every Monday, without part of the day."""
    day = dice.pick(WEEKDAYS)
    return Pair(f"every {day.en}", f"jeden {day.de}")


def today_or_tomorrow(dice: Dice) -> Pair:
    """Today or tomorrow."""
    return dice.pick((Pair("today", "heute"), Pair("tomorrow", "morgen")))


def measured(count: int, unit: Noun, case: int = ACC) -> Pair:
    """A count of minutes, euros, metres...: "one kilometre" is "einen Kilometer" in the accusative."""
    determiner = ONE if count == 1 else number_word(cardinal_en(count), cardinal_de(count))
    phrase = noun_phrase(unit, determiner, plural=count > 1)
    return Pair(phrase.en, phrase.cases[case])


def duration(dice: Dice) -> Pair:
    """How long something takes (accusative)."""
    kind = dice.below(5)
    if kind == 0:
        return measured(dice.between(2, 59), MINUTE)
    if kind == 1:
        return dice.pick((Pair("half an hour", "eine halbe Stunde"), Pair("an hour and a half", "anderthalb Stunden")))
    hours = measured(dice.between(1, 12), HOUR)
    if kind == 2:
        return hours
    minutes = measured(dice.between(2, 59), MINUTE)
    return Pair(f"{hours.en} and {minutes.en}", f"{hours.de} und {minutes.de}")
