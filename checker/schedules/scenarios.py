"""Small situations in which the order matters, each with what may happen in it.

A scenario is a few callers, a child or two, and perhaps a timer: as much as one question needs, since the number of
orders grows with everything that takes part.
"""

import os
from collections.abc import Callable
from signal import SIGKILL
from typing import Any, Final

from attrs import frozen

from agentd.process.job import Job
from agentd.rules.supervision import Event as Happening
from checker.histories.history import Op
from checker.model import ModelError
from checker.replay.adapter import HOOKS, run_payload
from checker.replay.children import ScriptedChild
from checker.schedules.stage import TOKEN, Asked, Stage

A: Final = "a"
OTHER: Final = b"somebody-else's"


@frozen
class Scenario:
    """One situation."""

    name: str
    about: str
    make: Callable[[], Stage]


# --- What can be asked for, and what children do ---------------------------------------------------------------


def start(exec_id: str = A, *, cuts: tuple[float, ...] = (), pool: bool = False, **more: object) -> Asked:
    """A start; with `pool`, of a user who has to be looked up there."""
    value: dict[str, object] = {"exec_id": exec_id, "command": ["scripted", exec_id], **more}
    if pool:
        value["user"] = os.geteuid()
    return Asked("POST", "/v1/exec/start", value, cuts=cuts, op=Op.START, exec=exec_id)


def poll(exec_id: str = A, *, wait: int | None = None, cuts: tuple[float, ...] = ()) -> Asked:
    """A poll; with `wait`, one that waits for the outcome."""
    headers = () if wait is None else (("Prefer", f"wait={wait}"),)
    return Asked("GET", f"/v1/exec/{exec_id}", headers=headers, cuts=cuts, op=Op.POLL, exec=exec_id)


def ack(exec_id: str = A, *, cuts: tuple[float, ...] = ()) -> Asked:
    """An acknowledgement."""
    return Asked("POST", f"/v1/exec/{exec_id}/ack", cuts=cuts, op=Op.ACK, exec=exec_id)


def kill(exec_id: str = A) -> Asked:
    """A kill."""
    return Asked("POST", f"/v1/exec/{exec_id}/kill")


def run_hook(token: bytes) -> Asked:
    """A run hook."""
    return Asked("POST", f"{HOOKS}/run", run_payload(token), token=None)


def exits(child: ScriptedChild) -> None:
    """It exits."""
    if not child.exited:
        child.exit()


def dies(child: ScriptedChild) -> None:
    """It is ended by KILL, and with it its group."""
    child.group.living = False
    if not child.exited:
        child.exit(signal=SIGKILL)


def ends_pipes(child: ScriptedChild) -> None:
    """Nobody holds its pipes any more."""
    child.end_pipes()


def writes(data: bytes) -> Callable[[ScriptedChild], None]:
    """It writes."""
    return lambda child: child.write(data)


ENDS: Final = (("exits", exits), ("closes its pipes", ends_pipes))


def _timers(**names: str) -> Callable[[Any], str | None]:
    """What elapses: the timers of functions whose names contain a word."""

    def elapses(call: Any) -> str | None:
        name = getattr(call.func, "__qualname__", "")
        if isinstance(getattr(call.func, "__self__", None), Job):
            word = "deadline" if Happening.DEADLINE in call.args else "linger"
            return names.get(word)
        return next((told for word, told in names.items() if word in name), None)

    return elapses


# --- The scenarios -----------------------------------------------------------------------------------------------


def two_starts() -> Stage:
    """Both callers want the same, and the pool is slow."""
    stage = Stage()
    stage.caller("first", start(pool=True, cuts=(1.5,)), poll())
    stage.caller("second", start(pool=True), ack())
    stage.play(A, *ENDS)
    return stage


def ack_and_exit() -> Stage:
    """An acknowledgement, a poll and the child's end."""
    stage = Stage()
    stage.caller("client", start(), poll(), ack(), poll())
    stage.caller("other", ack(cuts=(0.5,)), start())
    stage.play(A, *ENDS)
    return stage


def half_a_body() -> Stage:
    """A start whose body is half there when another comes with the same id, on a connection with more behind it."""
    stage = Stage()
    stage.caller("slow", start(cuts=(0.3, 1.0, 1.5)), ack(), pipelined=True)
    stage.caller("quick", start(), poll(cuts=(0.2,)))
    stage.play(A, *ENDS)
    return stage


