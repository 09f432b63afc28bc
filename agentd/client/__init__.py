"""The client library, on treq: everything a program outside the VM needs to drive a daemon inside.

    from agentd.client import Client

The names below are loaded on first use, so that importing one module of pure decisions, as the checker does
with `agentd.client.credentials`, does not bring in the network.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentd.client.client import Client
    from agentd.client.credentials import Lifetimes
    from agentd.client.environments import Environment
    from agentd.client.errors import AgentError, AnswerError, TransportFault
    from agentd.client.execs import Exec
    from agentd.client.follow import ByteStream, Follow
    from agentd.client.messages import ExitEvent, Health, PollResponse
    from agentd.client.proxy import Diagnosis
    from agentd.client.retry import NO_RETRY, Backoff, Fault
    from agentd.client.secret import Secret
    from agentd.client.sse import Gap, Output
    from agentd.client.tunnel import Tunnel, Verify
    from agentd.rules.payload import TunnelIdentity

__all__ = [
    "NO_RETRY",
    "AgentError",
    "AnswerError",
    "Backoff",
    "ByteStream",
    "Client",
    "Diagnosis",
    "Environment",
    "Exec",
    "ExitEvent",
    "Fault",
    "Follow",
    "Gap",
    "Health",
    "Lifetimes",
    "Output",
    "PollResponse",
    "Secret",
    "TransportFault",
    "Tunnel",
    "TunnelIdentity",
    "Verify",
]

_HOME = {
    "NO_RETRY": "agentd.client.retry",
    "AgentError": "agentd.client.errors",
    "AnswerError": "agentd.client.errors",
    "Backoff": "agentd.client.retry",
    "ByteStream": "agentd.client.follow",
    "Client": "agentd.client.client",
    "Diagnosis": "agentd.client.proxy",
    "Environment": "agentd.client.environments",
    "Exec": "agentd.client.execs",
    "ExitEvent": "agentd.client.messages",
    "Fault": "agentd.client.retry",
    "Follow": "agentd.client.follow",
    "Gap": "agentd.client.sse",
    "Health": "agentd.client.messages",
    "Lifetimes": "agentd.client.credentials",
    "Output": "agentd.client.sse",
    "PollResponse": "agentd.client.messages",
    "Secret": "agentd.client.secret",
    "TransportFault": "agentd.client.errors",
    "Tunnel": "agentd.client.tunnel",
    "TunnelIdentity": "agentd.rules.payload",
    "Verify": "agentd.client.tunnel",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
