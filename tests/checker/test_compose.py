"""Tying events of several models together: what is read, written, offered and answered."""

from collections.abc import Hashable

from checker.model import Event, Values, offered, run_event
from checker.models.compose import Now, tied

COUNT = Event(
    "one more",
    "count",
    "somebody",
    ("count",),
    ("count",),
    lambda count: ((count + 1,), "counted"),
    lambda count: count < 3,
)


def outcome(event: Event, **values: Hashable) -> tuple[Values, Hashable] | None:
    return run_event(event, tuple(values[name] for name in event.reads))


def test_nothing_more_is_the_same() -> None:
    event = tied(COUNT)
    assert (event.reads, event.writes) == (COUNT.reads, COUNT.writes)
    assert outcome(event, count=1) == ((2,), "counted")
    assert outcome(event, count=3) is None


def test_it_is_offered_within_bounds_of_both() -> None:
    event = tied(COUNT, within=lambda now: bool(now["open"]), looks=("open",))
    assert set(event.reads) == {"count", "open"}
    assert outcome(event, count=1, open=True) == ((2,), "counted")
    assert outcome(event, count=1, open=False) is None
    assert outcome(event, count=3, open=True) is None


def test_its_guard_takes_no_more_than_it_looks_at() -> None:
    event = tied(COUNT, reads=("other",), within=lambda now: "other" not in now, looks=("open",))
    assert event.when is not None
    assert set(event.when) == {"count", "open"}
    values = {"count": 0, "open": True, "other": "anything"}
    assert offered(event, tuple(values[name] for name in event.reads))


def test_it_is_refused_before_its_own_effect() -> None:
    event = tied(COUNT, reads=("open",), before=lambda now: None if now["open"] else "closed")
    assert outcome(event, count=1, open=False) == ((1,), "closed")
    assert outcome(event, count=1, open=True) == ((2,), "counted")


def test_something_follows_from_it() -> None:
    def after(now: Now, then: dict[str, Hashable], response: Hashable) -> None:
        then["log"] = (now["count"], then["count"], response)

    event = tied(COUNT, reads=("log",), writes=("log",), after=after)
    assert event.writes == ("count", "log")
    assert outcome(event, count=1, log=()) == ((2, (1, 2, "counted")), "counted")


def test_a_guard_with_a_gate_of_its_own_keeps_it() -> None:
    gated = Event(
        "gated", "gated", "somebody", ("a", "b"), (), lambda a, b: ((), a), lambda b: b > 0, when=("b",)
    )
    event = tied(gated, within=lambda now: bool(now["open"]), looks=("open",))
    assert event.when is not None
    assert set(event.when) == {"b", "open"}
    assert outcome(event, a=7, b=1, open=True) == ((), 7)
    assert outcome(event, a=7, b=0, open=True) is None
