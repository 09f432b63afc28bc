"""The functions of the worker by their ids, with the schemas that callers see, and how one is called.

A family module knows nothing of schemas: those are published facts and lie beside this file, in ``functions.json``, as
the engine is given them. Here both are brought together, and whatever a function raises becomes one of the two shapes
of a failure.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import ModuleType
from typing import Any, Final

import msgspec
from attrs import field, frozen
from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from agentd.worker import (
    coder_read,
    coder_search,
    coder_write,
    configuration,
    fs_entries,
    fs_read,
    fs_search,
    fs_write,
    shell,
    workspace,
)
from agentd.worker.errors import Coded, FunctionError
from agentd.worker.function import Call, Function
from agentd.worker.websocket import MAX_MESSAGE_BYTES

_log = Logger()

NOT_FOUND: Final = "function_not_found"
_encode = msgspec.json.Encoder().encode


@frozen
class Described:
    """A function, and what is published of it."""

    function: Function
    description: str
    request_schema: Mapping[str, Any] = field(repr=False)
    response_schema: Mapping[str, Any] = field(repr=False)
    metadata: Mapping[str, Any]


class Registry:
    """Every function by its id, in alphabetical order."""

    def __init__(self, families: Iterable[ModuleType]) -> None:
        published = load()
        found: dict[str, Described] = {}
        for function in functions(families):
            if function.id in found:
                raise ValueError(f"two functions are called {function.id}")
            facts = published[function.id]
            found[function.id] = Described(
                function,
                facts["description"],
                facts["request_schema"],
                facts["response_schema"],
                facts["metadata"],
            )
        self.functions: Mapping[str, Described] = dict(sorted(found.items()))

    async def invoke(self, call: Call, id: str, data: Any) -> bytes:
        """The result as JSON. Raises `FunctionError`, and nothing else but a cancellation."""
        described = self.functions.get(id)
        if described is None:
            raise Coded(NOT_FOUND, f"no such function: {id}")
        try:
            function = described.function
            result = await function.run(call, function.parse(data))
            encoded = _encode(result)
        except (FunctionError, CancelledError):
            raise
        except Exception:
            _log.failure("{id} failed in a way nobody foresaw", id=id)
            raise Coded("S216", "internal error; the log says more") from None
        if len(encoded) > MAX_MESSAGE_BYTES:
            raise Coded("S216", f"the result is larger than {MAX_MESSAGE_BYTES} bytes")
        return encoded


FAMILIES: Final = (
    shell,
    configuration,
    fs_entries,
    fs_read,
    fs_search,
    fs_write,
    workspace,
    coder_read,
    coder_search,
    coder_write,
)
"""Every module that has functions."""


def functions(families: Iterable[ModuleType]) -> list[Function]:
    """The functions of some families."""
    return [function for family in families for function in family.FUNCTIONS]


@cache
def load() -> dict[str, Any]:
    """What is published of the 29 functions, by their ids; for reading only."""
    text = resources.files("agentd.worker").joinpath("functions.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
