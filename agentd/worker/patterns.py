"""What is wrong with a pattern."""


class BadPattern(ValueError):
    """The pattern does not compile, or google-re2 is missing; the text says which, and why."""
