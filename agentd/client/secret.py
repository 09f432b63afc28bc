"""Values that must not be seen: the agent's token and the endpoint proxy's.

A `Secret` shows nothing of itself in a repr, a format string or a pickle; `reveal()` is the one way in, so a
search for that word finds every place where a token leaves the process. `scrub` takes known secrets out of
text that came from elsewhere, because a proxy that echoes a request's headers into its error page is common.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn, final

MASK = "***"


@final
class Secret:
    """A string kept out of sight.

    Raises:
        ValueError: the text is empty or could not be sent in a header (control characters); never quoted.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise ValueError("a token must be a string of at least one character")
        if any(ord(c) < 0x20 or ord(c) == 0x7F for c in text) or text != text.strip():
            raise ValueError("a token must not hold control characters or surrounding white space")
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the wire and nothing else."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a secret is not pickled or copied")


def scrub(text: str, secrets: Iterable[Secret]) -> str:
    """`text` with every occurrence of each secret replaced by a mask."""
    for secret in secrets:
        text = text.replace(secret.reveal(), MASK)
    return text


TokenProvider = Callable[[], "str | Secret | Awaitable[str | Secret]"]
"""Something to call for the token, before each request: it may be rotated, read from a file, or fetched."""


async def provide(source: "str | Secret | TokenProvider") -> Secret:
    """The token, from whatever was given as its source."""
    value: Any = source() if callable(source) else source
    if inspect.isawaitable(value):
        value = await value
    return value if isinstance(value, Secret) else Secret(value)
