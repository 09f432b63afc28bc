"""`shell::fs::write` and `read`: contents in requests and through channels, all or nothing."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, Deferred

from agentd.worker.errors import Coded
from tests.process.support import soon, until
from tests.worker.calls import SERVED, Caller, caller, listing, make_tree
from tests.worker.test_fs_entries import SANDBOX

REFERENCE = {"channel_id": "c", "access_key": "k", "direction": "read"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    make_tree(root, {"a.txt": "hello", "dir/": "", "empty": "", ".env": "x"})
    (root / "link").symlink_to("a.txt")
    return root


@pytest.fixture
def fs(root: Path, tmp_path: Path) -> Iterator[Caller]:
    with caller(root, tmp_path) as found:
        yield found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest_twisted.ensureDeferred
async def test_write_text(fs: Caller, root: Path) -> None:
    before = os.umask(0o077)
    try:
        result = await fs.call("shell::fs::write", path="new", content="grüße\n")
    finally:
        os.umask(before)
    assert result == {"bytes_written": 8, "path": "new", "files": []}
    assert (root / "new").read_text() == "grüße\n"
    assert mode(root / "new") == 0o644
    await fs.call("shell::fs::write", path="new", content="", mode="0600", parents=False)
    assert ((root / "new").read_text(), mode(root / "new")) == ("", 0o600)


@pytest_twisted.ensureDeferred
async def test_write_goes_through_a_link_and_makes_parents(fs: Caller, root: Path) -> None:
    await fs.call("shell::fs::write", path="link", content="changed")
    assert (root / "link").is_symlink()
    assert (root / "a.txt").read_text() == "changed"
    assert await fs.code("shell::fs::write", path="x/y/z", content="") == "S211"
    await fs.call("shell::fs::write", path="x/y/z", content="deep", parents=True)
    assert (root / "x/y/z").read_text() == "deep"
    long = "n" * 255
    await fs.call("shell::fs::write", path=long, content="long")
    assert (root / long).read_text() == "long"


@pytest_twisted.ensureDeferred
async def test_write_refusals_leave_everything_as_it_was(fs: Caller, root: Path) -> None:
    os.mkfifo(root / "fifo")
    small = fs.with_settings(fs={"max_write_bytes": 4})
    before = listing(root)
    assert await fs.code("shell::fs::write", path="dir", content="x") == "S212"
    assert await fs.code("shell::fs::write", path="fifo", content="x") == "S212"
    assert await small.code("shell::fs::write", path="a.txt", content="12345") == "S218"
    assert await small.code("shell::fs::write", path="a.txt", content="ééé") == "S218"
    assert await fs.code("shell::fs::write", path="a.txt", content=5) == "S210"
    assert await fs.code("shell::fs::write", path="a.txt", content="\ud800") == "S210"
    assert await fs.code("shell::fs::write", path="a.txt") == "S210"
    assert await fs.code("shell::fs::write", content="x") == "S210"
    assert await fs.code("shell::fs::write", {}) == "S210"
    assert await fs.code("shell::fs::write", path="a.txt", content="x", target=SANDBOX) == "S210"
    files = [{"path": "a.txt", "content": "x"}]
    assert await fs.code("shell::fs::write", files=files, target=SANDBOX) == "S210"
    assert listing(root) == before
    assert (root / "a.txt").read_text() == "hello"
    assert (await small.call("shell::fs::write", path="a.txt", content="1234"))["bytes_written"] == 4


@pytest.mark.parametrize("extra", [{"path": "a"}, {"content": "x"}, {"mode": "0644"}, {"parents": False}])
@pytest_twisted.ensureDeferred
async def test_write_of_several_goes_alone(fs: Caller, extra: dict[str, Any]) -> None:
    files = [{"path": "new", "content": "x"}]
    assert await fs.code("shell::fs::write", {"files": files, **extra}) == "S210"


@pytest_twisted.ensureDeferred
async def test_write_of_several(fs: Caller, root: Path) -> None:
    fs.channels.streams["c"] = [b"ab", b"c"]
    files = [
        {"path": "one", "content": "1"},
        {"path": "p/two", "content": "22", "parents": True, "mode": "0755"},
        {"path": "three", "content": REFERENCE},
    ]
    result = await fs.call("shell::fs::write", files=files)
    assert result == {
        "bytes_written": 6,
        "path": "",
        "files": [
            {"path": "one", "bytes_written": 1},
            {"path": "p/two", "bytes_written": 2},
            {"path": "three", "bytes_written": 3},
        ],
    }
    assert mode(root / "p/two") == 0o755
    failing = [
        {"path": "four", "content": "4"},
        {"path": "dir", "content": "x"},
        {"path": "five", "content": ""},
    ]
    assert await fs.code("shell::fs::write", files=failing) == "S212"
    assert (root / "four").exists()
    assert not (root / "five").exists()
    assert await fs.call("shell::fs::write", files=[]) == {"bytes_written": 0, "path": "", "files": []}


# -- streams -----------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_write_from_a_channel(fs: Caller, root: Path) -> None:
    fs.channels.streams["c"] = [b"x" * 65536] * 5 + [b"end"]
    result = await fs.call("shell::fs::write", path="new", content=REFERENCE)
    assert result["bytes_written"] == 5 * 65536 + 3
    assert (root / "new").read_bytes() == b"x" * 65536 * 5 + b"end"
    fs.channels.streams["c"] = []
    del REFERENCE["direction"]
    assert (await fs.call("shell::fs::write", path="new", content=REFERENCE))["bytes_written"] == 0
    assert (root / "new").read_bytes() == b""


@pytest_twisted.ensureDeferred
async def test_a_stream_that_fails_leaves_the_target(fs: Caller, root: Path) -> None:
    before = listing(root)
    small = fs.with_settings(fs={"max_write_bytes": 100_000})
    small.channels.streams["c"] = [b"x" * 65536, b"x" * 65536, AssertionError("not reached")]
    assert await small.code("shell::fs::write", path="a.txt", content=REFERENCE) == "S218"
    fs.channels.streams["c"] = [b"x", Coded("S216", "the stream stalled")]
    assert await fs.code("shell::fs::write", path="a.txt", content=REFERENCE) == "S216"
    other = {**REFERENCE, "channel_id": "unknown"}
    assert await fs.code("shell::fs::write", path="a.txt", content=other) == "S216"
    assert await fs.code("shell::fs::write", path="a.txt", content={"channel_id": "c"}) == "S210"
    assert (root / "a.txt").read_text() == "hello"
    assert listing(root) == before


@pytest_twisted.ensureDeferred
async def test_a_caller_that_goes_away_leaves_nothing(fs: Caller, root: Path) -> None:
    before = listing(root)
    stalled: Deferred[None] = Deferred()

    async def receive(reference: Any, write: Any) -> int:
        await write(b"half")
        await stalled
        return 4

    fs.channels.receive = receive  # type: ignore[method-assign]
    function = SERVED["shell::fs::write"]
    request = function.parse({"path": "a.txt", "content": REFERENCE})
    call = Deferred.fromCoroutine(function.run(fs.capabilities, request))  # type: ignore[arg-type]
    await until(lambda: any(".tmp." in name for name in listing(root)))
    call.cancel()
    with pytest.raises(CancelledError):
        await soon(call)
    await until(lambda: listing(root) == before)
    assert (root / "a.txt").read_text() == "hello"


# -- read --------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_read(fs: Caller, root: Path) -> None:
    os.utime(root / "a.txt", (0, 1_600_000_000.9))
    (root / "a.txt").chmod(0o4711)
    result = await fs.call("shell::fs::read", path="link")
    assert (result["size"], result["mode"], result["mtime"]) == (5, "4711", 1_600_000_000)
    assert fs.channels.sent[result["content"]["channel_id"]] == b"hello"
    big = os.urandom(3_000_000)
    (root / "big").write_bytes(big)
    result = await fs.call("shell::fs::read", path="big")
    assert fs.channels.sent[result["content"]["channel_id"]] == big
    result = await fs.call("shell::fs::read", path="empty")
    assert (result["size"], fs.channels.sent[result["content"]["channel_id"]]) == (0, b"")


@pytest_twisted.ensureDeferred
async def test_read_of_what_says_it_is_empty(tmp_path: Path) -> None:
    with caller(None, tmp_path) as fs:
        result = await fs.call("shell::fs::read", path="/proc/self/status")
        assert result["size"] == 0
        assert b"Name:" in fs.channels.sent[result["content"]["channel_id"]]


@pytest_twisted.ensureDeferred
async def test_read_refusals(fs: Caller, root: Path) -> None:
    os.mkfifo(root / "fifo")
    assert await fs.code("shell::fs::read", path="dir") == "S212"
    assert await fs.code("shell::fs::read", path="fifo") == "S212"
    small = fs.with_settings(fs={"max_read_bytes": 4})
    assert await small.code("shell::fs::read", path="a.txt") == "S218"
    exact = fs.with_settings(fs={"max_read_bytes": 5})
    assert (await exact.call("shell::fs::read", path="a.txt"))["size"] == 5

    async def send(content: Any) -> Any:
        content.close()
        raise Coded("S216", "no channel could be made")

    fs.channels.send = send  # type: ignore[method-assign]
    assert await fs.code("shell::fs::read", path="a.txt") == "S216"
