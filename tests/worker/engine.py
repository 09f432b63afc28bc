"""A small iii engine: routes calls between connections, keeps configurations, carries channels (reference (a)).

What an unmodified SDK and our worker need of an engine, and nothing else. Everything that a worker sends is kept in
`frames`, so that a test can look at it.
"""

import json
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import jsonschema
from attrs import define, field
from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.types import ConnectionDeny
from twisted.internet.defer import Deferred, maybeDeferred

from agentd.tunnel.valve import Valve
from tests.process.support import reactor


class Failed(Exception):
    """A call was answered with an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@define(eq=False)
class Channel:
    """A byte stream: what its writer has sent, and its reader has not got yet."""

    key: str
    buffer: int
    writer: "Socket | None" = None
    reader: "Socket | None" = None
    held: deque[tuple[bytes, bool]] = field(factory=deque)
    ended: bool = False
    slow: bool = False

    def sent(self, payload: bytes, binary: bool) -> None:
        self.held.append((payload, binary))
        self.move()

    def move(self) -> None:
        """Hand on what can be; hold the writer back when too much waits."""
        while self.held and self.reader is not None and not self.slow:
            self.reader.sendMessage(*self.held.popleft())
        if self.writer is not None and self.writer.transport is not None:
            if len(self.held) >= self.buffer:
                self.writer.transport.pauseProducing()
            else:
                self.writer.transport.resumeProducing()
        if self.ended and not self.held and self.reader is not None:
            self.reader.sendClose(1000)

    def behind(self) -> None:
        self.slow = True

    def caught_up(self) -> None:
        self.slow = False
        self.move()


class Socket(WebSocketServerProtocol):
    """One connection: a worker's, or one end of a channel."""

    engine: "TestEngine"

    def __init__(self) -> None:
        super().__init__()
        self.id = str(uuid4())
        self.token = str(uuid4())
        self.name: str | None = None
        self.headers: dict[str, str] = {}
        self.query: dict[str, list[str]] = {}
        self.channel: Channel | None = None
        self.side = ""
        self.taken = False

    def onConnect(self, request: Any) -> None:
        self.headers = dict(request.headers)
        parts = urlsplit(request.path)
        self.query = {**request.params} or parse_qs(parts.query)
        if self.engine.refuse_upgrade:
            raise ConnectionDeny(503)
        if parts.path.startswith("/ws/channels/"):
            found = self.engine.channels.get(parts.path.rpartition("/")[2])
            if found is None or self.query.get("key") != [found.key]:
                raise ConnectionDeny(404)
            self.channel, self.side = found, self.query["dir"][0]
            self.taken = getattr(found, "reader" if self.side == "read" else "writer") is not None

    def onOpen(self) -> None:
        self.engine.sockets.append(self)
        self.transport.setTcpNoDelay(True)
        if self.channel is None:
            self.engine.joined(self)
        elif self.taken:
            self.sendClose(1000)
        elif self.side == "read":
            self.transport.registerProducer(Valve(self.channel.behind, self.channel.caught_up), True)
            self.channel.reader = self
            self.channel.move()
        else:
            self.channel.writer = self

    def say(self, frame: dict[str, Any]) -> None:
        self.sendMessage(json.dumps(frame).encode())

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.channel is not None:
            if self.side == "write" and not self.taken:
                self.channel.sent(payload, isBinary)
            return
        self.engine.received(self, json.loads(payload))

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        if self in self.engine.sockets:
            self.engine.sockets.remove(self)
        if self.channel is None:
            self.engine.left(self)
        elif not self.taken and self.side == "write":
            self.channel.ended = True
            self.channel.writer = None
            self.channel.move()


@define(eq=False)
class Pending:
    """A call that was handed to a worker."""

    answer: Callable[[dict[str, Any]], None]
    server: Socket


