"""The walk: what it finds and in which order, what it does not follow, and that it can be stopped."""

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall

from agentd.files.removal import remove
from agentd.worker.walker import Kind, walk
from tests.files.support import drive
from tests.process.support import reactor, soon, until
from tests.worker.calls import SERVED, caller, make_tree


def found(top: Path, **options: object) -> list[tuple[str, Kind]]:
    entries = walk(os.fsencode(top), **options)  # type: ignore[arg-type]
    return [(os.fsdecode(entry.path), entry.kind) for entry in entries if entry is not None]


def test_order_and_kinds(tmp_path: Path) -> None:
    make_tree(tmp_path, {"b": "", "a/z": "", "a/y/x": "", "c/": "", ".d/e": ""})
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "fifo")
    assert found(tmp_path) == [
        (".d", Kind.DIRECTORY),
        ("a", Kind.DIRECTORY),
        ("b", Kind.FILE),
        ("c", Kind.DIRECTORY),
        ("fifo", Kind.OTHER),
        ("link", Kind.SYMLINK),
        (".d/e", Kind.FILE),
        ("a/y", Kind.DIRECTORY),
        ("a/z", Kind.FILE),
        ("a/y/x", Kind.FILE),
    ]


def test_entries_lead_to_what_they_name(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/b/c": "content"})
    for entry in walk(os.fsencode(tmp_path)):
        if entry is not None and entry.kind is Kind.FILE:
            fd = entry.open()
            assert os.read(fd, 100) == b"content"
            os.close(fd)
            assert entry.status().st_size == 7
            os.rename(tmp_path / "a/b/c", tmp_path / "moved")
            os.symlink(tmp_path / "moved", tmp_path / "a/b/c")
            with pytest.raises(OSError, match="symbolic"):
                entry.open()


def test_what_is_not_entered(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/x": "", "b/y": ""})
    names = [path for path, _ in found(tmp_path, enter=lambda path: path != b"a")]
    assert names == ["a", "b", "b/y"]


def test_a_directory_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    make_tree(tmp_path, {"top/a/x": "", "top/b/y": "", "elsewhere/secret": ""})
    top = tmp_path / "top"
    names = []
    for entry in walk(os.fsencode(top)):
        if entry is None:
            continue
        names.append(os.fsdecode(entry.path))
        if entry.path == b"b":
            (top / "a").rename(tmp_path / "aside")
            (top / "a").symlink_to(tmp_path / "elsewhere")
    assert names == ["a", "b", "b/y"]


def test_a_deep_tree(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir(b"d", dir_fd=here)
        below = os.open(b"d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    entries = [entry for entry in walk(os.fsencode(tmp_path)) if entry is not None]
    assert len(entries) == 1500
    assert len(entries[-1].path) == 2 * 1500 - 1
    drive(remove(os.fsencode(tmp_path / "d"), True, ()))  # what clears up after tests gives up at this depth


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        found(tmp_path / "nope")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        found(tmp_path / "file")


@pytest_twisted.ensureDeferred
async def test_a_search_ends_with_its_caller_and_leaves_room_for_others(tmp_path: Path) -> None:
    """While a long search runs, the reactor turns and other calls are answered; cancelled, it stops."""
    make_tree(tmp_path, {f"d{number % 20}/{number}": "line\n" * 400 for number in range(2000)})
    gaps = [time.monotonic()]
    beat = LoopingCall(lambda: gaps.append(time.monotonic()))
    with caller(tmp_path, tmp_path) as fs:
        function = SERVED["shell::fs::grep"]
        # Every line is tried by itself.
        request = function.parse({"path": ".", "pattern": r"\bzzz$"})
        running = Deferred.fromCoroutine(function.run(fs.capabilities, request))  # type: ignore[arg-type]
        beating = beat.start(0.005)
        waits = []
        while not running.called and len(waits) < 20:
            begun = time.monotonic()
            await fs.call("shell::fs::stat", path=".")
            waits.append(time.monotonic() - begun)
        assert not running.called, "the search was over before it could be disturbed"
        running.cancel()
        with pytest.raises(CancelledError):
            await soon(running)
        beat.stop()
        await soon(beating)
        await until(lambda: not [fd for fd in os.listdir("/proc/self/fd") if _leads_into(fd, tmp_path)])
    waits.sort()
    assert waits[len(waits) // 2] < 0.05
    steps = sorted(after - before for before, after in pairwise(gaps))
    assert steps[len(steps) * 9 // 10] < 0.05
    assert reactor.running


def _leads_into(fd: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(str(path))
    except OSError:
        return False
