"""Checks 45 to 65 of the contract's list: files."""

import os
import socket
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.task import cooperate

from agentd.environments.files import file_time
from tests.environments.conftest import Serve
from tests.environments.support import KEY, Home, Server, checks, until
from tests.environments.test_checks_commands import rss

MIB = 1024 * 1024


def names(answer: Any) -> list[str]:
    assert answer.status == 200, answer
    return [entry["name"] for entry in answer.json["entries"]]


@checks(45)
@pytest_twisted.ensureDeferred
async def test_round_trips(serving: Serve, home: Home) -> None:
    server = await serving()
    for name, content in [("all", bytes(range(256)) * 3), ("empty", b""), ("sp ace+é", b"x")]:
        answer = await server.put(name, content)
        assert answer.status == 201
        assert answer.json == {"path": f"{home.home}/{name}", "size": len(content)}
        answer = await server.read(name)
        assert (answer.status, answer.body, answer.headers["content-length"]) == (
            200,
            content,
            str(len(content)),
        )
        assert answer.headers["content-type"] == "application/octet-stream"
        status = (home.home / name).stat()
        assert stat.S_IMODE(status.st_mode) == 0o644
        assert (status.st_uid, status.st_gid) == (home.uid, home.gid)
    head = await server.ask("HEAD", "/files?path=all")
    assert (head.status, head.headers["content-length"], head.body) == (200, "768", b"")


@checks(45)
@pytest_twisted.ensureDeferred
async def test_two_hundred_mebibytes_pass_through_in_bounded_memory(serving: Serve, home: Home) -> None:
    server = await serving()
    size = 200 * MIB
    block = os.urandom(MIB)
    before = rss()
    most = [0]
    connection = await server.connect()
    connection.send(
        b"PUT /v1/environments/local/files?path=big HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
        b"Content-Length: %d\r\n\r\n" % (KEY.encode(), size)
    )

    class Source:
        """Sends as fast as it is taken."""

        def __init__(self) -> None:
            self.left = size // MIB

        def resumeProducing(self) -> None:
            most[0] = max(most[0], rss())
            if self.left:
                self.left -= 1
                connection.transport.write(block)
            if not self.left:
                connection.transport.unregisterProducer()

        def stopProducing(self) -> None: ...

    connection.transport.registerProducer(Source(), False)
    answer = await connection.answer("PUT")
    assert (answer.status, answer.json["size"]) == (201, size)
    assert most[0] - before < 32 * MIB

    connection = await server.connect()
    connection.send(
        b"GET /v1/environments/local/files?path=big HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"
        % KEY.encode()
    )
    received, largest, before = 0, 0, rss()
    while received < size:
        await connection.change()
        largest = max(largest, rss())
        received += len(connection.data)
        assert not connection.lost
        connection.data = b""
    assert largest - before < 32 * MIB
    assert (home.home / "big").stat().st_size == size


@checks(46)
@pytest_twisted.ensureDeferred
async def test_names_in_queries(serving: Serve, home: Home) -> None:
    home.make("a b", b"space")
    home.make("a+b", b"plus")
    home.make("~", b"tilde")
    server = await serving()
    for query, body in [("a+b", b"space"), ("a%20b", b"space"), ("a%2Bb", b"plus"), ("~", b"tilde")]:
        answer = await server.get(f"/files?path={query}")
        assert (answer.status, answer.body) == (200, body)
    assert (await server.get("/files?path=$HOME")).status == 404


def make_special(home: Home) -> None:
    """One of each kind of entry."""
    home.make("file", b"content")
    home.directory("dir")
    home.link("to-file", "file")
    home.link("to-dir", "dir")
    home.link("dangling", "nothing")
    home.link("loop", "loop")
    os.mkfifo(home.home / "fifo")
    os.chown(home.home / "fifo", home.uid, home.gid)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(home.home / "socket"))
    os.chown(home.home / "socket", home.uid, home.gid)


LONG = "x" * 256
DEEP = "/".join(["d" * 200] * 21)


