"""The daemon in memory as a subject of replay."""

from signal import SIGKILL
from typing import Any

from attrs import define, field

from agentd.process.job import Job
from agentd.process.table import Exec
from checker.replay.children import ScriptedChild
from checker.replay.network import Connection
from checker.replay.wire import Answer, Headers, NoAnswer, as_json, bearer, first_answer, request
from checker.replay.world import MemoryDaemon


@define(eq=False)
class Pending:
    """A request that may be answered later."""

    connection: Connection
    answer: Answer | None = None

    def look(self) -> Answer | None:
        """The answer if it is there by now."""
        if self.answer is None:
            found = first_answer(self.connection.received, self.connection.closed)
            if found is not None:
                self.answer = found[0]
                self.connection.take()
        return self.answer


@define(eq=False)
class MemorySubject:
    """A fresh daemon in memory, and who talks to it."""

    settings: dict[str, Any]
    """What it is configured with."""
    memory: MemoryDaemon = field(init=False)
    in_memory: bool = field(init=False, default=True)
    _idle: list[Connection] = field(init=False, factory=list)
    """Connections on which no answer is awaited."""

    def __attrs_post_init__(self) -> None:
        """Start it."""
        self.memory = MemoryDaemon(**self.settings)

    def begin(
        self,
        method: str,
        target: str,
        *,
        token: bytes | None = None,
        authorization: bytes | None = None,
        value: object = None,
        hold: int = 0,
        settle: bool = True,
        headers: Headers = (),
    ) -> Pending:
        """Send a request without the last `hold` bytes, and, if `settle`, let the daemon do what is due then."""
        if token is not None:
            authorization = bearer(token)
        body, typed = (None, ()) if value is None else as_json(value)
        data = request(method, target, authorization=authorization, body=body, headers=(*headers, *typed))
        connection = self._idle.pop() if self._idle else self.memory.connect()
        connection.send(data[: len(data) - hold])
        if settle:
            self.memory.clock.settle()
        return Pending(connection)

    def ask(
        self,
        method: str,
        target: str,
        *,
        token: bytes | None = None,
        authorization: bytes | None = None,
        value: object = None,
    ) -> Answer:
        """Make a request; its answer must be there when nothing is left to do."""
        pending = self.begin(method, target, token=token, authorization=authorization, value=value)
        answer = pending.look()
        if answer is None:
            raise NoAnswer(f"{method} {target} was not answered")
        self.done(pending)
        return answer

    def done(self, pending: Pending) -> None:
        """An answered request's connection can carry another."""
        if not pending.connection.closed:
            self._idle.append(pending.connection)

    def entry(self, exec_id: str) -> Exec | None:
        """The daemon's entry of an exec."""
        return self.memory.daemon.execs.get(exec_id)

    def job(self, exec_id: str) -> Job:
        """The daemon's job of an exec. Raises LookupError when it has none."""
        entry = self.entry(exec_id)
        if entry is None:
            raise LookupError(f"the daemon has no exec {exec_id}")
        return entry.job

    def child(self, exec_id: str) -> ScriptedChild:
        """The child of an exec. Raises LookupError when there is none."""
        child = self.job(exec_id).child
        assert isinstance(child, ScriptedChild)
        return child

    def exit(self, exec_id: str, code: int = 0) -> None:
        """The child ends, and closes its pipes."""
        child = self.child(exec_id)
        child.exit(code)
        child.end_pipes()
        self.memory.clock.settle()

    def kill(self, exec_id: str) -> None:
        """The child is ended by a signal, and closes its pipes."""
        child = self.child(exec_id)
        child.exit(signal=SIGKILL)
        child.end_pipes()
        self.memory.clock.settle()

    def close(self) -> list[str]:
        """Every peer leaves, and every child ends, and whom that makes room for."""
        self.memory.close()
        while running := [child for child in self.memory.children.all if not child.ended]:
            for child in running:
                child.exit(signal=SIGKILL)
                child.end_pipes()
            self.memory.clock.settle()
        return self.memory.left()
