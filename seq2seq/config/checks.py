"""Checks that options of many groups share."""


def require(ok: bool, message: str) -> None:
    """Refuse with the message unless `ok`."""
    if not ok:
        raise ValueError(message)


def probability(name: str, value: int | float) -> None:
    """Refuse what is not a probability below 1."""
    require(0.0 <= value < 1.0, f"{name}={value} is not a probability below 1; choose 0 <= {name} < 1")


TOO_LARGE = 2**31
"""Nothing here is meant to be this large; infinity and what would overflow a tensor's index are refused with it."""


def positive(name: str, value: int | float) -> None:
    """Refuse what is not above 0, or absurdly large."""
    require(value > 0, f"{name}={value} is not positive; choose {name} > 0")
    require(value < TOO_LARGE, f"{name}={value} is too large; choose {name} < {TOO_LARGE}")


def not_negative(name: str, value: int | float) -> None:
    """Refuse what is below 0, or absurdly large."""
    require(value >= 0, f"{name}={value} is negative; choose {name} >= 0")
    require(value < TOO_LARGE, f"{name}={value} is too large; choose {name} < {TOO_LARGE}")
