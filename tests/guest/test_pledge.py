"""The pledge of a boot's one token, across the deaths of the daemon."""

import os
from pathlib import Path

import pytest

from agentd.guest.pledge import VARIABLE, Pledge
from agentd.guest.state import Guest
from agentd.rules.bootstrap import Access, RunVerdict
from agentd.rules.payload import RunPayload


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pledge"


def at(file: Path) -> Pledge:
    return Pledge.of({VARIABLE: os.fsencode(file)})


def test_without_an_init_nothing_is_kept() -> None:
    for pledge in (Pledge.of({}), Pledge.of({VARIABLE: b""})):
        pledge.keep(b"token")
        assert pledge.path is None
        assert pledge.allows(b"any")


def test_the_next_daemon_takes_the_same_token_alone(file: Path) -> None:
    first = at(file)
    assert first.allows(b"token")
    first.keep(b"token")
    assert first.allows(b"token")
    second = at(file)
    assert second.allows(b"token")
    for other in (b"", b"toke", b"token2", b"other"):
        assert not second.allows(other)
    assert b"token" not in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(file.parent) == [file.name]


def test_a_pledge_is_never_replaced(file: Path) -> None:
    at(file).keep(b"token")
    at(file).keep(b"other")
    assert at(file).allows(b"token")


@pytest.mark.parametrize("content", [b"", b"short", bytes(49)])
def test_a_file_that_says_nothing_keeps_the_machine_closed(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert not at(file).allows(b"token")


def test_a_file_that_cannot_be_read_does_too(file: Path) -> None:
    file.mkdir()
    assert not at(file).allows(b"token")


def test_a_daemon_bound_by_a_pledge_answers_a_stranger_as_if_it_had_a_token(file: Path) -> None:
    at(file).keep(b"token")
    guest = Guest(lambda: 0.0, {}, at(file))
    assert guest.run_hook(RunPayload(b"stranger", {}, None)) is RunVerdict.CONFLICT
    assert not guest.bootstrapped
    assert guest.authorize(b"stranger") is Access.UNAVAILABLE
    assert guest.run_hook(RunPayload(b"token", {}, None)) is RunVerdict.INSTALLED
    assert guest.authorize(b"token") is Access.GRANTED
