"""Protocol v1 put together: each row of its route list with its handler."""

from agentd.http.routes import Face, Handler
from agentd.microvm.context import Daemon
from agentd.microvm.exec import ExecRoutes
from agentd.microvm.fs import FileRoutes
from agentd.microvm.health import HealthRoute
from agentd.microvm.hooks import HookRoutes
from agentd.microvm.routes import HOOK_PREFIX, ROUTES
from agentd.microvm.schema import SchemaRoute
from agentd.microvm.stream import StreamRoute
from agentd.microvm.tcp import TunnelRoute


def microvm_face(daemon: Daemon) -> Face:
    """The face, on the capabilities of `daemon`."""
    hooks, execs, files = HookRoutes(daemon), ExecRoutes(daemon), FileRoutes(daemon)
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
        ("GET", "/v1/tcp"): TunnelRoute(daemon).tcp,
        ("GET", "/v1/fs/file"): files.read,
        ("PUT", "/v1/fs/file"): files.write,
        ("GET", "/v1/fs/tar"): files.pack,
        ("PUT", "/v1/fs/tar"): files.extract,
        ("GET", "/v1/health"): HealthRoute(daemon).health,
        ("GET", "/v1/schema"): SchemaRoute(ROUTES, daemon.config).schema,
    }
    return Face("microvm", ROUTES, handlers)