@checks(47)
@pytest.mark.parametrize(
    ("path", "read", "listed"),
    [
        ("file", 200, 400),
        ("to-file", 200, 400),
        ("dir", 400, 200),
        ("dir/", 400, 200),
        ("to-dir", 400, 200),
        ("dangling", 404, 404),
        ("loop", 400, 400),
        ("fifo", 400, 400),
        ("socket", 400, 400),
        ("/dev/null", 400, 400),
        ("nothing", 404, 404),
        ("nothing/below", 404, 404),
        ("file/below", 404, 404),
        ("file/", 404, 404),
        (LONG, 400, 400),
        (DEEP, 400, 400),
        (".", 400, 200),
    ],
)
@pytest_twisted.ensureDeferred
async def test_what_can_be_read_and_listed(
    serving: Serve, home: Home, path: str, read: int, listed: int
) -> None:
    """The endpoint table (5.1); nothing waits for a FIFO."""
    make_special(home)
    server = await serving()
    answer = await server.read(path)
    assert answer.status == read, answer
    assert answer.seconds < 5
    assert read == 200 or answer.slug
    answer = await server.list(path)
    assert answer.status == listed, answer
    assert listed == 200 or answer.slug


@pytest.mark.root
@checks(48)
@pytest_twisted.ensureDeferred
async def test_roots_secrets_stay_roots(serving: Serve, home: Home) -> None:
    private = home.place / "private"
    private.mkdir(mode=0o700)
    (private / "secret").write_bytes(b"root's")
    secret = home.place / "secret"
    secret.write_bytes(b"root's")
    secret.chmod(0o600)
    home.link("planted", str(secret))
    home.link("door", str(private))
    server = await serving()
    for path in (str(secret), "planted", "door/secret", "../secret", f"{private}/secret", "/etc/shadow"):
        assert (await server.read(path)).fault == (403, "forbidden"), path
        assert (await server.put(path, b"x")).fault == (403, "forbidden"), path
    for path in (str(private), "door", "../private"):
        assert (await server.list(path)).fault == (403, "forbidden"), path
    assert (await server.remove(str(secret))).fault == (403, "forbidden")
    assert (await server.remove("door/secret")).fault == (403, "forbidden")
    assert (await server.remove(str(private), recursive="true")).fault == (403, "forbidden")
    assert secret.read_bytes() == (private / "secret").read_bytes() == b"root's"


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_the_kernels_settings_are_not_the_agents(serving: Serve) -> None:
    """/proc/sys is guarded by the effective user id, which the file system id does not change."""
    server = await serving()
    setting = Path("/proc/sys/kernel/core_pattern")
    before = setting.read_bytes()
    answer = await server.put(str(setting), before)
    assert answer.fault == (403, "forbidden")
    assert setting.read_bytes() == before
    assert (await server.read("/proc/self/environ")).status == 403
    assert (await server.read("/proc/1/environ")).status == 403


@checks(49, 50)
@pytest_twisted.ensureDeferred
async def test_files_of_the_system(serving: Serve) -> None:
    server = await serving()
    up = await server.read("../" * 12 + "etc/passwd")
    assert up.body == (await server.read("/etc/passwd")).body == Path("/etc/passwd").read_bytes()
    status = await server.read("/proc/self/status")
    assert status.status == 200
    assert b"\nPid:\t" in status.body
    assert status.whole


@checks(51)
@pytest_twisted.ensureDeferred
async def test_a_file_that_shrinks_on_the_way_is_no_whole_transfer(serving: Serve, home: Home) -> None:
    path = home.make("shrinking")
    with path.open("r+b") as file:
        file.truncate(64 * MIB)
    server = await serving()
    connection = await server.connect()
    connection.send(
        b"GET /v1/environments/local/files?path=shrinking HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"
        % KEY.encode()
    )
    await connection.change()
    connection.transport.pauseProducing()
    with path.open("r+b") as file:
        file.truncate(1)
    connection.transport.resumeProducing()
    answer = await connection.answer()
    assert answer.status == 200
    assert answer.headers["content-length"] == str(64 * MIB)
    assert not answer.whole


