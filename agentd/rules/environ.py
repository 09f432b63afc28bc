"""What a child finds in its environment: four layers, each key from the highest that has it (contract c.2).

    request   what the caller asked for
    launch    what the winning run hook brought
    identity  HOME, USER and LOGNAME of the user's row in the passwd file
    image     what the daemon was started with, only when the request asks to inherit it

Nothing else reaches a child: without a user and without the flag its environment is launch and request and no
more. The image layer is a snapshot with the daemon's own configuration taken out, taken once, so nothing that
happens in the daemon later (an exported token, say) can reach a child through it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

OWN_PREFIX: Final = b"AGENTD_"
"""What the names of the daemon's own variables begin with."""


def belongs_to_daemon(name: bytes) -> bool:
    """Whether variable `name` is the daemon's configuration, which no child ever gets to see."""
    return name.startswith(OWN_PREFIX)


def as_text(name: bytes, value: bytes) -> tuple[str, str] | None:
    """A variable as text, or None when its name or value is not UTF-8."""
    try:
        return name.decode(), value.decode()
    except UnicodeDecodeError:
        return None


def snapshot(environ: Mapping[bytes, bytes]) -> Mapping[str, str]:
    """The image layer taken from `environ`, the environment the daemon was started with; read-only.

    Left out: every variable of the daemon's own, and every one that is not UTF-8.
    """
    kept: dict[str, str] = {}
    for name, value in environ.items():
        text = None if belongs_to_daemon(name) else as_text(name, value)
        if text is not None:
            kept[text[0]] = text[1]
    return MappingProxyType(kept)


def layer(
    image: Mapping[str, str],
    identity: Mapping[str, str],
    launch: Mapping[str, str],
    request: Mapping[str, str],
) -> dict[str, str]:
    """One environment of four layers, lowest first: each key has the value of the highest layer defining it."""
    return {**image, **identity, **launch, **request}


def inherited(image: Mapping[str, str], inherit: bool) -> Mapping[str, str]:
    """The image layer as far as the request's ``inherit_image_env`` lets it through: all of it or nothing."""
    return image if inherit else {}


def search_path(environment: Mapping[str, str]) -> str | None:
    """The PATH that an environment defines, or None; of a layered one, that of the highest layer with a PATH."""
    return environment.get("PATH")
