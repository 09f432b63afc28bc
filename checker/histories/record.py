"""Recording a history: several callers at once, on one daemon, about a few execs.

Each caller is a thread with a connection and a random generator of its own, so that a seed fixes what each asks for,
one thing after another (what the daemon makes of it is what is to be found out). All of them go through the execs at
about the same pace, so that they meet while there is something to do. Children read a line and end; that line is an
operation like any other. Now and then a caller asks and leaves before it knows the answer.
"""

import base64
import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from attrs import evolve, field, frozen

from checker.histories.history import History, Op, Operation, answered, history
from checker.model import ModelError
from checker.replay.sockets import Client, SocketSubject
from checker.replay.wire import NoAnswer, bearer

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
    return history((evolve(one, exec=places[one.exec]) for caller in callers for one in caller.seen), ttl)


def _kept_for(daemon: SocketSubject) -> float | None:
    """For how long the daemon keeps what is acknowledged, if its schema says (contract h.2)."""
    try:
        limits = daemon.ask("GET", "/v1/schema").fields().get("limits")
    except NoAnswer:
        return None
    kept = limits.get("exec_ttl_secs") if isinstance(limits, dict) else None
    return float(kept) if isinstance(kept, int | float) else None


class _Caller:
    """One thread's caller."""

    def __init__(self, work: Workload, number: int, ids: list[str]) -> None:
        self._work = work
        self._number = number
        self._ids = ids
        self._random = random.Random(f"{work.seed}/{number}")
        self._client = Client(work.url, work.deadline)
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
        self._client.close()

    def _do(self, op: Op, name: str, leaves: bool) -> Operation:
        method, target, value = REQUESTS[op](name)
        authorization = bearer(self._work.token)
        operation = Operation(self._number, name, op, time.monotonic())
        if leaves:
            self._client.leave(method, target, authorization, value)
            return operation
        try:
            answer = self._client.ask(method, target, authorization, value)
        except NoAnswer:
            return operation
        return answered(operation, time.monotonic(), answer)


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