@define(eq=False)
class TestEngine:
    """The engine. `start` it, `stop` it; it can be started again on the same port."""

    __test__ = False

    sockets: list[Socket] = field(factory=list)
    workers: list[Socket] = field(factory=list)
    functions: dict[str, tuple[Socket, dict[str, Any]]] = field(factory=dict)
    triggers: dict[str, tuple[Socket, dict[str, Any]]] = field(factory=dict)
    provided: dict[str, Callable[[Any], Any]] = field(factory=dict)
    pending: dict[str, Pending] = field(factory=dict)
    frames: list[dict[str, Any]] = field(factory=list)
    channels: dict[str, Channel] = field(factory=dict)
    values: dict[str, Any] = field(factory=dict)
    schemas: dict[str, Any] = field(factory=dict)
    names: dict[str, Socket] = field(factory=dict)
    owned: set[str] = field(factory=set)
    """Functions that belong to somebody else."""
    refuse_upgrade: bool = False
    silent: bool = False
    """Answer nothing any more, pings least of all."""
    number: int = 0
    connections: int = 0
    port: Any = None

    # -- life --------------------------------------------------------------------------------------------

    def start(self) -> None:
        factory = WebSocketServerFactory(reactor=reactor)
        factory.noisy = False
        engine = self

        def protocol() -> Socket:
            socket = Socket()
            socket.engine = engine
            return socket

        factory.protocol = protocol  # type: ignore[assignment]
        factory.setProtocolOptions(
            openHandshakeTimeout=0, closeHandshakeTimeout=0, autoPingInterval=0, failByDrop=False
        )
        self.port = reactor.listenTCP(self.number, factory, interface="127.0.0.1")
        self.number = self.port.getHost().port

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.number}"

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self.port is not None:
            port, self.port = self.port, None
            await maybeDeferred(port.stopListening)
        self.drop()

    def drop(self) -> None:
        """Lose every connection."""
        for socket in list(self.sockets):
            socket.transport.abortConnection()

    def close(self, code: int = 1000) -> None:
        """Close every worker's connection in good order."""
        for socket in list(self.workers):
            socket.sendCloseFrame(code=code)

    # -- connections -------------------------------------------------------------------------------------

    def joined(self, socket: Socket) -> None:
        self.connections += 1
        self.workers.append(socket)
        socket.say({"type": "workerregistered", "worker_id": socket.id, "reattach_token": socket.token})

    def left(self, socket: Socket) -> None:
        if socket in self.workers:
            self.workers.remove(socket)
        self.forget(socket)
        for number, pending in list(self.pending.items()):
            if pending.server is socket:
                del self.pending[number]
                pending.answer({"error": {"code": "invocation_stopped", "message": "the worker has gone"}})

    def forget(self, socket: Socket) -> None:
        """A connection's registrations are over."""
        self.functions = {id: entry for id, entry in self.functions.items() if entry[0] is not socket}
        self.triggers = {id: entry for id, entry in self.triggers.items() if entry[0] is not socket}
        self.names = {name: owner for name, owner in self.names.items() if owner is not socket}

    def received(self, socket: Socket, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        if self.silent:
            return
        kind = frame["type"]
        if kind == "registerfunction":
            if frame["id"] in self.owned:
                socket.say(
                    {
                        "type": "registrationrejected",
                        "code": "FUNCTION_NAMESPACE_CONFLICT",
                        "namespace": "default",
                        "function_id": frame["id"],
                        "owner_worker_id": "somebody",
                    }
                )
            else:
                self.functions[frame["id"]] = (socket, frame)
        elif kind == "registertrigger":
            self.triggers[frame["id"]] = (socket, frame)
        elif kind == "invokefunction":
            self.invoked(socket, frame)
        elif kind == "invocationresult":
            pending = self.pending.pop(frame["invocation_id"], None)
            assert pending is not None, f"answered twice, or never asked: {frame}"
            assert ("result" in frame) != ("error" in frame), frame
            pending.answer(frame)
        elif kind == "reattach":
            for other in list(self.workers):
                if (
                    other is not socket
                    and other.id == frame["previous_worker_id"]
                    and other.token == frame.get("reattach_token")
                ):
                    self.forget(other)
        elif kind == "ping":
            socket.say({"type": "pong"})

    # -- calls -------------------------------------------------------------------------------------------

    def invoked(self, socket: Socket, frame: dict[str, Any]) -> None:
        number = frame.get("invocation_id")

        def answer(body: dict[str, Any]) -> None:
            if number is not None and socket in self.workers:
                said = {key: body[key] for key in ("result", "error") if key in body}
                socket.say(
                    {
                        "type": "invocationresult",
                        "invocation_id": number,
                        "function_id": frame["function_id"],
                        **said,
                    }
                )

        if frame["function_id"] == "engine::workers::register":
            self.announced(socket, frame["data"])
            answer({"result": {}})
            return
        self.route(frame["function_id"], frame.get("data"), socket.id, answer)

    def route(
        self, id: str, data: Any, caller: str, answer: Callable[[dict[str, Any]], None], void: bool = False
    ) -> None:
        own = self.provided.get(id) or getattr(self, "_" + id.replace("::", "_").replace("-", "_"), None)
        if own is not None:
            maybeDeferred(own, data).addCallbacks(
                lambda result: answer({"result": result}),
                lambda failure: answer({"error": _error(failure.value)}),
            )
            return
        entry = self.functions.get(id)
        if entry is None:
            answer({"error": {"code": "function_not_found", "message": f"Function '{id}' not found"}})
            return
        if isinstance(data, dict):
            data = {**data, "_caller_worker_id": caller}
        number = None if void else str(uuid4())
        if number is not None:
            self.pending[number] = Pending(answer, entry[0])
        entry[0].say(
            {
                "type": "invokefunction",
                "invocation_id": number,
                "function_id": id,
                "data": data,
                "traceparent": None,
                "baggage": None,
            }
        )

    def call(self, id: str, data: Any = None) -> "Deferred[Any]":
        """Call a function as somebody outside would; fails with `Failed`."""
        done: Deferred[Any] = Deferred()

        def answer(body: dict[str, Any]) -> None:
            if "error" in body:
                done.errback(Failed(body["error"]["code"], body["error"]["message"]))
            else:
                done.callback(body["result"])

        self.route(id, {} if data is None else data, "outside", answer)
        return done.addTimeout(30, reactor)

    def announced(self, socket: Socket, data: dict[str, Any]) -> None:
        owner = self.names.get(data["name"])
        if owner is not None and owner is not socket:
            socket.say(
                {
                    "type": "registrationrejected",
                    "code": "WORKER_NAMESPACE_CONFLICT",
                    "namespace": data.get("namespace", "default"),
                    "worker_name": data["name"],
                    "owner_worker_id": owner.id,
                }
            )
            socket.sendClose(1000)
            return
        socket.name = data["name"]
        self.names[data["name"]] = socket

    # -- functions of the engine's own -------------------------------------------------------------------

    def _engine_functions_list(self, data: dict[str, Any]) -> Any:
        return {"functions": [{"function_id": id} for id in self.functions]}

    def _engine_channels_create(self, data: dict[str, Any]) -> Any:
        id, key = str(uuid4()), f"{uuid4()}/+="
        self.channels[id] = Channel(key, min(1024, data.get("buffer_size") or 64))
        reference = {"channel_id": id, "access_key": key}
        return {
            "writer": {**reference, "direction": "write"},
            "reader": {**reference, "direction": "read"},
        }

    def _configuration_register(self, data: dict[str, Any]) -> Any:
        id = data["id"]
        known = id in self.values
        before = self.values.get(id)
        self.schemas[id] = data["schema"]
        if "initial_value" in data:
            _check(data["initial_value"], data["schema"])
            self.values[id] = data["initial_value"]
        else:
            self.values.setdefault(id, None)
        if known:
            self.notify(id, before)
        return {**data, "value": self.values[id]}

    def _configuration_get(self, data: dict[str, Any]) -> Any:
        id = data["id"]
        if id not in self.values:
            raise Failed("NOT_FOUND", f"configuration '{id}' not found")
        if not data.get("raw"):
            if id not in self.schemas:
                raise Failed("SCHEMA_UNAVAILABLE", "no schema is registered")
            _check(self.values[id], self.schemas[id])
        return {"id": id, "value": self.values[id]}

    def _configuration_set(self, data: dict[str, Any]) -> Any:
        id = data["id"]
        if id not in self.values:
            raise Failed("NOT_REGISTERED", id)
        _check(data["value"], self.schemas[id])
        before, self.values[id] = self.values[id], data["value"]
        self.notify(id, before)
        return {"old_value": before, "new_value": data["value"]}

    def edit(self, id: str, value: Any) -> None:
        """What editing the stored file does: no validation, the same event."""
        before, self.values[id] = self.values.get(id), value
        self.notify(id, before)

    def notify(self, id: str, before: Any) -> None:
        """Invoke whoever has a trigger for it."""
        for _, frame in list(self.triggers.values()):
            wanted = frame["config"]
            if frame["trigger_type"] != "configuration" or wanted.get("configuration_id") != id:
                continue
            event = {
                "type": "configuration",
                "event_type": "configuration:updated",
                "id": id,
                "name": id,
                "description": "",
                "schema": self.schemas.get(id),
                "old_value": before,
                "new_value": self.values[id],
            }
            self.route(frame["function_id"], event, "engine", lambda body: None)


def _check(value: Any, schema: Any) -> None:
    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError as reason:
        raise Failed("SCHEMA_INVALID", reason.message) from None


def _error(reason: Exception) -> dict[str, str]:
    if isinstance(reason, Failed):
        return {"code": reason.code, "message": reason.message}
    return {"code": "invocation_failed", "message": f"handler error: {reason!r}"}
