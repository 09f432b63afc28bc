"""The proxy token's rules: every sequence of uses, mints, failures and resumes keeps them."""

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.client.credentials import (
    Ask,
    Await,
    Cache,
    Grant,
    Lifetimes,
    Mint,
    Use,
    begin,
    decide,
    fail,
    resume,
    serves,
    succeed,
)

LIFETIMES = Lifetimes(life=60, renewal=30, retry=5)


def held(*ports: int, at: float = 0.0) -> Cache:
    return Cache(grant=Grant(frozenset(ports), at), mints=1)


def test_the_defaults_are_an_hour_and_half_of_it() -> None:
    assert (Lifetimes().life, Lifetimes().renewal) == (3600.0, 1800.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"life": 3601},
        {"life": 0},
        {"life": float("nan")},
        {"renewal": 0},
        {"renewal": 3600},
        {"life": 10, "renewal": 11},
        {"retry": -1},
    ],
)
def test_lifetimes_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"proxy token|renewal"):
        Lifetimes(**wrong)


def test_the_first_use_asks_for_its_port_alone() -> None:
    assert decide(Cache(), 9000, 0, LIFETIMES) == Ask(frozenset({9000}))


@pytest.mark.parametrize(
    ("age", "decision"),
    [
        (0, Use()),
        (29.9, Use()),
        (30, Ask(frozenset({9000}))),
        (59.9, Ask(frozenset({9000}))),
        (60, Ask(frozenset({9000}))),
        (-1, Ask(frozenset({9000}))),
    ],
)
def test_a_token_is_used_until_its_renewal(age: float, decision: object) -> None:
    assert decide(held(9000), 9000, age, LIFETIMES) == decision


def test_a_new_port_is_asked_for_beside_the_old_ones() -> None:
    assert decide(held(9000, 8080), 5432, 1, LIFETIMES) == Ask(frozenset({9000, 8080, 5432}))


def test_while_a_mint_is_under_way_others_wait_unless_they_have_what_they_need() -> None:
    cache, mint = begin(held(9000), Ask(frozenset({9000, 8080})), 1)
    assert decide(cache, 9000, 1, LIFETIMES) == Use()
    assert decide(cache, 8080, 1, LIFETIMES) == Await(mint)
    assert decide(cache, 1234, 1, LIFETIMES) == Await(mint)
    cache, kept = succeed(cache, mint)
    assert kept
    assert decide(cache, 8080, 1, LIFETIMES) == Use()
    assert decide(cache, 1234, 1, LIFETIMES) == Ask(frozenset({9000, 8080, 1234}))


def test_a_tokens_life_begins_with_its_mint_not_with_its_arrival() -> None:
    cache, mint = begin(Cache(), Ask(frozenset({9000})), 100)
    cache, _ = succeed(cache, mint)
    assert cache.grant == Grant(frozenset({9000}), 100)


def test_a_failed_renewal_leaves_the_token_in_use_and_waits_before_the_next() -> None:
    cache, mint = begin(held(9000), Ask(frozenset({9000})), 40)
    cache = fail(cache, mint, 41)
    assert decide(cache, 9000, 42, LIFETIMES) == Use()
    assert decide(cache, 9000, 46, LIFETIMES) == Ask(frozenset({9000}))
    assert decide(evolve(cache, failed_at=59), 9000, 60, LIFETIMES) == Ask(frozenset({9000}))


def test_a_resume_forgets_the_token_and_the_mint_under_way() -> None:
    cache, mint = begin(held(9000), Ask(frozenset({9000, 8080})), 1)
    cache = resume(cache)
    assert decide(cache, 9000, 1, LIFETIMES) == Ask(frozenset({9000}))
    assert succeed(cache, mint) == (cache, False)
    assert fail(cache, mint, 2) == cache
    cache, mint = begin(cache, Ask(frozenset({9000})), 2)
    assert succeed(cache, mint)[1]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("use"), st.sampled_from([9000, 8080, 5432])),
        st.tuples(st.sampled_from(["arrive", "fail"]), st.integers(0, 3)),
        st.tuples(st.just("pass"), st.integers(0, 40)),
        st.tuples(st.just("resume"), st.just(0)),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(steps)
def test_no_sequence_uses_a_token_wrongly(script: list[tuple[str, int]]) -> None:
    cache, now, asked = Cache(), 0.0, 0
    flying: list[Mint] = []
    for kind, value in script:
        before = cache
        if kind == "pass":
            now += value
        elif kind == "use":
            decision = decide(cache, value, now, LIFETIMES)
            if isinstance(decision, Use):
                assert cache.grant is not None
                assert value in cache.grant.ports
                assert now - cache.grant.minted_at < LIFETIMES.life
            elif isinstance(decision, Ask):
                assert cache.minting is None
                assert decision.ports == (cache.grant.ports if cache.grant else frozenset()) | {value}
                cache, mint = begin(cache, decision, now)
                flying.append(mint)
                asked += 1
        elif kind in ("arrive", "fail") and flying:
            mint = flying.pop(value % len(flying))
            if kind == "arrive":
                cache, kept = succeed(cache, mint)
                assert kept == (mint.epoch == before.epoch)
                if kept and before.grant is not None:
                    assert cache.grant is not None
                    assert before.grant.ports <= cache.grant.ports
            else:
                cache = fail(cache, mint, now)
                assert cache.grant == before.grant
        elif kind == "resume":
            cache = resume(cache)
            assert not serves(cache.grant, 9000, now, LIFETIMES)
        assert cache.mints == asked
        assert sum(mint.epoch == cache.epoch for mint in flying) <= 1
