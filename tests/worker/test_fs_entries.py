"""`shell::fs::ls`, `stat`, `mkdir`, `rm`, `chmod`, `mv`: what they do, and every way to be refused."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_twisted

from agentd.worker.sandbox import CallFailed
from tests.worker.calls import Caller, caller, listing, make_tree

SANDBOX = {"kind": "sandbox", "sandbox_id": "5f5a4c1e-8c4e-4f5b-9a52-0d6a1b9c7e11"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    make_tree(
        root,
        {
            "a.txt": "hello",
            "dir/b.txt": "b",
            "dir/sub/c.txt": "c",
            "empty/": "",
            ".env": "x",
            "conf/secrets/k": "k",
        },
    )
    (root / "link").symlink_to("a.txt")
    (root / "dirlink").symlink_to("dir")
    (root / "out").symlink_to(tmp_path)
    (root / "dangling").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    (tmp_path / "outside.txt").write_text("outside")
    return root


@pytest.fixture
def fs(root: Path, tmp_path: Path) -> Iterator[Caller]:
    with caller(root, tmp_path) as found:
        yield found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest_twisted.ensureDeferred
async def test_ls_describes_every_entry_itself(fs: Caller, root: Path) -> None:
    (root / "a.txt").chmod(0o640)
    os.utime(root / "a.txt", (0, 1_600_000_000.7))
    entries = {each["name"]: each for each in (await fs.call("shell::fs::ls", path="."))["entries"]}
    assert entries["a.txt"] == {
        "name": "a.txt",
        "is_dir": False,
        "is_symlink": False,
        "size": 5,
        "mode": "0640",
        "mtime": 1_600_000_000,
    }
    assert entries["dir"]["is_dir"]
    assert entries["link"]["is_symlink"]
    assert not entries["dirlink"]["is_dir"]
    assert ".env" in entries  # protected, and listed


@pytest_twisted.ensureDeferred
async def test_ls_shows_names_that_are_not_utf8(fs: Caller, root: Path) -> None:
    (root / os.fsdecode(b"empty/\xff")).touch()
    result = await fs.call("shell::fs::ls", path="empty")
    assert [each["name"] for each in result["entries"]] == ["�"]


PATH_TAKERS = {
    "ls": {},
    "stat": {},
    "rm": {},
    "chmod": {"mode": "0644"},
    "mkdir": {},
    "read": {},
    "grep": {"pattern": "x"},
    "write": {"content": "x"},
    "sed": {"pattern": "x", "replacement": "y"},
}


@pytest.mark.parametrize("name", PATH_TAKERS)
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("", "S210"),
        ("a\0b", "S210"),
        ("../outside.txt", "S215"),
        ("dir/../../outside.txt", "S215"),
        ("/etc/hostname", "S215"),
        ("out/outside.txt", "S215"),
        ("dangling", "S215"),
        ("dangling/x", "S215"),
        ("loop", "S215"),
        ("loop/x", "S215"),
        ("nowhere/../../outside.txt", "S215"),
        (".env", "S215"),
        ("conf/secrets/k", "S215"),
        ("x" * 4096, "S216"),
        ("y/" * 4096, "S216"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_every_function_refuses_bad_paths(
    fs: Caller, root: Path, name: str, path: str, code: str
) -> None:
    before = listing(root)
    found = await fs.code(f"shell::fs::{name}", {"path": path, **PATH_TAKERS[name]})
    assert found == code
    assert listing(root) == before


@pytest.mark.parametrize("name", [name for name in PATH_TAKERS if name not in ("mkdir", "write")])
@pytest_twisted.ensureDeferred
async def test_what_is_not_there_is_s211(fs: Caller, name: str) -> None:
    assert await fs.code(f"shell::fs::{name}", {"path": "nope/none", **PATH_TAKERS[name]}) == "S211"


@pytest.mark.parametrize("name", [*PATH_TAKERS, "mv"])
@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"path": 5, "src": 5},
        {"path": "a.txt", "src": "a.txt", "dst": "b", "target": {"kind": "moon"}},
        {"path": "a.txt", "src": "a.txt", "dst": "b", "target": "host"},
        {"path": "a.txt", "src": "a.txt", "dst": "b", "target": {"kind": "sandbox", "sandbox_id": "no uuid"}},
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_malformed_payload_is_s210(fs: Caller, name: str, payload: dict[str, object]) -> None:
    extra = PATH_TAKERS.get(name, {}) if payload else {}
    assert await fs.code(f"shell::fs::{name}", {**extra, **payload}) == "S210"


@pytest_twisted.ensureDeferred
async def test_what_is_no_object_is_s210(fs: Caller) -> None:
    from agentd.worker.errors import Coded
    from tests.worker.calls import SERVED

    for data in (None, [], "x", 5):
        with pytest.raises(Coded) as refused:
            SERVED["shell::fs::ls"].parse(data)
        assert refused.value.code == "S210"


@pytest_twisted.ensureDeferred
async def test_ls_of_a_file_is_s212(fs: Caller) -> None:
    assert await fs.code("shell::fs::ls", path="a.txt") == "S212"


@pytest_twisted.ensureDeferred
async def test_stat_follows_links_and_names_what_is_there(fs: Caller, root: Path) -> None:
    result = await fs.call("shell::fs::stat", path=str(root / "link"))
    assert (result["name"], result["is_symlink"], result["size"]) == ("a.txt", False, 5)
    assert (await fs.call("shell::fs::stat", path="dirlink/sub/../b.txt"))["name"] == "b.txt"
    assert (await fs.call("shell::fs::stat", path="."))["is_dir"]


@pytest_twisted.ensureDeferred
async def test_a_path_through_a_file_is_another_error(fs: Caller) -> None:
    assert await fs.code("shell::fs::stat", path="a.txt/x") == "S216"


@pytest_twisted.ensureDeferred
async def test_unjailed_paths_are_absolute(tmp_path: Path, root: Path) -> None:
    with caller(None, tmp_path) as fs:
        assert await fs.code("shell::fs::ls", path="jail") == "S210"
        assert (await fs.call("shell::fs::stat", path=str(root)))["is_dir"]
        assert await fs.code("shell::fs::stat", path=str(root / ".env")) == "S215"
        denying = fs.with_settings(fs={"denylist_paths": [str(root / "dir")]})
        assert await denying.code("shell::fs::stat", path=str(root / "dirlink" / "b.txt")) == "S215"
        assert await denying.code("shell::fs::rm", path=str(root), recursive=True) == "S215"
        assert await denying.code("shell::fs::mv", src=str(root), dst=str(tmp_path / "z")) == "S215"
        assert await denying.code("shell::fs::rm", path="/", recursive=True) == "S215"
        assert (await denying.call("shell::fs::stat", path=str(root / "a.txt")))["size"] == 5


# -- mkdir -------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_mkdir_sets_the_mode_exactly(fs: Caller, root: Path) -> None:
    before = os.umask(0o077)
    try:
        made = await fs.call("shell::fs::mkdir", path="new", mode="0775")
    finally:
        os.umask(before)
    assert made == {"created": True, "path": "new", "already_existed": False}
    assert mode(root / "new") == 0o775


@pytest_twisted.ensureDeferred
async def test_mkdir_with_and_without_parents(fs: Caller, root: Path) -> None:
    assert await fs.code("shell::fs::mkdir", path="x/y/z") == "S211"
    assert (await fs.call("shell::fs::mkdir", path="x/y/z", parents=True))["created"]
    again = await fs.call("shell::fs::mkdir", path="x/y/z", parents=True)
    assert again == {"created": False, "path": "x/y/z", "already_existed": True}
    assert await fs.code("shell::fs::mkdir", path="x/y/z") == "S213"
    assert await fs.code("shell::fs::mkdir", path="a.txt", parents=True) == "S213"


@pytest.mark.parametrize("text", ["", "0o644", "9", "rwx", "-644", "77777", "４４４", "1777", "4755"])
@pytest_twisted.ensureDeferred
async def test_bad_modes_are_s210(fs: Caller, root: Path, text: str) -> None:
    assert await fs.code("shell::fs::mkdir", path="new", mode=text) == "S210"
    assert await fs.code("shell::fs::chmod", path="a.txt", mode=text) == "S210"
    assert await fs.code("shell::fs::write", path="new", content="", mode=text) == "S210"
    assert not (root / "new").exists()


@pytest_twisted.ensureDeferred
async def test_special_bits_where_they_are_allowed(fs: Caller, root: Path) -> None:
    allowing = fs.with_settings(fs={"allow_special_bits": True})
    await allowing.call("shell::fs::mkdir", path="sticky", mode="01777")
    assert mode(root / "sticky") == 0o1777


# -- rm ----------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_rm(fs: Caller, root: Path) -> None:
    assert await fs.call("shell::fs::rm", path="a.txt") == {
        "removed": True,
        "path": "a.txt",
        "was_present": True,
    }
    assert await fs.code("shell::fs::rm", path="a.txt") == "S211"
    assert await fs.code("shell::fs::rm", path="dir") == "S214"
    await fs.call("shell::fs::rm", path="empty")
    await fs.call("shell::fs::rm", path="dir", recursive=True)
    assert not (root / "dir").exists()


@pytest_twisted.ensureDeferred
async def test_rm_takes_a_link_and_not_its_target(fs: Caller, root: Path, tmp_path: Path) -> None:
    await fs.call("shell::fs::rm", path="link")
    await fs.call("shell::fs::rm", path="dirlink", recursive=True)
    assert (root / "a.txt").exists()
    assert (root / "dir" / "b.txt").exists()
    assert await fs.code("shell::fs::rm", path="out") == "S215"  # it leads outside
    assert (root / "out").is_symlink()


@pytest_twisted.ensureDeferred
async def test_a_link_outside_is_not_removed_because_it_leads_inside(
    fs: Caller, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "inwards").symlink_to(root / "a.txt")
    assert await fs.code("shell::fs::rm", path=str(tmp_path / "inwards")) == "S215"
    assert (tmp_path / "inwards").is_symlink()


@pytest_twisted.ensureDeferred
async def test_roots_stay(fs: Caller, root: Path) -> None:
    for path in (".", str(root), "dir/..", "dirlink/.."):
        assert await fs.code("shell::fs::rm", path=path, recursive=True) == "S215"
    assert await fs.code("shell::fs::mv", src=".", dst="dir/x") == "S215"
    assert (root / "a.txt").exists()


# -- chmod -------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_chmod(fs: Caller, root: Path) -> None:
    assert await fs.call("shell::fs::chmod", path="link", mode="0600") == {
        "entries_changed": 1,
        "path": "link",
        "recursive": False,
    }
    assert mode(root / "a.txt") == 0o600


@pytest_twisted.ensureDeferred
async def test_chmod_recursive_counts_the_root_and_passes_links_over(fs: Caller, root: Path) -> None:
    (root / "dir" / "away").symlink_to("../a.txt")
    before = mode(root / "a.txt")
    result = await fs.call("shell::fs::chmod", path="dir", mode="0700", recursive=True)
    assert result["entries_changed"] == 4  # dir, b.txt, sub, sub/c.txt
    assert mode(root / "dir" / "sub" / "c.txt") == 0o700
    assert mode(root / "a.txt") == before
    assert await fs.code("shell::fs::chmod", path="dirlink", mode="0700", recursive=True) == "S212"


@pytest.mark.root
@pytest_twisted.ensureDeferred
async def test_chmod_gives_away(fs: Caller, root: Path) -> None:
    await fs.call("shell::fs::chmod", path="a.txt", mode="0640", uid=12345, gid=54321)
    status = (root / "a.txt").stat()
    assert (status.st_uid, status.st_gid, mode(root / "a.txt")) == (12345, 54321, 0o640)
    await fs.call("shell::fs::chmod", path="a.txt", mode="0640", gid=0)
    assert (root / "a.txt").stat().st_uid == 12345


@pytest_twisted.ensureDeferred
async def test_owners_out_of_range_are_malformed(fs: Caller) -> None:
    for uid in (-1, 2**32, 1.5, "root"):
        assert await fs.code("shell::fs::chmod", path="a.txt", mode="0644", uid=uid) == "S210"


# -- mv ----------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_mv(fs: Caller, root: Path) -> None:
    assert await fs.call("shell::fs::mv", src="a.txt", dst="dir/a.txt") == {
        "moved": True,
        "src": "a.txt",
        "dst": "dir/a.txt",
        "overwrote": False,
    }
    assert (root / "dir" / "a.txt").read_text() == "hello"
    assert await fs.code("shell::fs::mv", src="a.txt", dst="z") == "S211"
    assert await fs.code("shell::fs::mv", src="dir/a.txt", dst="dir/b.txt") == "S213"
    assert await fs.code("shell::fs::mv", src="dir/a.txt", dst="none/b.txt") == "S211"
    assert (await fs.call("shell::fs::mv", src="dir/a.txt", dst="dir/b.txt", overwrite=True))["overwrote"]
    assert (root / "dir" / "b.txt").read_text() == "hello"
    assert await fs.code("shell::fs::mv", src="dir/b.txt", dst="dir/sub", overwrite=True) == "S212"
    assert await fs.code("shell::fs::mv", src="empty", dst="dir", overwrite=True) == "S214"
    assert await fs.code("shell::fs::mv", src="dir", dst="dir/sub/x") == "S216"


@pytest_twisted.ensureDeferred
async def test_mv_moves_a_link_itself(fs: Caller, root: Path) -> None:
    await fs.call("shell::fs::mv", src="link", dst="moved")
    assert (root / "moved").is_symlink()
    assert (root / "a.txt").exists()


@pytest_twisted.ensureDeferred
async def test_mv_of_what_must_not_be_seen(fs: Caller, root: Path) -> None:
    before = listing(root)
    assert await fs.code("shell::fs::mv", src=".env", dst="env") == "S215"
    assert await fs.code("shell::fs::mv", src="a.txt", dst="a.key") == "S215"
    assert await fs.code("shell::fs::mv", src="conf", dst="public") == "S215"  # it holds something protected
    assert await fs.code("shell::fs::mv", src="a.txt", dst="../a.txt") == "S215"
    assert listing(root) == before


@pytest_twisted.ensureDeferred
async def test_mv_to_another_file_system(tmp_path: Path, root: Path) -> None:
    elsewhere = Path("/dev/shm") / f"agentd-{os.getpid()}"
    if os.stat("/dev/shm").st_dev == root.stat().st_dev:
        pytest.fail("these are the same file system")
    elsewhere.mkdir()
    try:
        with caller(root, tmp_path) as fs:
            both = fs.with_settings(fs={"host_roots": [str(root), str(elsewhere)]})
            (root / "a.txt").chmod(0o611)
            await both.call("shell::fs::mv", src="a.txt", dst=str(elsewhere / "a.txt"))
            assert (elsewhere / "a.txt").read_text() == "hello"
            assert mode(elsewhere / "a.txt") == 0o611
            assert not (root / "a.txt").exists()
            assert await both.code("shell::fs::mv", src="dir", dst=str(elsewhere / "dir")) == "S216"
            assert listing(elsewhere) == ["a.txt"]
    finally:
        for path in elsewhere.iterdir():
            path.unlink()
        elsewhere.rmdir()


# -- sandboxes ---------------------------------------------------------------------------------------------------


ANSWERS = {
    "ls": ({"path": "/x"}, {"entries": []}),
    "stat": (
        {"path": "/x"},
        {"name": "x", "is_dir": True, "is_symlink": False, "size": 1, "mode": "0755", "mtime": 1},
    ),
    "mkdir": ({"path": "/x"}, {"created": True}),
    "rm": ({"path": "/x"}, {"removed": True}),
    "chmod": ({"path": "/x", "mode": "0644"}, {"entries_changed": 3}),
    "mv": ({"src": "/x", "dst": "/y"}, {"moved": True}),
    "grep": ({"path": "/x", "pattern": "y"}, {"matches": [], "truncated": False}),
    "sed": ({"path": "/x", "pattern": "y", "replacement": "z"}, {"results": [], "total_replacements": 0}),
    "read": (
        {"path": "/x"},
        {
            "content": {"channel_id": "c", "access_key": "k", "direction": "read"},
            "size": 1,
            "mode": "0644",
            "mtime": 1,
        },
    ),
    "write": (
        {"path": "/x", "content": {"channel_id": "c", "access_key": "k", "direction": "read"}},
        {"bytes_written": 3, "path": "/x"},
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest_twisted.ensureDeferred
async def test_sandbox_targets_are_forwarded(fs: Caller, name: str) -> None:
    request, answer = ANSWERS[name]
    fs.engine.answer = answer
    result = await fs.call(f"shell::fs::{name}", {**request, "target": SANDBOX})
    assert {key: result[key] for key in answer} == answer
    function, asked = fs.engine.asked[0]
    assert function == f"sandbox::fs::{name}"
    assert asked == {
        **request,
        "sandbox_id": SANDBOX["sandbox_id"],
        "a key from the future": [1, {"x": None}],
    }
    fs.engine.answer = {"nonsense": 1}
    assert await fs.code(f"shell::fs::{name}", {**request, "target": SANDBOX}) == "S216"
    fs.engine.answer = CallFailed("S211", "gone")
    assert await fs.code(f"shell::fs::{name}", {**request, "target": SANDBOX}) == "S211"
    off = fs.with_settings(sandbox={"enabled": False})
    assert await off.code(f"shell::fs::{name}", {**request, "target": SANDBOX}) == "S210"
    assert off.engine.asked == []
