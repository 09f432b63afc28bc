"""The life of a VM: every reachable state within bounds is visited, with the guards and without them."""

from collections.abc import Callable, Iterator

import pytest
from attrs import evolve

from agentd.rules import vm_life as rules
from agentd.rules.vm_life import Life, Phase, Refusal, Verdict

MAX_CYCLES = 2

Event = Callable[[Life], tuple[Life, Verdict, "Refusal | None"]]


def _resume(window_open: bool) -> rules.Guard:
    return lambda life: rules.may_resume(life, window_open=window_open)


REQUESTS: dict[str, tuple[rules.Guard, rules.Step]] = {
    "launch": (rules.may_launch, rules.launched),
    "exec": (rules.may_exec, rules.exec_requested),
    "suspend": (rules.may_suspend, rules.suspend_requested),
    "resume": (_resume(True), rules.resume_requested),
    "resume late": (_resume(False), rules.resume_requested),
    "terminate": (rules.may_terminate, rules.terminate_requested),
}
COMPLETIONS: dict[str, Callable[[Life], tuple[Life, Verdict]]] = {
    "hook succeeded": rules.hook_succeeded,
    "suspend complete": rules.suspend_complete,
    "resume complete": rules.resume_complete,
    "terminate complete": rules.terminate_complete,
}


def guarded(name: str) -> Event:
    return lambda life: rules.request(life, *REQUESTS[name])


def unguarded(name: str) -> Event:
    return lambda life: (REQUESTS[name][1](life), Verdict.ISSUED, None)


def completion(name: str) -> Event:
    return lambda life: (*COMPLETIONS[name](life), None)


def edges(
    events: dict[str, Event], start: Life
) -> Iterator[tuple[Life, str, Life, Verdict, "Refusal | None"]]:
    """Every transition reachable from `start` within `MAX_CYCLES` of each call."""
    seen, frontier = {start}, [start]
    while frontier:
        before = frontier.pop()
        for name, event in events.items():
            after, verdict, refusal = event(before)
            wire = after.wire
            if max(wire.suspends, wire.resumes) > MAX_CYCLES or wire.terminates > 1 or wire.launches > 2:
                continue
            yield before, name, after, verdict, refusal
            if after not in seen:
                seen.add(after)
                frontier.append(after)


HELD = {name: guarded(name) for name in REQUESTS} | {name: completion(name) for name in COMPLETIONS}


def test_guards_held_every_property_on_every_edge() -> None:
    reached: set[str] = set()
    for before, name, after, verdict, refusal in edges(HELD, Life()):
        assert after.bootstraps <= 1
        assert after.image_exists == (after.wire.launches > 0)
        assert after.wire.payloads == after.wire.launches == int(after.image_exists)
        if before.installed_token is not None:
            assert after.installed_token == before.installed_token
        if before.phase is Phase.TERMINATED:
            assert after.phase is Phase.TERMINATED
        if before.was_terminated:
            assert after.phase is not Phase.RUNNING or before.phase is Phase.RUNNING
            assert after.wire.resumes == before.wire.resumes
        if after.wire.suspends > before.wire.suspends:
            assert before.phase is Phase.RUNNING
        if name == "resume late":
            assert after == before
            assert verdict is Verdict.REFUSED
        if name == "resume complete" and verdict is Verdict.ISSUED:
            assert not after.proxy_token_cached
        if verdict is Verdict.REFUSED:
            assert after == before
            assert refusal is not None
        calls = sum((w := after.wire, w.launches + w.suspends + w.resumes + w.terminates)[1:])
        earlier = sum((w := before.wire, w.launches + w.suspends + w.resumes + w.terminates)[1:])
        wired = name.split()[0] in ("launch", "suspend", "resume", "terminate") and name in REQUESTS
        assert calls - earlier == int(wired and verdict is Verdict.ISSUED)
        reached |= _witnesses(before, name, after, verdict, refusal)
    assert reached == {
        "running with its token",
        "one cycle",
        "two cycles",
        "terminated",
        "resume after terminate refused",
        "resume with window closed refused",
        "suspend outside running refused",
        "minted after resume",
        "proxy token survives into suspended",
        "late resume ignored",
    }


