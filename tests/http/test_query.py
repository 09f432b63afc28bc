"""Query strings and JSON bodies: what they mean, and the one error that everything else becomes."""

import contextlib
import json
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentd.http.query import JsonBody, Malformed, flag, is_json, parse_query, printable, unsigned
from agentd.microvm.shapes import RunHookEnvelope, StartRequest, StdinRequest

SECRET = "s3cr3t"


# -- query strings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "pairs"),
    [
        (b"", {}),
        (b"&", {}),
        (b"a=1", {"a": "1"}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"&&a=1&&", {"a": "1"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=b", {"": "b"}),
        (b"a=b=c", {"a": "b=c"}),
        (b"a=1;b=2", {"a": "1;b=2"}),
        (b"a+b=c+d", {"a b": "c d"}),
        (b"a=%2B%26%3D", {"a": "+&="}),
        (b"%61=1", {"a": "1"}),
        (b"a=%", {"a": "%"}),
        (b"a=%zz", {"a": "%zz"}),
        (b"a=%00", {"a": "\0"}),
        (b"path=%2Ftmp%2F%F0%9F%92%A9", {"path": "/tmp/\N{PILE OF POO}"}),
        (b"path=/a/\xc3\xa9", {"path": "/a/é"}),
    ],
)
def test_a_query_is_form_encoded(raw: bytes, pairs: dict[str, str]) -> None:
    """WHATWG URL 5.1, with ``&`` alone as separator."""
    assert parse_query(raw) == pairs


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=8))
def test_what_was_encoded_comes_back(pairs: dict[str, str]) -> None:
    """For every text that has a UTF-8 form."""
    clean = {k: v for k, v in pairs.items() if (k + v).encode("utf-8", "ignore").decode() == k + v}
    assert parse_query(urlencode(clean).encode()) == clean


@given(st.binary(max_size=60))
def test_any_bytes_survive_as_a_path(path: bytes) -> None:
    """Through ``surrogateescape``, as `os.fsencode` gives them back."""
    found = parse_query(b"path=" + quote_from_bytes(path, safe="").encode())
    assert found["path"].encode("utf-8", "surrogateescape") == path


@given(st.binary(max_size=200))
def test_any_query_is_pairs_or_malformed(raw: bytes) -> None:
    """Nothing else comes out."""
    try:
        pairs = parse_query(raw)
    except Malformed:
        return
    assert all(isinstance(text, str) for pair in pairs.items() for text in pair)


@pytest.mark.parametrize("raw", [b"a=1&a=1", b"a=1&b=2&%61=3", b"a&a"])
def test_a_parameter_given_twice_is_malformed(raw: bytes) -> None:
    """Which one counts would be a guess."""
    with pytest.raises(Malformed, match="query parameter a is given twice"):
        parse_query(raw)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("7", 7), ("007", 7), ("18446744073709551615", 2**64 - 1)]
)
def test_an_unsigned_integer(text: str, value: int) -> None:
    """Decimal digits."""
    assert unsigned(text, "offset") == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x10",
        " 1",
        "1 ",
        "1\n",
        "٣",
        "1_000",
        "18446744073709551616",
        "9" * 5000,
    ],
)
def test_anything_else_is_none(text: str) -> None:
    """And the error names the parameter and its range."""
    with pytest.raises(Malformed, match="offset must be a whole number from 0 to 18446744073709551615"):
        unsigned(text, "offset")


def test_an_unsigned_integer_has_a_limit() -> None:
    """That of its parameter."""
    assert unsigned("65535", "port", 65535) == 65535
    with pytest.raises(Malformed, match="port must be a whole number from 0 to 65535"):
        unsigned("65536", "port", 65535)


def test_flags() -> None:
    """Four words."""
    assert [flag(text, "x") for text in ("true", "1", "false", "0")] == [True, True, False, False]
    for text in ("", "yes", "True", "TRUE", "2", " true"):
        with pytest.raises(Malformed, match="x must be true or false"):
            flag(text, "x")


