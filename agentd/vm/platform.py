"""What a platform does around a machine: the lifecycle hooks, in order and within their limits (contract a.1, g).

    start ──► ready ──► validate ──► run(token) ──► …
              … suspend ──► pause ══════════ go on ──► resume …          as often as wished
              … terminate ──► the guest powers off

`ready` and `validate` belong to the making of an image; a machine that is to be cloned gets them and no more, and each
clone its own `run`. A hook that is not answered in time, or not with success, ends what was begun: a launch is taken
back by its caller, a suspend does not pause. An end goes on whatever the guest says.
"""

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred

from agentd.client.client import HOOKS, Client
from agentd.client.errors import AgentError
from agentd.client.messages import Health
from agentd.client.retry import NO_RETRY
from agentd.client.secret import Secret
from agentd.client.transport import default_http
from agentd.vm.machine import READY_SECONDS, End, Machine, MachineFailed

HOOK_SECONDS: Final = 60.0
"""For every hook. The daemon gives a workload's handler at most 55 of them."""
LEAVE_SECONDS: Final = 40.0
"""From the answer to `terminate` to the power-off: the daemon drains for 25 by default."""


class HookFailed(MachineFailed):
    """A hook was not answered in time, or not with 200."""


async def post(reactor: Any, url: str, hook: str) -> None:
    """Post a hook without a payload. Raises `HookFailed`."""
    http, pool = default_http(reactor)
    try:
        asked = http.request("POST", f"{url}{HOOKS}/{hook}", data=b"", timeout=HOOK_SECONDS)
        answer = await asked
        await answer.content()
    except Exception as fault:
        raise HookFailed(f"the hook {hook} was not answered: {type(fault).__name__}") from None
    finally:
        await _closed(pool)
    if answer.code != 200:
        raise HookFailed(f"the hook {hook} was answered with {answer.code}")


async def _closed(pool: Any) -> None:
    closing: Deferred[Any] = pool.closeCachedConnections()
    await closing


async def prepare(reactor: Any, machine: Machine, limit: float = READY_SECONDS) -> Health:
    """Wait for a machine that was started, and post what an image's making posts. Raises `MachineFailed`."""
    health = await machine.ready(limit)
    await post(reactor, machine.url, "ready")
    await post(reactor, machine.url, "validate")
    return health


async def launch(
    reactor: Any, machine: Machine, token: str | Secret, env: Mapping[str, str] | None = None
) -> None:
    """Give a machine that answers its token and its launch environment.

    Raises `HookFailed`, and ValueError for a payload that cannot be.
    """
    client = Client(machine.url, reactor=reactor, backoff=NO_RETRY, timeout=HOOK_SECONDS)
    try:
        await client.bootstrap(token, env)
    except AgentError as fault:
        raise HookFailed(f"the hook run failed: {fault}") from None
    finally:
        await client.close()


async def suspend(reactor: Any, machine: Machine) -> None:
    """Tell the guest, then pause it. Raises `HookFailed`; the machine then runs on."""
    await post(reactor, machine.url, "suspend")
    await machine.pause()


async def resume(reactor: Any, machine: Machine) -> None:
    """Let it run on, then tell the guest. Raises `HookFailed`; the machine runs all the same."""
    await machine.go_on()
    await post(reactor, machine.url, "resume")


async def end(reactor: Any, machine: Machine) -> End:
    """Tell the guest to end and wait until it has powered off; kill it if it will not. Never leaves it running."""
    try:
        if not machine.over:
            if await machine.status() != "running":
                await machine.go_on()
            await post(reactor, machine.url, "terminate")
        return await machine.ended(LEAVE_SECONDS)
    except MachineFailed:
        await machine.kill()
        return await machine.ended()
    except BaseException:
        await machine.kill()
        raise
