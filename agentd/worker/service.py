"""The worker put together: engine, configuration, functions. Loaded when the daemon listens already.

    start ─► policy of the seed (HTTP is served) ─► connect ─► boot the configuration ─► register the functions
                                                      ▲                 │ the connection is lost
                                                      └─────────────────┘

Until the configuration of an engine is in force the engine is served nothing but the reload. Over HTTP the functions
work from the start, under the policy of the seed file or the shipped one, and under the engine's once it is there.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentd._version import VERSION
from agentd.process.job import JobTools
from agentd.worker import configuration as configuring
from agentd.worker import policy
from agentd.worker.channels import EngineChannels, NoChannels
from agentd.worker.configuration import Configuration, load_seed
from agentd.worker.engine import NOT_CONNECTED, Engine, Identity
from agentd.worker.errors import BootFailed, Coded
from agentd.worker.face import WorkerOptions
from agentd.worker.function import Call, Channels
from agentd.worker.job_runner import JobRunner
from agentd.worker.registry import FAMILIES, NOT_FOUND, Registry
from agentd.worker.sandbox import PLAIN_SECS, Caller, CallFailed, Sandbox
from agentd.worker.settings import SettingsError
from agentd.worker.websocket import parse_address

_log = Logger()

RELOAD: Final = "shell::on-config-change"


@frozen
class World:
    """What the worker needs of the daemon."""

    reactor: Any
    tools: JobTools
    wall_clock: Callable[[], float]
    environ: Mapping[str, str]
    fail: Callable[[str], None]
    """The worker cannot start, and the daemon has to end: why."""


class NoEngine:
    """Where the worker is for HTTP alone."""

    async def call(self, function_id: str, data: Any, seconds: float = PLAIN_SECS) -> Any:
        """Raises `CallFailed`."""
        raise CallFailed(NOT_CONNECTED, "this worker has no engine")


class WorkerService:
    """The running worker."""

    def __init__(self, options: WorkerOptions, world: World) -> None:
        self._options = options
        self._world = world
        self.registry = Registry(FAMILIES)
        self.engine: Engine | None = None
        caller: Caller = NoEngine()
        channels: Channels = NoChannels()
        self._channels: EngineChannels | None = None
        run_in_thread = world.tools.run_in_thread
        if options.url is not None:
            address = parse_address(options.url, options.headers)
            identity = Identity(options.name, VERSION, options.namespace)
            caller = self.engine = Engine(world.reactor, address, identity, self._serve)
            channels = self._channels = EngineChannels(self.engine, address, world.reactor, run_in_thread)
            self.engine.opened.append(self._opened)
        self._caller = caller
        self._call_channels = channels
        self.sandbox = Sandbox(caller)
        self.configuration: Configuration | None = None
        self.jobs = JobRunner(
            world.tools, world.wall_clock, world.environ, lambda: self._configured().policy.settings
        )
        self._announced = False
        self._booted = False
        self._booting: Deferred[None] | None = None

    def _configured(self) -> Configuration:
        assert self.configuration is not None
        return self.configuration

    async def start(self) -> None:
        """Load the seed, build its policy, and look for the engine. Raises `BootFailed`."""
        run_in_thread = self._world.tools.run_in_thread
        try:
            seed = await run_in_thread(load_seed, self._options.seed)
        except SettingsError as reason:
            raise BootFailed(str(reason)) from None
        self.configuration = Configuration(
            self._caller, self._world.reactor, run_in_thread, policy.build, seed
        )
        await self.configuration.prepare()
        if self.engine is not None:
            self.engine.start()

    # -- calls -----------------------------------------------------------------------------------------

    def call(self) -> Call:
        """What a call that starts now may use."""
        configuration = self._configured()
        now = configuration.policy
        return Call(
            settings=now.settings,
            jail=now.jail,
            coder=now.coder,
            jobs=self.jobs,
            sandbox=self.sandbox,
            channels=self._call_channels,
            reactor=self._world.reactor,
            run_in_thread=self._world.tools.run_in_thread,
            configuration=configuration,
        )

    async def invoke(self, id: str, data: Any) -> bytes:
        """The result of a function as JSON. Raises `FunctionError`."""
        return await self.registry.invoke(self.call(), id, data)

    async def _serve(self, id: str, data: Any) -> bytes:
        if not self._booted and id != RELOAD:
            raise Coded(NOT_FOUND, f"no such function: {id}")
        return await self.invoke(id, data)

    # -- the engine ------------------------------------------------------------------------------------

    def _opened(self) -> None:
        """A connection is up."""
        if self._booting is None:
            work = self._again() if self._booted else self._boot()
            self._booting = Deferred.fromCoroutine(work)
            self._booting.addErrback(self._broken)
            self._booting.addCallback(self._done)

    def _done(self, _: None) -> None:
        self._booting = None

    def _broken(self, reason: Failure) -> None:
        if reason.check(CancelledError):
            return
        _log.failure("what a new connection calls for has failed", reason)
        if not self._booted:
            self._world.fail("an unforeseen fault; the log says more")

    async def _boot(self) -> None:
        try:
            await self._configured().boot(self._announce)
        except CallFailed:
            return  # the connection was lost: once more on the next one
        except BootFailed as reason:
            self._world.fail(str(reason))
            return
        self._booted = True
        for id in self.registry.functions:
            if id != RELOAD:
                self._register(id)
        _log.info(
            "the worker serves {count} functions", event="worker_ready", count=len(self.registry.functions)
        )

    def _announce(self) -> None:
        if self._announced:
            return  # on an earlier connection: it is registered on every one
        self._announced = True
        self._register(RELOAD)
        assert self.engine is not None
        self.engine.register_trigger("configuration", RELOAD, configuring.TRIGGER)

    def _register(self, id: str) -> None:
        assert self.engine is not None
        described = self.registry.functions[id]
        self.engine.register(
            id,
            described.description,
            described.request_schema,
            described.response_schema,
            described.metadata,
        )

    async def _again(self) -> None:
        """Another connection: what was changed meanwhile is found out."""
        try:
            await self._configured().reconnected()
        except CallFailed as reason:
            _log.warn(
                "the configuration could not be fetched again, the last one stays: {reason}",
                reason=str(reason),
            )

    def stop(self) -> "Deferred[Any]":
        """End everything; fires when it is over."""
        ending: list[Deferred[Any]] = [self.jobs.stop()]
        if self._booting is not None:
            self._booting.cancel()
        if self._channels is not None:
            ending.append(self._channels.stop())
        if self.engine is not None:
            ending.append(self.engine.stop())
        return DeferredList(ending)
