"""The connection to an iii engine: what is registered, who calls us, and whom we call (reference A3 to A7).

Theory of operation
-------------------
`agentd.rules.link` says when to connect, to pause and to give up. On every connection the same is done: prove that we
are the worker of the last one (`reattach`), say who we are, and register everything again, in this order; the engine
keeps nothing of a connection that is gone. Whoever wants more of a new connection (the configuration) is told of it.

* A call of ours waits for the result of its number, with a deadline of its own, and fails when the connection does.
* A call to us runs beside the others and is answered once, on the connection it came on. When that is lost its caller
  has been told already, so the call is cancelled; background jobs are no calls and go on.
* An engine that does not read is not read either: what waits to be sent is bounded by what was asked.
"""

import os
import platform
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from uuid import uuid4

import msgspec
from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentd.rules import link as rules
from agentd.rules.link import Do, Event, Link, Phase
from agentd.tunnel.valve import Valve
from agentd.worker import frames
from agentd.worker.errors import FunctionError
from agentd.worker.frames import ErrorBody
from agentd.worker.sandbox import PLAIN_SECS, CallFailed
from agentd.worker.websocket import Address, ClientSocket, NotConnected, connect

_log = Logger()

MOST_CALLS: Final = 4096
"""Calls that run at once; further ones are refused."""
REGISTER_WORKER: Final = "engine::workers::register"
NOT_CONNECTED: Final = "not_connected"
"""The code of a call that was not made, or lost its answer, for want of a connection."""

Serve = Callable[[str, Any], Awaitable[bytes]]
"""Runs a function of ours: its result as JSON. Raises `FunctionError`."""


@frozen
class Identity:
    """Who this worker is to the engine."""

    name: str
    version: str
    namespace: str | None = None
    description: str = "Runs commands and edits files inside this machine."

    def announcement(self) -> dict[str, Any]:
        """The data of `engine::workers::register`."""
        said: dict[str, Any] = {
            "runtime": "python",
            "version": self.version,
            "name": self.name,
            "description": self.description,
            "os": f"{platform.system()} {platform.release()} ({platform.machine()})",
            "pid": os.getpid(),
            "isolation": None,
            "telemetry": {"language": "python", "project_name": "agentd", "framework": "twisted"},
        }
        if self.namespace is not None:
            said["namespace"] = self.namespace
        return said


