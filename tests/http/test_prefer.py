"""``Prefer: wait=N``: what is granted (RFC 7240)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.http.prefer import applied, wait_seconds


@pytest.mark.parametrize(
    ("lines", "granted"),
    [
        ([], None),
        ([b""], None),
        ([b"wait=5"], 5),
        ([b"wait=0"], 0),
        ([b"wait=60"], 60),
        ([b"wait=61"], 60),
        ([b"wait=" + b"9" * 500], 60),
        ([b"Wait = 5"], 5),
        ([b'wait="5"'], 5),
        ([b"respond-async, wait=5"], 5),
        ([b"respond-async", b"wait=5"], 5),
        ([b"respond-async;foo=bar , wait=5 ; baz"], 5),
        ([b"wait=5, wait=7"], 5),
        ([b"wait=5", b"wait=7"], 5),
        ([b'x="wait=9", wait=5'], 5),
        ([b'x="a, wait=9", wait=5'], 5),
        ([b'x="a\\", wait=9", wait=5'], 5),
        ([b'x="open, wait=5'], None),
        ([b"wait"], None),
        ([b"wait="], None),
        ([b"wait=-1"], None),
        ([b"wait=1.5"], None),
        ([b"wait=five"], None),
        ([b'wait="5'], None),
        ([b"wait=five, wait=5"], None),
        ([b"wait;x=5"], None),
        ([b"await=5"], None),
        ([b"wait2=5"], None),
        ([b"x=wait=5"], None),
        ([b"return=minimal"], None),
        ([b"wait=\xb2"], None),
    ],
)
def test_the_wait_that_is_granted(lines: list[bytes], granted: float | None) -> None:
    """The first preference of the name counts; what cannot be understood is ignored; the longest is 60 here."""
    assert wait_seconds(lines, 60.0) == granted


@given(st.lists(st.binary(max_size=60), max_size=4), st.floats(0, 1e9))
def test_any_header_is_a_wait_or_none(lines: list[bytes], longest: float) -> None:
    """Within the limit."""
    granted = wait_seconds(lines, longest)
    assert granted is None or 0 <= granted <= longest


def test_what_was_granted_is_said() -> None:
    """In whole seconds, as it was asked."""
    assert applied(5.0) == (b"Preference-Applied", b"wait=5")
    assert applied(0.5) == (b"Preference-Applied", b"wait=0")
