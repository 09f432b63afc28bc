"""Values of options that several commands take."""

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def positive(value: str) -> int:
    """A whole number, at least 1."""
    number = int(value)
    if number <= 0:
        raise ValueError
    return number


def seconds(value: str) -> float:
    """A time, more than nothing and less than for ever."""
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def size(value: str) -> int:
    """A number of bytes, with K, M or G for powers of 1024."""
    unit = _UNITS.get(value[-1:].upper(), 1)
    return positive(value[:-1]) * unit if unit > 1 else positive(value)


# What argparse says of a value these refuse: "invalid <name> value".
positive.__name__ = "positive integer"
seconds.__name__ = "number of seconds"
size.__name__ = "number of bytes"
