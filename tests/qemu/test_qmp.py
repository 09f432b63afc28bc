"""The machine protocol against a scripted machine on a UNIX socket."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import error, reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from twisted.protocols.basic import LineReceiver

from agentd.vm import qmp
from agentd.vm.qmp import MachineRefused

GREETING = {"QMP": {"version": {}, "capabilities": []}}


class Scripted(LineReceiver):
    """Answers each command with what the script has for it, a list of messages; hangs up at None."""

    delimiter = b"\n"

    def __init__(self, script: dict[str, list[Any]], asked: list[dict[str, Any]]) -> None:
        self._script = script
        self._asked = asked

    def connectionMade(self) -> None:
        self._send(GREETING)

    def _send(self, message: Any) -> None:
        if message is None:
            self.transport.loseConnection()  # type: ignore[union-attr,misc]  # connected
        else:
            self.transport.write(json.dumps(message).encode() + b"\r\n")  # type: ignore[union-attr,call-arg]

    def lineReceived(self, line: bytes) -> None:
        request = json.loads(line)
        self._asked.append(request)
        for message in self._script.get(request["execute"], [{"return": {}}]):
            self._send(message)


Serve = Any


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """`path, asked = serve(script)`."""
    ports = []

    def listen(script: dict[str, list[Any]]) -> tuple[Path, list[dict[str, Any]]]:
        asked: list[dict[str, Any]] = []
        factory = Factory.forProtocol(lambda: Scripted(script, asked))
        ports.append(reactor.listenUNIX(str(tmp_path / "qmp"), factory))  # type: ignore[attr-defined]
        return tmp_path / "qmp", asked

    yield listen
    for port in ports:
        pytest_twisted.blockon(port.stopListening())


async def closed(monitor: qmp.Monitor) -> None:
    monitor.close()
    await monitor.lost


@pytest_twisted.ensureDeferred
async def test_commands_are_answered_in_order_with_events_between(serve: Serve) -> None:
    event = {"event": "STOP", "data": {}, "timestamp": {}}
    path, asked = serve({"stop": [event, {"return": {}}], "query-status": [{"return": {"status": "paused"}}]})
    monitor = await qmp.connect(reactor, path)
    heard: list[Any] = []
    monitor.on_event = heard.append
    first, second = monitor.execute("stop"), monitor.execute("query-status")
    assert (await first, await second) == ({}, {"status": "paused"})
    assert heard == monitor.events == [event]
    await monitor.execute("migrate", max_bandwidth=1)
    assert asked[-1] == {"execute": "migrate", "arguments": {"max-bandwidth": 1}}
    assert asked[0] == {"execute": "qmp_capabilities"}
    await closed(monitor)


@pytest_twisted.ensureDeferred
async def test_an_error_is_the_machines_own_words(serve: Serve) -> None:
    path, _ = serve({"cont": [{"error": {"class": "GenericError", "desc": "not now"}}]})
    monitor = await qmp.connect(reactor, path)
    with pytest.raises(MachineRefused, match="not now"):
        await monitor.execute("cont")
    await closed(monitor)


@pytest_twisted.ensureDeferred
async def test_a_machine_that_goes_fails_what_was_asked_and_what_is_asked_later(serve: Serve) -> None:
    event = {"event": "SHUTDOWN", "data": {"guest": True, "reason": "guest-shutdown"}, "timestamp": {}}
    path, _ = serve({"stop": [event, None]})
    monitor = await qmp.connect(reactor, path)
    assert monitor.shutdown is None
    waiting: list[Deferred[Any]] = [monitor.execute("stop"), monitor.execute("cont")]
    for each in waiting:
        with pytest.raises((error.ConnectionDone, error.ConnectionLost)):
            await each
    assert monitor.shutdown == "guest-shutdown"
    with pytest.raises(error.ConnectionDone):
        await monitor.execute("cont")


@pytest_twisted.ensureDeferred
async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(error.ConnectError):
        await qmp.connect(reactor, tmp_path / "qmp")