class _Connection:
    """One connection, and the calls that came on it."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.socket: ClientSocket | None = None
        self.calls: set[Deferred[Any]] = set()
        self.last_heard = 0.0
        self.watch: Any = None
        self.refusal: ErrorBody | None = None

    def message(self, payload: bytes, binary: bool) -> None:
        self._engine.receive(self, payload)

    def heard(self) -> None:
        self.last_heard = self._engine.reactor.seconds()

    def closed(self, reason: str) -> None:
        self._engine.lost(self, reason)

    def behind(self) -> None:
        assert self.socket is not None
        self.socket.transport.pauseProducing()

    def caught_up(self) -> None:
        assert self.socket is not None
        self.socket.transport.resumeProducing()


class Engine:
    """The engine, as the worker has it. `opened` are called for every connection that is up."""

    def __init__(self, reactor: Any, address: Address, identity: Identity, serve: Serve) -> None:
        self.reactor = reactor
        self.address = address
        self.opened: list[Callable[[], object]] = []
        self._identity = identity
        self._serve = serve
        self._link = Link()
        self._connection: _Connection | None = None
        self._connecting: Deferred[None] | None = None
        self._pause: Any = None
        self._previous: frames.Registered | None = None
        self._functions: dict[str, bytes] = {}
        self._triggers: dict[str, bytes] = {}
        self._pending: dict[str, Deferred[Any]] = {}
        self._ended: list[Deferred[None]] = []

    # -- what its owner does ---------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether calls can be made."""
        return self._link.phase is Phase.OPEN

    @property
    def over(self) -> bool:
        """Whether there will be no connection any more."""
        return self._link.phase is Phase.OVER

    def start(self) -> None:
        """Connect, and again whenever the connection is lost."""
        self._step(Event.START)

    def stop(self) -> "Deferred[None]":
        """Close in good order; fires when the connection is gone."""
        self._step(Event.STOP)
        if self._connection is None:
            return succeed(None)
        ended: Deferred[None] = Deferred()
        self._ended.append(ended)
        return ended

    def register(
        self, id: str, description: str, request: Any, response: Any, metadata: Mapping[str, Any]
    ) -> None:
        """Serve a function, on this connection and all that follow."""
        frame = self._functions[id] = frames.register_function(id, description, request, response, metadata)
        self._send(frame)

    def register_trigger(self, trigger_type: str, function_id: str, config: Mapping[str, Any]) -> None:
        """Have a function called when something happens, on this connection and all that follow."""
        id = str(uuid4())
        frame = self._triggers[id] = frames.register_trigger(id, trigger_type, function_id, config)
        self._send(frame)

    async def call(self, function_id: str, data: Any, seconds: float = PLAIN_SECS) -> Any:
        """The result of another worker's function, or of the engine's. Raises `CallFailed`."""
        if not self.connected:
            raise CallFailed(NOT_CONNECTED, "there is no connection to an engine")
        number = str(uuid4())
        try:
            frame = frames.invoke(function_id, data, number)
        except (UnicodeError, TypeError, msgspec.MsgspecError) as reason:
            raise CallFailed("invalid_request", f"the arguments cannot be sent: {reason}") from None
        waiting: Deferred[Any] = Deferred()
        self._pending[number] = waiting
        self._send(frame)
        waiting.addTimeout(seconds, self.reactor)
        try:
            return await waiting
        except DeferredTimeout:
            raise CallFailed("TIMEOUT", f"{function_id} did not answer within {seconds:g} s") from None
        finally:
            self._pending.pop(number, None)

    def _send(self, frame: bytes) -> None:
        if self.connected and self._connection is not None and self._connection.socket is not None:
            self._connection.socket.say(frame)

    # -- doing what the rules say ----------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        self._link, orders = rules.step(self._link, event)
        for order in orders:
            if order is Do.CONNECT:
                self._connecting = Deferred.fromCoroutine(self._connect())
                self._connecting.addErrback(self._broken)
            elif order is Do.COMPLAIN:
                _log.error(
                    "no iii engine answers at {address}: is it running? --iii-url or III_URL say where it is; "
                    "trying on every {seconds:g} s",
                    event="engine_unreachable",
                    address=str(self.address),
                    seconds=rules.PAUSE_SECS,
                )
            elif order is Do.PAUSE:
                self._pause = self.reactor.callLater(rules.PAUSE_SECS, self._pause_over)
            else:
                self._close()

    def _broken(self, reason: Failure) -> None:
        if not reason.check(CancelledError):
            _log.failure("connecting to the engine failed", reason)
            self._step(Event.LOST)

    def _pause_over(self) -> None:
        self._pause = None
        self._step(Event.PAUSE_OVER)

    def _close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None and self._connection.socket is not None:
            self._connection.socket.close()

    async def _connect(self) -> None:
        connection = _Connection(self)
        try:
            connection.socket = await connect(self.reactor, self.address, self.address.url(), connection)
        except NotConnected as reason:
            _log.debug("no connection to the engine: {reason}", reason=str(reason))
            self._connecting = None
            self._step(Event.LOST)
            return
        self._connecting = None
        self._connection = connection
        connection.heard()
        connection.socket.transport.registerProducer(Valve(connection.behind, connection.caught_up), True)
        connection.watch = self.reactor.callLater(rules.PING_SECS, self._look, connection)
        self._step(Event.OPENED)
        _log.info("connected to the engine at {address}", event="engine_connected", address=str(self.address))
        self._introduce(connection.socket)
        for told in self.opened:
            told()

    def _introduce(self, socket: ClientSocket) -> None:
        if self._previous is not None:
            socket.say(frames.reattach(self._previous))
        socket.say(frames.invoke_void(REGISTER_WORKER, self._identity.announcement()))
        for frame in (*self._functions.values(), *self._triggers.values()):
            socket.say(frame)

    def _look(self, connection: _Connection) -> None:
        """Whether the engine is still there."""
        assert connection.socket is not None
        if rules.dead(self.reactor.seconds(), connection.last_heard):
            connection.watch = None
            _log.warn("the engine is silent: connecting again", event="engine_silent")
            connection.socket.abort()
            return
        connection.watch = self.reactor.callLater(rules.PING_SECS, self._look, connection)
        connection.socket.ping()

    def lost(self, connection: _Connection, reason: str) -> None:
        """A connection is over: whoever waits for an answer of it, in either direction, is told."""
        if connection.watch is not None:
            connection.watch.cancel()
            connection.watch = None
        self._connection = None
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            waiting.errback(CallFailed(NOT_CONNECTED, "the connection to the engine was lost"))
        for call in list(connection.calls):
            call.cancel()
        if not self.over:
            _log.warn(
                "lost the engine at {address}: {reason}",
                event="engine_lost",
                address=str(self.address),
                reason=reason,
            )
        self._step(Event.LOST)
        ended, self._ended = self._ended, []
        for told in ended:
            told.callback(None)

    # -- what comes ------------------------------------------------------------------------------------

    def receive(self, connection: _Connection, payload: bytes) -> None:
        """One message of the engine."""
        frame = frames.decode(payload)
        if isinstance(frame, frames.Invoke):
            self._invoked(connection, frame)
        elif isinstance(frame, frames.Result):
            self._answered(frame)
        elif isinstance(frame, frames.Ping):
            self._say(connection, frames.PONG)
        elif isinstance(frame, frames.Registered):
            self._previous = frame
        elif isinstance(frame, frames.Rejected):
            self._rejected(frame)
        elif isinstance(frame, frames.TriggerResult):
            error = ErrorBody.of(frame.error)
            if error is not None:
                _log.error(
                    "the engine refused the trigger {type}: {code}: {text}",
                    event="trigger_refused",
                    type=frame.trigger_type,
                    code=error.code,
                    text=error.message,
                )
        elif isinstance(frame, frames.Refusal):
            error = ErrorBody.of(frame.error)
            if error is not None:
                _log.error(
                    "the engine refused the connection: {code}: {text}",
                    event="engine_refused",
                    code=error.code,
                    text=error.message,
                )
        else:
            _log.debug("a frame that is not understood: {type}", type=frame.type)

    def _say(self, connection: _Connection, frame: bytes) -> None:
        if connection.socket is not None:
            connection.socket.say(frame)

    def _rejected(self, frame: frames.Rejected) -> None:
        if not rules.final(frame.code):
            _log.warn(
                "the engine gave the function {function} to another worker; the others are served",
                event="function_conflict",
                function=frame.function_id,
                namespace=frame.namespace,
                owner=frame.owner_worker_id,
            )
            return
        _log.error(
            "the engine rejected this worker for good: {code}: {worker} in namespace {namespace} belongs to {owner}",
            event="worker_rejected",
            code=frame.code,
            worker=frame.worker_name,
            namespace=frame.namespace,
            owner=frame.owner_worker_id,
        )
        self._step(Event.REJECTED)

    def _answered(self, frame: frames.Result) -> None:
        waiting = self._pending.pop(frame.invocation_id, None)
        if waiting is None:
            return  # late: its deadline has passed
        error = ErrorBody.of(frame.error)
        if error is None:
            waiting.callback(frame.result)
        else:
            waiting.errback(CallFailed(error.code, error.message))

    def _invoked(self, connection: _Connection, frame: frames.Invoke) -> None:
        number, id = frame.invocation_id, frame.function_id
        if len(connection.calls) >= MOST_CALLS:
            if number is not None:
                text = f"{MOST_CALLS} calls are under way"
                self._say(connection, frames.failure(number, id, "invocation_failed", text))
            return
        call = Deferred.fromCoroutine(self._run(connection, frame))
        if not call.called:
            connection.calls.add(call)
            call.addBoth(self._over, connection, call)
        call.addErrback(self._bug)

    def _over(self, result: Any, connection: _Connection, call: "Deferred[Any]") -> Any:
        connection.calls.discard(call)
        return result

    def _bug(self, reason: Failure) -> None:
        if not reason.check(CancelledError):
            _log.failure("a call of the engine's broke", reason)

    async def _run(self, connection: _Connection, frame: frames.Invoke) -> None:
        """One call, answered once; not at all when nobody waits for it."""
        number, id = frame.invocation_id, frame.function_id
        try:
            result = await self._serve(id, frame.data)
        except FunctionError as reason:
            if number is not None:
                self._say(connection, frames.failure(number, id, reason.code, reason.message))
        else:
            if number is not None:
                self._say(connection, frames.answer(number, id, result))
