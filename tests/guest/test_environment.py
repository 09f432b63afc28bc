"""The snapshot of what the daemon was started with."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.guest import environment
from agentd.guest.environment import ImageEnvironment

PRINT = """
import json, os
os.environ["LATER"] = "added"
from agentd.guest.environment import ImageEnvironment
print(json.dumps([dict(ImageEnvironment.take().variables), "LC_CTYPE" in os.environ]))
"""


def test_it_is_what_the_process_was_started_with_and_nothing_python_added() -> None:
    # In the C locale Python puts LC_CTYPE into its own environment.
    given_environment = {
        b"A": b"1",
        b"AGENTD_PORT": b"1",
        b"EMPTY": b"",
        b"BAD": b"\xff",
        b"LINES": b"a\nb=c",
    }
    done = subprocess.run(
        [sys.executable, "-c", PRINT], env=given_environment, capture_output=True, check=True, timeout=30
    )
    variables, python_added = json.loads(done.stdout)
    assert variables == {"A": "1", "EMPTY": "", "LINES": "a\nb=c"}
    assert python_added


def test_health_tells_how_many_and_repr_tells_none() -> None:
    image = ImageEnvironment.take({b"A": b"hunter2", b"B": b"2", b"AGENTD_X": b"3"})
    assert image.keys == 2
    assert "hunter2" not in repr(image)
    assert ImageEnvironment.take({}).keys == 0


def test_without_proc_pythons_view_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(*_: object) -> None:
        raise PermissionError(13, "hidden")

    monkeypatch.setitem(environment.__dict__, "open", hidden)
    monkeypatch.setitem(os.environb, b"AGENTD_TEST_LATER", b"seen")
    assert environment.at_start() == dict(os.environb)


variables = st.dictionaries(
    st.binary(max_size=6).filter(lambda name: b"=" not in name and b"\0" not in name),
    st.binary(max_size=6).filter(lambda value: b"\0" not in value),
)


@given(variables)
def test_blocks_come_back(found: dict[bytes, bytes]) -> None:
    block = b"".join(name + b"=" + value + b"\0" for name, value in found.items())
    assert environment.parse_block(block) == found


@given(st.binary())
def test_no_block_is_an_error(block: bytes) -> None:
    environment.parse_block(block)


def test_the_first_of_two_counts_and_a_string_without_a_name_does_not() -> None:
    assert environment.parse_block(b"A=1\0A=2\0nothing\0B==\0") == {b"A": b"1", b"B": b"="}


@pytest.mark.parametrize(
    ("text", "restarts"),
    [(None, 0), (b"0", 0), (b"3", 3), (b"", 0), (b"-1", 0), (b"many", 0), (b"9" * 30, 0)],
)
def test_an_init_says_how_often_it_had_to_start_the_daemon_again(text: bytes | None, restarts: int) -> None:
    started_with = {b"PATH": b"/bin"} if text is None else {environment.RESTARTS: text}
    assert environment.restarts(started_with) == restarts
