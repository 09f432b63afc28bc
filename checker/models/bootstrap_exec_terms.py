"""The words that properties of bootstrap and execs are made of: tokens, records, and what an edge says of them."""

from collections.abc import Hashable
from typing import cast

from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict
from agentd.rules.execs import Phase, Record
from checker.model import Edge

HOST = b"H"
"""The token the platform installs and the client presents."""
ATTACKER = b"A"
ACKED_AT = 100.0
"""Monotonic seconds of every acknowledgement."""

EXEC_KINDS = frozenset({"start", "start_unspawned", "poll", "ack"})
CONTROL = EXEC_KINDS | {"probe"}
ACCEPTED = (RunVerdict.INSTALLED, RunVerdict.REPLAYED)

TAKEOVER = frozenset({"attacker never authorized"})
"""What falls when the attacker may act before the platform."""


def token(edge: Edge) -> bytes | None:
    """The token installed before."""
    return installed(edge.before["boot"]).token


def token_after(edge: Edge) -> bytes | None:
    """The token installed afterwards."""
    return installed(edge.after["boot"]).token


def installed(value: Hashable) -> Bootstrap:
    """What the rules know of a value of the component ``boot``."""
    return cast("tuple[Bootstrap, str]", value)[0]


def presented(edge: Edge) -> bytes | None:
    """The token a request or a run hook carries."""
    return cast("bytes | None", edge.event.args["presents" if edge.event.kind == "probe" else "token"])


def record_before(edge: Edge) -> Record | None:
    """The record of the exec that the event is about, before it."""
    return cast("Record | None", edge.before[f"exec.{edge.event.args['id']}"])


def record_after(edge: Edge) -> Record | None:
    """The same afterwards."""
    return cast("Record | None", edge.after[f"exec.{edge.event.args['id']}"])


def phase(edge: Edge) -> Phase | None:
    """The phase of that exec before, None when there is no record."""
    record = record_before(edge)
    return None if record is None else record.phase


def refused(edge: Edge) -> bool:
    """Whether a control request did not get past the guard."""
    return isinstance(edge.response, Access) and edge.response is not Access.GRANTED


def served(edge: Edge) -> bool:
    """Whether it did."""
    return not refused(edge)
