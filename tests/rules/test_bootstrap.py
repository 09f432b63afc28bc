"""One-shot bootstrap and the guard of the bearer routes (contract g.2, i)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules import bootstrap
from agentd.rules.bootstrap import Access, Bootstrap, RunVerdict

tokens = st.binary(min_size=1, max_size=8)


def test_nothing_is_installed_at_first() -> None:
    assert not Bootstrap().installed
    assert Bootstrap(b"t").installed


def test_the_first_token_is_installed() -> None:
    assert bootstrap.run_hook(Bootstrap(), b"t") == (Bootstrap(b"t"), RunVerdict.INSTALLED)


def test_the_installed_token_again_is_a_replay() -> None:
    assert bootstrap.run_hook(Bootstrap(b"t"), b"t") == (Bootstrap(b"t"), RunVerdict.REPLAYED)


@pytest.mark.parametrize("other", [b"u", b"T", b"tt", b"t ", b"\xff", b"t\0"])
def test_another_token_is_a_conflict_and_changes_nothing(other: bytes) -> None:
    assert bootstrap.run_hook(Bootstrap(b"t"), other) == (Bootstrap(b"t"), RunVerdict.CONFLICT)


@given(st.lists(tokens, min_size=1, max_size=6))
def test_whatever_is_posted_the_first_token_stays(posted: list[bytes]) -> None:
    state, verdicts = Bootstrap(), []
    for token in posted:
        state, verdict = bootstrap.run_hook(state, token)
        verdicts.append(verdict)
        assert state.token == posted[0]
    assert verdicts[0] is RunVerdict.INSTALLED
    for token, verdict in zip(posted[1:], verdicts[1:], strict=True):
        assert verdict is (RunVerdict.REPLAYED if token == posted[0] else RunVerdict.CONFLICT)


@pytest.mark.parametrize("presented", [None, b"", b"t", b"anything"])
def test_before_bootstrap_every_guess_is_unavailable(presented: bytes | None) -> None:
    assert bootstrap.authorize(Bootstrap(), presented) is Access.UNAVAILABLE


@pytest.mark.parametrize(
    "presented", [None, b"", b"u", b"T", b"tok", b"token ", b"t\xc3\xb6ken", b"\xff\xfe"]
)
def test_after_bootstrap_anything_else_is_unauthorized(presented: bytes | None) -> None:
    assert bootstrap.authorize(Bootstrap(b"token"), presented) is Access.UNAUTHORIZED


@given(tokens)
def test_the_installed_token_is_granted_whatever_its_bytes(token: bytes) -> None:
    assert bootstrap.authorize(Bootstrap(token), token) is Access.GRANTED


@given(tokens, tokens)
def test_granted_means_equal(installed: bytes, presented: bytes) -> None:
    granted = bootstrap.authorize(Bootstrap(installed), presented) is Access.GRANTED
    assert granted == (installed == presented)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        (b"", None),
        (b"Bearer", None),
        (b"Bearer ", b""),
        (b"Bearer t", b"t"),
        (b"bearer t", b"t"),
        (b"BEARER t", b"t"),
        (b"Bearer  t", b" t"),
        (b"Bearer a b", b"a b"),
        (b"Bearer \xff\x00", b"\xff\x00"),
        (b"Bearer\tt", None),
        (b"Basic dDp0", None),
        (b"Token t", None),
        (b" Bearer t", None),
        (b"Bearerx t", None),
        (b"t", None),
    ],
)
def test_the_token_is_what_follows_the_scheme_and_one_space(
    header: bytes | None, token: bytes | None
) -> None:
    assert bootstrap.bearer_token(header) == token


@given(st.binary(max_size=12))
def test_a_bearer_token_keeps_every_byte(token: bytes) -> None:
    for letters in itertools.islice(itertools.product(*zip("bearer", "BEARER", strict=True)), 0, None, 13):
        assert bootstrap.bearer_token("".join(letters).encode() + b" " + token) == token


def test_an_empty_token_matches_nothing() -> None:
    presented = bootstrap.bearer_token(b"Bearer ")
    assert bootstrap.authorize(Bootstrap(b"t"), presented) is Access.UNAUTHORIZED


def test_a_token_is_not_shown() -> None:
    state, _ = bootstrap.run_hook(Bootstrap(), b"very-secret")
    assert "very-secret" not in repr(state)
    assert "very-secret" not in str(state)
