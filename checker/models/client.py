"""A VM's life as its client sees it: contract j.2, over `rules.vm_life`, which the client library itself uses.

The client asks for anything at any time; completions come late, or when they mean nothing any more. The
counterfactual configurations make calls before their guards are asked, and plant a second launch.
"""

from collections.abc import Hashable

from agentd.rules import vm_life
from agentd.rules.vm_life import Guard, Life, Verdict, Wire
from agentd.rules.vm_life import Step as Asked
from checker.model import Component, Event, Model, Values
from checker.models import Config
from checker.models.client_properties import SKIPPED, properties

CALLS = 3
"""Suspends and resumes that are called for, to bound the model."""
MINTS = 3
"""Proxy tokens, likewise."""


def _open(life: Life) -> vm_life.Refusal | None:
    return vm_life.may_resume(life, window_open=True)


def _shut(life: Life) -> vm_life.Refusal | None:
    return vm_life.may_resume(life, window_open=False)


def _asks(kind: str, name: str, window_open: bool = True) -> Event:
    """A request. Which guard and which step it is, is looked up when it happens."""

    def pair() -> tuple[Guard, Asked]:
        pairs: dict[str, tuple[Guard, Asked]] = {
            "launch": (vm_life.may_launch, vm_life.launched),
            "exec": (vm_life.may_exec, vm_life.exec_requested),
            "suspend": (vm_life.may_suspend, vm_life.suspend_requested),
            "resume": (_open if window_open else _shut, vm_life.resume_requested),
            "terminate": (vm_life.may_terminate, vm_life.terminate_requested),
        }
        return pairs[kind]

    def effect(life: Life, guarded: bool) -> tuple[Values, Hashable]:
        ask, step = pair()
        if not guarded:
            return (step(life),), (Verdict.ISSUED, None)
        life, verdict, refusal = vm_life.request(life, ask, step)
        return (life,), (verdict, refusal)

    def bound(life: Life, guarded: bool) -> bool:
        wire = life.wire
        within = {
            "launch": wire.launches < 2,
            "exec": life.mints < MINTS,
            "suspend": wire.suspends < CALLS,
            "resume": wire.resumes < CALLS,
            "terminate": wire.terminates < 2,
        }
        return within[kind]

    args = {"window_open": window_open}
    return Event(name, kind, "client", ("life", f"guards.{kind}"), ("life",), effect, bound, args)


def _comes(kind: str, name: str) -> Event:
    """A completion, at whatever time."""

    def effect(life: Life) -> tuple[Values, Hashable]:
        life, verdict = {
            "hook": vm_life.hook_succeeded,
            "suspended": vm_life.suspend_complete,
            "resumed": vm_life.resume_complete,
            "terminated": vm_life.terminate_complete,
        }[kind](life)
        return (life,), (verdict, None)

    return Event(name, kind, "platform", ("life",), ("life",), effect)


REQUESTS = ("launch", "exec", "suspend", "resume", "terminate")


def build(config: str, unguarded: frozenset[str], violates: frozenset[str]) -> Model:
    """The model, with some kinds of requests made without asking their guard."""
    events = (
        _asks("launch", "the client launches"),
        _comes("hook", "the run hook succeeds"),
        _asks("exec", "the client runs a command"),
        _asks("suspend", "the client suspends"),
        _comes("suspended", "a suspend is complete"),
        _asks("resume", "the client resumes in time"),
        _asks("resume", "the client resumes too late", False),
        _comes("resumed", "a resume is complete"),
        _asks("terminate", "the client terminates"),
        _comes("terminated", "a terminate is complete"),
    )
    return Model(
        "client",
        config,
        (
            Component("life", Life(wire=Wire()), meaning="what the client knows of the VM"),
            *(Component(f"guards.{kind}", kind not in unguarded) for kind in REQUESTS),
        ),
        events,
        properties(),
        (),
        violates,
        {"suspends and resumes": CALLS, "proxy tokens": MINTS},
        "a VM launched, suspended, resumed and terminated by a client",
    )


CONFIGS = {
    "guards_held": Config(lambda name: build(name, frozenset(), frozenset())),
    "guards_skipped": Config(lambda name: build(name, frozenset({"suspend", "resume"}), SKIPPED)),
    "double_bootstrap_planted": Config(
        lambda name: build(
            name, frozenset({"launch"}), frozenset({"one launch for each VM", "what a launch answers"})
        )
    ),
}