def disconnects() -> Stage:
    """Callers who leave: in the middle of a body, and while they wait for an outcome that does not come."""
    stage = Stage()
    stage.caller("client", start(), start("c"), ack())
    stage.caller("leaver", start("b", cuts=(0.5, 1.5), pool=True), leaves=True)
    stage.caller("waiter", poll("c", wait=20), leaves=True)
    stage.play(A, *ENDS)
    return stage


def waits() -> Stage:
    """An outcome that is waited for, by its end or the end of the wait."""
    stage = Stage()
    stage.caller("waiter", start(), poll(wait=20), ack())
    stage.caller("other", poll(wait=1), ack())
    stage.play(A, *ENDS)
    stage.elapses = _timers(addTimeout="the wait is over", timeItOut="the wait is over")
    return stage


def kill_and_exit() -> Stage:
    """A kill, a deadline and a linger around the child's own end."""
    stage = Stage(kill_grace_secs=2.0, output_linger_secs=1.0)
    stage.caller("client", start(timeout_sec=5.0, reap_group_on_exit=True), poll(), ack())
    stage.caller("killer", kill())
    stage.play(A, ("dies", dies), ("closes its pipes", ends_pipes))
    stage.elapses = _timers(
        deadline="the deadline comes", linger="the linger is over", callback="the escalation looks again"
    )
    return stage


def bootstrap() -> Stage:
    """Run hooks of two tokens, and control calls while the first is being kept."""
    stage = Stage(bootstrapped=False)
    stage.caller("platform", run_hook(TOKEN))
    stage.caller("intruder", run_hook(OTHER))
    stage.caller("client", start(), poll())
    return stage


def stream() -> Stage:
    """A stream whose reader stops for a while, over a child that writes and ends."""
    stage = Stage(stream_buffer_bytes=32 * 1024, stream_channel_capacity=1)
    stage.caller("client", start(), ack())
    stage.caller("reader", Asked("GET", f"/v1/exec/{A}/stream", streams=True), paused=True, leaves=False)
    big = bytes(range(256)) * 96
    stage.play(A, ("writes 24 KiB", writes(big)), ("writes 24 KiB", writes(big)), *ENDS)
    return stage


def drain() -> Stage:
    """A daemon that is asked to leave with requests in flight."""
    stage = Stage()
    stage.caller("client", start(cuts=(1.5,)), poll(), ack())
    stage.caller("late", start("b"))
    stage.play(A, *ENDS)
    stage.play("b", *ENDS)
    stage.once("SIGTERM comes", lambda: stage.memory.site.drain(10.0))
    return stage


def tunnel() -> Stage:
    """Both ends talk and end; the frames come in pieces, the first with the upgrade; the caller may stop reading."""
    stage = Stage()
    stage.tunnels(says=(b"ab", b"cd"), cuts=(5, 11), guest=(b"xy", b"z"))
    return stage


def tunnel_cut() -> Stage:
    """The caller may leave, and the guest breaks."""
    stage = Stage()
    stage.tunnels(says=(b"ab",), cuts=(9,), guest=(b"xy",), leaves=True, breaks=True)
    return stage


SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario("two_starts", "two starts of one id, with the pool between them", two_starts),
        Scenario("ack_and_exit", "acknowledgements, polls and a retry around an exit", ack_and_exit),
        Scenario("half_a_body", "a start half read, with another request behind it", half_a_body),
        Scenario("disconnects", "callers who leave in a body, and while they wait", disconnects),
        Scenario("waits", "outcomes that are waited for", waits),
        Scenario("kill_and_exit", "a kill, a deadline, a reap and a linger around an exit", kill_and_exit),
        Scenario("bootstrap", "two run hooks and control calls", bootstrap),
        Scenario("stream", "a reader that stops, and a child that writes and ends", stream),
        Scenario("tunnel", "a tunnel whose ends both talk, in pieces, and end", tunnel),
        Scenario("tunnel_cut", "a tunnel whose caller leaves, and whose guest breaks", tunnel_cut),
        Scenario("drain", "SIGTERM with requests in flight", drain),
    )
}


def scenario(name: str) -> Scenario:
    """The scenario of that name. Raises ModelError."""
    if name not in SCENARIOS:
        raise ModelError(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
