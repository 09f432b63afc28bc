"""The worker as the daemon sees it: options, an HTTP face, a start and an end. Cheap to import.

Everything else of the worker (autobahn, google-re2, the functions) is loaded on a pool thread once the daemon listens.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentd.files.threads import Ending
from agentd.http.messages import Answer
from agentd.http.request import AgentRequest
from agentd.http.routes import Face, Handler
from agentd.process.job import JobTools
from agentd.worker import http
from agentd.worker.errors import BootFailed, FunctionError
from agentd.worker.http import PREFIX, REFUSALS, ROUTES

if TYPE_CHECKING:
    from agentd.worker.service import WorkerService

_log = Logger()

DEFAULT_URL: Final = "ws://127.0.0.1:49134"
TOKEN_VARIABLE: Final = "III_TOKEN"
"""A bearer token for the engine, as the SDKs read it. It is not passed on to commands."""
NO_ENGINE: Final = "none"
"""In the place of a URL: HTTP alone."""


class BadOption(ValueError):
    """An option of the worker's cannot be used; the text quotes no value."""


@frozen
class WorkerOptions:
    """How the worker is set up."""

    url: str | None = field(default=DEFAULT_URL, repr=False)
    """None for no engine."""
    seed: Path = Path("config.yaml")
    name: str = "shell"
    namespace: str | None = None
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    """On every connection to the engine, channels too."""


def read_headers(path: str) -> Mapping[str, str]:
    """The headers of a file, ``Name: value`` a line. Blocks. Raises `BadOption`."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as reason:
        raise BadOption(f"{path}: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise BadOption(f"{path}: it is not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not name.strip().replace("-", "").replace("_", "").isalnum():
            raise BadOption(f"{path}: line {number} is no header")
        found[name.strip()] = value.strip()
    return found


def options(
    url: str | None,
    seed: str,
    name: str,
    namespace: str | None,
    headers_file: str | None,
    environ: Mapping[str, str],
) -> WorkerOptions:
    """The options from what the command line and the environment say. Blocks. Raises `BadOption`."""
    headers = dict(read_headers(headers_file)) if headers_file is not None else {}
    token = environ.get(TOKEN_VARIABLE, "").strip()
    if token and not any(each.lower() == "authorization" for each in headers):
        headers["Authorization"] = f"Bearer {token}"
    where = None if url == NO_ENGINE else url or DEFAULT_URL
    if where is not None and not where.startswith(("ws://", "wss://")):
        raise BadOption("--iii-url: expected ws://HOST:PORT, wss://HOST:PORT or none")
    return WorkerOptions(where, Path(seed), name, namespace, headers)


class Worker:
    """The worker of one daemon. `fail` is called with the reason when it cannot start and the daemon has to end."""

    def __init__(
        self,
        options: WorkerOptions,
        reactor: Any,
        tools: JobTools,
        wall_clock: Callable[[], float],
        environ: Mapping[str, str],
        fail: Callable[[str], None],
    ) -> None:
        self._options = options
        self._reactor = reactor
        self._tools = tools
        self._wall_clock = wall_clock
        self._environ = {name: value for name, value in environ.items() if name != TOKEN_VARIABLE}
        self._fail = fail
        self._started = Ending()
        self._starting: Deferred[None] | None = None
        self.service: WorkerService | None = None

    def face(self) -> Face:
        """The HTTP face."""
        handlers: dict[tuple[str, str], Handler] = {
            ("GET", PREFIX): self._list,
            ("POST", f"{PREFIX}/{{id}}"): self._call,
        }
        return Face("worker", ROUTES, handlers, REFUSALS, PREFIX.encode())

    def begin(self) -> None:
        """Start. What goes wrong is reported to `fail`."""
        self._starting = Deferred.fromCoroutine(self._begin())
        self._starting.addErrback(self._broken)

    async def _begin(self) -> None:
        make: Any = await self._tools.run_in_thread(_load)
        service = make(self._options, self._reactor, self._tools, self._wall_clock, self._environ, self._fail)
        self.service = service
        await service.start()
        self._started.over()

    def _broken(self, reason: Failure) -> None:
        if reason.check(CancelledError):
            return  # the daemon stops
        if not reason.check(BootFailed):
            _log.failure("the worker could not start", reason)
            self._fail("an unforeseen fault; the log says more")
        else:
            self._fail(str(reason.value))

    def stop(self) -> "Deferred[Any]":
        """End everything; fires when it is over."""
        if self._starting is not None:
            self._starting.cancel()
        return succeed(None) if self.service is None else self.service.stop()

    # -- handlers --------------------------------------------------------------------------------------

    async def _list(self, request: AgentRequest) -> Answer:
        await self._started.wait()
        assert self.service is not None
        found = self.service.registry.functions
        return http.result(await self._tools.run_in_thread(http.document, found))

    async def _call(self, request: AgentRequest, id: str) -> Answer:
        arguments = await http.read_arguments(request)
        await self._started.wait()
        assert self.service is not None
        try:
            return http.result(await self.service.invoke(id, arguments))
        except FunctionError as reason:
            status = 404 if reason.code == "function_not_found" else 422
            return http.failure(status, reason.code, reason.message)


_NEEDED: Final = {"re2": "google-re2", "yaml": "PyYAML"}
"""Modules that a plain installation lacks, and what brings them."""


def _load() -> Any:
    missing = [package for module, package in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise BootFailed(f"it needs {' and '.join(missing)}, which agentd[worker] installs")
    from agentd.worker.service import WorkerService, World

    def make(
        options: WorkerOptions, reactor: Any, tools: JobTools, wall_clock: Any, environ: Any, fail: Any
    ) -> Any:
        return WorkerService(options, World(reactor, tools, wall_clock, environ, fail))

    return make
