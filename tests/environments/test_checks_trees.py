"""Checks 59 to 65 of the contract's list: removing and listing; and what a swap of directories cannot do."""

import os
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import cooperate

from agentd.environments.files import file_time
from tests.environments.conftest import Serve
from tests.environments.support import Home
from tests.environments.test_checks_files import LONG, make_special, names
from tests.environments.wire import checks, until


@checks(59, 60, 62)
@pytest_twisted.ensureDeferred
async def test_removal(serving: Serve, home: Home) -> None:
    make_special(home)
    home.directory("full")
    home.make("full/x")
    home.make("target/inner", b"kept")
    home.link("to-target", "target")
    server = await serving()
    for path, query, status in [
        ("dir", {}, 400),
        ("full", {}, 400),
        ("nothing", {}, 404),
        ("nothing/x", {}, 404),
        ("file/x", {}, 404),
        ("/", {"recursive": "true"}, 400),
        ("//", {"recursive": "true"}, 400),
        (".", {"recursive": "true"}, 400),
        ("./", {"recursive": "true"}, 400),
        ("dir/..", {"recursive": "true"}, 400),
        ("dir/.", {"recursive": "true"}, 400),
        (str(home.home), {"recursive": "true"}, 400),
        ("../home", {"recursive": "true"}, 400),
        (LONG, {}, 400),
        ("dir", {"recursive": "true"}, 204),
        ("dir", {"recursive": "true"}, 404),
        ("full", {"recursive": "true"}, 204),
        ("file", {"recursive": "true"}, 204),
        ("fifo", {}, 204),
        ("socket", {}, 204),
        ("dangling", {}, 204),
        ("loop", {}, 204),
        ("to-file", {}, 204),
        ("to-target/", {"recursive": "true"}, 204),
        ("to-dir", {}, 204),
    ]:
        answer = await server.remove(path, **query)
        assert answer.status == status, path
        assert status == 204 or answer.slug
    assert (home.home / "target/inner").read_bytes() == b"kept"
    assert names(await server.list(".")) == ["target"]


@checks(61)
@pytest_twisted.ensureDeferred
async def test_removal_of_a_hostile_tree(serving: Serve, home: Home) -> None:
    """Links to the outside, thousands of levels, more entries than one look holds."""
    outside = home.place / "outside"
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    (outside / "kept").write_bytes(b"kept")
    (outside / "kept").chmod(0o666)
    home.directory("tree")
    server = await serving()
    script = f"""
import os
os.chdir("tree")
for n in range(1500):
    open(f"f{{n}}", "w").close()
    if n % 3 == 0:
        os.mkdir(f"d{{n}}")
        open(f"d{{n}}/x", "w").close()
os.symlink({str(outside)!r}, "out")
os.symlink("/", "root")
for n in range(5000):
    os.mkdir("deep")
    os.chdir("deep")
os.symlink({str(outside)!r}, "out")
open("x", "w").close()
"""
    made = await server.exec("python3", "-c", script)
    assert made["exit_code"] == 0, made
    before = len(os.listdir("/proc/self/fd"))
    assert (await server.remove("tree", recursive="true")).status == 204
    assert names(await server.list(".")) == []
    assert (outside / "kept").read_bytes() == b"kept"
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before + 3, "the release of every descriptor")


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_removal_stops_at_the_first_refusal(serving: Serve, home: Home) -> None:
    home.directory("tree")
    home.directory("tree/roots", 0o755, owner=0)
    home.make("tree/roots/file", b"", 0o666, owner=0)
    os.chown(home.home / "tree/roots", 0, 0)
    server = await serving()
    assert (await server.remove("tree", recursive="true")).fault == (403, "forbidden")
    assert (home.home / "tree/roots/file").exists()


@checks(63)
@pytest_twisted.ensureDeferred
async def test_a_listing_is_sorted_by_bytes_and_cut(serving: Serve, home: Home) -> None:
    server = await serving()
    home.directory("many")
    for number in range(10_000):
        (home.home / f"many/f{number:05}").touch()
    whole = await server.list("many")
    assert (len(names(whole)), whole.json["truncated"]) == (10_000, False)
    (home.home / "many/e").touch()
    cut = await server.list("many")
    assert cut.json["truncated"]
    assert names(cut) == ["e", *(f"f{number:05}" for number in range(9_999))]
    home.directory("few")
    for name in ("é", "a", "B", ".dot", "\U0001f600"):
        (home.home / "few" / name).touch()
    assert names(await server.list("few")) == [".dot", "B", "a", "é", "\U0001f600"]


