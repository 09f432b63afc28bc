"""Knobs: where each comes from, what it takes, and that none is without a word of help (contract b)."""

import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.config import BadValue, Config, from_environment, knobs, markdown, option_name, show
from agentd.rules.lifecycle import TerminateMode

PUBLISHED = {
    "port": ("AGENTD_PORT", 9000),
    "max_body_bytes": ("AGENTD_MAX_BODY_BYTES", 536870912),
    "max_drain_bytes": ("AGENTD_MAX_DRAIN_BYTES", 65536),
    "max_output_bytes": ("AGENTD_MAX_OUTPUT_BYTES", 8388608),
    "output_linger_secs": ("AGENTD_OUTPUT_LINGER_SECS", 5.0),
    "exec_ttl_secs": ("AGENTD_EXEC_TTL_SECS", 900.0),
    "kill_grace_secs": ("AGENTD_KILL_GRACE_SECS", 10.0),
    "max_tar_members": ("AGENTD_MAX_TAR_MEMBERS", 100000),
    "max_tar_bytes": ("AGENTD_MAX_TAR_BYTES", 8589934592),
    "stream_buffer_bytes": ("AGENTD_STREAM_BUFFER_BYTES", 1048576),
    "stream_channel_capacity": ("AGENTD_STREAM_CHANNEL_CAPACITY", 256),
    "sse_keepalive_secs": ("AGENTD_SSE_KEEPALIVE_SECS", 15.0),
    "max_stdin_write_bytes": ("AGENTD_MAX_STDIN_WRITE_BYTES", 1048576),
    "stdin_write_timeout_secs": ("AGENTD_STDIN_WRITE_TIMEOUT_SECS", 5.0),
    "disk_reserve_bytes": ("AGENTD_DISK_RESERVE_BYTES", 268435456),
    "repair_identity": ("AGENTD_REPAIR_IDENTITY", True),
    "hook_handler_timeout_secs": ("AGENTD_HOOK_HANDLER_TIMEOUT_SECS", 20.0),
    "tunnel_dial_timeout_secs": ("AGENTD_TUNNEL_DIAL_TIMEOUT_SECS", 2.0),
    "log_level": ("AGENTD_LOG", "info"),
}
ALL = {name: (default, knob) for name, default, knob in knobs()}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_knob_has_its_published_name_and_default(name: str) -> None:
    """Contract b."""
    default, knob = ALL[name]
    assert (knob.variable, default) == PUBLISHED[name]


def test_every_field_is_a_knob_with_a_unit_and_a_text() -> None:
    """And a variable that says whose it is; names are unique both ways."""
    assert set(ALL) == {field.name for field in attrs.fields(Config)}
    variables = [knob.variable for _, knob in ALL.values()]
    assert len(set(variables)) == len(variables)
    for name, (default, knob) in ALL.items():
        # The worker's are partly those that every worker of an engine reads.
        assert re.fullmatch(r"(AGENTD|III)_[A-Z_]+", knob.variable), name
        assert knob.unit
        assert knob.doc.endswith(".")
        if default is not None and name not in ("log_level", "log_format"):
            assert knob.parse(show(default)) == default, name
        assert f"| `--{option_name(name)}` | `{knob.variable}` | {show(default)} |" in markdown()


def test_nothing_given_is_the_default() -> None:
    """Other variables are none of our business."""
    assert from_environment({}, {}) == (Config(), [])
    assert from_environment({"PATH": "/bin", "AGENTD_NO_SUCH": "x", "MAX_BODY_BYTES": "5"}, {}) == (
        Config(),
        [],
    )


def test_an_option_wins_over_a_variable() -> None:
    """And a good option makes a bad variable not matter."""
    environ = {"AGENTD_MAX_BODY_BYTES": "5"}
    assert from_environment(environ, {})[0].max_body_bytes == 5
    assert from_environment(environ, {"max_body_bytes": "6"})[0].max_body_bytes == 6
    assert from_environment(environ, {"max_body_bytes": None})[0].max_body_bytes == 5
    assert from_environment({"AGENTD_MAX_BODY_BYTES": "x"}, {"max_body_bytes": "6"}) == (
        Config(max_body_bytes=6),
        [],
    )