@checks(52, 53)
@pytest_twisted.ensureDeferred
async def test_parents(serving: Serve, home: Home) -> None:
    home.make("file")
    server = await serving()
    assert (await server.put("a/b/c", b"x")).fault == (404, "not_found")
    assert not (home.home / "a").exists()
    answer = await server.put("a/b/c", b"x", mkdir="true")
    assert (answer.status, answer.json["path"]) == (201, f"{home.home}/a/b/c")
    for directory in ("a", "a/b"):
        status = (home.home / directory).stat()
        assert stat.S_IMODE(status.st_mode) == 0o755
        assert (status.st_uid, status.st_gid) == (home.uid, home.gid)
    assert (await server.put("file/b", b"x")).fault == (404, "not_found")
    assert (await server.put("file/b", b"x", mkdir="true")).fault == (403, "forbidden")
    assert (await server.put("file/b/c", b"x", mkdir="true")).fault == (403, "forbidden")
    if os.geteuid() == 0:
        home.directory("roots", 0o755, owner=0)
        assert (await server.put("roots/b/c", b"x", mkdir="true")).fault == (403, "forbidden")


@pytest_twisted.ensureDeferred
async def test_modes_do_not_depend_on_the_daemons_umask(serving: Serve, home: Home) -> None:
    server = await serving()
    before = os.umask(0o077)
    try:
        assert (await server.put("a/b", b"x", mkdir="true")).status == 201
    finally:
        os.umask(before)
    assert stat.S_IMODE((home.home / "a").stat().st_mode) == 0o755
    assert stat.S_IMODE((home.home / "a/b").stat().st_mode) == 0o644


@checks(54)
@pytest_twisted.ensureDeferred
async def test_what_a_write_goes_to(serving: Serve, home: Home) -> None:
    make_special(home)
    home.make("script", b"old", 0o755)
    home.make("twin", b"old")
    os.link(home.home / "twin", home.home / "other")
    server = await serving()
    for path, status in [
        ("dir", 400),
        ("to-dir", 400),
        ("name/", 400),
        ("dir/", 400),
        (".", 400),
        ("/", 400),
        ("fifo", 400),
        ("socket", 400),
        ("/dev/null", 400),
        ("loop", 400),
        (LONG, 400),
        ("nothing/name", 404),
    ]:
        answer = await server.put(path, b"new")
        assert answer.status == status, path
        assert answer.slug
    assert not (home.home / "name").exists()
    assert (await server.put("name/", b"x", mkdir="true")).status == 400

    assert (await server.put("to-file", b"through")).status == 201
    assert (home.home / "to-file").is_symlink()
    assert (home.home / "file").read_bytes() == b"through"
    assert (await server.put("dangling", b"made")).status == 201
    assert (home.home / "nothing").read_bytes() == b"made"
    assert (await server.put("script", b"#!/bin/sh\n")).status == 201
    assert stat.S_IMODE((home.home / "script").stat().st_mode) == 0o755
    inode = (home.home / "twin").stat().st_ino
    assert (await server.put("twin", b"new")).status == 201
    assert (home.home / "other").read_bytes() == b"new"
    assert (home.home / "other").stat().st_ino == inode


@checks(55)
@pytest_twisted.ensureDeferred
async def test_the_limit_of_an_upload(serving: Serve, home: Home) -> None:
    server = await serving(put=100_000)
    home.make("file", b"old")
    assert (await server.put("file", b"x" * 100_000)).status == 201
    home.make("file", b"old")
    connection = await server.connect()
    connection.send(
        b"PUT /v1/environments/local/files?path=file HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
        b"Content-Length: 900000000\r\n\r\n" % KEY.encode()
    )
    answer = await connection.answer("PUT")  # before any of it was sent
    assert answer.fault == (413, "payload_too_large")
    assert answer.json["message"] == "body is larger than 100000 bytes"
    chunked = b"".join(b"%x\r\n%s\r\n" % (1001, b"y" * 1001) for _ in range(100)) + b"0\r\n\r\n"
    answer = await server.ask("PUT", "/files?path=file", chunked, headers={"Transfer-Encoding": "chunked"})
    assert answer.fault == (413, "payload_too_large")
    assert (home.home / "file").read_bytes() == b"old"
    assert names(await server.list(".")) == ["file"]


