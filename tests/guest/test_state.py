"""What the VM has been told: token, launch environment and identity together, once; hooks in a log (contract g)."""

import pytest

from agentd.config import HOOK_LOG_CAP
from agentd.guest.handlers import HandlerResult
from agentd.guest.identity import IdentityStep
from agentd.guest.identity import Outcome as StepOutcome
from agentd.guest.state import Guest
from agentd.rules.bootstrap import Access, RunVerdict
from agentd.rules.hooks import Hook
from agentd.rules.payload import RunPayload


class Clock:
    now = 1_700_000_000.9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def guest() -> Guest:
    return Guest(Clock(), {"PATH": "/image"})


def payload(token: bytes = b"t", **env: str) -> RunPayload:
    return RunPayload(token, env, None)


def test_a_fresh_vm_knows_nothing(guest: Guest) -> None:
    assert not guest.bootstrapped
    assert (dict(guest.launch_env), guest.tunnel_identity) == ({}, None)
    assert (guest.identity_steps, guest.repair_attempted, guest.identity_degraded) == ((), False, False)
    assert guest.authorize(b"t") is guest.authorize(None) is Access.UNAVAILABLE


def test_the_winning_hook_installs_everything_at_once(guest: Guest) -> None:
    assert guest.run_hook(payload(b"t", A="1", EMPTY="")) is RunVerdict.INSTALLED
    assert guest.bootstrapped
    assert guest.launch_env == {"A": "1", "EMPTY": ""}
    assert guest.authorize(b"t") is Access.GRANTED
    assert guest.authorize(b"u") is Access.UNAUTHORIZED


@pytest.mark.parametrize(("token", "verdict"), [(b"t", RunVerdict.REPLAYED), (b"u", RunVerdict.CONFLICT)])
def test_a_later_hook_changes_nothing(guest: Guest, token: bytes, verdict: RunVerdict) -> None:
    guest.run_hook(payload(b"t", A="1"))
    assert guest.run_hook(payload(token, A="2", B="3")) is verdict
    assert guest.launch_env == {"A": "1"}
    assert guest.authorize(b"t") is Access.GRANTED


def test_without_a_platform_the_token_comes_from_a_file(guest: Guest) -> None:
    guest.install_token(b"t")
    assert guest.authorize(b"t") is Access.GRANTED
    assert guest.launch_env == {}
    assert guest.run_hook(payload(b"u", A="1")) is RunVerdict.CONFLICT


def test_hooks_are_logged_with_the_wall_clocks_second(guest: Guest) -> None:
    assert guest.observe(Hook.READY) == 0
    assert guest.observe(Hook.RUN) == 1
    assert [(entry.hook, entry.fired_at) for entry in guest.hook_log.entries] == [
        (Hook.READY, 1_700_000_000),
        (Hook.RUN, 1_700_000_000),
    ]


def test_the_log_is_capped(guest: Guest) -> None:
    indices = [guest.observe(Hook.SUSPEND) for _ in range(HOOK_LOG_CAP + 3)]
    assert indices == [*range(HOOK_LOG_CAP), None, None, None]
    assert (len(guest.hook_log.entries), guest.hook_log.dropped) == (HOOK_LOG_CAP, 3)


def test_a_handlers_outcome_is_on_its_entry(guest: Guest) -> None:
    first, second = guest.observe(Hook.SUSPEND), guest.observe(Hook.RESUME)
    assert (first, second) == (0, 1)
    result = HandlerResult(0, None, False, 5)
    guest.handled(1, result)
    assert [entry.outcome for entry in guest.hook_log.entries] == [None, result]


@pytest.mark.parametrize(
    ("outcomes", "degraded"),
    [
        ([StepOutcome.REPAIRED, StepOutcome.NOT_APPLICABLE], False),
        ([StepOutcome.REPAIRED, StepOutcome.FAILED], True),
        ([], False),
    ],
)
def test_repair_is_remembered(guest: Guest, outcomes: list[StepOutcome], degraded: bool) -> None:
    steps = tuple(IdentityStep(f"step-{number}", outcome) for number, outcome in enumerate(outcomes))
    guest.repaired(steps)
    assert guest.repair_attempted
    assert guest.identity_steps == steps
    assert guest.identity_degraded is degraded


def test_steps_of_the_clock_are_counted(guest: Guest) -> None:
    assert (guest.clock_steps, guest.last_clock_step) == (0, None)
    guest.clock_stepped(60.5)
    guest.clock_stepped(3.5)
    assert (guest.clock_steps, guest.last_clock_step) == (2, 3.5)


def test_secrets_are_in_no_repr(guest: Guest) -> None:
    guest.run_hook(payload(b"very-secret", A="hidden"))
    assert "very-secret" not in repr(guest) + repr(vars(guest)["_bootstrap"]) + repr(payload(b"very-secret"))
    assert "hidden" not in repr(payload(b"t", A="hidden"))
