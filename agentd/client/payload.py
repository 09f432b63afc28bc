"""The run payload: what a launch hands to the daemon through the platform's run hook.

One JSON object in a string, `{"agent_token": …, "env": {…}, "identity_seed": …, "identity_host_public_key": …}`,
delivered by the platform inside an envelope of its own (contract g.1, f.3). The platform refuses a string of
more than 4,096 UTF-8 bytes before the VM exists, on a member its caller did not know to be filling, so the
budget is checked here, before any call. A refusal says how many bytes, how many are allowed and what the
launch environment takes of them; it never shows a value.
"""

import base64
from collections.abc import Mapping

import msgspec

from agentd.client.errors import RunPayloadTooLarge
from agentd.client.secret import Secret
from agentd.rules.payload import Refusal, TunnelIdentity, parse_run_body

RUN_PAYLOAD_CEILING = 4096
"""UTF-8 bytes, inclusive (contract (b), "run payload budget")."""


def run_payload(
    token: Secret, env: Mapping[str, str] | None = None, identity: TunnelIdentity | None = None
) -> str:
    """The payload string for a launch.

    Args:
        token: the agent token of the new VM.
        env: its launch environment; an empty value is a value.
        identity: the keys for verified tunnels, 32 bytes each (contract f.3).

    Raises:
        RunPayloadTooLarge: more than `RUN_PAYLOAD_CEILING` UTF-8 bytes.
        ValueError: a name or value of `env` is not text that UTF-8 can carry, or a key is not one: what the
            daemon would refuse, by its own rules. Names the key, never the value.
    """
    body: dict[str, object] = {"agent_token": token.reveal()}
    if identity is not None:
        body["identity_seed"] = base64.b64encode(identity.seed).decode()
        body["identity_host_public_key"] = base64.b64encode(identity.host_public_key).decode()
    bare = len(msgspec.json.encode(body))
    if env:
        body["env"] = {_text(key, key): _text(value, key) for key, value in env.items()}
    encoded = msgspec.json.encode(body)
    if len(encoded) > RUN_PAYLOAD_CEILING:
        raise RunPayloadTooLarge(len(encoded), RUN_PAYLOAD_CEILING, len(encoded) - bare)
    payload = encoded.decode()
    verdict = parse_run_body(run_envelope(payload))
    if isinstance(verdict, Refusal):
        raise ValueError(verdict.text)
    return payload


def run_envelope(payload: str) -> bytes:
    """The body the platform posts to the run hook for this payload (contract a.1)."""
    return msgspec.json.encode({"runHookPayload": payload})


def _text(value: object, key: object) -> str:
    """`value` if it is text that UTF-8 can carry."""
    try:
        if isinstance(value, str) and value.encode() is not None:
            return value
    except UnicodeEncodeError:
        pass
    raise ValueError(f"launch environment: the name or value of {key!r} is not valid text") from None
