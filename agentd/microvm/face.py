"""Protocol v1 put together: each row of its route list with its handler."""

from collections.abc import Callable
from functools import partial
from typing import Any

from agentd.http.late import Late
from agentd.http.routes import Face, Handler, Route
from agentd.microvm.context import Daemon
from agentd.microvm.exec import ExecRoutes
from agentd.microvm.health import HealthRoute
from agentd.microvm.hooks import HookRoutes
from agentd.microvm.routes import HOOK_PREFIX, ROUTES
from agentd.microvm.schema import SchemaRoute
from agentd.microvm.stream import StreamRoute


def _load_files(daemon: Daemon) -> Callable[[], Any]:
    from agentd.microvm.fs import FileRoutes

    return partial(FileRoutes, daemon)


def _load_tunnel(daemon: Daemon) -> Callable[[], Any]:
    from agentd.microvm.tcp import TunnelRoute
    from agentd.tunnel import mount

    mount.warm()
    return partial(TunnelRoute, daemon)


def microvm_face(daemon: Daemon, documented: tuple[Route, ...] = ()) -> Face:
    """The face, on the capabilities of `daemon`. Its OpenAPI document covers the routes `documented` too."""
    hooks, execs = HookRoutes(daemon), ExecRoutes(daemon)
    in_thread = daemon.tools.run_in_thread
    files, tunnel = (
        Late(in_thread, partial(_load_files, daemon)),
        Late(in_thread, partial(_load_tunnel, daemon)),
    )
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
        ("GET", "/v1/schema"): SchemaRoute(ROUTES, daemon.config, documented).schema,
    }
    return Face("microvm", ROUTES, handlers)
