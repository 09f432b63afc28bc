"""The published SDKs for Python and Node as clients: every function, both shapes of failures, channels, reloads.

They are also the reference for frames: what our worker sends has to look like what they send.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from tests.process.support import soon, until
from tests.worker.conftest import Working
from tests.worker.engine import TestEngine
from tests.worker.support import PUBLISHED, UNJAILED, valid

HERE = Path(__file__).parent
NODE = pytest.param("node", marks=[pytest.mark.program("node", "nodejs"), pytest.mark.program("npm", "npm")])
INSTALL_SECS = 300


@define(eq=False)
class Client:
    """An SDK in its process."""

    process: subprocess.Popen[str]

    async def ask(self, **request: Any) -> dict[str, Any]:
        # The client may need this process's reactor before it reads.
        line = await soon(deferToThread(self._exchange, json.dumps(request) + "\n"), 60)
        found: dict[str, Any] = json.loads(line)
        return found

    def _exchange(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self.process.stdout.readline()

    async def call(self, id: str, payload: Any) -> Any:
        """A valid result."""
        said = await self.ask(op="call", id=id, payload=payload)
        assert "result" in said, (id, payload, said)
        return valid(id, said["result"]) if id in PUBLISHED else said["result"]

    async def fails(self, id: str, payload: Any) -> tuple[str, str]:
        said = await self.ask(op="call", id=id, payload=payload)
        assert "error" in said, (id, payload, said)
        return said["error"]["code"], said["error"]["message"]

    async def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = await soon(deferToThread(self.process.wait, 30))
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert status == 0


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Installs the Node SDK when it is first asked for: a directory with it and the client's program."""
    place = tmp_path_factory.mktemp("node")

    def installed() -> Path:
        if not (place / "node_modules").exists():
            subprocess.run(
                ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "iii-sdk"],
                cwd=place,
                check=True,
                timeout=INSTALL_SECS,
                capture_output=True,
            )
            shutil.copy(HERE / "sdk_client.mjs", place)
        return place

    return installed


Joining = Callable[[], Awaitable[Client]]


