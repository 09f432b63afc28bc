"""Callers of a real daemon: one on treq for ordinary requests, one on a bare socket for the rest."""

import base64
import json
import secrets
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.web.client import Agent, HTTPConnectionPool

from agentd.microvm.routes import HOOK_PREFIX
from tests.conftest import RunningDaemon

DEADLINE = 20.0
"""Seconds that anything may take before a test gives up on it."""
TWISTD = (str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "agentd")
"""What the interpreter runs to be ``twistd``; its options end with the plugin's name."""
VERSION_HEADER = "microvms-agentd-version"


@frozen
class Reply:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def json(self) -> Any:
        """The body, parsed."""
        assert self.headers["content-type"] == "application/json", self.headers
        return json.loads(self.body)

    @property
    def slug(self) -> str:
        """The error slug; "" for a body that has none. Checks the error shape of the exec family."""
        if self.status < 400 or self.headers.get("content-type") != "application/json":
            return ""
        begun = {"written"} if self.json.get("written") is not None else set()
        assert set(self.json) == {"error", "detail"} | begun
        assert self.json["detail"]
        slug: str = self.json["error"]
        return slug

    @property
    def key(self) -> tuple[int, str]:
        """What a client branches on."""
        return self.status, self.slug


class Api:
    """Requests to one daemon, each on a connection of its own, with its token unless told otherwise."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self.token = token
        self._client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))

    async def call(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
        token: str | bool = True,
        **shape: Any,
    ) -> Reply:
        """Send one request; `json=` for a body of a shape, `token=False` for none. Checks the version header."""
        fields = dict(headers or {})
        presented = self.token if token is True else token
        if presented:
            fields.setdefault("Authorization", f"Bearer {presented}")
        if "json" in shape:
            data = json.dumps(shape["json"]).encode()
            fields.setdefault("Content-Type", "application/json")
        response = await self._client.request(
            method, self.url + path, data=data, headers=fields, timeout=DEADLINE, unbuffered=True
        )
        body = await response.content()
        found = {
            name.decode().lower(): b", ".join(values).decode("latin-1")
            for name, values in response.headers.getAllRawHeaders()
        }
        assert VERSION_HEADER in found, (method, path, response.code)
        return Reply(response.code, found, body)

    async def get(self, path: str, **options: Any) -> Reply:
        """GET."""
        return await self.call("GET", path, **options)

    async def post(self, path: str, **options: Any) -> Reply:
        """POST."""
        return await self.call("POST", path, **options)

    async def hook(self, name: str, **options: Any) -> Reply:
        """Post a lifecycle hook, without a token."""
        return await self.post(f"{HOOK_PREFIX}/{name}", token=False, **options)

    async def run_hook(self, payload: Any) -> Reply:
        """Post the run hook with a payload, given as text or as an object."""
        text = payload if isinstance(payload, str) else json.dumps(payload)
        return await self.hook("run", json={"runHookPayload": text})

    async def health(self) -> Any:
        """The health document."""
        return (await self.get("/v1/health", token=False)).json

    async def start(self, command: str | list[str], exec_id: str | None = None, **fields: Any) -> str:
        """Start a command, a script if it is text; returns its id."""
        name = exec_id or new_id()
        if isinstance(command, str):
            fields.setdefault("shell", True)
            command = [command]
        reply = await self.post("/v1/exec/start", json={"exec_id": name, "command": command, **fields})
        assert reply.status == 200, reply.body
        return name

    async def poll(self, exec_id: str, **options: Any) -> Any:
        """One poll."""
        reply = await self.get(f"/v1/exec/{exec_id}", **options)
        assert reply.status == 200, reply.body
        return reply.json

    async def wait(self, exec_id: str, phase: str = "exited", seconds: float = DEADLINE) -> Any:
        """Poll until an exec is in `phase`; returns that poll."""
        limit = time.monotonic() + seconds
        while (found := await self.poll(exec_id))["phase"] != phase:
            assert time.monotonic() < limit, f"{exec_id} is still {found['phase']}"
            await pause()
        return found

    async def run(self, command: str | list[str], **fields: Any) -> Any:
        """Start a command and wait for its outcome."""
        return await self.wait(await self.start(command, **fields))

    async def stdin(self, exec_id: str, data: bytes | None = None, signal: str | None = None) -> Reply:
        """Write to an exec's stdin."""
        body: dict[str, Any] = {}
        if data is not None:
            body["data_b64"] = base64.b64encode(data).decode()
        if signal is not None:
            body["signal"] = signal
        return await self.post(f"/v1/exec/{exec_id}/stdin", json=body)

    async def first_output(self, exec_id: str) -> None:
        """Wait until an exec has written something."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.url}/v1/exec/{exec_id}/stream"

        def look() -> bytes:
            with urllib.request.urlopen(
                urllib.request.Request(url, headers=headers), timeout=DEADLINE
            ) as body:
                first: bytes = body.readline()
            return first

        assert await deferToThread(look) == b"event: output\n"

    async def stream(self, exec_id: str, offset: int | None = None, **options: Any) -> "list[Event]":
        """A whole stream, to its exit event."""
        query = "" if offset is None else f"?offset={offset}"
        reply = await self.get(f"/v1/exec/{exec_id}/stream{query}", **options)
        assert reply.status == 200, reply.body
        assert reply.headers["content-type"] == "text/event-stream"
        return events(reply.body)


def new_id() -> str:
    """An exec id nobody else has."""
    return f"x-{secrets.token_hex(6)}"


async def pause(seconds: float = 0.01) -> None:
    """Let the reactor turn between two looks."""
    await deferLater(reactor, seconds, lambda: None)


async def until(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Wait until `condition` gives something true, and return that."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "the condition was not met in time"
        await pause()
    return found


# -- server-sent events ------------------------------------------------------------------------------------


@frozen
class Event:
    """One event as it was framed."""

    name: str
    id: int | None
    data: Any


def events(body: bytes) -> list[Event]:
    """The events of a body; comments are dropped. Checks the framing byte by byte (contract d)."""
    assert b"\r" not in body
    assert body == b"" or body.endswith(b"\n\n"), body[-80:]
    found = []
    for block in body.split(b"\n\n")[:-1]:
        if block == b":":
            continue
        lines = block.split(b"\n")
        assert [line.split(b": ")[0] for line in lines] in ([b"event", b"id", b"data"], [b"event", b"data"])
        values = [line.split(b": ", 1)[1] for line in lines]
        data = json.loads(values[-1])
        assert json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode() == values[-1], (
            "not compact"
        )
        found.append(Event(values[0].decode(), int(values[1]) if len(values) == 3 else None, data))
    return found


def output(found: Iterable[Event], stream: str | None = None) -> bytes:
    """The bytes that output events carry, of one stream or of both."""
    return b"".join(
        base64.b64decode(event.data["output"], validate=True)
        for event in found
        if event.name == "output" and stream in (None, event.data["stream"])
    )


def check_tiling(found: list[Event], start: int = 0) -> None:
    """Output and gaps cover every offset from `start` to the exit event's, once and in order (contract d)."""
    at = start
    for event in found[:-1]:
        if event.name == "gap":
            assert event.data["from"] == at
            assert event.data["to"] > at
            at = event.data["to"]
        else:
            assert event.name == "output"
            size = len(base64.b64decode(event.data["output"], validate=True))
            assert event.data["offset"] == at
            assert 0 < size <= 16384
            at += size
        assert event.id == at
    last = found[-1]
    assert last.name == "exit"
    assert last.data["offset"] == last.data["bytes_total"] == last.id == at


