"""A daemon in memory, and everybody who can do something to it: what can happen next, and doing it.

A reactor calls back for whatever is ready, in an order that nobody promises: bytes of a connection, in pieces that the
network made; the end of a connection; a timer; a child that ended, or a pipe of its; a thread that is done. Each of
these is an *action* here, and one is done at a time. Between two of them no code of the daemon runs, as on a reactor,
so that an order of actions is a schedule of callbacks, and the daemon's own code cannot tell the difference.

Actions are offered in an order that is always the same, that of a reactor without anything in its way: what the pool
has done, timers that are due, children, callers, one after the other, and last what only time brings about.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import define, field, frozen

from checker.histories.history import Op
from checker.replay.children import ScriptedChild
from checker.replay.network import Connection
from checker.replay.wire import Answer, as_json, bearer, chunks, first_answer, request
from checker.replay.world import MemoryDaemon
from checker.schedules.tunnels import TunnelPlay

TOKEN = b"schedules-token"


@frozen
class Asked:
    """A request of a caller, in the pieces in which it arrives."""

    method: str
    target: str
    value: object = None
    token: bytes | None = TOKEN
    headers: tuple[tuple[str, str], ...] = ()
    cuts: tuple[float, ...] = ()
    """Where it is cut: fractions of its head below 1, of its body from 1 to 2."""
    op: Op | None = None
    """What it asks of an exec, for the history."""
    exec: str = ""
    streams: bool = False
    """Whether its answer is a stream of events."""

    def pieces(self) -> list[bytes]:
        """The pieces."""
        body, typed = (None, ()) if self.value is None else as_json(self.value)
        authorization = None if self.token is None else bearer(self.token)
        headers = (*self.headers, *typed)
        whole = request(self.method, self.target, authorization=authorization, body=body, headers=headers)
        head = len(whole) - len(body or b"")
        places = [
            int(cut * head) if cut < 1 else head + int((cut - 1) * len(body or b""))
            for cut in sorted(self.cuts)
        ]
        ends = [place for place in dict.fromkeys([*places, len(whole)]) if place > 0]
        return [whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@define(eq=False)
class Caller:
    """One connection, and what its peer does: requests, one after the other, and perhaps a departure."""

    name: str
    asks: tuple[Asked, ...]
    leaves: bool = False
    """Whether it leaves without waiting for answers."""
    pipelined: bool = False
    """Whether it goes on before it is answered."""
    paused: bool = False
    """Whether it stops reading once it has asked for everything, and reads on later."""
    connection: Connection | None = None
    sent: list[int] = field(factory=list)
    """The steps at which the first piece of each request was sent."""
    complete: list[int] = field(factory=list)
    """The steps at which the last piece was."""
    answers: list[tuple[int, Answer]] = field(factory=list)
    """Step, and answer."""
    gone: bool = False
    stopped: bool = False
    """Whether it has stopped reading."""
    resumed: bool = False
    _pieces: list[tuple[int, bytes, bool, bool]] = field(factory=list)
    """Number of the request, bytes, and whether they are its first and its last."""

    def __attrs_post_init__(self) -> None:
        """Cut everything up."""
        for number, asked in enumerate(self.asks):
            pieces = asked.pieces()
            for place, piece in enumerate(pieces):
                self._pieces.append((number, piece, place == 0, place == len(pieces) - 1))

    def next_piece(self) -> tuple[int, bytes, bool, bool] | None:
        """What it sends next, if it may send now."""
        if self.gone or not self._pieces or (self.connection is not None and not self.connection.reading):
            return None
        number, _, first, _ = self._pieces[0]
        if first and not self.pipelined and number > len(self.answers):
            return None
        return self._pieces[0]

    @property
    def streaming(self) -> bool:
        """Whether it awaits a stream."""
        return any(asked.streams for asked in self.asks)


@define(eq=False)
class Play:
    """What a child does, one act after the other, once it is there."""

    exec: str
    acts: list[tuple[str, Callable[[ScriptedChild], None]]]


@frozen
class Action:
    """Something that can happen next."""

    told: str
    do: Callable[[], None] = field(repr=False)


Elapses = Callable[[Any], str | None]
"""Says of an armed timer what its time brings about, or None when it never comes within a scenario."""


class Stage:
    """A daemon, and who acts on it. `settings` are of `agentd.config.Config`."""

    def __init__(self, *, bootstrapped: bool = True, **settings: Any) -> None:
        self.memory = MemoryDaemon(**settings)
        self.callers: list[Caller] = []
        self.plays: list[Play] = []
        self.ends: list[tuple[str, int]] = []
        """Exec and step of each child that has ended."""
        self.elapses: Elapses = lambda call: None
        self.step = 0
        self.transcript: list[str] = []
        self.others: list[tuple[str, Callable[[], object]]] = []
        """Things that happen once, at any time: a signal to the daemon."""
        self.tunnel: TunnelPlay | None = None
        if bootstrapped:
            self.memory.daemon.guest.install_token(TOKEN)
        self.memory.threads.held = True

    # -- who there is -----------------------------------------------------------------------------------

    def caller(
        self, name: str, *asks: Asked, leaves: bool = False, pipelined: bool = False, paused: bool = False
    ) -> None:
        """Somebody who asks; see `Caller`."""
        self.callers.append(Caller(name, asks, leaves, pipelined, paused))

    def play(self, exec_id: str, *acts: tuple[str, Callable[[ScriptedChild], None]]) -> None:
        """What the child of an exec does."""
        self.plays.append(Play(exec_id, list(acts)))

    def tunnels(self, **how: Any) -> None:
        """A tunnel, and who is at its ends; see `TunnelPlay`."""
        self.tunnel = TunnelPlay(self.memory.connect, self.memory.clock, TOKEN, **how)

    def once(self, told: str, do: Callable[[], object]) -> None:
        """Something else that happens, once."""
        self.others.append((told, do))

    # -- what can happen -----------------------------------------------------------------------------------

    def enabled(self) -> list[Action]:
        """What can happen next, in the order that is always the same."""
        return [
            *self._pool(),
            *self._due(),
            *self._children(),
            *self._callers(),
            *([] if self.tunnel is None else (Action(told, do) for told, do in self.tunnel.enabled())),
            *self._other(),
            *self._time(),
        ]

    def _pool(self) -> Iterator[Action]:
        for number, (_, function, _) in enumerate(self.memory.threads.waiting):
            name = getattr(function, "__name__", "work")
            yield Action(f"the pool is done with {name}", partial(self.memory.threads.run, number))

    def _due(self) -> Iterator[Action]:
        for call in self.memory.clock.due():
            yield Action(f"what is due is done: {_name(call)}", partial(self.memory.clock.fire, call))

    def _children(self) -> Iterator[Action]:
        for play in self.plays:
            entry = self.memory.daemon.execs.get(play.exec)
            if entry is None or not play.acts:
                continue
            told = play.acts[0][0]
            child = entry.job.child
            assert isinstance(child, ScriptedChild)
            yield Action(f"the child of {play.exec} {told}", partial(self._act, play, child))

    def _act(self, play: Play, child: ScriptedChild) -> None:
        _, act = play.acts.pop(0)
        before = child.exited
        act(child)
        if child.exited and not before:
            self.ends.append((play.exec, self.step))

    def _callers(self) -> Iterator[Action]:
        for caller in self.callers:
            piece = caller.next_piece()
            if piece is not None:
                number, data, _, last = piece
                end = "the end" if last else f"{len(data)} bytes"
                asked = caller.asks[number]
                told = f"{caller.name} sends {end} of {asked.method} {asked.target}"
                yield Action(told, partial(self._send, caller))
            if caller.paused and not (caller.stopped or caller.gone or caller._pieces):
                yield Action(f"{caller.name} stops reading", partial(self._stop, caller))
            if caller.stopped and not caller.resumed and not caller.gone:
                yield Action(f"{caller.name} reads on", partial(self._resume, caller))
            if caller.leaves and caller.connection is not None and not caller.gone:
                yield Action(f"{caller.name} leaves", partial(self._leave, caller))

    def _send(self, caller: Caller) -> None:
        _, data, first, last = caller._pieces.pop(0)
        if caller.connection is None:
            caller.connection = self.memory.connect()
        if first:
            caller.sent.append(self.step)
        if last:
            caller.complete.append(self.step)
        caller.connection.send(data)

    def _stop(self, caller: Caller) -> None:
        caller.stopped = True
        assert caller.connection is not None
        caller.connection.pause()

    def _resume(self, caller: Caller) -> None:
        caller.resumed = True
        assert caller.connection is not None
        caller.connection.resume()

    def _leave(self, caller: Caller) -> None:
        caller.gone = True
        assert caller.connection is not None
        caller.connection.leave()

    def _other(self) -> Iterator[Action]:
        for told, do in self.others:
            yield Action(told, partial(self._once, told, do))

    def _once(self, told: str, do: Callable[[], object]) -> None:
        self.others = [one for one in self.others if one[0] != told]
        do()

    def _time(self) -> Iterator[Action]:
        for call in self.memory.clock.arm():
            told = None if call.getTime() <= self.memory.clock.seconds() else self.elapses(call)
            if told is not None:
                yield Action(told, partial(self._elapse, call))

    def _elapse(self, call: Any) -> None:
        clock = self.memory.clock
        clock.rightNow = max(clock.rightNow, call.getTime())
        clock.fire(call)

    # -- doing it ----------------------------------------------------------------------------------------------

    def do(self, action: Action) -> None:
        """Let it happen, and look at what the daemon answers."""
        self.step += 1
        self.transcript.append(f"{self.step:>3}. {action.told}")
        action.do()
        for caller in self.callers:
            self._hear(caller)

    def _hear(self, caller: Caller) -> None:
        connection = caller.connection
        while connection is not None and not caller.streaming:
            found = first_answer(connection.received, connection.closed)
            if found is None:
                return
            answer, rest = found
            connection.take()
            connection.transport.sent += rest
            caller.answers.append((self.step, answer))
            self.transcript.append(
                f"       {caller.name} is answered {answer.status} {_body(answer)}".rstrip()
            )

    def finish(self) -> list[str]:
        """Everybody leaves, every child ends, all that is due is done; what the daemon has not let go of."""
        memory = self.memory
        for caller in self.callers:
            if caller.streaming and caller.connection is not None:
                self._hear_stream(caller)
        memory.close()
        waits = [f"a wait for whom has left: {_name(call)}" for call in memory.clock.arm() if _waits(call)]
        memory.threads.held = False
        while memory.threads.waiting:
            memory.threads.run()
        while running := [child for child in memory.children.all if not child.ended]:
            for child in running:
                child.exit()
                child.end_pipes()
            memory.clock.settle()
        memory.clock.settle()
        return waits + memory.left()

    def _hear_stream(self, caller: Caller) -> None:
        connection = caller.connection
        assert connection is not None
        head, found, body = connection.received.partition(b"\r\n\r\n")
        if not found:
            return
        data, end = (body, 0) if b"chunked" not in head.lower() else chunks(body)
        status = int(head.split(b" ")[1])
        caller.answers.append((self.step, Answer(status, {"ended": str(end >= 0)}, data)))
        self.transcript.append(f"       {caller.name} was streamed {len(data)} bytes, status {status}")


def _waits(call: Any) -> bool:
    """Whether a timer ends a wait of a request: those of `Deferred.addTimeout` do."""
    return "addTimeout" in getattr(call.func, "__qualname__", "")


def _name(call: Any) -> str:
    return str(getattr(call.func, "__qualname__", call.func)).rpartition("<locals>.")[2]


def _body(answer: Answer) -> str:
    fields = answer.fields()
    told = [
        f"{name}={fields[name]}"
        for name in ("error", "phase", "exit_code", "killed", "busy")
        if name in fields
    ]
    return " ".join(told)
