"""`shell::workspace::*`: directories for an operator to choose from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_twisted

from tests.worker.calls import Caller, caller, make_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    make_tree(root, {"a.txt": "", "b/": "", "a/": "", ".hidden/": "", "denied/": ""})
    (root / "link").symlink_to("a")
    (root / "filelink").symlink_to("a.txt")
    (root / "dangling").symlink_to("nowhere")
    return root


@pytest.fixture
def shell(root: Path, tmp_path: Path) -> Iterator[Caller]:
    with caller(root, tmp_path) as found:
        yield found.with_settings(fs={"denylist_paths": [str(root / "denied")]})


@pytest_twisted.ensureDeferred
async def test_roots(shell: Caller, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root / "b" / ".." / "b"))
    roots = (await shell.call("shell::workspace::roots"))["roots"]
    assert roots == sorted({"/", str(tmp_path), str(root), str(root / "b")})
    for home in (str(root / "denied"), str(root / "nope"), str(root / "a.txt"), "", "relative"):
        monkeypatch.setenv("HOME", home)
        roots = (await shell.call("shell::workspace::roots"))["roots"]
        assert roots == sorted({"/", str(tmp_path), str(root)})


@pytest_twisted.ensureDeferred
async def test_validate(shell: Caller, root: Path, tmp_path: Path) -> None:
    for path in (root / "link", root / "b" / ".." / "a", f"{root}/a/"):
        assert await shell.call("shell::workspace::validate", path=str(path)) == {"path": str(root / "a")}
    # The jail does not hold here.
    assert await shell.call("shell::workspace::validate", path=str(tmp_path)) == {"path": str(tmp_path)}


@pytest.mark.parametrize("name", ["validate", "list"])
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("", "S210"),
        ("relative", "S210"),
        ("{root}/a\0b", "S210"),
        ("{root}/nope", "S211"),
        ("{root}/dangling", "S211"),
        ("{root}/a.txt", "S212"),
        ("{root}/filelink", "S212"),
        ("{root}/denied", "S215"),
        ("{root}/" + "x" * 4096, "S216"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_refusals(shell: Caller, root: Path, name: str, path: str, code: str) -> None:
    given = path.format(root=root)
    assert await shell.code(f"shell::workspace::{name}", path=given) == code
    assert await shell.code(f"shell::workspace::{name}") == "S210"
    assert await shell.code(f"shell::workspace::{name}", path=[given]) == "S210"


@pytest_twisted.ensureDeferred
async def test_list_gives_directories_alone(shell: Caller, root: Path) -> None:
    result = await shell.call("shell::workspace::list", path=f"{root}/b/..")
    assert result == {
        "path": str(root),
        "entries": [
            {"name": ".hidden", "path": str(root / ".hidden"), "kind": "dir"},
            {"name": "a", "path": str(root / "a"), "kind": "dir"},
            {"name": "b", "path": str(root / "b"), "kind": "dir"},
            {"name": "link", "path": str(root / "a"), "kind": "dir"},
        ],
    }


@pytest_twisted.ensureDeferred
async def test_list_gives_one_page(shell: Caller, root: Path) -> None:
    many = root / "b"
    for number in range(1100):
        os.mkdir(many / f"{number:04}")
    for asked, given in ((None, 200), (0, 1), (7, 7), (5000, 1000)):
        result = await shell.call("shell::workspace::list", path=str(many), page_size=asked)
        assert [each["name"] for each in result["entries"]] == [f"{number:04}" for number in range(given)]