# -- bare sockets --------------------------------------------------------------------------------------------


@define(eq=False)
class Raw:
    """A connection that sends and receives bytes."""

    socket: socket.socket

    def send(self, *pieces: bytes) -> "Raw":
        """Write; a peer that has closed is no fault of ours."""
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return self

    def until_closed(self) -> bytes:
        """Everything to the end of the connection."""
        received = b""
        while piece := self.socket.recv(65536):
            received += piece
        return received

    def until_closed_or(self, mark: bytes) -> bytes:
        """Everything to the end of the connection, or up to and with `mark` where a read ends with it."""
        received = b""
        while not received.endswith(mark) and (piece := self.socket.recv(65536)):
            received += piece
        return received

    def until(self, mark: bytes) -> bytes:
        """Everything up to and with `mark`."""
        received = b""
        while not received.endswith(mark):
            piece = self.socket.recv(1)
            assert piece, f"closed after {received!r}"
            received += piece
        return received

    def reply(self, head: bool = False) -> Reply:
        """The next answer; its connection may go on. `head`: it answers a HEAD."""
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version in ("HTTP/1.1", "HTTP/1.0")
        found = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines[1:-2])}
        if int(status) < 200 and int(status) != 101:
            return self.reply(head)
        assert VERSION_HEADER in found
        length = 0 if head else int(found.get("content-length", "0"))
        body = b""
        while len(body) < length:
            piece = self.socket.recv(length - len(body))
            assert piece, "closed inside a body"
            body += piece
        return Reply(int(status), found, body)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def connect(daemon: RunningDaemon) -> Raw:
    """A new connection to a daemon."""
    made = socket.create_connection((daemon.host, daemon.port), timeout=DEADLINE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Raw(made)


def request(
    method: str, path: str, *headers: str, token: str | None = None, body: bytes | None = None
) -> bytes:
    """A request's bytes. With a body, its length is declared."""
    lines = [f"{method} {path} HTTP/1.1", "Host: daemon", *headers]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def as_json(method: str, path: str, value: Any, *headers: str, token: str | None = None) -> bytes:
    """A request with a JSON body."""
    body = json.dumps(value).encode()
    return request(method, path, "Content-Type: application/json", *headers, token=token, body=body)
