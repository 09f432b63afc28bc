"""Laws of extraction: nothing outside the root changes, plain archives are taken, trees come back equal.

The hostile half puts links on the disk first, generates members that want out, and compares pictures of
everything outside the root before and after. The race is with a process that swaps directories for links while they
are being filled.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentd.files.errors import FilesError, Kind
from agentd.rules.members import Caps
from tests.files.support import DEADLINE_SECS, archive, descriptors, member, packed, picture, refused, unpack

lawful = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])


@contextmanager
def umask_of_a_daemon() -> Iterator[None]:
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def outcome(data: bytes, root: Path, caps: Caps | None = None) -> Kind | None:
    """The kind of error that extracting `data` fails with, None when it succeeds."""
    try:
        unpack(data, root, caps)
    except FilesError as error:
        return error.kind
    return None


# -- what comes in, stays in -----------------------------------------------------------------------------------

components = st.sampled_from(["a", "b", "out", "up", "abs", "deep", "hard", "fifo", "..", ".", "", "etc"])
names = st.lists(components, min_size=1, max_size=5).map("/".join) | st.sampled_from(
    [
        "/out",
        "/etc/x",
        "../outside/secret",
        "a/../../outside/secret",
        "out/secret",
        "up/outside/secret",
        "hard",
    ]
)
types = st.sampled_from(
    [tarfile.REGTYPE] * 3
    + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.LNKTYPE]
    + [tarfile.CHRTYPE, tarfile.FIFOTYPE, b"Z"]
)
hostile_members = st.builds(
    lambda name, type, content, link, mode: member(
        name, content if type in (tarfile.REGTYPE, b"Z") else b"", type=type, link=link, mode=mode
    ),
    names,
    types,
    st.sampled_from([b"", b"hostile", b"x" * 70_000]),
    names,
    st.sampled_from([0o644, 0o777, 0o000, 0o6777]),
)


def set_the_trap(place: Path) -> Path:
    """A root full of ways out, and an outside that must not change."""
    outside, root = place / "outside", place / "root"
    (outside / "d").mkdir(parents=True)
    (outside / "secret").write_bytes(b"precious")
    (outside / "d" / "file").write_bytes(b"precious, too")
    (outside / "secret").chmod(0o640)
    root.mkdir()
    (root / "out").symlink_to(outside)
    (root / "up").symlink_to("..")
    (root / "abs").symlink_to(outside / "secret")
    (root / "deep").mkdir()
    (root / "deep" / "out").symlink_to("../../outside/d")
    (root / "etc").symlink_to("/proc/self/cwd")
    os.link(outside / "secret", root / "hard")
    os.mkfifo(root / "fifo")
    return root


def outside_of(place: Path) -> dict[str, Any]:
    return {
        path: what for path, what in picture(place).items() if path != "root" and not path.startswith("root/")
    }


@lawful
@given(
    st.lists(hostile_members, min_size=1, max_size=12),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_nothing_outside_the_root_changes(members: list[Any], format: int) -> None:
    open_before = descriptors().items()
    with tempfile.TemporaryDirectory() as made, umask_of_a_daemon():
        place = Path(made)
        root = set_the_trap(place)
        before = outside_of(place)
        # Whatever can be extracted of it, is: a refused member is dropped and the rest tried again.
        while members:
            kind = outcome(archive(members, format), root)
            assert kind in (None, Kind.BAD_REQUEST, Kind.FAILED)
            assert outside_of(place) == before
            members = members[1:] if kind else []
    assert descriptors().items() <= open_before


@lawful
@given(st.binary(max_size=3000), st.integers(0, 6000), st.integers(1, 255))
def test_damage_is_named_and_never_more_than_that(noise: bytes, at: int, flip: int) -> None:
    """Any bytes at all: they are an archive, or a refusal with a kind."""
    data = bytearray(
        archive([member("d/", type=tarfile.DIRTYPE), member("d/f" * 60, b"x" * 2000), member("g", b"y")])
    )
    data[at % len(data)] ^= flip
    for body in (noise, bytes(data), bytes(data[: at % len(data)])):
        with tempfile.TemporaryDirectory() as made:
            kind = outcome(body, Path(made) / "root", Caps(1000, 10**6))
            assert kind in (None, Kind.BAD_REQUEST, Kind.FAILED, Kind.TOO_LARGE)
            assert os.listdir(made) in (["root"], [])


SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
EXCHANGE = 2
root = os.open(sys.argv[1], os.O_PATH)
a = os.open("a", os.O_PATH, dir_fd=root)
b = os.open("b", os.O_PATH, dir_fd=a)
print("swapping", flush=True)
# Directories are held by descriptors, so that a link never leads the swapper itself outside.
while True:
    for above, name in ((root, b"a"), (a, b"b"), (b, b"c")):
        for _ in range(2):
            if libc.renameat2(above, name, above, name + b".link", EXCHANGE):
                sys.exit(os.strerror(ctypes.get_errno()))
"""


