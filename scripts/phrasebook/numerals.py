"""Numbers in words: cardinals and ordinals to 9,999 and years, in English and in German."""

_EN_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_EN_TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_EN_ORDINAL = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_DE_SMALL = [
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_DE_TENS = ["-", "-", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_DE_ORDINAL = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}


def _check(number: int) -> None:
    if not 0 <= number <= 9999:
        raise ValueError(f"only numbers from 0 to 9999 are spelled out, got {number}")


def cardinal_en(number: int) -> str:
    """British spelling with "and": 237 is "two hundred and thirty-seven".

    Raises:
        ValueError: The number is below 0 or above 9999.
    """
    _check(number)
    if number < 20:
        return _EN_SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _EN_TENS[tens] + (f"-{_EN_SMALL[ones]}" if ones else "")
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{_EN_SMALL[hundreds]} hundred" + (f" and {cardinal_en(rest)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    link = "" if not rest else " and " if rest < 100 else " "
    return f"{_EN_SMALL[thousands]} thousand{link}{cardinal_en(rest) if rest else ''}"


def cardinal_de(number: int) -> str:
    """One German word: 237 is "zweihundertsiebenunddreißig", 101 "hunderteins", 1100 "tausendeinhundert".

    Raises:
        ValueError: The number is below 0 or above 9999.
    """
    _check(number)
    if number < 20:
        return _DE_SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return (f"{_de_digit(ones)}und" if ones else "") + _DE_TENS[tens]
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return ("" if hundreds == 1 else _de_digit(hundreds)) + "hundert" + (cardinal_de(rest) if rest else "")
    thousands, rest = divmod(number, 1000)
    # Inside a number the hundred keeps its "ein": tausendeinhundert.
    link = "ein" if 100 <= rest < 200 else ""
    return ("" if thousands == 1 else _de_digit(thousands)) + "tausend" + link + (cardinal_de(rest) if rest else "")


def _de_digit(digit: int) -> str:
    return "ein" if digit == 1 else _DE_SMALL[digit]


def ordinal_en(number: int) -> str:
    """The English ordinal: 21 is "twenty-first".

    Raises:
        ValueError: The number is below 0 or above 9999.
    """
    cardinal = cardinal_en(number)
    for separator in ("-", " "):
        head, found, last = cardinal.rpartition(separator)
        if found:
            return head + separator + _one_word_ordinal(last)
    return _one_word_ordinal(cardinal)


def _one_word_ordinal(word: str) -> str:
    if word in _EN_ORDINAL:
        return _EN_ORDINAL[word]
    return word[:-1] + "ieth" if word.endswith("y") else word + "th"


def ordinal_stem_de(number: int) -> str:
    """The German ordinal without its ending, which depends on gender and case: 3 is "dritt", 20 "zwanzigst".

    Raises:
        ValueError: The number is below 0 or above 9999.
    """
    _check(number)
    last = number % 100
    if 0 < last < 20:
        if last in _DE_ORDINAL:
            full = cardinal_de(number)
            return full[: len(full) - len(_DE_SMALL[last])] + _DE_ORDINAL[last]
        return cardinal_de(number) + "t"
    return cardinal_de(number) + "st"


def year_en(year: int) -> str:
    """A year from 1100 to 2099 as it is said: 1905 is "nineteen oh five", 2004 "two thousand and four"."""
    century, rest = divmod(year, 100)
    if century == 20:
        return cardinal_en(year)
    if rest == 0:
        return f"{cardinal_en(century)} hundred"
    return f"{cardinal_en(century)} {f'oh {cardinal_en(rest)}' if rest < 10 else cardinal_en(rest)}"


def year_de(year: int) -> str:
    """A year from 1100 to 2099 as it is said: 1905 is "neunzehnhundertfünf", 2004 "zweitausendvier"."""
    century, rest = divmod(year, 100)
    if century == 20:
        return cardinal_de(year)
    return f"{cardinal_de(century)}hundert{cardinal_de(rest) if rest else ''}"
