"""All handlers of the face under one roof, which `agentd.environments.face` loads with the first request."""

from typing import Any

from agentd.environments import answers
from agentd.environments.admission import admit
from agentd.environments.context import Environment
from agentd.environments.exec import ExecRoute
from agentd.environments.files import FileRoutes
from agentd.environments.processes import ProcessRoutes, beyond_end
from agentd.environments.reading import Query
from agentd.http.messages import HANDED_OVER, Answer
from agentd.http.request import AgentRequest
from agentd.rules import processes
from agentd.tunnel import mount
from agentd.tunnel.mount import UpgradeRefused


class Handlers:
    """One coroutine method a route."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._attachment: Any = None
        exec_route, files = ExecRoute(environment), FileRoutes(environment)
        self._processes = ProcessRoutes(environment)
        self.exec = exec_route.exec
        self.read_file, self.write_file = files.read, files.write
        self.remove_file, self.list_files = files.remove, files.list
        self.list_processes, self.spawn = self._processes.list, self._processes.spawn
        self.look, self.delete = self._processes.look, self._processes.delete
        self.output, self.signal = self._processes.output, self._processes.signal
        environment.at_drain += [self._processes.table.stop, exec_route.stop]

    async def attach(self, request: AgentRequest, id: str, pid: str) -> Answer:
        """``GET /processes/{pid}/attach``. Everything that can be refused is an HTTP answer (environments 8.1)."""
        environment = self._environment
        await admit(environment, id)
        since = Query(request).unsigned("since")
        try:
            key, _ = mount.check_upgrade(request)
        except UpgradeRefused:
            raise answers.invalid("a WebSocket upgrade is required") from None
        self._processes.find(pid)
        if self._attachment is None:
            self._attachment = await environment.tools.run_in_thread(_attachment)
        # It may have gone while autobahn was imported.
        process = self._processes.find(pid)
        if processes.beyond(since, process.log.span):
            raise beyond_end()
        if not request.gone:
            attached = self._attachment(environment, self._processes.table, process, since)
            mount.take_over(request, attached, key, None)
            # An attachment is no request in flight: a stopping daemon ends it instead of waiting for it.
            request.detach()
        return HANDED_OVER


def _attachment() -> type:
    from agentd.environments.attach import Attachment

    return Attachment
