"""The run hook's payload: what it may hold, and which fault is named first.

Theory of operation
-------------------
The platform wraps the launcher's string, so the payload is one JSON parse deeper than the body:

    {"runHookPayload": "{\\"agent_token\\": …, \\"env\\": {…}, \\"identity_seed\\": …, …}"}

The platform ends the VM on any 400 here, so unknown keys are ignored, while anything that would silently
launch a VM other than the one asked for is refused. A refusal names keys and never quotes a value: the payload
carries the token (contract g.1). Everything is judged before anything is installed.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

KEY_BYTES = 32
"""Length of a tunnel key (x25519)."""


@frozen
class TunnelIdentity:
    """What a verified tunnel proves itself with: this VM's secret seed, and whom it trusts."""

    seed: bytes = field(repr=False)
    host_public_key: bytes = field(repr=False)


@frozen
class RunPayload:
    """A well-formed payload."""

    token: bytes = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    identity: TunnelIdentity | None


@frozen
class Refusal:
    """Why a run hook is refused with 400; `text` is empty where the contract answers an empty body."""

    text: str = ""


class _Refused(Exception):
    pass


def parse_run_body(body: bytes) -> RunPayload | Refusal:
    """Judge the body of a run hook."""
    keys: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        keys[:] = [key for key, _ in found]  # of the outermost object in the end: it is closed last
        return dict(found)

    try:
        envelope = json.loads(body.decode("utf-8"), object_pairs_hook=pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Refusal()
    inner = envelope.get("runHookPayload") if isinstance(envelope, dict) else None
    if not isinstance(inner, str) or keys.count("runHookPayload") > 1:
        return Refusal()
    try:
        return _parse_payload(inner)
    except _Refused as reason:
        return Refusal(str(reason))


def _no_constant(name: str) -> None:
    """NaN and the infinities are Python's, not JSON's."""
    raise ValueError(name)


def _parse_payload(text: str) -> RunPayload:
    try:
        payload = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        raise _Refused(
            "runHookPayload is not a JSON object; it is parsed once more, as JSON inside the string"
        )
    return RunPayload(_token(payload), _env(payload), _identity(payload))


def _token(payload: Mapping[str, Any]) -> bytes:
    token = payload.get("agent_token")
    if not isinstance(token, str):
        raise _Refused("runHookPayload has no agent_token that is a string")
    if not token:
        raise _Refused("agent_token is empty")
    return _utf8(token, "agent_token")


def _env(payload: Mapping[str, Any]) -> Mapping[str, str]:
    env = payload.get("env")
    if env is None:
        return {}
    if not isinstance(env, dict):
        raise _Refused("env is not an object")
    for key, value in env.items():
        _utf8(key, "a key of env")
        if not isinstance(value, str):
            raise _Refused(f"the env value of {key} is not a string")
        _utf8(value, f"the env value of {key}")
    return env


def _identity(payload: Mapping[str, Any]) -> TunnelIdentity | None:
    seed = _key(payload, "identity_seed")
    host = _key(payload, "identity_host_public_key")
    if seed is None and host is None:
        return None
    if seed is None:
        raise _Refused("identity_host_public_key is given without identity_seed")
    if host is None:
        raise _Refused("identity_seed is given without identity_host_public_key")
    return TunnelIdentity(seed, host)


def _key(payload: Mapping[str, Any], name: str) -> bytes | None:
    text = payload.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise _Refused(f"{name} is not a string")
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _Refused(f"{name} is not base64") from None
    if base64.b64encode(key) != text.encode():  # too much padding, or bits that belong to no byte
        raise _Refused(f"{name} is not base64")
    if len(key) != KEY_BYTES:
        raise _Refused(f"{name} decodes to {len(key)} bytes, not {KEY_BYTES}")
    if not any(key):
        raise _Refused(f"{name} is all zeros")
    return key


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise _Refused(f"{what} is not valid Unicode") from None
