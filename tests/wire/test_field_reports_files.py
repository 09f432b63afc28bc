"""What broke in daemons like this one, as inputs and right answers: the reports about files."""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_twisted

from tests.conftest import RunningDaemon
from tests.wire.file_producers import FILE, TAR, archive, at, put
from tests.wire.support import Api


@pytest.mark.parametrize("size", [18_432, 18_433, 20 * 1024 * 1024])
@pytest_twisted.ensureDeferred
async def test_an_upload_that_says_it_is_there_is_there(api: Api, tmp_path: Path, size: int) -> None:
    """OpenSandbox#1016: said to be stored, and was not, from 18 KB on."""
    data = os.urandom(size)
    assert (await put(api, at(FILE, tmp_path / "file"), data)).status == 204
    found = (await api.get(at(FILE, tmp_path / "file"))).body
    assert hashlib.sha256(found).digest() == hashlib.sha256(data).digest()


@pytest_twisted.ensureDeferred
async def test_a_path_that_is_not_there_is_404_and_one_through_a_file_says_why(
    api: Api, tmp_path: Path
) -> None:
    """OpenSandbox#1026. The contract leaves 500 for what cannot be opened, with the reason (contract e)."""
    (tmp_path / "file").touch()
    for route in (FILE, TAR):
        assert (await api.get(at(route, tmp_path / "nope"))).status == 404
        through = await api.get(at(route, tmp_path / "file/x"))
        assert (through.status, through.body.endswith(b": Not a directory")) == (500, True)


NAMES = [
    "\N{SLIGHTLY SMILING FACE}.txt",
    'quote"and\nnewline',
    os.fsdecode(b"not utf-8 \xff\xfe"),
    " % &+#?;",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest_twisted.ensureDeferred
async def test_any_name_that_a_file_can_have_goes_both_ways(api: Api, tmp_path: Path, name: str) -> None:
    """daytona#4323: alone, and in an archive."""
    assert (await put(api, at(FILE, tmp_path / name), b"content")).status == 204
    assert os.listdir(os.fsencode(tmp_path)) == [os.fsencode(name)]
    assert (await api.get(at(FILE, tmp_path / name))).body == b"content"
    tree = await api.get(at(TAR, tmp_path))
    with tarfile.open(fileobj=io.BytesIO(tree.body)) as reading:
        assert [member.name for member in reading if member.isfile()] == [f"./{name}"]
    copy = tmp_path / "copy"
    assert (await put(api, at(TAR, copy), tree.body)).status == 204
    assert os.listdir(os.fsencode(copy)) == [os.fsencode(name)]


@pytest_twisted.ensureDeferred
async def test_a_plus_in_a_path_is_a_space_as_in_forms(api: Api, tmp_path: Path) -> None:
    """And ``%2B`` is the plus: which of the two a caller means is never guessed."""
    (tmp_path / "a b").write_bytes(b"space")
    (tmp_path / "a+b").write_bytes(b"plus")
    assert (await api.get(f"{FILE}?path={quote(str(tmp_path))}/a+b")).body == b"space"
    assert (await api.get(f"{FILE}?path={quote(str(tmp_path))}/a%2Bb")).body == b"plus"


@pytest_twisted.ensureDeferred
async def test_archives_work_when_the_temp_directory_has_gone(
    make_daemon: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    """It is where they are spooled, and it is made again."""
    temp = tmp_path / "tmp"
    temp.mkdir()
    daemon = make_daemon(env={"TMPDIR": str(temp)})
    daemon.bootstrap()
    api = Api(daemon.url, daemon.token)
    shutil.rmtree(temp)
    assert (
        await put(api, at(TAR, tmp_path / "root"), archive("deep/er/than/three/levels/file"))
    ).status == 204
    shutil.rmtree(temp, ignore_errors=True)  # made again, or another one is used
    reply = await api.get(at(TAR, tmp_path / "root"))
    with tarfile.open(fileobj=io.BytesIO(reply.body)) as reading:
        assert "./deep/er/than/three/levels/file" in reading.getnames()


@pytest_twisted.ensureDeferred
async def test_an_empty_file_and_a_hidden_one_are_files(api: Api, tmp_path: Path) -> None:
    assert (await put(api, at(FILE, tmp_path / ".hidden/.file"), b"")).status == 204
    assert (tmp_path / ".hidden/.file").read_bytes() == b""
    assert (await api.get(at(FILE, tmp_path / ".hidden/.file"))).body == b""
    tree = await api.get(at(TAR, tmp_path))
    with tarfile.open(fileobj=io.BytesIO(tree.body)) as reading:
        assert "./.hidden/.file" in reading.getnames()
