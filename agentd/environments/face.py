"""The face put together: each row of its route list with its handler, imported when the first request comes."""

from collections.abc import Callable
from functools import partial
from typing import Any

from agentd.environments.answers import REFUSALS
from agentd.environments.context import Environment
from agentd.environments.routes import PREFIX, ROUTES
from agentd.http.late import Late
from agentd.http.routes import Face, Handler


def _load(environment: Environment) -> Callable[[], Any]:
    from agentd.environments.handlers import Handlers

    return partial(Handlers, environment)


def environments_face(environment: Environment) -> Face:
    """The face of `environment`."""
    late = Late(environment.tools.run_in_thread, partial(_load, environment))
    root = f"{PREFIX}/{{id}}"
    names = {
        ("POST", f"{root}/exec"): "exec",
        ("GET", f"{root}/files"): "read_file",
        ("PUT", f"{root}/files"): "write_file",
        ("DELETE", f"{root}/files"): "remove_file",
        ("GET", f"{root}/files/list"): "list_files",
        ("GET", f"{root}/processes"): "list_processes",
        ("POST", f"{root}/processes"): "spawn",
        ("GET", f"{root}/processes/{{pid}}"): "look",
        ("DELETE", f"{root}/processes/{{pid}}"): "delete",
        ("GET", f"{root}/processes/{{pid}}/output"): "output",
        ("GET", f"{root}/processes/{{pid}}/attach"): "attach",
        ("POST", f"{root}/processes/{{pid}}/signal"): "signal",
    }
    handlers: dict[tuple[str, str], Handler] = {key: late.handler(name) for key, name in names.items()}
    return Face("environments", ROUTES, handlers, REFUSALS, PREFIX.encode())
