"""The client library against the face."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from agentd.client import errors
from agentd.client.attach import AttachedMessage, DaemonStopping, ErrorMessage, ExitMessage, OutputMessage
from agentd.client.client import Client
from agentd.client.environment_messages import Chunk
from agentd.client.environments import Environment, command_body
from agentd.client.local import LocalFault
from tests.environments.conftest import Serve
from tests.environments.support import KEY, Home, Server
from tests.environments.wire import the_reactor


async def connected(
    server: Server, environment_id: str = "local", key: str = KEY
) -> tuple[Client, Environment]:
    """A client of the server."""
    client = Client(f"http://127.0.0.1:{server.number}", key, reactor=the_reactor())
    return client, client.environment(environment_id)


@pytest_twisted.ensureDeferred
async def test_commands(serving: Serve) -> None:
    client, place = await connected(await serving())
    result = await place.exec(["cat"], stdin="é", env={"A": "1"}, cwd="/", timeout=5)
    assert (result.stdout, result.exit_code, result.signal) == ("é", 0, None)
    result = await place.exec(command="echo err >&2; kill -9 $$")
    assert (result.stderr, result.exit_code, result.signal) == ("err\n", None, "KILL")
    result = await place.exec(["sleep", "30"], timeout=1)
    assert result.timed_out
    with pytest.raises(errors.SpawnFailed, match="could not start no-such-program"):
        await place.exec(["no-such-program"])
    with pytest.raises(errors.MalformedRequest, match="timeout_secs"):
        await place.exec(["true"], timeout=601)
    for argv, command in ((None, None), (["a"], "b")):
        with pytest.raises(ValueError, match="exactly one"):
            command_body(argv, command, None, None, None, None)
    await client.close()


@pytest_twisted.ensureDeferred
async def test_files(serving: Serve, home: Home, tmp_path: Path) -> None:
    client, place = await connected(await serving())
    content = os.urandom(3_000_000)
    stored = await place.write("a/b ü", content, mkdir=True)
    assert (stored.path, stored.size) == (f"{home.home}/a/b ü", len(content))
    assert await place.read_bytes("a/b ü") == content
    local = tmp_path / "local"
    assert await place.get("a/b ü", local) == len(content)
    assert local.read_bytes() == content
    seen: list[int] = []
    assert (await place.put(local, "copy", progress=seen.append)).size == len(content)
    assert seen[-1] == len(content)

    async def pieces() -> Any:
        for _ in range(3):
            yield b"abc"

    assert (await place.write("streamed", pieces())).size == 9
    listing = await place.list()
    assert [(entry.name, entry.type) for entry in listing.entries] == [
        ("a", "directory"),
        ("copy", "file"),
        ("streamed", "file"),
    ]
    with pytest.raises(errors.NotFound, match="no such file or directory"):
        await place.read("nothing")
    with pytest.raises(errors.NotFound):
        await place.write("no/such", b"")
    with pytest.raises(errors.MalformedRequest, match="directory"):
        await place.remove("a")
    with pytest.raises(LocalFault):
        await place.put(tmp_path / "nothing", "x")
    if os.geteuid() == 0:
        with pytest.raises(errors.Forbidden, match="permission denied"):
            await place.read("/etc/shadow")
    await place.remove("a", recursive=True)
    await place.remove("copy")
    assert [entry.name for entry in (await place.list(".")).entries] == ["streamed"]
    await client.close()


@pytest_twisted.ensureDeferred
async def test_processes(serving: Serve) -> None:
    server = await serving(processes=2)
    client, place = await connected(server)
    process = await place.spawn(command="printf 'a€'; printf b >&2; sleep 0.2; printf c; exit 3")
    chunks = [chunk async for chunk in process.follow()]
    assert chunks[0] == Chunk("stdout", 0, "a€")
    assert sorted(chunk.data for chunk in chunks) == ["a€", "b", "c"]
    ended = await process.wait()
    assert (ended.exit_code, ended.signal) == (3, None)
    info = await process.info()
    assert (info.running, info.output_end, info.exit) == (False, 6, ended)
    other = await place.spawn(["sleep", "100"])
    assert [each.pid for each in await place.processes()] == [process.pid, other.pid]
    with pytest.raises(errors.TooManyProcesses, match="2 background processes exist"):
        await place.spawn(["true"])
    await other.signal("TERM")
    assert (await other.wait()).signal == "TERM"
    await process.delete()
    for gone in (process.info, process.delete, process.output):
        with pytest.raises(errors.NotFound, match="no such resource"):
            await gone()
    page = await other.output(0, 1)
    assert (page.chunks, page.exited) == ([], True)
    await client.close()


@pytest_twisted.ensureDeferred
async def test_attaching(serving: Serve) -> None:
    server = await serving()
    client, place = await connected(server)
    process = await place.spawn(["sha256sum"], stdin=True)
    text = "zeile é\n" * 100_000
    async with await process.attach() as attached:
        assert isinstance(await anext(attached), AttachedMessage)
        await attached.write(text, eof=True)
        messages = [message async for message in attached]
    assert isinstance(messages[0], OutputMessage)
    assert messages[0].data == f"{hashlib.sha256(text.encode()).hexdigest()}  -\n"
    last = messages[-1]
    assert isinstance(last, ExitMessage)
    assert (last.exit.exit_code, last.next) == (0, 68)

    process = await place.spawn(["cat"], stdin=True)
    async with await process.attach() as attached:
        await attached.write("one")
        assert [type(await anext(attached)) for _ in range(2)] == [AttachedMessage, OutputMessage]
        attached._socket.say(b"{}")
        message = await anext(attached)
        assert isinstance(message, ErrorMessage)
        assert message.message == "message is empty"
    async with await process.attach(2) as attached:
        await attached.signal("INT")
        seen = [message async for message in attached]
        assert isinstance(seen[1], OutputMessage)
        assert (seen[1].offset, seen[1].data) == (2, "e")
        assert isinstance(seen[-1], ExitMessage)
        assert seen[-1].exit.signal == "INT"
    with pytest.raises(errors.NotFound):
        await place.process("none").attach()
    with pytest.raises(errors.CredentialFault):
        await (await connected(server, key="wrong"))[1].process(process.pid).attach()

    process = await place.spawn(["sleep", "100"])
    attached = await process.attach()
    await anext(attached)
    server.drain()
    with pytest.raises(DaemonStopping) as stopping:
        await anext(attached)
    assert stopping.value.next == 0
    attached.close()
    await client.close()


@pytest_twisted.ensureDeferred
async def test_a_connection_that_is_lost_is_no_end(serving: Serve) -> None:
    server = await serving()
    client, place = await connected(server)
    process = await place.spawn(["sleep", "100"])
    attached = await process.attach()
    await anext(attached)
    waiting = Deferred.fromCoroutine(anext(attached))
    for channel in list(server.site._connections):
        channel.transport.abortConnection()
    with pytest.raises(errors.TransportFault, match="lost"):
        await waiting
    with pytest.raises(errors.TransportFault):
        await attached.write("x")
    attached.close()
    await client.close()
