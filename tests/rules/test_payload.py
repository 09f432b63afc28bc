"""The run hook's payload, row by row (contract g.1)."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules.payload import KEY_BYTES, Refusal, RunPayload, TunnelIdentity, parse_run_body

TOKEN = "tok-s3cr3t"
SEED = base64.b64encode(bytes(range(1, 33))).decode()
HOST = base64.b64encode(bytes(range(33, 65))).decode()


def body(payload: Any = None, **fields: Any) -> bytes:
    """A run hook's body around a payload, given as text or as fields of its object."""
    text = payload if isinstance(payload, str) else json.dumps({"agent_token": TOKEN, **fields})
    return json.dumps({"runHookPayload": text}).encode()


def refusal(data: bytes) -> str:
    """The text of the refusal that `data` meets."""
    found = parse_run_body(data)
    assert isinstance(found, Refusal), found
    return found.text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"runHookPayload": null}',
        b'{"runHookPayload": 5}',
        b'{"runHookPayload": {"agent_token": "a"}}',
        b'{"runhookpayload": "{}"}',
        b'{"runHookPayload": "{\\"agent_token\\": \\"a\\"}"',
        b'{"x": NaN, "runHookPayload": "{\\"agent_token\\": \\"a\\"}"}',
        b'{"runHookPayload": "{\\"agent_token\\": \\"a\\"}", "runHookPayload": "{\\"agent_token\\": \\"b\\"}"}',
        b'{"runHookPayload": "{\\"agent_token\\": \\"a\\"}", "runHookP\\u0061yload": null}',
        b"\xff\xfe",
        b"[" * 100_000,
        '{"runHookPayload": "{\\"agent_token\\": \\"a\\"}"}'.encode("utf-16"),
        b"\xef\xbb\xbf" + b'{"runHookPayload": "{\\"agent_token\\": \\"a\\"}"}',
        b'{"runHookPayload": "\xff"}',
    ],
)
def test_a_broken_envelope_is_refused_without_a_word(data: bytes) -> None:
    """Rows 1 and 2: 400, empty."""
    assert parse_run_body(data) == Refusal("")


@pytest.mark.parametrize(
    "payload", ["", "not json", "[]", "null", "5", '"a"', "{", "[" * 100_000, '{"a": NaN}']
)
def test_a_payload_that_is_no_object_is_refused_one_parse_deeper(payload: str) -> None:
    """Row 3; the text says that there is one."""
    text = refusal(body(payload))
    assert "runHookPayload is not a JSON object" in text
    assert "once more" in text


@pytest.mark.parametrize(
    "payload", ["{}", '{"agent_token": null}', '{"agent_token": 5}', '{"agent_token": ["a"]}']
)
def test_a_token_that_is_no_string(payload: str) -> None:
    """Row 4."""
    assert "no agent_token" in refusal(body(payload))


def test_an_empty_token() -> None:
    """Row 5."""
    assert "agent_token is empty" in refusal(body('{"agent_token": ""}'))


@pytest.mark.parametrize("env", [[], "A=1", 5, True, 0, ""])
def test_an_environment_that_is_no_object(env: Any) -> None:
    """Row 6."""
    assert "env is not an object" in refusal(body(env=env))


@pytest.mark.parametrize("value", [5, None, True, [], {}])
def test_an_environment_value_that_is_no_string(value: Any) -> None:
    """Row 7; the key is named."""
    assert "the env value of BAD_KEY" in refusal(body(env={"GOOD": "x", "BAD_KEY": value}))


@pytest.mark.parametrize("key", ["identity_seed", "identity_host_public_key"])
@pytest.mark.parametrize("value", [5, True, [], {}])
def test_an_identity_key_that_is_no_string(key: str, value: Any) -> None:
    """Row 8."""
    assert f"{key} is not a string" in refusal(
        body(**{"identity_seed": SEED, "identity_host_public_key": HOST, key: value})
    )


@pytest.mark.parametrize(
    ("given", "missing"),
    [("identity_seed", "identity_host_public_key"), ("identity_host_public_key", "identity_seed")],
)
def test_half_an_identity(given: str, missing: str) -> None:
    """Row 9; null is absent."""
    for fields in ({given: SEED}, {given: SEED, missing: None}):
        assert f"without {missing}" in refusal(body(**fields))


