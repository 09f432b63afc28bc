"""From power-on to power-off, and everything that the daemon does in between, from outside."""

from pathlib import Path

import pytest_twisted
from twisted.internet import reactor

from agentd.vm import platform
from tests.vm.conftest import Clone, Start
from tests.vm.support import Guest, read, status_of

SERVER = """
import socketserver

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())

with socketserver.TCPServer(("127.0.0.1", 7000), Handler) as server:
    print("listening", flush=True)
    server.serve_forever()
"""


@pytest_twisted.ensureDeferred
async def test_a_machine_boots_is_launched_and_powers_off(start: Start) -> None:
    """The image under a booting kernel, agentd as process 1."""
    machine = await start()
    health = await platform.prepare(reactor, machine)
    assert not health.bootstrapped
    assert await status_of(machine, "any") == 503
    guest = Guest(machine)
    await guest.launch(env={"PLACE": "the guest"})
    assert await guest.sh("echo $PLACE; cat /proc/1/comm") == "the guest\npython3\n"
    found = await guest.health()
    assert [hook["hook"] for hook in found["hooks"]] == ["ready", "validate", "run"]
    assert (found["restarts"], found["identity_degraded"]) == (0, False)
    await guest.client.close()
    end = await guest.end()
    assert end.in_order, machine.console
    assert "hook terminate was posted" in machine.console


@pytest_twisted.ensureDeferred
async def test_commands_and_their_output(clone: Clone) -> None:
    """Outcomes, signals, users, timeouts and a stream, as they arrive."""
    guest = await clone()
    outcome = await guest.client.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (3, "out\n", "err\n")
    assert (await guest.client.run(["sh", "-c", "kill -KILL $$"])).signal == 9
    assert await guest.sh("id -un; pwd; echo $HOME", user="agent", cwd="/home/agent") == (
        "agent\n/home/agent\n/home/agent\n"
    )
    late = await guest.client.run(["sleep", "60"], timeout=1)
    assert (late.timed_out, late.cause) == (True, "timeout")
    handle = await guest.client.start(["cat"], stdin=True)
    await handle.write(b"over there ")
    await handle.write(b"and back", eof=True)
    data, offset, end = await read(handle)
    assert (data, offset) == (b"over there and back", 19)
    assert end is not None
    assert end.exit_code == 0


@pytest_twisted.ensureDeferred
async def test_files_and_trees(clone: Clone, tmp_path: Path) -> None:
    """A file both ways, a window of lines, a tree both ways."""
    guest = await clone()
    content = bytes(range(256)) * 2000
    await guest.client.files.write("/home/agent/data", content)
    assert await guest.client.files.read_bytes("/home/agent/data") == content
    await guest.client.files.write("/tmp/lines", b"".join(b"%d\n" % number for number in range(1, 101)))
    async with await guest.client.files.lines("/tmp/lines", 9, 11) as window:
        assert b"".join([data async for data in window]) == b"9\n10\n11\n"
    (tmp_path / "there/deep/er").mkdir(parents=True)
    (tmp_path / "there/one").write_bytes(content)
    (tmp_path / "there/deep/er/two").write_text("two")
    await guest.client.tar.push(tmp_path / "there", "/tmp/tree")
    assert await guest.sh("cd /tmp/tree && find . -type f | sort") == "./deep/er/two\n./one\n"
    await guest.client.tar.pull("/tmp/tree", tmp_path / "back")
    assert (tmp_path / "back/one").read_bytes() == content
    assert (tmp_path / "back/deep/er/two").read_text() == "two"


@pytest_twisted.ensureDeferred
async def test_a_tunnel_to_a_server_inside(clone: Clone) -> None:
    """Bytes through the tunnel to loopback inside, and back."""
    guest = await clone()
    await guest.client.files.write("/tmp/server.py", SERVER.encode())
    handle = await guest.client.start(["python3", "/tmp/server.py"])
    assert (await read(handle, enough=10))[0] == b"listening\n"
    tunnel = await guest.client.tunnel.open(7000)
    await tunnel.send(b"are you there\n")
    assert await tunnel.receive() == b"ARE YOU THERE\n"
    await tunnel.close()
    await handle.kill()


@pytest_twisted.ensureDeferred
async def test_the_environments_face(clone: Clone) -> None:
    """The other API, as the image's agent user."""
    guest = await clone()
    environment = guest.client.environment()
    result = await environment.exec(command="id -un; echo $HOME")
    assert (result.exit_code, result.stdout) == (0, "agent\n/home/agent\n")
    await environment.write("notes", b"kept")
    assert await guest.sh("cat /home/agent/notes; stat -c %U /home/agent/notes") == "keptagent\n"
