"""The lifecycle hooks (contract a.1, g): recorded before anything else, then decided, then answered.

What a hook has begun is finished, whether or not the platform waits for the answer: a bootstrap that is half done, or
a handler that nobody stops at the end of its budget, would outlive the call.
"""

from twisted.logger import Logger

from agentd.guest import clock, identity
from agentd.http.messages import EMPTY_OK, Answer, Response, as_text
from agentd.http.query import is_json
from agentd.http.request import AgentRequest, BodyTooLarge
from agentd.http.shield import shielded
from agentd.microvm.context import Daemon
from agentd.rules import hooks
from agentd.rules.bootstrap import RunVerdict
from agentd.rules.hooks import Hook
from agentd.rules.payload import Refusal, RunPayload, parse_run_body

_log = Logger()
_CONFLICT = Response(409)
_EMPTY_400 = Response(400)


class HookRoutes:
    """The handlers."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def ready(self, request: AgentRequest) -> Answer:
        """``POST …/ready``: the daemon is up."""
        self._daemon.guest.observe(Hook.READY)
        return EMPTY_OK

    def validate(self, request: AgentRequest) -> Answer:
        """``POST …/validate``: the daemon is up."""
        self._daemon.guest.observe(Hook.VALIDATE)
        return EMPTY_OK

    async def suspend(self, request: AgentRequest) -> Answer:
        """``POST …/suspend``: the workload's handler runs before the answer."""
        return await shielded(self._plain(Hook.SUSPEND))

    async def resume(self, request: AgentRequest) -> Answer:
        """``POST …/resume``: the workload's handler runs before the answer."""
        return await shielded(self._resumed())

    async def _resumed(self) -> Answer:
        # The observation is of the moment of the hook, on whatever the clock then said; the handler finds it right.
        index = self._daemon.guest.observe(Hook.RESUME)
        await self._catch_up()
        await self._handle(Hook.RESUME, index, None)
        return EMPTY_OK

    async def _catch_up(self) -> None:
        """Set the wall clock if a suspend has left it behind, on a machine that is ours to repair."""
        daemon = self._daemon
        if not daemon.config.repair_identity:
            return
        try:
            seconds = await daemon.tools.run_in_thread(clock.catch_up)
        except OSError as reason:
            _log.warn("the wall clock is behind and cannot be set: {reason}", reason=reason.strerror)
            return
        if seconds is not None:
            daemon.guest.clock_stepped(seconds)

    async def terminate(self, request: AgentRequest) -> Answer:
        """``POST …/terminate``: handler, answer, then the way out."""
        return await shielded(self._terminate())

    async def _terminate(self) -> Answer:
        answer = await self._plain(Hook.TERMINATE)
        self._daemon.terminate()
        return answer

    async def _plain(self, hook: Hook) -> Answer:
        index = self._daemon.guest.observe(hook)
        await self._handle(hook, index, None)
        return EMPTY_OK

    async def _handle(self, hook: Hook, index: int | None, verdict: RunVerdict | None) -> None:
        if index is None or not hooks.runs_handler(hook, index, verdict):
            return
        guest = self._daemon.guest
        result = await self._daemon.handlers.run(hook, guest.launch_env)
        if result is not None:
            guest.handled(index, result)

    async def run(self, request: AgentRequest) -> Answer:
        """``POST …/run``: bootstrap. The token works as soon as it is installed, before the answer."""
        index = self._daemon.guest.observe(Hook.RUN)
        payload = await self._payload(request)
        if isinstance(payload, Refusal):
            return as_text(400, payload.text) if payload.text else _EMPTY_400
        return await shielded(self._bootstrap(index, payload))

    async def _bootstrap(self, index: int | None, payload: RunPayload) -> Answer:
        daemon = self._daemon
        verdict = daemon.guest.run_hook(payload)
        if verdict is RunVerdict.CONFLICT:
            return _CONFLICT
        if verdict is RunVerdict.INSTALLED:
            await self._pledge(payload.token)
            if daemon.config.repair_identity:
                await self._catch_up()  # a clone is told nothing of the suspend that it comes from
                steps = await daemon.tools.run_in_thread(identity.repair, _told(payload))
                daemon.guest.repaired(steps)
            await self._handle(Hook.RUN, index, verdict)
        return EMPTY_OK

    async def _pledge(self, token: bytes) -> None:
        """Bind the daemons after this one, if an init starts them, to the same token."""
        try:
            await self._daemon.tools.run_in_thread(self._daemon.guest.pledge.keep, token)
        except OSError as reason:
            _log.warn("the pledge could not be kept: {reason}", reason=reason.strerror)

    async def _payload(self, request: AgentRequest) -> RunPayload | Refusal:
        content_type = request.requestHeaders.getRawHeaders(b"content-type")
        if not is_json(content_type[0] if content_type else None):
            return Refusal()
        try:
            body = await request.read_body(self._daemon.config.max_hook_body_bytes)
        except BodyTooLarge:
            return Refusal()
        return parse_run_body(body)


def _told(payload: RunPayload) -> bytes:
    """What this machine alone was told: secrets, to be hashed."""
    return payload.token + (payload.identity.seed if payload.identity is not None else b"")
