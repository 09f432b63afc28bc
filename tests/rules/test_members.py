"""Which member may land where (contract e.5)."""

import errno
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.rules.members import (
    ESCAPES,
    NAMES_ROOT,
    NO_TARGET,
    NUL_BYTE,
    SPECIAL,
    TOO_LONG,
    Action,
    Caps,
    MemberType,
    Placed,
    Refused,
    blocked,
    judge,
    over,
    resolve,
    shown,
)

FILE, DIRECTORY, SYMLINK, HARD_LINK = (
    MemberType.FILE,
    MemberType.DIRECTORY,
    MemberType.SYMLINK,
    MemberType.HARD_LINK,
)

paths = st.lists(
    st.sampled_from([b"", b".", b"..", b"a", b"b", b"...", b"..a", b" "]), min_size=1, max_size=8
).map(b"/".join)


@pytest.mark.parametrize(
    ("name", "type", "target", "verdict"),
    [
        (b"a/b", FILE, b"", Placed(Action.FILE, (b"a", b"b"))),
        (b"./a//./b/", FILE, b"", Placed(Action.FILE, (b"a", b"b"))),
        (b"a/../b", DIRECTORY, b"", Placed(Action.DIRECTORY, (b"b",))),
        (b"./", DIRECTORY, b"", Placed(Action.NOTHING, ())),
        (b"a/..", DIRECTORY, b"", Placed(Action.NOTHING, ())),
        (b".", FILE, b"", Refused(NAMES_ROOT)),
        (b"", FILE, b"", Refused(NAMES_ROOT)),
        (b"./", SYMLINK, b"a", Refused(NAMES_ROOT)),
        (b"a/..", HARD_LINK, b"a", Refused(NAMES_ROOT)),
        (b"/a", FILE, b"", Refused(ESCAPES)),
        (b"//a", DIRECTORY, b"", Refused(ESCAPES)),
        (b"..", DIRECTORY, b"", Refused(ESCAPES)),
        (b"../a", FILE, b"", Refused(ESCAPES)),
        (b"a/../../a", FILE, b"", Refused(ESCAPES)),
        (b"a/../..", DIRECTORY, b"", Refused(ESCAPES)),
        (b".//etc", FILE, b"", Placed(Action.FILE, (b"etc",))),
        (b"null", MemberType.DEVICE, b"", Refused(SPECIAL)),
        (b"pipe", MemberType.FIFO, b"", Refused(SPECIAL)),
        (b"./", MemberType.FIFO, b"", Refused(SPECIAL)),
        (b"../null", MemberType.DEVICE, b"", Refused(ESCAPES)),
        (b"x" * 4096, FILE, b"", Placed(Action.FILE, (b"x" * 4096,))),
        (b"x" * 4097, FILE, b"", Refused(TOO_LONG)),
        (b"a\0b", FILE, b"", Refused(NUL_BYTE)),
        (b"a", SYMLINK, b"b\0", Refused(NUL_BYTE)),
        (b"d/s", SYMLINK, b"", Refused(NO_TARGET)),
        (b"d/s", SYMLINK, b"../x", Placed(Action.SYMLINK, (b"d", b"s"))),
        (b"d/s", SYMLINK, b"..", Placed(Action.SYMLINK, (b"d", b"s"))),
        (b"d/s", SYMLINK, b".", Placed(Action.SYMLINK, (b"d", b"s"))),
        (b"s", SYMLINK, b".", Placed(Action.SYMLINK, (b"s",))),
        (b"d/s", SYMLINK, b"/x", Refused("absolute link target /x")),
        (b"d/s", SYMLINK, b"../../x", Refused("link target ../../x resolves outside the root")),
        (b"d/s", SYMLINK, b"../../d", Refused("link target ../../d resolves outside the root")),
        (b"d/h", HARD_LINK, b"", Refused(NO_TARGET)),
        (b"d/h", HARD_LINK, b"d/f", Placed(Action.HARD_LINK, (b"d", b"h"), (b"d", b"f"))),
        (b"d/h", HARD_LINK, b"./d/../f", Placed(Action.HARD_LINK, (b"d", b"h"), (b"f",))),
        (b"d/h", HARD_LINK, b"../f", Refused("link target ../f resolves outside the root")),
        (b"d/h", HARD_LINK, b"/f", Refused("absolute link target /f")),
        (b"d/h", HARD_LINK, b"d/..", Refused("link target d/.. is the root itself")),
    ],
)
def test_judgements(name: bytes, type: MemberType, target: bytes, verdict: Placed | Refused) -> None:
    assert judge(name, type, target) == verdict


