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
    from agentd.client.errors import AgentError, AnswerError, TransportFault
    from agentd.client.execs import Exec
    from agentd.client.follow import ByteStream, Follow
    from agentd.client.messages import ExitEvent, Health, PollResponse
    from agentd.client.proxy import Diagnosis
    from agentd.client.retry import NO_RETRY, Backoff, Fault
    from agentd.client.secret import Secret
    from agentd.client.sse import Gap, Output
    from agentd.client.tunnel import Tunnel, Verify

__all__ = [
    "NO_RETRY",
    "AgentError",
    "AnswerError",
    "Backoff",
    "ByteStream",
    "Client",
    "Diagnosis",
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
    "Verify",
]

_HOME = {
    "NO_RETRY": "retry",
    "AgentError": "errors",
    "AnswerError": "errors",
    "Backoff": "retry",
    "ByteStream": "follow",
    "Client": "client",
    "Diagnosis": "proxy",
    "Exec": "execs",
    "ExitEvent": "messages",
    "Fault": "retry",
    "Follow": "follow",
    "Gap": "sse",
    "Health": "messages",
    "Lifetimes": "credentials",
    "Output": "sse",
    "PollResponse": "messages",
    "Secret": "secret",
    "TransportFault": "errors",
    "Tunnel": "tunnel",
    "Verify": "tunnel",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
