"""``twistd agentd``: options, and the one place where everything is put together.

Only this module knows every other. It names the real reactor and the real clock; whatever it builds gets them as
arguments.
"""

import atexit
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from twisted.application import service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import serverFromString
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool
from twisted.python.usage import Options as UsageOptions
from twisted.python.usage import UsageError

from agentd import config as configuration
from agentd._version import VERSION
from agentd.config import SWEEP_SECS, THREADS, BadValue, Config
from agentd.environments.account import Agent
from agentd.environments.context import Environment
from agentd.environments.face import environments_face
from agentd.environments.limits import Limits
from agentd.environments.routes import ROUTES as ENVIRONMENT_ROUTES
from agentd.guest.accounts import AccountFiles
from agentd.guest.environment import ImageEnvironment
from agentd.guest.handlers import HandlerRunner
from agentd.guest.state import Guest
from agentd.http.router import Router
from agentd.http.site import AgentSite
from agentd.linux.malloc import give_back_large_blocks
from agentd.linux.oom import OomLog
from agentd.log import LineObserver
from agentd.microvm.context import Daemon
from agentd.microvm.face import microvm_face
from agentd.process import reaper
from agentd.process.groups import Groups
from agentd.process.job import JobLimits, JobTools
from agentd.process.spawn import ProcessSpawner, Spawner
from agentd.process.table import ExecTable
from agentd.process.zygote import Zygotes
from agentd.rules.lifecycle import Lifecycle, TerminateMode

if TYPE_CHECKING:
    from agentd.worker.face import WorkerOptions

_log = Logger()

_ENDING_SECS = 3.0
"""How long a stopping daemon waits for the end of what it has killed."""


_FLAGS = frozenset({"worker"})
"""Knobs whose option takes no value: it is there, or not."""


def _parameters() -> list[list[Any]]:
    return [
        [
            configuration.option_name(name),
            None,
            None,
            f"{knob.doc} [{knob.unit}; default {configuration.show(default)}; {knob.variable}]",
        ]
        for name, default, knob in configuration.knobs()
        if name not in _FLAGS
    ]


def _flags() -> list[list[Any]]:
    return [
        [configuration.option_name(name), None, f"{knob.doc} [off without it; {knob.variable}]"]
        for name, _, knob in configuration.knobs()
        if name in _FLAGS
    ]


class Options(UsageOptions):
    """The options of ``twistd agentd``: one for each knob of `agentd.config.Config`."""

    synopsis = "[options]"
    longdesc = (
        "The daemon inside a virtual machine: runs commands, moves files and opens connections for whoever "
        "holds the token that the run hook installs. Each option may also be set by its variable; an option wins."
    )
    optParameters = _parameters()
    optFlags = _flags()

    config: Config
    warnings: list[str]
    token: bytes | None
    worker: "WorkerOptions | None"

    def parseOptions(self, options: Any = None) -> None:
        """Parse; under ``twistd``, which would print the whole help first, a mistake is one line too."""
        try:
            super().parseOptions(options)
        except UsageError as reason:
            if self.parent is None:
                raise
            print(f"agentd: {reason}", file=sys.stderr)
            sys.exit(2)

    def opt_version(self) -> None:
        """Display the version and exit."""
        print(f"agentd {VERSION}")
        sys.exit(0)

    def postOptions(self) -> None:
        """Check everything, and take over logging where ``twistd`` was told nothing else."""
        given = {name: self[configuration.option_name(name)] for name, _, _ in configuration.knobs()}
        given |= {name: "on" if given[name] else None for name in _FLAGS}
        try:
            self.config, self.warnings = configuration.from_environment(os.environ, given)
        except BadValue as reason:
            raise UsageError(str(reason)) from None
        self.token = _read_token(self.config.token_file)
        self.worker = _worker(self.config)
        parent = self.parent
        if parent is not None and parent.get("nodaemon") and not (parent["logger"] or parent["logfile"]):
            # twistd takes a name, and calls what it names without arguments.
            global _chosen
            _chosen = self.config
            parent["logger"] = "agentd.tap.line_observer"


_chosen: Config | None = None


def line_observer(config: Config | None = None) -> Any:
    """The log observer that `config`, or the configuration ``twistd`` was given, asks for."""
    config = config or _chosen or Config()
    return LineObserver(sys.stdout.fileno(), config.log_level, config.log_format)


def _worker(config: Config) -> "WorkerOptions | None":
    if not config.worker:
        return None
    from agentd.worker.face import BadOption, options  # a daemon without a worker need not load it

    try:
        return options(
            config.iii_url,
            config.worker_config,
            config.worker_name,
            config.worker_namespace,
            config.iii_headers_file,
            os.environ,
        )
    except BadOption as reason:
        raise UsageError(str(reason)) from None


