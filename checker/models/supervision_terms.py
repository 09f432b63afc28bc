"""What there is around a supervised child, and what an edge says of it."""

from math import inf, nan

from attrs import frozen

from agentd.rules.supervision import Supervision
from checker.model import Edge

GRACE = 10.0
"""Seconds from TERM to KILL."""

DEADLINES: dict[float | None, object] = {
    None: ("after", None),
    5.0: ("after", 5.0),
    1e-9: ("after", 1e-9),
    0.0: False,
    -1.0: False,
    inf: False,
    nan: False,
    9.1e18: ("after", 9.1e18),
    9.2e18: ("after", None),
    1.8e19: ("after", None),
    18446744073709551615.0: False,
    1.9e19: False,
}
"""What a start request may ask for, and what it means: refused, or the seconds to the deadline, None for none."""


@frozen
class World:
    """What the daemon has set going around one child."""

    deadline: bool = False
    """Whether the deadline's timer is armed."""
    linger: bool = False
    """Whether the linger's timer is armed."""
    lingers: int = 0
    escalating: bool = False
    escalations: int = 0
    piping: bool = True
    """Whether the end of the pipes is still to come."""
    reading: bool = True
    published: int = 0
    expired: bool = False
    """Whether the deadline came before the child's exit."""
    held: bool = False
    """Whether an escalation runs that the exec asked for itself, by its deadline or for its reap."""


@frozen
class Group:
    """The processes of the child's group."""

    child: str = "running"
    """``running`` or ``ended``. How it ended is told when it is asked for: nothing before depends on it."""
    helper: bool = False
    """Whether another process of the group lives, and holds the pipes."""
    doomed: bool = False
    """Whether the child was sent KILL."""

    @property
    def alive(self) -> bool:
        """Whether any member lives."""
        return self.child == "running" or self.helper


def sup_before(edge: Edge) -> Supervision:
    """What the rules knew before."""
    sup = edge.before["sup"]
    assert isinstance(sup, Supervision)
    return sup


def sup_after(edge: Edge) -> Supervision:
    """What they know afterwards."""
    sup = edge.after["sup"]
    assert isinstance(sup, Supervision)
    return sup


def world_before(edge: Edge) -> World:
    """The daemon's doings before."""
    world = edge.before["world"]
    assert isinstance(world, World)
    return world


def world_after(edge: Edge) -> World:
    """The same afterwards."""
    world = edge.after["world"]
    assert isinstance(world, World)
    return world


def publishes(edge: Edge) -> bool:
    """Whether the edge publishes the result."""
    return world_after(edge).published > world_before(edge).published


def escalates(edge: Edge) -> bool:
    """Whether the edge starts an escalation."""
    return world_after(edge).escalations > world_before(edge).escalations
