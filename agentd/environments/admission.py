"""Whether a request reaches the environment at all: its id, its state, its user (environments 2.3, points 4 and 5)."""

from agentd.environments import answers
from agentd.environments.account import SWITCH_FAILED, SWITCH_LIMIT, Absent, Broken, Identity
from agentd.environments.context import Environment
from agentd.http.messages import Refused
from agentd.rules.lifecycle import Stage


async def admit(environment: Environment, id: str) -> Identity:
    """The agent user, for a request that names the environment `id`; or `Refused` with 404, 409 or 503."""
    if id != environment.id:
        raise Refused(answers.NO_RESOURCE)
    agent = environment.agent
    if agent.switch == SWITCH_FAILED:
        raise Refused(answers.failed("its operator says so"))
    if agent.switch == SWITCH_LIMIT:
        raise Refused(answers.SUSPENDED)
    if environment.lifecycle().stage is not Stage.SERVING:
        raise Refused(answers.not_running("the daemon is shutting down"))
    found = await agent.find()
    if isinstance(found, Absent):
        raise Refused(answers.not_running(found.reason))
    if isinstance(found, Broken):
        raise Refused(answers.failed(found.reason))
    return found
