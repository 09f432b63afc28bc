"""Producers of the answers of the file, archive and tunnel routes."""

import base64
import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path
from urllib.parse import quote

from tests.wire.producers import CAP, MEMBERS_CAP, Daemons, produces
from tests.wire.support import Api, Reply, connect, request

FILE, TAR, TCP = "/v1/fs/file", "/v1/fs/tar", "/v1/tcp"


def at(route: str, path: Path | str, query: str = "") -> str:
    """A route's path, asked about a path of the file system."""
    return f"{route}?path={quote(os.fsencode(path))}{query}"


def archive(*names: str, size: int = 3) -> bytes:
    """An uncompressed archive of files of those names, of `size` bytes each."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as writing:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = size
            writing.addfile(member, io.BytesIO(b"x" * size))
    return packed.getvalue()


def loop(daemons: Daemons) -> Path:
    """A link to itself: nothing can be opened there."""
    path = daemons.new_path()
    path.symlink_to(path.name)
    return path


async def put(api: Api, target: str, data: bytes, **headers: str) -> Reply:
    """PUT a body; names of headers with ``_`` for ``-``."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.call("PUT", target, data=data, headers=fields)


# -- reading a file ----------------------------------------------------------------------------------------


@produces("GET", FILE, 200)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path()
    path.write_bytes(b"one\ntwo\nthree\n")
    window = await daemons.api.get(at(FILE, path, "&start_line=2&end_line=2"))
    assert window.body == b"two\n"
    whole = await daemons.api.get(at(FILE, path))
    assert whole.body == b"one\ntwo\nthree\n"
    return whole


@produces("GET", FILE, 206)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path()
    path.write_bytes(b"0123456789")
    reply = await daemons.api.get(at(FILE, path), headers={"Range": "bytes=2-4"})
    assert (reply.body, reply.headers["content-range"]) == (b"234", "bytes 2-4/10")
    return reply


@produces("GET", FILE, 400)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path()
    path.write_bytes(b"x")
    for wrong in (
        FILE,
        at(FILE, daemons.home),
        at(FILE, path, "&start_line=0"),
        at(FILE, path, "&end_line=x"),
    ):
        assert (await daemons.api.get(wrong)).key == (400, ""), wrong
    return await daemons.api.get(at(FILE, path, "&start_line=3&end_line=2"))


@produces("GET", FILE, 404)
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.get(at(FILE, daemons.new_path()))


@produces("GET", FILE, 416)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path()
    path.write_bytes(b"0123456789")
    reply = await daemons.api.get(at(FILE, path), headers={"Range": "bytes=10-"})
    assert reply.headers["content-range"] == "bytes */10"
    return reply


@produces("GET", FILE, 500)
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.get(at(FILE, loop(daemons)))


# -- writing one -------------------------------------------------------------------------------------------


@produces("PUT", FILE, 204)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path() / "made" / 'name \N{SLIGHTLY SMILING FACE} "\n'
    data = os.urandom(5000)
    digest = f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"
    reply = await put(daemons.api, at(FILE, path, "&mode=640"), data, Repr_Digest=digest)
    assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (data, 0o640)
    assert (reply.headers["agentd-write"], reply.headers["repr-digest"]) == ("atomic", digest)
    return reply


@produces("PUT", FILE, 400)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path()
    path.write_bytes(b"old")
    wrong = f"sha-256=:{base64.b64encode(bytes(32)).decode()}:"
    assert (await put(daemons.api, at(FILE, path), b"new", Repr_Digest=wrong)).key == (400, "")
    assert (await put(daemons.api, FILE, b"new")).key == (400, "")
    reply = await put(daemons.api, at(FILE, path, "&mode=9"), b"new")
    assert path.read_bytes() == b"old"
    return reply


@produces("PUT", FILE, 413)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path()
    reply = await put(daemons.api, at(FILE, path), bytes(CAP + 1))
    assert not path.exists()
    return reply


@produces("PUT", FILE, 500)
async def _(daemons: Daemons) -> Reply:
    return await put(daemons.api, at(FILE, loop(daemons)), b"x")


@produces("PUT", FILE, 507)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path()
    reply = await put(daemons.full, at(FILE, path), b"x")
    assert not path.exists()
    return reply


# -- archives ----------------------------------------------------------------------------------------------


