"""Checks 45 to 58 of the contract's list: reading and writing files."""

import os
import socket
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.environments.conftest import Serve
from tests.environments.support import KEY, Home, Server
from tests.environments.test_checks_commands import rss
from tests.environments.wire import checks, until

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


@pytest_twisted.ensureDeferred
async def test_a_full_disk_and_the_reserve_are_failed_operations(home: Home, serving: Serve) -> None:
    server: Server = await serving(config={"disk_reserve_bytes": 1 << 60})
    home.make("file", b"old")
    answer = await server.put("file", b"new")
    assert answer.fault == (503, "file_operation_failed")
    assert answer.json["message"] == "write failed: No space left on device"
    assert (home.home / "file").read_bytes() == b"old"