@given(paths)
def test_resolution_is_that_of_normalised_text(path: bytes) -> None:
    """The oracle resolves below a directory too deep to leave, and looks at where it came out."""
    depth = [b"r"] * 20
    oracle = posixpath.normpath(b"/".join([b"", *depth, path]))
    inside = oracle == b"/" + b"/".join(depth) or oracle.startswith(b"/" + b"/".join(depth) + b"/")
    found = resolve((), path)
    if found is None:
        # `r` is no component of a generated path, so leaving and coming back is impossible in text, too.
        assert path.startswith(b"/") or not inside or _leaves(path)
    else:
        assert not path.startswith(b"/")
        assert b"/".join([b"", *depth, *found]) == oracle


def _leaves(path: bytes) -> bool:
    level = 0
    for component in path.split(b"/"):
        level += {b"..": -1, b".": 0, b"": 0}.get(component, 1)
        if level < 0:
            return True
    return False


@given(paths, st.sampled_from(MemberType), paths)
def test_what_is_placed_is_beneath_the_root(name: bytes, type: MemberType, target: bytes) -> None:
    verdict = judge(name, type, target)
    if isinstance(verdict, Placed):
        for part in (*verdict.parts, *verdict.source):
            assert part not in (b"", b".", b"..")
            assert b"/" not in part
        assert bool(verdict.parts) == (verdict.action is not Action.NOTHING)
        assert bool(verdict.source) == (verdict.action is Action.HARD_LINK)
    else:
        assert verdict.reason


@given(
    st.lists(st.sampled_from([b"a", b"b", b"c d", b".x"]), min_size=1, max_size=6),
    st.sampled_from([b"", b"./"]),
)
def test_plain_names_are_always_accepted(parts: list[bytes], front: bytes) -> None:
    assert judge(front + b"/".join(parts), FILE) == Placed(Action.FILE, tuple(parts))
    assert judge(front + b"/".join(parts) + b"/", DIRECTORY) == Placed(Action.DIRECTORY, tuple(parts))


def test_errnos_that_are_verdicts() -> None:
    assert blocked(errno.ELOOP, b"link") == Refused("cannot create under link: symbolic link")
    assert blocked(errno.EXDEV, b"a") == Refused("cannot create under a: outside the root")
    assert blocked(errno.EACCES, b"a") == Refused("cannot create under a: permissions")
    assert not any(
        blocked(error, b"a") for error in (errno.ENOSYS, errno.EEXIST, errno.ENOENT, errno.ENOTDIR)
    )


def test_caps_are_exact() -> None:
    caps = Caps(members=3, bytes=100)
    assert over(3, 100, caps) is None
    assert over(4, 0, caps) == Refused("more than 3 members")
    assert over(1, 101, caps) == Refused("more than 100 bytes of files")
    assert over(1, 1, Caps(members=0, bytes=0)) is not None


def test_names_in_messages_are_bounded_and_on_one_line() -> None:
    assert shown(b"a\nb\xff\x1b[m") == "a\\nb\\xff\\x1b[m"
    assert len(shown(b"x" * 100_000)) < 250
    assert shown("naïve".encode()) == "naïve"
