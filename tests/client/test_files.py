"""Files and trees: streamed, checked, whole or not at all; against a server that lies, cuts and refuses."""

import base64
import hashlib
import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from agentd.client import errors, files
from agentd.client.retry import NO_RETRY
from agentd.client.upload import LengthChanged
from tests.client.conftest import Serve
from tests.client.support import Cut, Hang, Request, Send, answer, until

MIB = 1024 * 1024


def digest(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def store(request: Request) -> list[Any]:
    return answer(204, headers={"Repr-Digest": digest(request.body), "agentd-write": "atomic"})


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for each in chunks:
        yield each


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


# -- up ----------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_bytes_carry_their_digest_and_the_daemons_is_compared(serve: Serve) -> None:
    script, client = serve(store)
    stored = await client.files.write("/a b", b"content", mode=0o640)
    request = script.requests[0]
    assert (request.method, request.target) == ("PUT", "/v1/fs/file?path=%2Fa%20b&mode=0640")
    assert request.headers["repr-digest"] == digest(b"content")
    assert (stored.size, stored.verified, stored.how) == (7, True, "atomic")


@pytest_twisted.ensureDeferred
async def test_an_older_daemon_confirms_nothing(serve: Serve) -> None:
    _, client = serve(answer(204))
    stored = await client.files.write("/a", b"x")
    assert (stored.verified, stored.how) == (False, None)


@pytest_twisted.ensureDeferred
async def test_other_bytes_stored_is_a_mismatch(serve: Serve) -> None:
    _, client = serve(answer(204, headers={"Repr-Digest": digest(b"other")}))
    with pytest.raises(errors.DigestMismatch):
        await client.files.write("/a", b"x")


@pytest_twisted.ensureDeferred
async def test_a_digest_that_is_none_breaks_the_protocol(serve: Serve) -> None:
    _, client = serve(answer(204, headers={"Repr-Digest": "sha-256=:AA==:"}))
    with pytest.raises(errors.ProtocolFault, match="Repr-Digest"):
        await client.files.write("/a", b"x")


@pytest_twisted.ensureDeferred
async def test_an_empty_file_and_one_of_unknown_length(serve: Serve) -> None:
    script, client = serve(store, store)
    assert (await client.files.write("/a", b"")).size == 0
    progress: list[int] = []
    stored = await client.files.write("/a", pieces(b"ab", b"", b"c" * 200_000), progress=progress.append)
    assert script.requests[0].headers["content-length"] == "0"
    assert script.requests[1].headers["transfer-encoding"] == "chunked"
    assert (stored.size, stored.verified, progress) == (200_002, True, [2, 200_002])


@pytest_twisted.ensureDeferred
async def test_a_local_file_with_its_mode(serve: Serve, tmp_path: Path) -> None:
    script, client = serve(store)
    data = os.urandom(3 * MIB + 17)
    (tmp_path / "f").write_bytes(data)
    (tmp_path / "f").chmod(0o751)
    stored = await client.files.put(tmp_path / "f", "/t")
    assert script.requests[0].body == data
    assert script.requests[0].query == "path=%2Ft&mode=0751"
    assert stored.sha256 == hashlib.sha256(data).digest()


@pytest_twisted.ensureDeferred
async def test_a_local_file_that_cannot_be_read_sends_nothing(serve: Serve, tmp_path: Path) -> None:
    script, client = serve()
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(errors.LocalFault):
            await client.files.put(path, "/t")
    assert script.requests == []


@pytest.mark.parametrize("chunks", [(b"abc",), (b"abcdefgh",), (b"abc", b"defgh")])
@pytest_twisted.ensureDeferred
async def test_another_length_than_promised_is_never_a_success(
    serve: Serve, chunks: tuple[bytes, ...]
) -> None:
    script, client = serve(store, backoff=NO_RETRY)
    with pytest.raises(LengthChanged):
        await client.files.write("/a", pieces(*chunks), length=5)
    assert script.requests == []


@pytest_twisted.ensureDeferred
async def test_a_source_that_fails_is_the_failure(serve: Serve) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"x"
        raise RuntimeError("the source broke")

    script, client = serve(store)
    with pytest.raises(RuntimeError, match="the source broke"):
        await client.files.write("/a", failing())
    assert script.requests == []


@pytest.mark.parametrize("status", [401, 413, 507])
@pytest_twisted.ensureDeferred
async def test_a_refusal_before_the_body_is_through_is_heard(serve: Serve, status: int) -> None:
    """The server answers at the head, reads no more, and closes in the end."""

    def refuse(_: Request) -> list[Any]:
        script.connections[-1].transport.pauseProducing()
        return [*answer(status, b"no more", {"Content-Type": "text/plain", "Connection": "close"}), Hang()]

    script, client = serve(refuse, early=True)
    sent: list[int] = []

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(4000):
            yield bytes(65536)

    with pytest.raises(errors.AnswerError, match="no more") as refusal:
        await client.files.write("/a", endless(), progress=sent.append)
    assert refusal.value.status == status
    assert sent[-1] < 100 * MIB
    script.connections[0].transport.abortConnection()
    await until(lambda: script.lost == 1)


@pytest_twisted.ensureDeferred
async def test_a_server_that_stops_reading_ends_in_a_fault(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stall(_: Request) -> list[Any]:
        script.connections[-1].transport.pauseProducing()
        return [Hang()]

    script, client = serve(stall, early=True)
    monkeypatch.setattr(files, "ANSWER_SECONDS", 0.5)
    with pytest.raises(errors.TransportFault, match=r"0\.5 seconds"):
        await client.files.write("/a", pieces(*[bytes(MIB)] * 64))
    script.connections[0].transport.resumeProducing()
    await until(lambda: script.lost == 1)


@pytest_twisted.ensureDeferred
async def test_an_upload_is_not_repeated(serve: Serve) -> None:
    script, client = serve([Cut()], store)
    with pytest.raises(errors.TransportFault):
        await client.files.write("/a", b"x")
    assert len(script.requests) == 1


# -- down --------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_reading_whole_and_by_lines(serve: Serve) -> None:
    script, client = serve(answer(200, b"all"), *[answer(200, b"x")] * 4)
    assert await client.files.read_bytes("/f") == b"all"
    for start, end in ((2, 4), (2, None), (None, 4), (None, None)):
        async with await client.files.lines("/f", start, end) as lines:
            assert b"".join([data async for data in lines]) == b"x"
    assert [request.query for request in script.requests] == [
        "path=%2Ff",
        "path=%2Ff&start_line=2&end_line=4",
        "path=%2Ff&start_line=2",
        "path=%2Ff&end_line=4",
        "path=%2Ff",
    ]


@pytest_twisted.ensureDeferred
async def test_a_file_longer_than_wanted_is_given_up(serve: Serve) -> None:
    script, client = serve(answer(200, bytes(5 * MIB)))
    with pytest.raises(errors.ProtocolFault, match="longer than 100"):
        await client.files.read_bytes("/f", limit=100)
    await until(lambda: script.lost == 1)


@pytest_twisted.ensureDeferred
async def test_a_download_is_checked_where_the_digest_comes(serve: Serve, tmp_path: Path) -> None:
    script, client = serve(
        answer(200, b"data", {"Repr-Digest": digest(b"data")}),
        answer(200, b"data"),
        answer(200, b"data", {"Repr-Digest": digest(b"atad")}),
    )
    assert (await client.files.get("/f", tmp_path / "one")).verified
    assert not (await client.files.get("/f", tmp_path / "two")).verified
    (tmp_path / "three").write_bytes(b"old")
    with pytest.raises(errors.DigestMismatch):
        await client.files.get("/f", tmp_path / "three")
    assert (tmp_path / "three").read_bytes() == b"old"
    assert names(tmp_path) == ["one", "three", "two"]
    assert script.requests[0].headers["want-repr-digest"] == "sha-256=10"


@pytest.mark.parametrize(
    "steps",
    [
        [Send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), Cut()],
        [Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"), Cut()],
        [Send(b"HTTP/1.1 200 OK\r\n\r\nhalf"), Cut()],
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_cut_download_leaves_the_old_file_and_nothing_beside_it(
    serve: Serve, tmp_path: Path, steps: list[Any]
) -> None:
    _, client = serve(steps)
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(errors.TransportFault):
        await client.files.get("/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


@pytest_twisted.ensureDeferred
async def test_a_cancelled_download_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    script, client = serve([Send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), Hang()])
    pending = Deferred.fromCoroutine(client.files.get("/f", tmp_path / "f"))
    pending.addErrback(lambda _: None)
    await until(lambda: script.requests)
    pending.cancel()
    await until(lambda: script.lost == 1 and names(tmp_path) == [])


@pytest_twisted.ensureDeferred
async def test_a_place_that_cannot_be_written(serve: Serve, tmp_path: Path) -> None:
    _, client = serve(*[answer(200, b"data")] * 2)
    (tmp_path / "file").write_bytes(b"")
    for target in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(errors.LocalFault):
            await client.files.get("/f", target)


@pytest_twisted.ensureDeferred
async def test_a_slow_reader_holds_the_sender_back(serve: Serve) -> None:
    script, client = serve(answer(200, bytes(64 * MIB)))
    async with await client.files.read("/f") as download:
        await anext(download)
        sender = script.connections[0].transport
        seen: list[int] = []

        def settled() -> bool:
            seen.append(len(sender.dataBuffer) - sender.offset + sum(map(len, sender._tempDataBuffer)))
            return len(seen) > 40 and len(set(seen[-20:])) == 1

        await until(settled)
        assert seen[-1] > 40 * MIB
        async for _ in download:
            pass
        assert download.received == 64 * MIB


# -- trees -------------------------------------------------------------------------------------------------


def archive(*members: tuple[str, bytes, str]) -> bytes:
    """An archive of (name, type, content or link target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
            else:
                info.linkname = text
                tar.addfile(info)
    return out.getvalue()


@pytest_twisted.ensureDeferred
async def test_a_tree_goes_up_with_its_length_known(serve: Serve, tmp_path: Path) -> None:
    def stored(request: Request) -> list[Any]:
        with tarfile.open(fileobj=io.BytesIO(request.body)) as tar:
            found.update({member.name: member for member in tar.getmembers()})
        return store(request)

    found: dict[str, tarfile.TarInfo] = {}
    script, client = serve(stored)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "f").write_bytes(b"hello")
    (tmp_path / "link").symlink_to("sub/f")
    progress: list[tuple[int, int | None]] = []
    pushed = await client.tar.push(tmp_path, "/w", lambda *moved: progress.append(moved))
    assert (pushed.members, pushed.stored.verified) == (3, True)
    assert sorted(found) == [".", "./link", "./sub", "./sub/f"]
    assert found["./link"].linkname == "sub/f"
    length = int(script.requests[0].headers["content-length"])
    assert progress[-1] == (length, length)
    assert script.requests[0].headers["content-type"] == "application/x-tar"


@pytest_twisted.ensureDeferred
async def test_a_tree_that_is_none_sends_nothing(serve: Serve, tmp_path: Path) -> None:
    script, client = serve()
    (tmp_path / "f").write_bytes(b"")
    for path in (tmp_path / "f", tmp_path / "missing"):
        with pytest.raises(errors.LocalFault):
            await client.tar.push(path, "/w")
    assert script.requests == []


@pytest_twisted.ensureDeferred
async def test_a_tree_comes_down(serve: Serve, tmp_path: Path) -> None:
    body = archive(
        ("./", tarfile.DIRTYPE, ""),
        ("./d", tarfile.DIRTYPE, ""),
        ("./d/f", tarfile.REGTYPE, "hi"),
        ("./l", tarfile.SYMTYPE, "d/f"),
    )
    _, client = serve(answer(200, body))
    pulled = await client.tar.pull("/w", tmp_path / "new" / "tree")
    assert (tmp_path / "new" / "tree" / "l").read_text() == "hi"
    assert (pulled.members, pulled.received) == (4, len(body))


@pytest.mark.parametrize(
    "member",
    [
        ("../out", tarfile.REGTYPE, "x"),
        ("/out", tarfile.REGTYPE, "x"),
        ("a/../../out", tarfile.REGTYPE, "x"),
        ("l", tarfile.SYMTYPE, "/etc"),
        ("l", tarfile.SYMTYPE, "../.."),
        ("l", tarfile.LNKTYPE, "../victim"),
        ("dev", tarfile.CHRTYPE, ""),
        ("pipe", tarfile.FIFOTYPE, ""),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_hostile_vm_writes_nowhere_else(
    serve: Serve, tmp_path: Path, member: tuple[str, bytes, str]
) -> None:
    _, client = serve(answer(200, archive(member)))
    (tmp_path / "victim").write_text("untouched")
    with pytest.raises(errors.LocalFault, match="refused tar member"):
        await client.tar.pull("/w", tmp_path / "root")
    assert names(tmp_path) == ["root", "victim"]
    assert names(tmp_path / "root") == []
    assert (tmp_path / "victim").read_text() == "untouched"


@pytest_twisted.ensureDeferred
async def test_a_link_in_the_archive_does_not_lead_a_later_member_astray(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "there").symlink_to(tmp_path / "outside")
    _, client = serve(answer(200, archive(("there/f", tarfile.REGTYPE, "x"))))
    with pytest.raises(errors.LocalFault, match="symbolic link"):
        await client.tar.pull("/w", tmp_path / "root")
    assert names(tmp_path / "outside") == []


@pytest_twisted.ensureDeferred
async def test_a_cut_archive_extracts_nothing(serve: Serve, tmp_path: Path) -> None:
    body = archive(("f", tarfile.REGTYPE, "x"))
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    _, client = serve([Send(head + body[:-100]), Cut()])
    with pytest.raises(errors.TransportFault):
        await client.tar.pull("/w", tmp_path / "root")
    assert names(tmp_path) == []
