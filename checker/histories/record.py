"""Recording a history: several callers at once, on one daemon, about a few execs.

Each caller is a thread with a connection and a random generator of its own, so that a seed fixes what each asks for,
one thing after another (what the daemon makes of it is what is to be found out). All of them go through the execs at
about the same pace, so that they meet while there is something to do. Children read a line and end; that line is an
operation like any other. Now and then a caller asks and leaves before it knows the answer.
"""

import base64
import http.client
import json
import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import field, frozen

from checker.histories.history import History, Op, Operation, history
from checker.model import ModelError
from checker.replay.sockets import SocketSubject
from checker.replay.wire import NoAnswer

WEIGHTS: Final = {Op.START: 4, Op.START_UNSPAWNED: 1, Op.POLL: 8, Op.ACK: 4, Op.RELEASE: 3}
"""How often what is asked for."""
LEAVING: Final = 0.03
"""How often a caller leaves before the answer."""
AT_ONCE: Final = 3
"""Execs that a caller asks about at any time."""
COMMAND: Final = ("/bin/sh", "-c", "read -r line; exit 0")
NO_COMMAND: Final = ("/nonexistent/agentd-checker",)


@frozen
class Workload:
    """What is asked of a daemon."""

    url: str
    token: bytes = field(repr=False)
    clients: int = 4
    operations: int = 100
    """Of each client."""
    seed: int = 0
    execs: int = 40
    """Ids the operations are about: the fewer, the more there are of each."""
    deadline: float = 30.0
    """Seconds that an answer may take."""


def record(work: Workload) -> History:
    """Make the requests and write down what came of them. What was started is ended and acknowledged afterwards.

    Raises ModelError when the daemon cannot be talked to.
    """
    tidy = SocketSubject(work.url, work.token, work.deadline)
    ids = [f"history-{secrets.token_hex(6)}-{number}" for number in range(work.execs)]
    try:
        answer = tidy.ask("GET", f"/v1/exec/{ids[0]}", token=work.token)
    except NoAnswer as reason:
        raise ModelError(f"{work.url}: {reason}") from None
    if answer.status != 404:
        raise ModelError(f"{work.url}: an unknown exec is answered with {answer.status}: is this its token?")
    ttl = _kept_for(tidy)
    callers = [_Caller(work, number, ids) for number in range(work.clients)]
    threads = [threading.Thread(target=caller.run) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ids:
        tidy.adopt(name)
    tidy.close()
    # Ids are told by their places: two recordings of one seed ask the same.
    places = {name: f"exec-{number}" for number, name in enumerate(ids)}
    return history((_renamed(one, places) for caller in callers for one in caller.seen), ttl)


def _kept_for(daemon: SocketSubject) -> float | None:
    """For how long the daemon keeps what is acknowledged, if its schema says (contract h.2)."""
    try:
        limits = daemon.ask("GET", "/v1/schema").fields().get("limits")
    except NoAnswer:
        return None
    kept = limits.get("exec_ttl_secs") if isinstance(limits, dict) else None
    return float(kept) if isinstance(kept, int | float) else None


def _renamed(one: Operation, places: dict[str, str]) -> Operation:
    return Operation(
        one.client,
        places[one.exec],
        one.op,
        one.invoked,
        one.responded,
        one.status,
        one.error,
        one.phase,
        one.outcome,
    )


class _Caller:
    """One thread's caller."""

    def __init__(self, work: Workload, number: int, ids: list[str]) -> None:
        self._work = work
        self._number = number
        self._ids = ids
        self._random = random.Random(f"{work.seed}/{number}")
        self._connection: http.client.HTTPConnection | None = None
        self.seen: list[Operation] = []

    def run(self) -> None:
        """Ask for one thing after another."""
        ops, weights = zip(*WEIGHTS.items(), strict=True)
        further = max(0, len(self._ids) - AT_ONCE)
        for done in range(self._work.operations):
            op = self._random.choices(ops, weights)[0]
            begin = done * (further + 1) // self._work.operations
            name = self._random.choice(self._ids[begin : begin + AT_ONCE])
            self.seen.append(self._do(op, name, self._random.random() < LEAVING))
        self._close()

    def _do(self, op: Op, name: str, leaves: bool) -> Operation:
        method, target, value = REQUESTS[op](name)
        invoked = time.monotonic()
        try:
            response = self._send(method, target, value, leaves)
            if response is None:
                return Operation(self._number, name, op, invoked)
            body = response.read()
        except (OSError, http.client.HTTPException):
            self._close()
            return Operation(self._number, name, op, invoked)
        responded = time.monotonic()
        return answered(Operation(self._number, name, op, invoked), responded, response.status, body)

    def _send(self, method: str, target: str, value: object, leaves: bool) -> http.client.HTTPResponse | None:
        parts = urlsplit(self._work.url)
        if self._connection is None:
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(parts.hostname or "", parts.port, timeout=self._work.deadline)
        headers: dict[str, bytes | str] = {"Authorization": b"Bearer " + self._work.token}
        if value is not None:
            headers["Content-Type"] = "application/json"
        body = None if value is None else json.dumps(value).encode()
        self._connection.request(method, parts.path.rstrip("/") + target, body, headers)
        if leaves:
            self._close()
            return None
        return self._connection.getresponse()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


Asked = tuple[str, str, object]
"""Method, target, and the value that goes as JSON."""


def _start(name: str) -> Asked:
    return "POST", "/v1/exec/start", {"exec_id": name, "command": COMMAND, "stdin": True}


def _start_unspawned(name: str) -> Asked:
    return "POST", "/v1/exec/start", {"exec_id": name, "command": NO_COMMAND, "stdin": True}


def _release(name: str) -> Asked:
    return "POST", f"/v1/exec/{name}/stdin", {"data_b64": base64.b64encode(b"\n").decode()}


REQUESTS: Final[dict[Op, Callable[[str], Asked]]] = {
    Op.START: _start,
    Op.START_UNSPAWNED: _start_unspawned,
    Op.POLL: lambda name: ("GET", f"/v1/exec/{name}", None),
    Op.ACK: lambda name: ("POST", f"/v1/exec/{name}/ack", None),
    Op.RELEASE: _release,
}
"""How each operation is asked for (contract a.2 to a.6)."""


def answered(operation: Operation, responded: float, status: int, body: bytes) -> Operation:
    """An operation with its answer: of a body no more than what the specification speaks of."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        told = None
    fields: dict[str, Any] = told if isinstance(told, dict) else {}
    return Operation(
        operation.client,
        operation.exec,
        operation.op,
        operation.invoked,
        responded,
        status,
        fields.get("error"),
        fields.get("phase"),
        "exit_code" in fields,
    )
