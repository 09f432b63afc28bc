"""Protocol v1 put together: each row of its route list with its handler."""

from typing import Any

from agentd.http.messages import Answer
from agentd.http.request import AgentRequest
from agentd.http.routes import Face, Handler
from agentd.microvm.context import Daemon
from agentd.microvm.exec import ExecRoutes
from agentd.microvm.health import HealthRoute
from agentd.microvm.hooks import HookRoutes
from agentd.microvm.routes import HOOK_PREFIX, ROUTES
from agentd.microvm.schema import SchemaRoute
from agentd.microvm.stream import StreamRoute


class _Late:
    """Handlers whose modules are imported when the first request wants them, on a pool thread.

    Archives and tunnels bring modules that cost a start 20 ms and 200 ms, and memory that a VM which never uses
    them need not hold (``docs/performance.md``). The request's body waits meanwhile.
    """

    def __init__(self, daemon: Daemon, load: Any) -> None:
        self._daemon = daemon
        self._load = load
        self._handlers: Any = None

    def handler(self, name: str) -> Handler:
        """The handler that is the method `name` of the object `load` makes."""

        async def late(request: AgentRequest, **parameters: str) -> Answer:
            if self._handlers is None:
                made = (await self._daemon.tools.run_in_thread(self._load))(self._daemon)
                self._handlers = self._handlers or made
            answer: Answer = await getattr(self._handlers, name)(request, **parameters)
            return answer

        return late


def _load_files() -> Any:
    from agentd.microvm.fs import FileRoutes

    return FileRoutes


def _load_tunnel() -> Any:
    from agentd.microvm.tcp import TunnelRoute
    from agentd.tunnel import mount

    mount.warm()
    return TunnelRoute


def microvm_face(daemon: Daemon) -> Face:
    """The face, on the capabilities of `daemon`."""
    hooks, execs = HookRoutes(daemon), ExecRoutes(daemon)
    files, tunnel = _Late(daemon, _load_files), _Late(daemon, _load_tunnel)
    handlers: dict[tuple[str, str], Handler] = {
        ("POST", f"{HOOK_PREFIX}/ready"): hooks.ready,
        ("POST", f"{HOOK_PREFIX}/validate"): hooks.validate,
        ("POST", f"{HOOK_PREFIX}/run"): hooks.run,
        ("POST", f"{HOOK_PREFIX}/suspend"): hooks.suspend,
        ("POST", f"{HOOK_PREFIX}/resume"): hooks.resume,
        ("POST", f"{HOOK_PREFIX}/terminate"): hooks.terminate,
        ("POST", "/v1/exec/start"): execs.start,
        ("GET", "/v1/exec/{id}"): execs.poll,
        ("GET", "/v1/exec/{id}/stream"): StreamRoute(daemon).stream,
        ("POST", "/v1/exec/{id}/stdin"): execs.stdin,
        ("POST", "/v1/exec/{id}/ack"): execs.ack,
        ("POST", "/v1/exec/{id}/kill"): execs.kill,
        ("GET", "/v1/procs"): execs.procs,
        ("GET", "/v1/tcp"): tunnel.handler("tcp"),
        ("GET", "/v1/fs/file"): files.handler("read"),
        ("PUT", "/v1/fs/file"): files.handler("write"),
        ("GET", "/v1/fs/tar"): files.handler("pack"),
        ("PUT", "/v1/fs/tar"): files.handler("extract"),
        ("GET", "/v1/health"): HealthRoute(daemon).health,
        ("GET", "/v1/schema"): SchemaRoute(ROUTES, daemon.config).schema,
    }
    return Face("microvm", ROUTES, handlers)