@pytest.mark.parametrize("key", ["identity_seed", "identity_host_public_key"])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("not base64!", "is not base64"),
        (SEED[:-1], "is not base64"),
        (SEED + "\n", "is not base64"),
        (SEED + "=", "is not base64"),
        (SEED[:-2] + "B=", "is not base64"),
        (SEED.replace("=", ""), "is not base64"),
        ("é", "is not base64"),
        ("-_" * 22, "is not base64"),
        ("", "decodes to 0 bytes, not 32"),
        (base64.b64encode(b"x" * 31).decode(), "decodes to 31 bytes, not 32"),
        (base64.b64encode(b"x" * 33).decode(), "decodes to 33 bytes, not 32"),
        (base64.b64encode(bytes(32)).decode(), "is all zeros"),
    ],
)
def test_an_identity_key_that_is_none(key: str, value: str, text: str) -> None:
    """Row 10; the key is named, and a wrong length."""
    found = refusal(body(**{"identity_seed": SEED, "identity_host_public_key": HOST, key: value}))
    assert found == f"{key} {text}"


def test_a_good_payload() -> None:
    """Unknown keys are ignored, null is absent, an empty value is kept."""
    found = parse_run_body(
        body(env={"A": "1", "EMPTY": ""}, unknown={"x": 1}, identity_seed=SEED, identity_host_public_key=HOST)
    )
    assert found == RunPayload(
        TOKEN.encode(), {"A": "1", "EMPTY": ""}, TunnelIdentity(bytes(range(1, 33)), bytes(range(33, 65)))
    )
    assert parse_run_body(body()) == RunPayload(TOKEN.encode(), {}, None)
    assert parse_run_body(body(env=None, identity_seed=None, identity_host_public_key=None)) == RunPayload(
        TOKEN.encode(), {}, None
    )


def test_text_without_a_utf_8_form_is_refused() -> None:
    """A lone surrogate has no bytes to compare or to give to a child."""
    assert "agent_token is not valid Unicode" in refusal(body('{"agent_token": "\\ud800"}'))
    assert "a key of env is not valid Unicode" in refusal(body(env={"\ud800": "x"}))
    assert "the env value of K is not valid Unicode" in refusal(body(env={"K": "\ud800"}))


def test_everything_is_judged_before_the_token_counts() -> None:
    """Also on a replay: the identity comes before the verdict."""
    assert isinstance(parse_run_body(body(identity_seed="x")), Refusal)


@pytest.mark.parametrize(
    "data",
    [
        body(env={"K": 5}),
        body(env={"K": {"x": "v-s3cr3t"}}),
        body(identity_seed="v-s3cr3t"),
        body(identity_seed=SEED),
        body(identity_seed=SEED, identity_host_public_key="v-s3cr3t"),
        body(env="v-s3cr3t"),
        body('{"agent_token": ["v-s3cr3t"]}'),
        body("v-s3cr3t"),
    ],
)
def test_no_refusal_quotes_a_value(data: bytes) -> None:
    """They may be logged, and they are sent to whoever posted."""
    text = refusal(data)
    for secret in ("s3cr3t", SEED):
        assert secret not in text


def test_a_payload_shows_no_secret() -> None:
    """Not in a `repr` either."""
    shown = repr(
        parse_run_body(body(env={"K": "v-s3cr3t"}, identity_seed=SEED, identity_host_public_key=HOST))
    )
    assert "s3cr3t" not in shown
    assert str(bytes(range(1, 33))) not in shown
    assert KEY_BYTES == 32


@given(
    st.binary(max_size=100)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["agent_token", "env", "identity_seed", "identity_host_public_key", "x"]),
                inner,
                max_size=5,
            )
        ),
        max_leaves=8,
    ).map(lambda value: body(json.dumps(value)))
)
def test_any_body_is_a_payload_or_a_refusal(data: bytes) -> None:
    """Nothing else comes out."""
    found = parse_run_body(data)
    assert isinstance(found, RunPayload | Refusal)
    if isinstance(found, RunPayload):
        assert found.token