@produces("GET", TAR, 200)
async def _(daemons: Daemons) -> Reply:
    root = daemons.new_path()
    root.mkdir()
    (root / "file").write_bytes(b"data")
    plain = await daemons.api.get(at(TAR, root))
    with tarfile.open(fileobj=io.BytesIO(plain.body)) as reading:
        assert {member.name for member in reading} == {".", "./file"}
    return plain


@produces("GET", TAR, 400)
async def _(daemons: Daemons) -> Reply:
    path = daemons.new_path()
    path.write_bytes(b"x")
    assert (await daemons.api.get(TAR)).key == (400, "")
    return await daemons.api.get(at(TAR, path))


@produces("GET", TAR, 404)
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.get(at(TAR, daemons.new_path()))


@produces("GET", TAR, 413)
async def _(daemons: Daemons) -> Reply:
    root = daemons.new_path()
    root.mkdir()
    for number in range(MEMBERS_CAP + 1):
        (root / str(number)).touch()
    return await daemons.api.get(at(TAR, root))


@produces("GET", TAR, 500)
async def _(daemons: Daemons) -> Reply:
    return await daemons.api.get(at(TAR, loop(daemons)))


@produces("PUT", TAR, 204)
async def _(daemons: Daemons) -> Reply:
    root = daemons.new_path()
    reply = await put(daemons.api, at(TAR, root), archive("a", "b/c"))
    assert (root / "b/c").read_bytes() == b"xxx"
    packed = gzip.compress(archive("a", "zipped"))
    assert (await put(daemons.api, at(TAR, root), packed, Content_Encoding="gzip")).status == 204
    assert (root / "zipped").read_bytes() == b"xxx"
    return reply


@produces("PUT", TAR, 400)
async def _(daemons: Daemons) -> Reply:
    root = daemons.new_path()
    for wrong, data in ((TAR, archive("a")), (at(TAR, "relative"), archive("a"))):
        assert (await put(daemons.api, wrong, data)).key == (400, "")
    for data in (b"\1" * 1024, archive("../out"), archive("a")[:514]):
        reply = await put(daemons.api, at(TAR, root), data)
        assert reply.key == (400, ""), data[:20]
    assert not root.exists() or not any(root.iterdir())
    assert not (daemons.home / "out").exists()
    return reply


@produces("PUT", TAR, 413)
async def _(daemons: Daemons) -> Reply:
    root = daemons.new_path()
    assert (await put(daemons.api, at(TAR, root), bytes(CAP + 1))).key == (413, "")
    assert not root.exists()
    names = [str(number) for number in range(MEMBERS_CAP + 1)]
    reply = await put(daemons.api, at(TAR, root), archive(*names))
    # What came before a refusal stays (contract e).
    assert {path.name for path in root.iterdir()} == set(names[:-1])
    return reply


@produces("PUT", TAR, 415)
async def _(daemons: Daemons) -> Reply:
    return await put(daemons.api, at(TAR, daemons.new_path()), archive("a"), Content_Encoding="br")


@produces("PUT", TAR, 500)
async def _(daemons: Daemons) -> Reply:
    return await put(daemons.api, at(TAR, loop(daemons)), archive("a"))


@produces("PUT", TAR, 507)
async def _(daemons: Daemons) -> Reply:
    root = daemons.new_path()
    reply = await put(daemons.full, at(TAR, root), archive("a"))
    assert not root.exists()
    return reply


# -- the tunnel --------------------------------------------------------------------------------------------


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@produces("GET", TCP, 101)
async def _(daemons: Daemons) -> Reply:
    lines = [f"{name}: {value}" for name, value in UPGRADE.items()]
    connection = connect(daemons.daemon)
    reply = connection.send(request("GET", f"{TCP}?port=1", *lines, token=daemons.daemon.token)).reply()
    # The answer to RFC 6455's own example of a key.
    assert reply.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    connection.close()
    return reply


@produces("GET", TCP, 400, "malformed_request")
async def _(daemons: Daemons) -> Reply:
    for query in ("", "?port=-1", "?port=65536", "?port=x", "?port=1&identity=perhaps"):
        assert (await daemons.api.get(TCP + query, headers=UPGRADE)).key == (400, "malformed_request"), query
    return await daemons.api.get(f"{TCP}?port=1")
