"""Values, steps and verdicts in words."""

from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any

import attrs

from checker.properties import Property, Sometimes, SometimesOnEdge
from checker.result import Result


def say(value: Hashable) -> str:
    """A value in few words. A field that its class keeps out of its `repr` is only said to be set."""
    if value is None:
        return "none"
    if isinstance(value, Enum):
        return str(value.value) if isinstance(value.value, str) else value.name.lower()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, tuple):
        return f"({', '.join(map(say, value))})"
    if isinstance(value, (frozenset, set)):
        return f"{{{', '.join(sorted(map(say, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{say(key)}: {say(item)}' for key, item in value.items())}}}"
    if attrs.has(type(value)):
        return f"{type(value).__name__}({', '.join(_fields(value))})"
    return str(value)


def say_change(before: Hashable, after: Hashable) -> str:
    """What became of a value: of two values of one class only the fields that differ."""
    if type(before) is type(after) and attrs.has(type(before)):
        fields = zip(_fields(before), _fields(after), strict=True)
        differing = [f"{old} -> {new.partition('=')[2]}" for old, new in fields if old != new]
        if differing:
            return ", ".join(differing)
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        return ", ".join(say_change(old, new) for old, new in zip(before, after, strict=True) if old != new)
    return f"{say(before)} -> {say(after)}"


def _fields(value: Any) -> list[str]:
    told = []
    for field in attrs.fields(type(value)):
        item = getattr(value, field.name)
        if not field.repr:
            told.append(f"{field.name}={'none' if item is None else 'set'}")
        else:
            told.append(f"{field.name}={say(item)}")
    return told


def kind(prop: Property) -> str:
    """What sort of property it is, in the words of `checker.properties`."""
    return {
        "Always": "always",
        "OnEdge": "always on an edge",
        "Sometimes": "sometimes",
        "SometimesOnEdge": "sometimes on an edge",
        "LeadsTo": "leads to",
        "DeadlockFree": "deadlock freedom",
    }[type(prop).__name__]


def verdict(prop: Property, result: Result) -> str:
    """``holds``, ``violated``, ``witnessed``, ``unwitnessed`` or, when the search is incomplete, ``undecided``."""
    asks = isinstance(prop, (Sometimes, SometimesOnEdge))
    if prop in result.hits or prop in result.lassos:
        return "witnessed" if asks else "violated"
    if not result.complete:
        return "undecided"
    return "unwitnessed" if asks else "holds"