@given(st.text(max_size=500))
def test_printable_text_can_be_shown_anywhere(text: str) -> None:
    """On one line, in UTF-8, and not long."""
    shown = printable(text)
    assert len(shown) <= 201
    assert shown.rstrip("…").isprintable()
    shown.encode("utf-8")


# -- JSON bodies -------------------------------------------------------------------------------------------

START = JsonBody(StartRequest)
STDIN = JsonBody(StdinRequest)
RUN = JsonBody(RunHookEnvelope)


def start(**fields: Any) -> bytes:
    """A start request's body."""
    return json.dumps({"exec_id": "a", "command": ["true"], **fields}).encode()


def test_defaults_are_those_of_the_contract() -> None:
    """Contract a.2."""
    decoded = START.decode(start())
    assert msgspec.structs.asdict(decoded) == {
        "exec_id": "a",
        "command": ["true"],
        "shell": False,
        "cwd": None,
        "env": {},
        "user": None,
        "group": None,
        "timeout_sec": None,
        "stdin": False,
        "reap_group_on_exit": False,
        "inherit_image_env": False,
        "digest": False,
    }
    assert START.decode(start()).env is not START.decode(start()).env


@pytest.mark.parametrize(
    ("field", "value", "decoded"),
    [
        ("exec_id", "", ""),
        ("command", [], []),
        ("shell", True, True),
        ("shell", "bash", "bash"),
        ("cwd", None, None),
        ("user", 0, 0),
        ("user", 2**32 - 1, 2**32 - 1),
        ("user", "root", "root"),
        ("user", None, None),
        ("group", "0", "0"),
        ("timeout_sec", 5, 5.0),
        ("timeout_sec", 0.5, 0.5),
        ("timeout_sec", -1, -1.0),
        ("timeout_sec", 1e300, 1e300),
        ("unknown", {"deep": [1]}, None),
    ],
)
def test_what_a_field_takes(field: str, value: Any, decoded: Any) -> None:
    """Shape only; what the values mean is decided later."""
    assert getattr(START.decode(start(**{field: value})), field, None) == decoded


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("exec_id", None),
        ("exec_id", 5),
        ("command", None),
        ("command", "true"),
        ("command", [1]),
        ("command", [None]),
        ("command", {}),
        ("shell", None),
        ("shell", 1),
        ("shell", []),
        ("cwd", 5),
        ("env", None),
        ("env", []),
        ("env", {"A": 1}),
        ("env", {"A": None}),
        ("user", -1),
        ("user", 2**32),
        ("user", 1.5),
        ("user", True),
        ("user", []),
        ("group", -1),
        ("group", 1.5),
        ("timeout_sec", "5"),
        ("timeout_sec", True),
        ("timeout_sec", []),
        ("stdin", None),
        ("stdin", 1),
        ("stdin", "true"),
        ("reap_group_on_exit", None),
        ("inherit_image_env", "yes"),
    ],
)
def test_what_a_field_does_not_take(field: str, value: Any) -> None:
    """Contract a.2: null where null is no value, and every other type."""
    with pytest.raises(Malformed) as refused:
        START.decode(start(**{field: value}))
    assert field in str(refused.value)


@pytest.mark.parametrize("missing", ["exec_id", "command"])
def test_required_fields(missing: str) -> None:
    """Two."""
    body = json.loads(start())
    del body[missing]
    with pytest.raises(Malformed, match=missing):
        START.decode(json.dumps(body).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"5",
        b"{}}",
        b'{"exec_id": "a", "command": ["true"],}',
        b"{'exec_id': 'a'}",
        b'{"exec_id": "a", "command": ["true"], "timeout_sec": NaN}',
        b'{"exec_id": "a", "command": ["true"], "timeout_sec": Infinity}',
        b'{"exec_id": "a", "command": ["true"], "timeout_sec": 1e999}',
        b'{"exec_id": "\xff", "command": ["true"]}',
        b'{"exec_id": "\\ud800", "command": ["true"]}',
        b'{"exec_id": "a\nb", "command": ["true"]}',
        b"\xef\xbb\xbf" + start(),
        start().decode().encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"exec_id": "a", "command": ["true"], "\\u0078": ' + b"[" * 100_000,
        b'{"exec_id": "a", "command": ["true"], "exec_id": "b"}',
        b'{"exec_id": "a", "command": ["true"], "exec_\\u0069d": "b"}',
        b'{"exec_id": "a", "command": ["true"], "env": {}, "env": {}}',
    ],
)
def test_what_is_no_start_request_is_malformed(body: bytes) -> None:
    """One exception for everything, also where two parsers look."""
    with pytest.raises(Malformed):
        START.decode(body)