def _read_token(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            token = file.read(65536).strip()
    except OSError as reason:
        raise UsageError(f"--token-file: {path}: {reason.strerror}") from None
    if not token:
        raise UsageError(f"--token-file: {path}: the file is empty")
    return token


@frozen
class World:
    """What a daemon is built from: the real things in `makeService`, scripted ones in tests."""

    reactor: Any
    run_in_thread: Callable[..., "Deferred[Any]"]
    wall_clock: Callable[[], float]
    environ: dict[str, str]
    out_of_memory: Callable[[int], bool]
    spawner: Spawner | None = None
    """Starts children; None for real ones."""
    limits: Limits = Limits()
    """How much an environment lets a caller have."""


def compose(
    config: Config,
    world: World,
    stop: Callable[[], None],
    worker: "WorkerOptions | None" = None,
    fail: Callable[[str], None] = lambda reason: None,
) -> tuple[Daemon, AgentSite, ProcessSpawner]:
    """Everything below the port, wired up.

    `stop` begins the daemon's way out, and `fail` does with the reason for which it cannot go on. `worker` is how the
    worker is set up, None for a daemon without it.
    """
    image = ImageEnvironment.take()
    groups = Groups(world.run_in_thread)
    zygotes = Zygotes()
    spawner = ProcessSpawner(world.reactor, groups, config.stdin_write_timeout_secs, zygotes)
    tools = JobTools(world.reactor, world.spawner or spawner, world.run_in_thread, world.out_of_memory)
    limits = JobLimits(
        max_output_bytes=config.max_output_bytes,
        stream_buffer_bytes=config.stream_buffer_bytes,
        output_linger_secs=config.output_linger_secs,
        kill_grace_secs=config.kill_grace_secs,
    )

    def terminate() -> None:
        if config.terminate is TerminateMode.DRAIN:
            stop()

    def life() -> Lifecycle:
        return site.state

    daemon = Daemon(
        config=config,
        clock=world.reactor,
        guest=Guest(world.wall_clock, image.variables),
        execs=ExecTable(world.reactor, world.wall_clock, config.exec_ttl_secs),
        tools=tools,
        limits=limits,
        groups=groups,
        handlers=HandlerRunner(tools, config.hooks_dir, config.hook_handler_timeout_secs, world.environ),
        accounts=AccountFiles(Path(config.passwd_file), Path(config.group_file)),
        lifecycle=life,
        terminate=terminate,
    )
    site: AgentSite
    environment = Environment(
        id=config.environment_id,
        agent=Agent(config.agent_user, daemon.accounts, world.run_in_thread, config.environment_state),
        package_env=Path(config.package_env_file),
        platform_env=Path(config.platform_env_file),
        clock=world.reactor,
        wall_clock=world.wall_clock,
        tools=tools,
        disk_reserve=config.disk_reserve_bytes,
        lifecycle=life,
        limits=world.limits,
        at_drain=daemon.at_drain,
    )
    daemon.at_start.append(environment.agent.announce)
    daemon.at_stop.append(zygotes.close)
    others = [environments_face(environment)]
    documented = list(ENVIRONMENT_ROUTES)
    if worker is not None:
        from agentd.worker.face import Worker
        from agentd.worker.http import ROUTES as WORKER_ROUTES

        serving = Worker(worker, world.reactor, tools, world.wall_clock, image.variables, fail)
        others.append(serving.face())
        documented += WORKER_ROUTES
        daemon.at_start.append(serving.begin)
        daemon.at_drain.append(serving.stop)
    router = Router(
        [microvm_face(daemon, tuple(documented)), *others], daemon.guest.authorize, config.max_body_bytes
    )
    site = AgentSite(router, config, world.reactor)
    return daemon, site, spawner


class AgentService(service.Service):
    """The daemon as a Twisted service: listens, sweeps, and leaves in order."""

    def __init__(
        self,
        config: Config,
        token: bytes | None,
        warnings: list[str],
        reactor: Any,
        worker: "WorkerOptions | None" = None,
    ) -> None:
        self._reactor = reactor
        self.exit_status = 0
        """What the process should end with: 1 after a fault that it could not go on with."""
        self._warnings = warnings
        self._pool = ThreadPool(0, THREADS, "agentd")
        self._oom = OomLog()
        self._oom_victims: set[int] = set()
        world = World(
            reactor=reactor,
            run_in_thread=lambda function, *args: deferToThreadPool(reactor, self._pool, function, *args),
            wall_clock=time.time,
            environ=dict(os.environ),
            out_of_memory=self._out_of_memory,
        )
        self.config = config
        self.daemon, self.site, self.spawner = compose(config, world, self._terminate, worker, self._fail)
        self._sweeper = LoopingCall(self.daemon.execs.sweep)
        self._sweeper.clock = reactor
        self._uninstall: Callable[[], None] | None = None
        self._port: Any = None
        if token is not None:
            self.daemon.guest.install_token(token)

    def privilegedStartService(self) -> None:
        """Listen. A port that cannot be had ends the start with one line."""
        where = self.config.listen or f"tcp:{self.config.port}"
        try:
            listening = serverFromString(self._reactor, endpoint(self.config)).listen(self.site)
        except (ValueError, TypeError):  # Twisted hands the words of the text to a function as arguments
            raise SystemExit(f"agentd: --listen: {where} is no server endpoint of Twisted") from None
        failed: list[Failure] = []
        listening.addCallbacks(self._listening, failed.append)
        if failed:
            raise SystemExit(f"agentd: cannot listen on {where}: {failed[0].getErrorMessage()}")

    def _listening(self, port: Any) -> None:
        self._port = port

    def startService(self) -> None:
        """Begin."""
        super().startService()
        self._pool.start()
        self._sweeper.start(SWEEP_SECS, now=False)
        for warning in self._warnings:
            _log.warn(warning)
        if os.getpid() == 1:
            self._uninstall = reaper.install(self.spawner)
        # Said once signals are handled: whoever waits for this line may send one at once.
        self._reactor.callWhenRunning(self._announce)
        self._reactor.callWhenRunning(_settled)
        for begin in self.daemon.at_start:
            self._reactor.callWhenRunning(begin)

    def _announce(self) -> None:
        address = self._port.getHost() if self._port is not None else None
        _log.info(
            "agentd {version} listening on {address}",
            event="listening",
            version=VERSION,
            address=getattr(address, "host", None) or str(getattr(address, "name", "")),
            port=getattr(address, "port", None),
            pid=os.getpid(),
        )

    def _terminate(self) -> None:
        # The hook's answer is written first, in this turn of the reactor.
        self._reactor.callLater(0, self._stop_reactor)

    def _fail(self, reason: str) -> None:
        _log.error("agentd cannot go on: {reason}", reason=reason)
        if self.exit_status == 0:
            self.exit_status = 1
            # twistd ends with 0 whatever happened. All that ends in order has ended when this runs.
            atexit.register(os._exit, 1)
        self._terminate()

    def _stop_reactor(self) -> None:
        if self._reactor.running:
            self._reactor.stop()

    def _out_of_memory(self, pid: int) -> bool:
        self._oom_victims |= self._oom.victims()
        if self._oom.precise:
            found = pid in self._oom_victims
            self._oom_victims.discard(pid)
            return found
        return self._oom.kills() > 0

    def stopService(self) -> "Deferred[None]":
        """Take on nothing new, let requests in flight finish, end the commands, close everything."""
        return Deferred.fromCoroutine(self._leave())

    async def _leave(self) -> None:
        super().stopService()
        _log.info("stopping", event="stopping")
        try:
            await self._wind_down()
        except Exception:
            _log.failure("the way out was cut short")
        finally:
            # A thread that still waits for work would keep the process from ending.
            self._oom.close()
            self._pool.stop()
        _log.info("stopped", event="stopped")

    async def _wind_down(self) -> None:
        if self._port is not None:
            await self._port.stopListening()
        if self._sweeper.running:
            self._sweeper.stop()
        drained = self.site.drain(self.config.drain_timeout_secs)
        ended = DeferredList([begin() for begin in self.daemon.at_drain])
        await drained
        ended.addTimeout(_ENDING_SECS, self._reactor, onTimeoutCancel=lambda result, _: [])
        await ended
        jobs = [entry.job for entry in self.daemon.execs if entry.job.owns_group]
        await DeferredList([job.kill() for job in jobs])
        for close in self.daemon.at_stop:
            close()
        await self.site.close()
        if self._uninstall is not None:
            self._uninstall()


def endpoint(config: Config) -> str:
    """The server endpoint to listen on, in Twisted's words, with the queue that `listen_backlog` asks for."""
    where = config.listen or f"tcp:{config.port}"
    if where.startswith("tcp:") and ":backlog=" not in where:
        where += f":backlog={config.listen_backlog}"
    return where


def _settled() -> None:
    """Once the reactor runs. A hang-up means nothing to a daemon; what start-up has made lives for good."""
    # Handled by doing nothing, because what is ignored here would be ignored by every command too.
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    if os.getpid() != 1:
        # Children are watched through pidfds. Twisted's handler would wake the reactor once more for each of them
        # to look for children of its own, of which there are none.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.collect()
    gc.freeze()
    gc.enable()


def makeService(options: Options) -> AgentService:
    """The service of ``twistd agentd``."""
    from twisted.internet import reactor as chosen

    # The reactor's clock is the wall clock, and a VM's wall clock is stepped when it resumes: every timer would
    # fire at once, or not for hours. Set before anything is scheduled (twistd schedules nothing before this).
    reactor: Any = chosen
    reactor.seconds = time.monotonic
    give_back_large_blocks()
    return AgentService(options.config, options.token, options.warnings, reactor, options.worker)
