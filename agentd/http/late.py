"""Handlers whose modules are imported when the first request wants them, on a pool thread.

Archives, tunnels and whole faces bring modules that cost a start tens to hundreds of milliseconds, and memory
that a VM which never uses them need not hold (``docs/performance.md``). The request's body waits meanwhile.
"""

from collections.abc import Callable
from typing import Any

from agentd.http.messages import Answer
from agentd.http.request import AgentRequest
from agentd.http.routes import Handler
from agentd.process.groups import RunInThread


class Late:
    """The methods of an object that is made late.

    `load` runs on a pool thread and returns what makes the object, which happens on the reactor thread, once.
    """

    def __init__(self, run_in_thread: RunInThread, load: Callable[[], Callable[[], Any]]) -> None:
        self._run_in_thread = run_in_thread
        self._load = load
        self._handlers: Any = None

    def handler(self, name: str) -> Handler:
        """The handler that is the coroutine method `name` of the object."""

        async def late(request: AgentRequest, **parameters: str) -> Answer:
            if self._handlers is None:
                make = await self._run_in_thread(self._load)
                if self._handlers is None:
                    self._handlers = make()
            answer: Answer = await getattr(self._handlers, name)(request, **parameters)
            return answer

        return late
