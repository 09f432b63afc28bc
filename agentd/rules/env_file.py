"""The environment files of an environment, and the layers that a command's variables come from.

A file holds one ``NAME=VALUE`` a line. Blank lines and lines that begin with ``#`` are skipped, a leading
``export `` is allowed, one pair of matching quotes around the value is removed, nothing is expanded, and a
later line for the same name wins. A line that is none of this is skipped and counted, so that one typing error
does not take the other variables away (environments 3.2).

Layers, lowest first: the base, the request, the package's file, the platform's file. A name that a file sets cannot
be replaced by a request, and setting it to nothing counts as setting it.
"""

import re
from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
"""What a variable may be called, in a request and in a file."""

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL: Final = "/bin/bash"
_QUOTES: Final = ("'", '"')


@frozen
class Parsed:
    """What a file sets, and the numbers (from 1) of the lines that are malformed."""

    variables: Mapping[str, str] = field(repr=False)
    malformed: tuple[int, ...] = ()


def parse(text: bytes) -> Parsed:
    """Read a file. Bytes that are not UTF-8 survive in values as surrogates (`os.fsdecode`). Never fails."""
    found: dict[str, str] = {}
    malformed: list[int] = []
    for number, raw in enumerate(text.split(b"\n"), 1):
        line = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.lstrip().removeprefix("export ").lstrip().partition("=")
        if not equals or not NAME.match(name) or "\0" in value:
            malformed.append(number)
            continue
        found[name] = _unquoted(value)
    return Parsed(found, tuple(malformed))


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in _QUOTES:
        return value[1:-1]
    return value


def base(user: str, home: str) -> dict[str, str]:
    """The lowest layer: all that a command gets by itself."""
    return {
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": SHELL,
        "LANG": "C.UTF-8",
        "PATH": PATH,
    }


def layer(
    lowest: Mapping[str, str],
    request: Mapping[str, str],
    package: Mapping[str, str],
    platform: Mapping[str, str],
) -> dict[str, str]:
    """One environment: each name has the value of the highest layer that sets it."""
    return {**lowest, **request, **package, **platform}
