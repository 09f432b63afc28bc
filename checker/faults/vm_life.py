"""Wrong versions of `agentd.rules.vm_life`."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from agentd.rules.vm_life import Life, Phase, Refusal, Verdict
from checker.faults import Function, fault

MODULE = "agentd.rules.vm_life"
Completed = tuple[Life, Verdict]


@fault("a second hook bootstraps again", MODULE, "hook_succeeded")
def _again(right: Function, life: Life) -> Completed:
    if life.phase in (Phase.RUNNING, Phase.SUSPENDED):
        then = evolve(life, installed_token=life.wire.launches + 1, bootstraps=min(3, life.bootstraps + 1))
        return then, Verdict.ISSUED
    completed: Completed = right(life)
    return completed


@fault("a hook counts in any phase", MODULE, "hook_succeeded")
def _any_phase(right: Function, life: Life) -> Completed:
    if not life.token_installed and life.phase in (Phase.TERMINATING, None):
        return evolve(life, installed_token=life.wire.launches, bootstraps=1), Verdict.IGNORED
    completed: Completed = right(life)
    return completed


@fault("the token is another launch's", MODULE, "hook_succeeded")
def _another(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return (evolve(then, installed_token=0) if verdict is Verdict.ISSUED else then), verdict


@fault("a resume bootstraps again", MODULE, "resume_complete")
def _resume_bootstraps(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return (evolve(then, bootstraps=2) if verdict is Verdict.ISSUED else then), verdict


@fault("a resume loses the token", MODULE, "resume_complete")
def _resume_loses(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return (evolve(then, installed_token=None) if verdict is Verdict.ISSUED else then), verdict


@fault("a suspend loses the token", MODULE, "suspend_complete")
def _suspend_loses(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return (evolve(then, installed_token=None) if verdict is Verdict.ISSUED else then), verdict


@fault("a resume keeps the proxy token", MODULE, "resume_complete")
def _keeps_proxy(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return evolve(then, proxy_token_cached=life.proxy_token_cached), verdict


@fault("a late resume revives the VM", MODULE, "resume_complete")
def _revives(right: Function, life: Life) -> Completed:
    if life.resume_in_flight:
        then = evolve(life, phase=Phase.RUNNING, resume_in_flight=False, proxy_token_cached=False)
        return then, Verdict.ISSUED
    return life, Verdict.IGNORED


@fault("a resume stays under way", MODULE, "resume_complete")
def _stays(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return evolve(then, resume_in_flight=life.resume_in_flight), verdict


@fault("a suspend drops the proxy token", MODULE, "suspend_complete")
def _drops_proxy(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return (evolve(then, proxy_token_cached=False) if verdict is Verdict.ISSUED else then), verdict


@fault("a suspend is never complete", MODULE, "suspend_complete")
def _never_suspended(right: Function, life: Life) -> Completed:
    return life, Verdict.IGNORED


@fault("an ignored suspend suspends", MODULE, "suspend_complete")
def _ignored_suspends(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return (evolve(then, phase=Phase.SUSPENDED) if life.phase is Phase.RUNNING else then), verdict


@fault("a terminate is never complete", MODULE, "terminate_complete")
def _never_terminated(right: Function, life: Life) -> Completed:
    return life, Verdict.IGNORED


@fault("a terminated VM keeps its proxy token", MODULE, "terminate_complete")
def _keeps_proxy_token(right: Function, life: Life) -> Completed:
    then, verdict = right(life)
    return evolve(then, proxy_token_cached=life.proxy_token_cached), verdict


def _wire(life: Life, **calls: int) -> Life:
    """The life with other counts of calls."""
    return evolve(life, wire=evolve(life.wire, **calls))


def _step(name: str, function: str, wrong: Callable[[Life, Life], Life]) -> None:
    """A wrong step: takes the life before and after the right one."""

    def planted(right: Function, life: Life) -> Life:
        return wrong(life, right(life))

    fault(name, MODULE, function)(planted)


def _guard(name: str, function: str, allows: Callable[[Refusal | None], bool]) -> None:
    """A guard that lets through what it should refuse."""

    def planted(right: Function, life: Life, **window: Any) -> Refusal | None:
        refusal: Refusal | None = right(life, **window)
        return None if allows(refusal) else refusal

    fault(name, MODULE, function)(planted)


_step("every exec mints", "exec_requested", lambda life, then: evolve(then, mints=life.mints + 1))
_step("no exec mints", "exec_requested", lambda life, then: life)
_step(
    "a resume delivers the payload",
    "resume_requested",
    lambda life, then: _wire(then, payloads=then.wire.payloads + 1),
)
_step(
    "a launch delivers no payload",
    "launched",
    lambda life, then: _wire(then, payloads=0),
)
_step("a launch leaves no image", "launched", lambda life, then: evolve(then, image_exists=False))
_step("a launch runs at once", "launched", lambda life, then: evolve(then, phase=Phase.RUNNING))
_step(
    "a suspend is complete at once",
    "suspend_requested",
    lambda life, then: evolve(then, phase=Phase.SUSPENDED),
)
_step("a suspend is not counted", "suspend_requested", lambda life, then: evolve(then, wire=life.wire))
_step(
    "a resume is never under way", "resume_requested", lambda life, then: evolve(then, resume_in_flight=False)
)
_step(
    "a terminate is forgotten", "terminate_requested", lambda life, then: evolve(then, was_terminated=False)
)
_step(
    "a terminate removes the image",
    "terminate_requested",
    lambda life, then: evolve(then, image_exists=False),
)
_step(
    "a terminate is counted as a suspend",
    "terminate_requested",
    lambda life, then: evolve(then, wire=_wire(life, suspends=life.wire.suspends + 1).wire),
)

_guard("anything can be suspended", "may_suspend", lambda refusal: True)
_guard("anything can be run", "may_exec", lambda refusal: refusal is Refusal.NOT_RUNNING)
_guard("a VM can be launched twice", "may_launch", lambda refusal: True)
_guard("a terminated VM can be resumed", "may_resume", lambda refusal: refusal is Refusal.TERMINATED)
_guard("the window is not looked at", "may_resume", lambda refusal: refusal is Refusal.WINDOW_CLOSED)
_guard("a running VM can be resumed", "may_resume", lambda refusal: refusal is Refusal.NOT_SUSPENDED)
_guard("a resume is asked for twice", "may_resume", lambda refusal: refusal is Refusal.RESUMING)
_guard(
    "what was never launched can be terminated",
    "may_terminate",
    lambda refusal: refusal is Refusal.NOT_LAUNCHED,
)
_guard("a VM can be terminated twice", "may_terminate", lambda refusal: refusal is Refusal.TERMINATED)


@fault("a refused request is made", MODULE, "request")
def _made(right: Function, life: Life, guard: Any, step: Any) -> tuple[Life, Verdict, Refusal | None]:
    _, verdict, refusal = right(life, guard, step)
    return step(life), verdict, refusal
