"""What the `shell::fs::*` functions share: how a request is read, where it goes, and modes (reference B0, B2)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from attrs import frozen
from msgspec import Struct

from agentd.worker.errors import Coded
from agentd.worker.function import Call, Function
from agentd.worker.sandbox import sandbox_of
from agentd.worker.settings import Settings

T = TypeVar("T", bound=Struct)
R = TypeVar("R")

_NOT_FORWARDED: Final = ("target", "fs_scope")
_SPECIAL_BITS: Final = 0o7000


@frozen
class Asked:
    """A request, and the sandbox that it is for; None for this machine."""

    request: Any
    sandbox: str | None
    arguments: Mapping[str, Any]
    """The request as it came, less what is not another worker's affair."""


def fs_function(
    name: str,
    description: str,
    request: type[T],
    result: type[R],
    run: Callable[[Call, T], Awaitable[R]],
    for_sandbox: Callable[[T], None] = lambda _: None,
) -> Function:
    """The function ``shell::fs::<name>``. A sandbox's answer has to be a `result` too.

    `for_sandbox` looks at a request that is to be forwarded, and raises `Coded` if it must not be.
    """

    def parse(data: object) -> Asked:
        if not isinstance(data, Mapping):
            raise Coded("S210", f"bad {name} payload: it must be an object")
        try:
            sandbox = sandbox_of(data.get("target", {"kind": "host"}))
            asked = msgspec.convert(data, request)
        except (ValueError, RecursionError) as reason:
            raise Coded("S210", f"bad {name} payload: {reason}") from None
        if sandbox is not None:
            for_sandbox(asked)
        arguments = {
            key: value
            for key, value in data.items()
            if key not in _NOT_FORWARDED and not str(key).startswith("_")
        }
        return Asked(asked, sandbox, arguments)

    async def serve(call: Call, asked: Asked) -> R:
        if asked.sandbox is None:
            return await run(call, asked.request)
        answer = await call.sandbox.forward(call.settings, asked.sandbox, f"fs::{name}", asked.arguments)
        try:
            return msgspec.convert(answer, result)
        except (ValueError, RecursionError) as reason:
            raise Coded("S216", f"sandbox: an answer that is not understood: {reason}") from None

    return Function(f"shell::fs::{name}", description, parse, serve)


def parse_mode(text: str, settings: Settings) -> int:
    """The permission bits that an octal `text` means. Raises `Coded` S210."""
    mode = octal(text)
    if mode is None:
        shown = text if len(text) <= 32 else text[:32] + "…"
        raise Coded("S210", f"bad mode {shown!r}: it must be an octal number such as 0644")
    if mode & _SPECIAL_BITS and not settings.fs.allow_special_bits:
        raise Coded("S210", f"bad mode {text!r}: setuid, setgid and sticky are not allowed here")
    return mode


def octal(text: str) -> int | None:
    """The mode, up to 7777, that `text` writes in octal digits; None for anything else."""
    digits = text.lstrip("0")
    if not text or len(digits) > 4 or any(digit not in "01234567" for digit in text):
        return None
    return int(digits or "0", 8)


def shown_mode(mode: int) -> str:
    """Four octal digits."""
    return f"{mode & 0o7777:04o}"