@checks(56)
@pytest_twisted.ensureDeferred
async def test_an_upload_that_breaks_off(serving: Serve, home: Home) -> None:
    home.make("file", b"old")
    server = await serving()
    for name in ("file", "new"):
        connection = await server.connect()
        connection.send(
            b"PUT /v1/environments/local/files?path=%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
            b"Content-Length: 1000000\r\n\r\n%s" % (name.encode(), KEY.encode(), b"x" * 500_000)
        )
        await until(lambda: server.site.state.in_flight == 1, "the request")
        connection.close()
        await until(lambda: server.site.state.in_flight == 0, "the end of the request")
    await until(lambda: sorted(os.listdir(home.home)) == ["file"], "the removal of what was temporary")
    assert names(await server.list(".")) == ["file"]
    assert (home.home / "file").read_bytes() == b"old"


@checks(57)
@pytest_twisted.ensureDeferred
async def test_what_an_upload_does_not_depend_on(serving: Serve, home: Home) -> None:
    server = await serving()
    for headers in (
        {"Content-Type": "application/json"},
        {"Content-Type": "x"},
        {"Content-Encoding": "gzip"},
        {},
    ):
        answer = await server.ask("PUT", "/files?path=file", b"raw", headers=headers)
        assert answer.status == 201
        assert (home.home / "file").read_bytes() == b"raw"
    answer = await server.ask("PUT", "/files?path=bodiless")
    assert (answer.status, answer.json["size"]) == (201, 0)


@checks(57)
@pytest_twisted.ensureDeferred
async def test_an_expected_continue_comes_only_for_what_will_be_taken(serving: Serve, home: Home) -> None:
    home.directory("dir")
    server = await serving()
    for path, fault in [("dir", 400), ("none/x", 404), ("x/", 400), ("", 400)]:
        connection = await server.connect()
        connection.send(_expecting(path))
        answer = await connection.answer("PUT")
        assert answer.status == fault, path
        assert b"100 Continue" not in connection.data
    connection = await server.connect()
    connection.send(_expecting("file"))
    while not connection.data:
        await connection.change()
    assert connection.data == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.send(b"hello")
    answer = await connection.answer("PUT")
    assert (answer.status, answer.json["size"]) == (201, 5)


def _expecting(path: str) -> bytes:
    return (
        b"PUT /v1/environments/local/files?%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
        b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        % (urlencode({"path": path}).encode(), KEY.encode())
    )


@pytest.mark.root
@checks(58)
@pytest_twisted.ensureDeferred
async def test_a_files_own_permissions_decide(serving: Serve, home: Home) -> None:
    home.directory("roots", 0o755, owner=0)
    home.make("roots/mine", b"old")
    os.chown(home.home / "roots", 0, 0)
    home.make("readonly", b"old", 0o444)
    home.make("others", b"old", 0o666, owner=0)
    server = await serving()
    assert (await server.put("roots/mine", b"new")).status == 201
    assert (home.home / "roots/mine").read_bytes() == b"new"
    assert (await server.put("roots/new", b"new")).fault == (403, "forbidden")
    assert (await server.put("readonly", b"new")).fault == (403, "forbidden")
    assert (home.home / "readonly").read_bytes() == b"old"
    inode = (home.home / "others").stat().st_ino
    assert (await server.put("others", b"new")).status == 201
    status = (home.home / "others").stat()
    assert (status.st_ino, status.st_uid) == (inode, 0)
    assert (await server.remove("roots/mine")).fault == (403, "forbidden")


@pytest_twisted.ensureDeferred
async def test_two_uploads_to_one_file_never_mix(serving: Serve, home: Home) -> None:
    """Replaced or, with a second link, copied in place: the result is one of the bodies."""
    server = await serving()
    home.make("plain")
    home.make("linked")
    os.link(home.home / "linked", home.home / "second")
    for name in ("plain", "linked"):
        for _ in range(5):
            bodies = [bytes([65 + number]) * (300_000 + number * 70_000) for number in range(6)]
            running = [Deferred.fromCoroutine(server.put(name, body)) for body in bodies]
            for each in running:
                assert (await each).status == 201
            assert (home.home / name).read_bytes() in bodies


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


@pytest_twisted.ensureDeferred
async def test_a_full_disk_and_the_reserve_are_failed_operations(home: Home, serving: Serve) -> None:
    server: Server = await serving(config={"disk_reserve_bytes": 1 << 60})
    home.make("file", b"old")
    answer = await server.put("file", b"new")
    assert answer.fault == (503, "file_operation_failed")
    assert answer.json["message"] == "write failed: No space left on device"
    assert (home.home / "file").read_bytes() == b"old"