@pytest_twisted.ensureDeferred
async def test_what_a_listing_says(serving: Serve, home: Home) -> None:
    make_special(home)
    os.utime(home.home / "file", ns=(0, 1_767_225_600_000_000_000))
    (home.home / "file").chmod(0o4750)
    server = await serving()
    answer = await server.list("./dir/..")
    assert answer.json["path"] == f"{home.home}/dir/.."
    found = {entry["name"]: entry for entry in answer.json["entries"]}
    assert found["file"] == {
        "name": "file",
        "type": "file",
        "size": 7,
        "mode": "4750",
        "modified_at": "2026-01-01T00:00:00Z",
    }
    assert found["to-file"]["type"] == "symlink"
    assert (found["to-file"]["target"], found["to-file"]["size"], found["to-file"]["mode"]) == (
        "file",
        4,
        "0777",
    )
    assert found["dir"]["type"] == "directory"
    assert file_time(10**21) is None  # a year of five digits
    assert found["fifo"]["type"] == found["socket"]["type"] == "other"
    assert (await server.list(".")).json["path"] == str(home.home)


@checks(64)
@pytest_twisted.ensureDeferred
async def test_listings_that_are_refused_and_names_that_are_no_text(serving: Serve, home: Home) -> None:
    home.make("file")
    closed = home.directory("closed", 0o300)
    half = home.directory("half", 0o400)
    (half.parent / "inner").touch()
    os.rename(half.parent / "inner", half / "inner") if os.geteuid() == 0 else None
    odd = home.directory("odd")
    with open(os.fsencode(odd) + b"/\xff\xc3", "w"):
        pass
    server = await serving()
    assert (await server.list("file")).fault == (400, "invalid_request")
    assert (await server.list("file")).json["message"] == "path is not a directory"
    assert (await server.list("none")).fault == (404, "not_found")
    assert (await server.list("closed")).fault == (403, "forbidden")
    entry = (await server.list("odd")).json["entries"][0]
    assert (entry["name"], entry["name_b64"]) == ("\ufffd\ufffd", "/8M=")
    if os.geteuid() == 0:
        entries = (await server.list("half")).json["entries"]
        assert entries == [{"name": "inner", "type": "file", "size": None, "mode": None, "modified_at": None}]
    closed.chmod(0o755)
    half.chmod(0o755)


@checks(65)
@pytest_twisted.ensureDeferred
async def test_listing_what_is_changing(serving: Serve, home: Home) -> None:
    busy = home.directory("busy")
    server = await serving()

    def churn() -> Any:
        number = 0
        while True:
            for _ in range(20):
                (busy / f"n{number}").touch()
                (busy / f"n{number - 50}").unlink(missing_ok=True)
                number += 1
            yield None

    task = cooperate(churn())
    for _ in range(50):
        assert (await server.list("busy")).status == 200
    task.stop()


SWAPPER = """
import os, itertools

def attempt(do, *args):
    try:
        do(*args)
    except OSError:
        pass

for turn in itertools.count():
    for target in ("real", "fake"):
        attempt(os.symlink, target, "n")
        attempt(os.rename, "n", "door")
        attempt(os.makedirs, "tree/sub/below")
        attempt(os.rename, "tree/sub", f"aside{turn}")
        attempt(os.symlink, "../fake", "tree/sub")
        attempt(os.rename, f"aside{turn}", "tree/again")
"""


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_a_swap_race_never_gets_at_what_is_roots(serving: Serve, home: Home) -> None:
    """The agent swaps a directory of its own for a link to root's, over and over, while every operation runs."""
    roots = home.place / "roots"
    roots.mkdir(mode=0o700)
    for name in ("file", "victim", "tree"):
        (roots / name).write_bytes(b"root's")
    home.directory("real")
    home.make("real/file", b"agent's")
    home.link("fake", str(roots))
    server = await serving()
    pid = await server.spawn(["python3", "-c", SWAPPER])
    await until((home.home / "door").is_symlink, "the first swap")
    seen: set[int] = set()
    for round in range(60):
        read = await server.read("door/file")
        assert read.body != b"root's"
        put = await server.put(f"door/file{round % 3}", b"written")
        made = await server.put(f"door/new{round}/x", b"written", mkdir="true")
        listed = await server.list("door")
        assert listed.status in (200, 403, 404)
        if listed.status == 200:
            assert "victim" not in names(listed)
        gone = await server.remove("door/victim")
        assert gone.status in (403, 404)
        tree = await server.remove("tree", recursive="true")
        assert tree.status in (204, 404, 503)
        seen |= {read.status, put.status, made.status, listed.status}
    assert {200, 403} <= seen, seen
    assert sorted(path.name for path in roots.iterdir()) == ["file", "tree", "victim"]
    assert {path.read_bytes() for path in roots.iterdir()} == {b"root's"}
    await server.delete(pid)
