"""Bind mounts, in a mount namespace of their own."""

import errno
from pathlib import Path

import pytest

from agentd.linux import mounts
from tests.linux.support import run_in_namespaces

BINDS = """
import errno, pathlib, sys
from agentd.linux import mounts
place = pathlib.Path(sys.argv[1])
source, target = place / "source", place / "target"
mounts.bind(source, target)
print(target.read_text())
handle = open(target)
try:
    mounts.unmount(target)
except OSError as error:
    print(error.errno == errno.EBUSY)
mounts.unmount(str(target), mounts.MNT_DETACH)
print(target.read_text(), handle.read())
for wrong, number in ((place / "missing", errno.ENOENT), (place, errno.ENOTDIR)):
    try:
        mounts.bind(source, wrong)
    except OSError as error:
        print(error.errno == number, error.filename == str(wrong))
"""


@pytest.mark.root
def test_a_file_appears_in_the_place_of_another_and_goes_again(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("new")
    (tmp_path / "target").write_text("old")
    printed = run_in_namespaces(BINDS, str(tmp_path))
    assert printed == "new\nTrue\nold new\nTrue True\nTrue True\n"
    assert (tmp_path / "target").read_text() == "old"


def test_nothing_is_unmounted_where_nothing_is_mounted(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r".") as raised:
        mounts.unmount(tmp_path)
    assert raised.value.errno in (errno.EINVAL, errno.EPERM)
    assert raised.value.filename == str(tmp_path)
