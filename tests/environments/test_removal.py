"""Removal by descriptors, step by step, while somebody changes the tree."""

import errno
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from agentd.files.listing import list_directory
from agentd.files.removal import KEPT, Protected, remove


def run(steps: Generator[None, None, None]) -> None:
    for _ in steps:
        pass


def chain(top: Path, levels: int) -> None:
    """A directory in a directory, `levels` deep, with a file at the bottom."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_tree_that_is_moved_away_while_it_is_removed_stops_the_removal(tmp_path: Path) -> None:
    """What is found above must be the directory that was left; anything else is somebody else's."""
    tree, other = tmp_path / "tree", tmp_path / "other"
    tree.mkdir()
    (other / "kept").mkdir(parents=True)
    chain(tree, KEPT + 40)
    before = len(os.listdir("/proc/self/fd"))
    steps = remove(os.fsencode(tree), True, ())
    next(steps)  # the bottom is reached: what is above by more than the limit was let go of
    inner = tree.joinpath(*["deep"] * 20)
    os.rename(inner, other / "deep")
    with pytest.raises(OSError, match="moved") as raised:
        run(steps)
    assert raised.value.errno == errno.EBUSY
    assert (other / "kept").is_dir()
    assert tree.is_dir()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_that_becomes_a_link_is_removed_as_one(tmp_path: Path) -> None:
    tree, other = tmp_path / "tree", tmp_path / "other"
    for number in range(3):
        (tree / f"d{number}").mkdir(parents=True)
        (tree / f"d{number}/x").touch()
    other.mkdir()
    (other / "kept").touch()
    steps = remove(os.fsencode(tree), True, ())
    next(steps)
    for number in range(3):
        place = tree / f"d{number}"
        if place.is_dir():
            os.rename(place, tmp_path / f"aside{number}")
            place.symlink_to(other)
    run(steps)
    assert not tree.exists()
    assert (other / "kept").exists()


def test_a_removal_that_is_given_up_leaves_no_descriptor(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    chain(tree, 30)
    before = len(os.listdir("/proc/self/fd"))
    steps = remove(os.fsencode(tree), True, ())
    next(steps)
    steps.close()
    assert len(os.listdir("/proc/self/fd")) == before
    run(remove(os.fsencode(tree), True, ()))
    assert not tree.exists()


def test_what_must_stay_is_known_by_what_it_is(tmp_path: Path) -> None:
    """Not by its name: through a link above it, or with a slash behind it."""
    (tmp_path / "real/home").mkdir(parents=True)
    (tmp_path / "way").symlink_to("real")
    keep = (os.fsencode(tmp_path / "real/home"),)
    for path in ("real/home", "real/home/", "way/home", "way/home//", "real/../way/home"):
        with pytest.raises(Protected):
            run(remove(os.fsencode(tmp_path) + b"/" + path.encode(), True, keep))
    with pytest.raises(Protected):
        run(remove(b"/", True, ()))
    run(remove(os.fsencode(tmp_path / "way"), True, keep))
    assert (tmp_path / "real/home").is_dir()


def test_a_listing_of_more_than_it_keeps(tmp_path: Path) -> None:
    """The first names are right whatever order they come in."""
    for number in range(3000):
        (tmp_path / f"n{number * 7919 % 3000:04}").touch()
    found = list_directory(os.fsencode(tmp_path), 10)
    assert [entry.name for entry in found.entries] == [b"n%04d" % number for number in range(10)]
    assert found.truncated