@pytest.fixture(params=["python", NODE])
def joining(
    request: pytest.FixtureRequest, engine: TestEngine, tmp_path: Path, node_modules: Callable[[], Path]
) -> Iterator[Joining]:
    """`await joining()`: a client at the engine."""
    clients: list[Client] = []
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("III_")},
        "HOME": str(tmp_path),
        "OTEL_ENABLED": "false",
    }

    async def join() -> Client:
        if request.param == "python":
            command, cwd = [sys.executable, str(HERE / "sdk_client.py"), engine.url], tmp_path
        else:
            cwd = await soon(deferToThread(node_modules), INSTALL_SECS)
            command = ["node", "sdk_client.mjs", engine.url]
        process = subprocess.Popen(
            command, cwd=cwd, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        clients.append(Client(process))
        return clients[-1]

    yield join

    async def leave() -> None:
        for client in clients:
            try:
                await client.leave()
            finally:
                if client.process.poll() is None:
                    client.process.kill()
                    client.process.wait()

    pytest_twisted.blockon(Deferred.fromCoroutine(leave()))


def jailed(root: Path) -> dict[str, Any]:
    return {"fs": {"host_roots": [str(root)]}, "env": {"inherit": True}}


@pytest_twisted.ensureDeferred
async def test_every_function_keeps_its_promise(working: Working, joining: Joining, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    await working(jailed(root))
    client = await joining()
    called: set[str] = set()

    async def call(id: str, payload: Any = None) -> Any:
        called.add(id)
        return await client.call(id, {} if payload is None else payload)

    # Commands.
    assert (await call("shell::exec", {"command": "echo", "args": ["hi"]}))["stdout"] == "hi\n"
    job = (await call("shell::exec_bg", {"command": "sleep 50"}))["job_id"]
    assert (await call("shell::status", {"job_id": job}))["job"]["status"] == "running"
    assert (await call("shell::list"))["count"] == 1
    assert (await call("shell::kill", {"job_id": job}))["killed"]
    assert (await call("shell::config-status"))["last_outcome"] == "applied"
    assert (await call("shell::on-config-change")) == {"ok": True}
    # Files.
    assert (await call("shell::fs::mkdir", {"path": "a/b", "parents": True}))["created"]
    assert (await call("shell::fs::write", {"path": "a/x.txt", "content": "one\ntwo\n"}))[
        "bytes_written"
    ] == 8
    assert [entry["name"] for entry in (await call("shell::fs::ls", {"path": "a/b"}))["entries"]] == []
    assert (await call("shell::fs::stat", {"path": "a/x.txt"}))["size"] == 8
    assert (await call("shell::fs::chmod", {"path": "a/x.txt", "mode": "0600"}))["entries_changed"] == 1
    found = await call("shell::fs::grep", {"path": "a", "pattern": "^t"})
    assert [match["line"] for match in found["matches"]] == [2]
    edited = await call(
        "shell::fs::sed", {"path": "a/x.txt", "pattern": "one", "replacement": "1", "recursive": False}
    )
    assert edited["total_replacements"] == 1
    assert (await call("shell::fs::mv", {"src": "a/x.txt", "dst": "a/y.txt"}))["moved"]
    read = await client.ask(op="read", payload={"path": "a/y.txt"})
    called.add("shell::fs::read")
    valid("shell::fs::read", read["result"])
    assert base64.b64decode(read["data"]) == b"1\ntwo\n"
    assert (await call("shell::fs::rm", {"path": "a/b"}))["removed"]
    # Where to work.
    assert str(root) in (await call("shell::workspace::roots"))["roots"]
    await call("shell::workspace::validate", {"path": str(root)})
    assert [
        each["name"] for each in (await call("shell::workspace::list", {"path": str(root)}))["entries"]
    ] == ["a"]
    # Code.
    await call("coder::info")
    created = await call("coder::create-file", {"files": [{"path": "src/m.py", "content": "x = 1\n"}]})
    assert created["results"][0]["success"]
    assert (await call("coder::read-file", {"path": "src/m.py"}))["content"] == "x = 1\n"
    assert (await call("coder::search", {"query": "x ="}))["content_matches"]
    await call("coder::list-folder", {"path": "src"})
    await call("coder::tree", {"path": "."})
    updated = await call(
        "coder::update-file",
        {"files": [{"path": "src/m.py", "ops": [{"op": "insert", "at_line": 1, "content": "y = 2"}]}]},
    )
    assert updated["results"][0]["success"]
    moved = await call("coder::move", {"files": [{"from": "src/m.py", "to": "src/n.py"}]})
    assert moved["results"][0]["success"]
    assert (root / "src/n.py").read_text() == "y = 2\nx = 1\n"
    removed = await call("coder::delete-file", {"paths": ["src/n.py"]})
    assert removed["results"][0]["success"]
    assert called == set(PUBLISHED)


@pytest_twisted.ensureDeferred
async def test_failures_reach_the_sdk_in_both_shapes(
    working: Working, joining: Joining, tmp_path: Path
) -> None:
    await working(jailed(tmp_path))
    client = await joining()
    assert await client.fails("shell::status", {"job_id": "x"}) == ("S211", "no such job: x")
    code, text = await client.fails("shell::fs::stat", {"path": "/etc/hosts"})
    assert code == "S215"
    code, text = await client.fails("shell::exec", {"command": ["ls"]})
    assert code == "invocation_failed"
    assert "'command' must be a string" in text
    code, text = await client.fails("coder::list-folder", {"path": "absent"})
    assert code == "invocation_failed"
    assert json.loads(text.removeprefix("handler error: "))["code"] == "C211"
    code, _ = await client.fails("shell::nothing", {})
    assert code == "function_not_found"


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
@pytest_twisted.ensureDeferred
async def test_content_goes_both_ways(working: Working, joining: Joining, tmp_path: Path, size: int) -> None:
    await working(jailed(tmp_path))
    client = await joining()
    data = os.urandom(size)
    if size:
        said = await client.ask(
            op="write", payload={"path": "streamed", "mode": "0640"}, data=base64.b64encode(data).decode()
        )
        assert valid("shell::fs::write", said["result"])["bytes_written"] == size
        assert (tmp_path / "streamed").read_bytes() == data
    else:
        (tmp_path / "streamed").write_bytes(b"")
    read = await client.ask(op="read", payload={"path": "streamed"})
    assert read["result"]["size"] == size
    assert base64.b64decode(read["data"]) == data


@pytest_twisted.ensureDeferred
async def test_a_configuration_set_by_the_sdk_is_in_force(
    working: Working, joining: Joining, tmp_path: Path
) -> None:
    await working()
    client = await joining()
    value = {**UNJAILED, "denylist_patterns": ["^forbidden"]}
    await client.call("configuration::set", {"id": "shell", "value": value})
    while "denylist" not in (await client.fails("shell::exec", {"command": "forbidden"}))[1]:
        pass
    code, _ = await client.fails("configuration::set", {"id": "shell", "value": {"env": {"alow": []}}})
    assert code == "SCHEMA_INVALID"


@pytest_twisted.ensureDeferred
async def test_a_sandbox_worker_on_the_sdk(working: Working, joining: Joining, engine: TestEngine) -> None:
    worker = await working()
    client = await joining()
    await client.ask(op="serve", id="sandbox::exec")
    await until(lambda: "sandbox::exec" in engine.functions, "the registration")
    target = {"kind": "sandbox", "sandbox_id": "7f2c0c2e-1111-4222-8333-444455556666"}
    result = await worker.call("shell::exec", {"command": "make", "args": ["all"], "target": target})
    seen = json.loads(result["stdout"])
    assert (seen["cmd"], seen["args"], seen["sandbox_id"]) == ("make", ["all"], target["sandbox_id"])


@pytest_twisted.ensureDeferred
async def test_our_frames_look_like_those_of_the_sdk(
    working: Working, joining: Joining, engine: TestEngine
) -> None:
    """Same types, and no member that the SDK does not send."""

    async def frames(act: Callable[[], Awaitable[Any]]) -> dict[str, dict[str, Any]]:
        before = len(engine.frames)
        await act()
        return {_kind(frame): frame for frame in engine.frames[before:]}

    async def ours() -> None:
        worker = await working()
        await worker.call("shell::list")

    client = await joining()

    async def theirs() -> None:
        await client.ask(op="serve", id="theirs::function", trigger=True)
        await until(lambda: "theirs::function" in engine.functions, "the registration")
        await until(lambda: engine.triggers, "the trigger")
        await soon(engine.call("theirs::function", {}))
        await client.ask(op="call", id="engine::functions::list", payload={})
        await until(lambda: any(_kind(f) == "announce" for f in engine.frames), "the announcement")

    expected = await frames(theirs)
    for kind, frame in (await frames(ours)).items():
        assert set(frame) <= set(expected[kind]), kind
        if kind == "announce":
            assert set(frame["data"]) - {"description"} <= set(expected[kind]["data"]) | {"namespace"}


def _kind(frame: dict[str, Any]) -> str:
    if frame.get("function_id") == "engine::workers::register":
        return "announce"
    return str(frame["type"])
