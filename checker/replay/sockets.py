"""A daemon on a socket as a subject of replay: any that speaks protocol v1, wherever it is.

Its children are real. They wait for a line on their stdin, which the daemon itself passes on (contract a.5), so that a
run decides when they end and nothing here waits for a time; that the daemon has published an end is heard from its
stream.
"""

import base64
import http.client
import time
from contextlib import suppress
from typing import Final
from urllib.parse import quote, urlsplit

from attrs import define, field

from checker.model import ModelError
from checker.replay.wire import Answer, NoAnswer, as_json, bearer

DEADLINE_SECS: Final = 30.0
"""How long an answer may take, unless told otherwise."""


@define(eq=False)
class Client:
    """Whoever asks a daemon at a URL, over a connection that is kept."""

    url: str
    deadline: float = DEADLINE_SECS
    """Seconds that an answer may take."""
    _kept: http.client.HTTPConnection | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        """Refuse what is no URL, with ModelError."""
        parts = urlsplit(self.url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.query:
            raise ModelError(f"{self.url}: not the URL of a daemon; it begins with http://HOST:PORT")

    def connect(self) -> http.client.HTTPConnection:
        """Another connection."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=self.deadline)

    def send(
        self,
        method: str,
        target: str,
        authorization: bytes | None,
        value: object = None,
        over: http.client.HTTPConnection | None = None,
    ) -> http.client.HTTPConnection:
        """Send a request, whose answer is the next thing to come over the connection. Raises OSError, HTTPException."""
        body, extra = (None, ()) if value is None else as_json(value)
        headers: dict[str, bytes | str] = dict(extra)
        if authorization is not None:
            headers["Authorization"] = authorization
        if over is None:
            over = self._kept = self._kept or self.connect()
        over.request(method, urlsplit(self.url).path.rstrip("/") + target, body, headers)
        return over

    def ask(
        self, method: str, target: str, authorization: bytes | None = None, value: object = None
    ) -> Answer:
        """Make a request and return its answer. Raises NoAnswer."""
        try:
            response = self.send(method, target, authorization, value).getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as reason:
            self.close()
            raise NoAnswer(f"{method} {target}: {_reason(reason)}") from None
        if response.will_close:
            self.close()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, content)

    def leave(self, method: str, target: str, authorization: bytes | None, value: object = None) -> None:
        """Make a request, and do not stay for its answer."""
        with suppress(OSError, http.client.HTTPException):
            self.send(method, target, authorization, value)
        self.close()

    def close(self) -> None:
        """Drop the connection; the next request has another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


@define(eq=False)
class SocketSubject:
    """A daemon at a URL, and what was started there."""

    url: str
    token: bytes = field(repr=False)
    deadline: float = DEADLINE_SECS
    """Seconds that an answer may take."""
    in_memory: bool = field(init=False, default=False)
    _client: Client = field(init=False)
    _started: dict[str, bool] = field(init=False, factory=dict)
    """Exec to whether it has a pipe for its stdin."""

    def __attrs_post_init__(self) -> None:
        """Refuse what is no URL, with ModelError."""
        self._client = Client(self.url, self.deadline)

    def ask(
        self,
        method: str,
        target: str,
        *,
        token: bytes | None = None,
        authorization: bytes | None = None,
        value: object = None,
    ) -> Answer:
        """Make a request and return its answer."""
        answer = self._client.ask(method, target, authorization if token is None else bearer(token), value)
        if target == "/v1/exec/start" and answer.status == 200 and isinstance(value, dict):
            self._started.setdefault(str(value["exec_id"]), bool(value.get("stdin")))
        return answer

    def exit(self, exec_id: str, code: int = 0) -> None:
        """Tell the child to end with this status."""
        data = base64.b64encode(f"{code}\n".encode()).decode()
        target = f"/v1/exec/{quote(exec_id, safe='')}/stdin"
        answer = self.ask("POST", target, token=self.token, value={"data_b64": data})
        if answer.status != 200:
            raise NoAnswer(f"the child cannot be told to end: stdin answers {answer.status}")
        self._await_end(exec_id)

    def kill(self, exec_id: str) -> None:
        """Have the daemon end the child's group."""
        target = f"/v1/exec/{quote(exec_id, safe='')}/kill"
        answer = self.ask("POST", target, token=self.token)
        if answer.status != 200:
            raise NoAnswer(f"the child cannot be ended: kill answers {answer.status}")
        self._await_end(exec_id)

    def _await_end(self, exec_id: str) -> None:
        """Follow the stream to its end, which comes after the result is published (contract d)."""
        connection = self._client.connect()
        try:
            target = f"/v1/exec/{quote(exec_id, safe='')}/stream"
            self._client.send("GET", target, bearer(self.token), over=connection)
            response = connection.getresponse()
            over = time.monotonic() + self.deadline
            body = b""
            while piece := response.read1(65536):
                body = (body + piece)[-4096:]
                if time.monotonic() > over:
                    raise NoAnswer("the stream of an exec that has ended goes on")
        except (OSError, http.client.HTTPException) as reason:
            raise NoAnswer(f"the stream of an exec: {_reason(reason)}") from None
        finally:
            connection.close()
        if response.status != 200 or b"event: exit" not in body:
            raise NoAnswer("the stream of an exec that has ended has no exit event")

    def adopt(self, exec_id: str) -> None:
        """End this exec too when everything ends."""
        self._started.setdefault(exec_id, True)

    def close(self) -> list[str]:
        """End what runs and acknowledge it, so that the daemon can forget it."""
        for exec_id in self._started:
            with suppress(NoAnswer):
                if self._phase(exec_id) == "running":
                    self.kill(exec_id)
                if self._phase(exec_id) == "exited":
                    self.ask("POST", f"/v1/exec/{quote(exec_id, safe='')}/ack", token=self.token)
        self._started.clear()
        self._client.close()
        return []

    def _phase(self, exec_id: str) -> object:
        answer = self.ask("GET", f"/v1/exec/{quote(exec_id, safe='')}", token=self.token)
        return answer.fields().get("phase")


def _reason(reason: Exception) -> str:
    return str(reason) or type(reason).__name__
