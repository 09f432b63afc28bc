"""The census of leftovers finds what it is there to find."""

import os
import subprocess
import tempfile
from collections.abc import Callable

import pytest
import pytest_twisted
from twisted.internet import reactor as chosen
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater

from tests.leftovers import Census

reactor: object = chosen
Undo = Callable[[], object]


def a_timer() -> Undo:
    return chosen.callLater(60, print).cancel  # type: ignore[attr-defined]


def a_port() -> Undo:
    return chosen.listenTCP(0, Factory(), interface="127.0.0.1").stopListening  # type: ignore[attr-defined]


def a_child() -> Undo:
    child = subprocess.Popen(["sleep", "60"])
    return lambda: (child.kill(), child.wait())


def a_zombie() -> Undo:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    return child.wait


def a_descriptor() -> Undo:
    fd = os.open(os.devnull, os.O_RDONLY)
    return lambda: os.close(fd)


def a_temporary_file() -> Undo:
    fd, name = tempfile.mkstemp()
    os.close(fd)
    return lambda: os.unlink(name)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (a_timer, "delayed call"),
        (a_port, "reader or writer"),
        (a_child, "child"),
        (a_zombie, "child"),
        (a_descriptor, "descriptor"),
        (a_temporary_file, "a temporary file"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_it_is_found_and_then_gone(make: Callable[[], Undo], named: str) -> None:
    before = Census.take(reactor)
    undo = make()
    left = Census.take(reactor).left(before)
    undo()
    assert any(named in each for each in left), left
    await deferLater(chosen, 0, lambda: None)  # type: ignore[arg-type]
    assert Census.take(reactor).left(before) == []