BAD = [
    ("port", "65536"),
    ("port", "-1"),
    ("port", "80.0"),
    ("port", ""),
    ("port", "٣"),
    ("max_body_bytes", "-5"),
    ("max_body_bytes", "5k"),
    ("max_body_bytes", "1e3"),
    ("max_body_bytes", "0x10"),
    ("max_body_bytes", "1" + "0" * 400),
    ("max_body_bytes", "9" * 5000),
    ("exec_ttl_secs", "1.5"),
    ("exec_ttl_secs", "-1"),
    ("exec_ttl_secs", "9" * 400),
    ("output_linger_secs", "five"),
    ("kill_grace_secs", "nan"),
    ("kill_grace_secs", "inf"),
    ("kill_grace_secs", "-0.1"),
    ("kill_grace_secs", ""),
    ("repair_identity", "maybe"),
    ("repair_identity", ""),
    ("repair_identity", "2"),
    ("terminate", "kill"),
    ("log_format", "xml"),
    ("log_level", "loud"),
    ("listen", ""),
    ("hooks_dir", ""),
]


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_option_is_one_line_that_names_it(name: str, text: str) -> None:
    """And does not repeat the value."""
    with pytest.raises(BadValue) as refused:
        from_environment({}, {name: text})
    message = str(refused.value)
    assert message.startswith(f"--{option_name(name)}: expected ")
    assert "\n" not in message
    assert not text or len(text) < 3 or text not in message


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_variable_is_a_warning_and_the_default(name: str, text: str) -> None:
    """It may be baked into an image that nobody can change."""
    variable = ALL[name][1].variable
    found, warnings = from_environment({variable: text}, {})
    assert found == Config()
    assert len(warnings) == 1
    assert variable in warnings[0]
    assert "the default stands" in warnings[0]
    assert not text or len(text) < 3 or text not in warnings[0]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("port", "65535", 65535),
        ("port", " 80 ", 80),
        ("max_body_bytes", "0", 0),
        ("max_body_bytes", "000000000000000000000000005", 5),
        ("max_body_bytes", "999999999999999999", 10**18 - 1),
        ("exec_ttl_secs", "0", 0.0),
        ("exec_ttl_secs", "60", 60.0),
        ("kill_grace_secs", "0.25", 0.25),
        ("kill_grace_secs", "0", 0.0),
        ("stream_channel_capacity", "0", 1),
        ("stream_channel_capacity", "2", 2),
        ("sse_keepalive_secs", "0", 1.0),
        ("hook_handler_timeout_secs", "0", 1.0),
        ("hook_handler_timeout_secs", "20", 20.0),
        ("hook_handler_timeout_secs", "3600", 55.0),
        ("repair_identity", " YES ", True),
        ("repair_identity", "On", True),
        ("repair_identity", "1", True),
        ("repair_identity", "TRUE", True),
        ("repair_identity", "0", False),
        ("repair_identity", "no\n", False),
        ("repair_identity", "OFF", False),
        ("repair_identity", "False", False),
        ("terminate", "acknowledge", TerminateMode.ACKNOWLEDGE),
        ("terminate", " Drain", TerminateMode.DRAIN),
        ("log_level", "WARN", "warn"),
        ("log_format", "text", "text"),
        ("listen", "unix:/run/x", "unix:/run/x"),
    ],
)
def test_what_a_knob_takes(name: str, text: str, value: Any) -> None:
    """With its clamp, from either source."""
    assert getattr(from_environment({ALL[name][1].variable: text}, {})[0], name) == value
    assert getattr(from_environment({}, {name: text})[0], name) == value


@given(st.sampled_from(sorted(ALL)), st.text(max_size=30))
def test_any_text_is_a_value_or_a_bad_one(name: str, text: str) -> None:
    """Nothing else comes out of a knob."""
    found, warnings = from_environment({ALL[name][1].variable: text}, {})
    assert isinstance(found, Config)
    assert len(warnings) <= 1


def test_a_value_is_shown_as_a_person_writes_it() -> None:
    """In help and in the table."""
    assert [show(value) for value in (True, False, 5.0, 0.25, 7, None, TerminateMode.DRAIN, "x")] == [
        "on", "off", "5", "0.25", "7", "none", "drain", "x",
    ]  # fmt: skip
