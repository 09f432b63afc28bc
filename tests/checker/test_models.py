"""The models: every configuration is right, its counts are the pinned ones, and nothing in it is idle."""

import pytest

from checker import models, pins
from checker.check import Exit, Options, check, judge
from checker.model import ModelError
from checker.models import load, tunnel
from checker.models.without import without
from checker.properties import LeadsTo

PINNED = pins.load()


@pytest.mark.parametrize("key", list(models.every()))
def test_a_configuration_is_right(key: str) -> None:
    model = load(key)
    result = check(model)
    judged = judge(result)
    assert judged.code is Exit.HOLDS, judged
    assert {prop.name for prop in judged.expected} == model.violates
    assert pins.drift(result, PINNED) is None
    assert not result.unwitnessed()
    assert not judged.idle


def test_everything_is_pinned_and_nothing_else() -> None:
    assert PINNED.keys() == set(models.every(default_only=False))


@pytest.mark.parametrize(
    "key",
    [
        "bootstrap_exec:three_ids",
        "output:two_readers",
        "exec_start:published_space",
        "tunnel:path_attacker",
    ],
)
def test_a_large_configuration_is_right(key: str) -> None:
    result = check(load(key), Options(live=False))
    assert judge(result).code is Exit.HOLDS
    assert pins.drift(result, PINNED) is None


def test_the_attacker_wins_without_the_deployment_invariant() -> None:
    model = load("bootstrap_exec:deployment_invariant_broken")
    result = check(model)
    assert [prop.name for prop in result.violations()] == ["attacker never authorized"]
    steps = result.trace(result.violations()[0]).steps
    assert [step.event.kind for step in steps] == ["run", "probe"]
    assert steps[0].event.actor == "attacker"


def test_the_published_model_without_the_deployment_invariant() -> None:
    result = check(load("published:deployment_invariant_broken"))
    assert {prop.name for prop in result.violations()} == {"attacker never authorized"}
    assert result.trace(result.violations()[0]).steps[0].event.name == "attacker posts the run hook"


def test_models_hold_no_transition_logic_of_the_rules() -> None:
    """Each model calls the rules it is about: planting a fault in them changes what it does."""
    from checker.matrix import baseline

    called = {
        "bootstrap_exec": {"run_hook", "authorize", "start", "exited", "ack", "collect"},
        "exec_start": {"plan", "snapshot", "layer"},
        "output": {"publish", "next_step", "advance", "head_room"},
        "stdin": {"judge", "written", "closed"},
        "supervision": {"step", "cause", "escalate", "deadline", "valid_timeout"},
        "hooks": {"record", "runs_handler", "attach_outcome"},
        "lifecycle": {"terminate", "stop", "drain_expired", "may_start"},
        "processes:slots": {"reserve", "release", "reaped", "published", "delete", "may_signal"},
        "processes:polls": {"ask", "changed", "expired", "forgotten", "page", "final", "beyond"},
        "processes:stdin": {"judge_input", "queued", "drained", "ended", "closed", "writable"},
        "tunnel:handshake": {"opened", "shaken", "dialled", "dial_failed", "client_shaken", "unbuildable"},
        "tunnel:relay": {"caller_broke", "caller_lost", "guest_ended", "client_received", "client_closed"},
        "product": {"run_hook", "start", "collect", "next_step", "request_began", "may_start"},
    }
    for key, names in called.items():
        ran = {name for module, name in baseline(key).functions if module.startswith("agentd.rules")}
        assert names <= ran, key


def test_every_model_has_liveness_or_a_reason() -> None:
    """Hooks ends by the bounds of its flood; whatever goes on has something it must get to."""
    without = {
        load(key).name
        for key in models.every()
        if not any(isinstance(prop, LeadsTo) for prop in load(key).properties)
    }
    assert without == {"hooks", "published"}


@pytest.mark.parametrize(
    "key",
    ["processes:together", "product:two_ids", "tunnel:older_caller_attacked", "tunnel:older_daemon_attacked"],
)
def test_a_larger_configuration_holds_too(key: str) -> None:
    result = check(load(key))
    assert judge(result).code is Exit.HOLDS
    assert pins.drift(result, PINNED) is None


def test_an_attacker_on_the_path_wins_when_promises_can_be_seen() -> None:
    result = check(load("tunnel:offers_in_clear"))
    assert {prop.name for prop in result.violations()} == result.model.violates
    for prop in result.violations():
        assert [step.event.kind for step in result.trace(prop).steps].count("strip") == 1


def test_a_guest_that_ended_the_tunnel_itself_is_never_reset() -> None:
    """And may read its end of file before the caller has said all."""
    from checker.faults import planted, seeded

    prop = "the guest sees a reset only when the caller's stream was cut"
    with planted(seeded()["the guest's end resets"]):
        result = check(load("tunnel:relay"), Options(live=False))
        assert prop in {one.name for one in result.violations()}


@pytest.mark.parametrize("name", sorted(tunnel.DEFENCES))
def test_without_a_defence_the_attacker_wins(name: str) -> None:
    """Contract j.4: each defence off; and it is on again for whoever comes afterwards."""
    model = models.load(f"tunnel:{name}")
    result = check(model)
    verdict = judge(result)
    assert verdict.code is Exit.HOLDS
    assert [prop.name for prop in verdict.expected] == [tunnel.DEFENCES[name][2]]
    assert result.trace(verdict.expected[0]).steps
    base = "relay" if tunnel.DEFENCES[name][0] else "handshake"
    assert pins.drift(check(load(f"tunnel:{base}")), PINNED) is None


def test_a_defence_that_nobody_can_take_away_is_no_configuration() -> None:
    with pytest.raises(ModelError, match="no fault 'the moon is gone'"):
        without(models.load("tunnel:relay"), "the moon is gone", ())