def _witnesses(before: Life, name: str, after: Life, verdict: Verdict, refusal: "Refusal | None") -> set[str]:
    found = {
        "running with its token": after.phase is Phase.RUNNING and after.token_installed,
        "one cycle": name == "resume complete" and verdict is Verdict.ISSUED and after.wire.resumes == 1,
        "two cycles": name == "resume complete" and verdict is Verdict.ISSUED and after.wire.resumes == 2,
        "terminated": after.phase is Phase.TERMINATED,
        "resume after terminate refused": name == "resume" and refusal is Refusal.TERMINATED,
        "resume with window closed refused": refusal is Refusal.WINDOW_CLOSED,
        "suspend outside running refused": name == "suspend" and refusal is not None,
        "minted after resume": name == "exec" and after.mints > before.mints >= 1,
        "proxy token survives into suspended": after.phase is Phase.SUSPENDED and after.proxy_token_cached,
        "late resume ignored": name == "resume complete"
        and before.resume_in_flight
        and before.was_terminated,
    }
    return {label for label, holds in found.items() if holds}


def test_a_suspended_session_keeps_its_token_across_the_cycle() -> None:
    life = _launched()
    token = life.installed_token
    for step in (
        guarded("suspend"),
        completion("suspend complete"),
        guarded("resume"),
        completion("resume complete"),
    ):
        life, verdict, _ = step(life)
        assert verdict is Verdict.ISSUED
        assert life.installed_token == token
    assert life.phase is Phase.RUNNING
    assert life.bootstraps == 1


@pytest.mark.parametrize(
    ("skipped", "violation"),
    [
        ("suspend", lambda a, b: b.wire.suspends > a.wire.suspends and a.phase is not Phase.RUNNING),
        ("resume", lambda a, b: b.wire.resumes > a.wire.resumes and a.was_terminated),
        ("resume late", lambda a, b: b.wire.resumes > a.wire.resumes),
        ("launch", lambda a, b: b.wire.launches > 1),
    ],
)
def test_without_its_guard_each_call_goes_wrong(
    skipped: str, violation: Callable[[Life, Life], bool]
) -> None:
    events = HELD | {skipped: unguarded(skipped)}
    assert any(name == skipped and violation(a, b) for a, name, b, _, _ in edges(events, Life()))


def test_a_second_launch_still_installs_one_token() -> None:
    events = HELD | {"launch": unguarded("launch")}
    twice = 0
    for before, _, after, _, _ in edges(events, Life()):
        assert after.bootstraps <= 1
        assert before.installed_token in (None, after.installed_token)
        twice += after.wire.payloads == 2 and after.token_installed
    assert twice


@pytest.mark.parametrize(
    ("life", "name", "refusal"),
    [
        (Life(), "exec", Refusal.NOT_LAUNCHED),
        (Life(), "suspend", Refusal.NOT_LAUNCHED),
        (Life(), "resume", Refusal.NOT_LAUNCHED),
        (Life(), "terminate", Refusal.NOT_LAUNCHED),
        (Life(phase=Phase.PENDING, image_exists=True), "launch", Refusal.ALREADY_LAUNCHED),
        (Life(phase=Phase.PENDING, image_exists=True), "exec", Refusal.NOT_RUNNING),
        (Life(phase=Phase.RUNNING, image_exists=True), "resume", Refusal.NOT_SUSPENDED),
        (Life(phase=Phase.SUSPENDED, resume_in_flight=True), "resume", Refusal.RESUMING),
        (
            Life(phase=Phase.TERMINATED, image_exists=True, was_terminated=True),
            "terminate",
            Refusal.TERMINATED,
        ),
        (Life(phase=Phase.TERMINATED, image_exists=True, was_terminated=True), "exec", Refusal.TERMINATED),
    ],
)
def test_refusals_name_the_reason(life: Life, name: str, refusal: Refusal) -> None:
    assert guarded(name)(life) == (life, Verdict.REFUSED, refusal)


def test_an_exec_mints_once_until_the_token_is_dropped() -> None:
    life = _launched()
    life = rules.exec_requested(rules.exec_requested(life))
    assert (life.mints, life.proxy_token_cached) == (1, True)
    dropped = evolve(life, phase=Phase.SUSPENDED, resume_in_flight=True)
    life, _ = rules.resume_complete(dropped)
    assert rules.exec_requested(life).mints == 2


def _launched() -> Life:
    life, _, _ = guarded("launch")(Life())
    life, verdict = rules.hook_succeeded(life)
    assert verdict is Verdict.ISSUED
    return life