@pytest.mark.parametrize(
    "body",
    [
        start(unknown=1).replace(b'"unknown"', b'"\\u0078"'),
        b'{"exec_id": "a", "command": ["true"], "x": 1, "x": 2}',
        b'{"exec_id": "a", "command": ["true"], "env": {"A": "1", "A": "2"}}',
        b'{"exec_id": "a", "command": ["exec_id", "\\"exec_id\\""]}',
        b'{"exec_id": "a", "command": ["true"], "x": {"exec_id": 1, "command": 2}}',
        b'{"exec_id": "\\u0061", "command": ["true"]}',
        b'{"exec_id": "a", "command": ["true"], "y": "\\ud83d\\ude00"}',
    ],
)
def test_what_only_looks_like_a_duplicate_is_none(body: bytes) -> None:
    """Unknown keys, inner keys, and texts that quote a key."""
    assert START.decode(body).exec_id == "a"


def test_a_duplicate_key_is_named() -> None:
    """And its values are not."""
    with pytest.raises(Malformed, match="the key runHookPayload is given twice"):
        RUN.decode(b'{"runHookPayload": "s3cr3t", "runHookPayload": "s3cr3t"}')


@pytest.mark.parametrize(
    "tail", [b'"\\u0078": ' + b"9" * 5000, b'"\\u0078": "\xff"', b'"\\u0078": ' + b"[" * 5000 + b"]" * 5000]
)
def test_what_two_parsers_disagree_on_is_malformed_or_fine(tail: bytes) -> None:
    """Never another exception: the second looks only for duplicates."""
    try:
        assert START.decode(b'{"exec_id": "a", "command": ["true"], ' + tail + b"}").exec_id == "a"
    except Malformed:
        pass


@given(
    st.binary(max_size=100)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "exec_id",
                        "command",
                        "shell",
                        "env",
                        "user",
                        "data_b64",
                        "signal",
                        "runHookPayload",
                        "x",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode())
)
@example(b'{"exec_id": "a", "command": ["true"], "\\u0078": "\xff"}')
def test_any_body_is_decoded_or_malformed(body: bytes) -> None:
    """Nothing else comes out, whatever the shape."""
    for shape in (START, STDIN, RUN):
        with contextlib.suppress(Malformed):
            shape.decode(body)


@pytest.mark.parametrize(
    "body",
    [
        start(env={"K": [SECRET]}),
        start(env={SECRET: 5}),
        start(user=[SECRET]),
        start(timeout_sec=SECRET),
        start(command=[SECRET, 5]),
        start(exec_id=SECRET) * 2,
        SECRET.encode(),
    ],
)
def test_an_error_quotes_no_value(body: bytes) -> None:
    """A body may hold what must not be repeated."""
    with pytest.raises(Malformed) as refused:
        START.decode(body)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("content_type", "yes"),
    [
        (b"application/json", True),
        (b"application/json; charset=utf-8", True),
        (b" Application/JSON ;x", True),
        (b"application/problem+json", True),
        (b"application/vnd.api+json;charset=utf-8", True),
        (None, False),
        (b"", False),
        (b"text/json", False),
        (b"text/plain", False),
        (b"application/jsonp", False),
        (b"application/json+xml", False),
        (b"application/x-www-form-urlencoded", False),
        (b"json", False),
        (b"image/svg+json", False),
    ],
)
def test_json_content_types(content_type: bytes | None, yes: bool) -> None:
    """Contract a.0."""
    assert is_json(content_type) is yes