@pytest.mark.parametrize("size", [10, 100_000])
def test_swapping_directories_for_links_gets_nothing_out(tmp_path: Path, size: int) -> None:
    """Members go into three levels, each of which is a directory one moment and a link to the outside the next."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (outside / "b" / "c").mkdir(parents=True)
    (outside / "b" / "secret").write_bytes(b"precious")
    (outside / "b" / "secret").chmod(0o600)
    (root / "a" / "b" / "c").mkdir(parents=True)
    for name in ("a", "a/b", "a/b/c"):
        (root / f"{name}.link").symlink_to(outside / name.removeprefix("a").removeprefix("/"))
    before = picture(outside)
    data = archive(
        [
            *(member(f"a/b/c/{number}", b"x" * size, mode=0o777) for number in range(20)),
            member("a/b/d/", type=tarfile.DIRTYPE, mode=0o700),
            member("a/b/secret", b"stolen", mode=0o755),
            member("a/b/link", type=tarfile.SYMTYPE, link="c"),
            member("a/b/hard", type=tarfile.LNKTYPE, link="a/b/secret"),
        ]
    )
    refusals = extracted = 0
    deadline = time.monotonic() + DEADLINE_SECS
    with subprocess.Popen(
        [sys.executable, "-c", SWAPPER, root], stdout=subprocess.PIPE, text=True
    ) as swapper:
        try:
            assert swapper.stdout is not None
            assert swapper.stdout.readline() == "swapping\n"
            while (refusals < 150 or extracted < 3) and time.monotonic() < deadline:
                kind = outcome(data, root)
                refusals += kind is Kind.BAD_REQUEST
                extracted += kind is None
            assert swapper.poll() is None, "the swapper swaps to the end"
        finally:
            swapper.kill()
    assert picture(outside) == before
    assert refusals >= 20, "the race was hardly met"


# -- plain archives --------------------------------------------------------------------------------------------

plain_names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=40
).filter(lambda name: name not in (".", "..") and len(name.encode()) <= 255)
trees = st.recursive(
    st.one_of(
        st.binary(max_size=2000),
        st.sampled_from([b"y" * 70_000, b"", b"x" * 512]),
        plain_names.map(lambda name: ("link", name)),
    ),
    lambda inside: st.dictionaries(plain_names, inside, max_size=5),
    max_leaves=15,
)
modes = st.sampled_from([0o644, 0o600, 0o755, 0o400, 0o700, 0o444])


def plant(tree: Any, path: Path, mode: Any) -> None:
    if isinstance(tree, dict):
        path.mkdir(exist_ok=True)
        for name, inside in tree.items():
            plant(inside, path / name, mode)
        path.chmod(0o755)
    elif isinstance(tree, tuple):
        path.symlink_to(tree[1])
    else:
        path.write_bytes(tree)
        path.chmod(mode())


@lawful
@given(st.dictionaries(plain_names, trees, max_size=6), st.data())
def test_a_tree_comes_back_equal(tree: Any, data: st.DataObject) -> None:
    """Names, types, modes (those that an extraction keeps), link targets and bytes."""
    with tempfile.TemporaryDirectory() as made, umask_of_a_daemon():
        root = Path(made) / "root"
        plant(tree, root, lambda: data.draw(modes))
        body, result = packed(root)
        done = unpack(body, Path(made) / "other")
        assert picture(Path(made) / "other") == picture(root)
        assert done.members == result.members + 1, "the root is a member, and no entry below it"
        assert done.bytes == result.bytes
        again, _ = packed(Path(made) / "other")
        assert len(again) == len(body)


@lawful
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["a", "b", "c d", ".hidden", "é"]), min_size=1, max_size=4),
            st.binary(max_size=900),
        ),
        max_size=10,
        unique_by=lambda each: tuple(each[0]),
    ),
    st.sampled_from(["", "./"]),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_plain_archives_are_always_accepted(
    files: list[tuple[list[str], bytes]], front: str, format: int
) -> None:
    """No name of them is a directory of another."""
    paths = ["/".join(parts) + ".f" for parts, _ in files]
    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / "root"
        members = [member(front + path, content) for path, (_, content) in zip(paths, files, strict=True)]
        done = unpack(archive(members, format), root)
        assert done.members == len(files)
        assert all(
            (root / path).read_bytes() == content for path, (_, content) in zip(paths, files, strict=True)
        )


@lawful
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=8), st.integers(-1, 1), st.integers(-1, 1))
def test_caps_are_exact_at_their_boundary(sizes: list[int], members_off: int, bytes_off: int) -> None:
    data = archive(member(str(number), b"x" * size) for number, size in enumerate(sizes))
    total = sum(sizes)
    caps = Caps(len(sizes) + members_off, max(0, total + bytes_off))
    fits = caps.members >= len(sizes) and caps.bytes >= total
    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / "root"
        if fits:
            assert unpack(data, root, caps).bytes == total
        else:
            refused(Kind.TOO_LARGE, data, root, caps)
