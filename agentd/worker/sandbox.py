"""Sandbox targets: the same call, made of another worker of the engine, and its failures in our codes.

A `sandbox::*` function takes the arguments of its `shell::*` sister, without the target and with the sandbox's id.
Codes that callers of the shell worker know pass through unchanged, whichever of the two error shapes they came in;
anything else is S216 (reference (d)).
"""

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final, Protocol

from agentd.worker.errors import Coded
from agentd.worker.settings import Settings

_KNOWN: Final = re.compile(r"S(00[1-4]|10[0-2]|200|21[0-8]|300|400)\Z")
_EMBEDDED: Final = re.compile(r"[^{]*(\{.*\})\s*\Z", re.DOTALL)
GRACE_SECS: Final = 5.0
"""How long after its own timeout a call in a sandbox may take to be answered."""
PLAIN_SECS: Final = 30.0
"""A call without a timeout of its own."""


class CallFailed(Exception):
    """A function of the engine's answered with an error, or did not answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Caller(Protocol):
    """The engine, as far as it is called."""

    async def call(self, function_id: str, data: Any, seconds: float = PLAIN_SECS) -> Any:
        """The result. Raises `CallFailed`, also when there is no connection."""
        ...


class Sandbox:
    """The sandboxes behind the engine."""

    def __init__(self, engine: Caller) -> None:
        self._engine = engine

    async def forward(
        self,
        settings: Settings,
        sandbox_id: str,
        function: str,
        arguments: Mapping[str, Any],
        seconds: float = PLAIN_SECS,
    ) -> Any:
        """The result of ``sandbox::<function>`` with `arguments` in the sandbox. Raises `Coded`.

        `function` is ``exec`` or such as ``fs::ls``.
        """
        self.check(settings)
        try:
            return await self._engine.call(
                f"sandbox::{function}", {**arguments, "sandbox_id": sandbox_id}, seconds
            )
        except CallFailed as reason:
            raise mapped(reason) from None

    def check(self, settings: Settings) -> None:
        """Raises `Coded` S210 when sandbox targets are switched off."""
        if not settings.sandbox.enabled:
            raise Coded("S210", "sandbox targets are switched off: sandbox.enabled is false")


def sandbox_of(target: object) -> str | None:
    """The sandbox that a `target` names, None for the host. Raises ValueError for what is no target."""
    if target is None:
        return None
    if not isinstance(target, Mapping):
        raise ValueError("'target' must be an object")
    kind = target.get("kind")
    if kind == "host":
        return None
    if kind != "sandbox":
        raise ValueError('\'target.kind\' must be "host" or "sandbox"')
    name = target.get("sandbox_id")
    if not isinstance(name, str):
        raise ValueError("'target.sandbox_id' must be a UUID")
    try:
        return str(uuid.UUID(name))
    except ValueError:
        raise ValueError("'target.sandbox_id' must be a UUID") from None


def mapped(reason: CallFailed) -> Coded:
    """The failure of a forwarded call, as its caller is told."""
    if _KNOWN.match(reason.code):
        return Coded(reason.code, reason.message)
    inner = _embedded(reason.message)
    if inner is not None:
        return inner
    return Coded("S216", f"sandbox: {reason.code}: {reason.message}")


def _embedded(message: str) -> Coded | None:
    """A code and message that were sent as the JSON text of a plain failure."""
    found = _EMBEDDED.match(message)
    if found is None:
        return None
    try:
        value = json.loads(found[1])
    except (ValueError, RecursionError):
        return None
    code = value.get("code")
    if isinstance(code, str) and _KNOWN.match(code):
        return Coded(code, str(value.get("message", "")))
    return None
