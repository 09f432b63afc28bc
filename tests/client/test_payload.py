"""The run payload and its budget."""

import json

import pytest
import pytest_twisted
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.client.errors import RunPayloadTooLarge
from agentd.client.payload import RUN_PAYLOAD_CEILING, run_envelope, run_payload
from agentd.client.secret import Secret
from agentd.rules.payload import RunPayload, TunnelIdentity, parse_run_body
from tests.client.conftest import Serve

TOKEN = Secret("t0ken")
IDENTITY = TunnelIdentity(bytes(range(1, 33)), bytes(range(2, 34)))


def size(payload: str) -> int:
    return len(payload.encode())


def test_the_ceiling_is_inclusive_and_counts_utf8_bytes() -> None:
    room = RUN_PAYLOAD_CEILING - size(run_payload(TOKEN, {"K": ""}))
    assert size(run_payload(TOKEN, {"K": "x" * room})) == RUN_PAYLOAD_CEILING
    with pytest.raises(RunPayloadTooLarge):
        run_payload(TOKEN, {"K": "x" * (room + 1)})
    assert size(run_payload(TOKEN, {"K": "é" * (room // 2)})) in (
        RUN_PAYLOAD_CEILING,
        RUN_PAYLOAD_CEILING - 1,
    )
    with pytest.raises(RunPayloadTooLarge):
        run_payload(TOKEN, {"K": "é" * (room // 2 + 1)})


def test_the_refusal_names_bytes_ceiling_and_the_share_of_env_and_no_value() -> None:
    env = {"SECRET_NAME": "sekrit" * 1000}
    with pytest.raises(RunPayloadTooLarge) as refusal:
        run_payload(TOKEN, env)
    error = refusal.value
    assert error.size == size(run_payload(TOKEN)) + error.env
    assert error.env == len(json.dumps(env, separators=(",", ":"))) + len(',"env":')
    for number in (error.size, RUN_PAYLOAD_CEILING, error.env):
        assert str(number) in str(error)
    assert "sekrit" not in str(error)
    assert "t0ken" not in str(error)


def test_identity_costs_137_bytes() -> None:
    assert size(run_payload(TOKEN, None, IDENTITY)) - size(run_payload(TOKEN)) == 137


@settings(max_examples=50, deadline=None)
@given(
    st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=40
    ),
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=10),
        st.text(st.characters(codec="utf-8"), max_size=20),
        max_size=6,
    ),
)
def test_the_daemon_reads_what_was_put_in(token: str, env: dict[str, str]) -> None:
    if token != token.strip():
        return
    found = parse_run_body(run_envelope(run_payload(Secret(token), env, IDENTITY)))
    assert isinstance(found, RunPayload)
    assert (found.token, dict(found.env), found.identity) == (token.encode(), env, IDENTITY)


@pytest.mark.parametrize(
    ("identity", "word"),
    [
        (TunnelIdentity(bytes(32), bytes(range(1, 33))), "identity_seed"),
        (TunnelIdentity(b"short", bytes(range(1, 33))), "identity_seed"),
        (TunnelIdentity(bytes(range(1, 33)), b"x" * 31), "identity_host_public_key"),
    ],
)
def test_a_key_that_the_daemon_would_refuse_is_refused_here(identity: TunnelIdentity, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        run_payload(TOKEN, None, identity)


@pytest.mark.parametrize("env", [{"K": "\ud800"}, {"\ud800": "v"}, {"K": 1}])
def test_what_utf8_cannot_carry_is_refused_by_name_without_the_value(env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="launch environment") as refusal:
        run_payload(TOKEN, env)
    assert "K" in str(refusal.value) or "ud800" in str(refusal.value)


@pytest_twisted.ensureDeferred
async def test_nothing_is_sent_when_it_is_too_large(serve: Serve) -> None:
    script, client = serve()
    with pytest.raises(RunPayloadTooLarge):
        await client.bootstrap("t", {"K": "x" * 5000})
    assert script.requests == []
