"""`coder::create-file`, `delete-file`, `move`, `update-file`: what changes, and what stays as it was."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from agentd.worker import coder_write
from tests.worker.calls import Caller, caller, listing, make_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    make_tree(
        root,
        {
            "a.txt": "one\ntwo\nthree\n",
            "dir/b": "b\n",
            "dir/sub/c": "c\n",
            "empty/": "",
            ".env": "secret\n",
            "conf/secrets/k": "k",
        },
    )
    (root / "link").symlink_to("dir/b")
    return root


@pytest.fixture
def coder(root: Path, tmp_path: Path) -> Iterator[Caller]:
    with caller(root, tmp_path) as found:
        yield found


@pytest.fixture
def second(tmp_path: Path) -> Path:
    second = tmp_path / "second"
    second.mkdir()
    return second


@pytest.fixture
def both(coder: Caller, root: Path, second: Path) -> Caller:
    return coder.with_settings(fs={"host_roots": [str(root), str(second)]})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def codes(result: Any) -> list[str | None]:
    """Why each entry of a batch failed; None for one that did not."""
    found = []
    for entry in result["results"]:
        assert entry["success"] is ("error" not in entry)
        found.append(entry.get("error", {}).get("code"))
    return found


# -- create-file -------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_create(coder: Caller, root: Path) -> None:
    before = os.umask(0o077)
    try:
        result = await coder.call(
            "coder::create-file",
            files=[
                {"path": "new/deep/x", "content": "grüße\n"},
                {"path": str(root / "run"), "content": "", "mode": "755"},
                {"path": "link", "content": "over", "overwrite": True},
            ],
        )
    finally:
        os.umask(before)
    assert result == {
        "results": [
            {"path": str(root / "new/deep/x"), "success": True, "bytes_written": 8},
            {"path": str(root / "run"), "success": True, "bytes_written": 0},
            {"path": str(root / "dir/b"), "success": True, "bytes_written": 4},
        ]
    }
    assert (root / "new/deep/x").read_text() == "grüße\n"
    assert (mode(root / "new/deep/x"), mode(root / "run")) == (0o644, 0o755)
    assert (root / "dir/b").read_text() == "over"


@pytest_twisted.ensureDeferred
async def test_creations_that_fail(coder: Caller, root: Path) -> None:
    small = coder.with_settings(code={"max_write_bytes": 4})
    before = listing(root)
    result = await small.call(
        "coder::create-file",
        files=[
            {"path": "a.txt", "content": "x"},
            {"path": "dir", "content": "x", "overwrite": True},
            {"path": "new", "content": "12345"},
            {"path": "none/new", "content": "x", "parents": False},
            {"path": "new", "content": "x", "mode": "0o644"},
            {"path": "new", "content": "x", "mode": "4755"},
            {"path": "new", "content": "x", "mode": ""},
            {"path": "key.key", "content": "x"},
            {"path": "a.txt/new", "content": "x"},
            {"path": "new", "content": "\ud800"},
        ],
    )
    assert codes(result) == [
        *("C217", "C210", "C213", "C211", "C210", "C210", "C210", "C211", "C216", "C210")
    ]
    assert all(entry["bytes_written"] == 0 for entry in result["results"])
    assert listing(root) == before
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"


@pytest_twisted.ensureDeferred
async def test_a_creation_does_not_replace_what_came_meanwhile(
    coder: Caller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is taken only if it is free in that very moment."""
    monkeypatch.setattr(coder_write, "_status", lambda place: None)
    result = await coder.call("coder::create-file", files=[{"path": "a.txt", "content": "x"}])
    assert codes(result) == ["C217"]
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert not [name for name in listing(root) if ".tmp." in name]


# -- delete-file -------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_delete(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::delete-file", paths=["a.txt", "nope", "empty", "dir", "link"])
    assert codes(result) == [None, None, None, "C216", None]
    assert [entry["removed"] for entry in result["results"]] == [True, False, True, False, True]
    # What a link leads to is what goes.
    assert result["results"][4]["path"] == str(root / "dir/b")
    assert not (root / "dir/b").exists()
    assert (root / "link").is_symlink()
    result = await coder.call("coder::delete-file", paths=["dir", "a.txt/x"], recursive=True)
    assert codes(result) == [None, None]
    assert not (root / "dir").exists()


@pytest_twisted.ensureDeferred
async def test_deletions_that_fail(both: Caller, root: Path, second: Path) -> None:
    before = listing(root)
    inner = both.with_settings(fs={"host_roots": [str(root), str(root / "dir/sub")]})
    assert codes(await inner.call("coder::delete-file", paths=["dir"], recursive=True)) == ["C210"]
    result = await both.call("coder::delete-file", paths=[".", str(second), ".env", "conf"], recursive=True)
    assert codes(result) == ["C210", "C210", "C211", "C211"]
    assert "secrets" not in result["results"][3]["error"]["message"]
    assert listing(root) == before


# -- move --------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_move(coder: Caller, root: Path) -> None:
    result = await coder.call(
        "coder::move",
        files=[
            {"from": "a.txt", "to": "x/y/a.txt"},
            {"from": "dir", "to": "moved"},
            {"from": "x/y/a.txt", "to": "x/../x/y/a.txt"},
            {"from": "x/y/a.txt", "to": "moved/b", "overwrite": True},
        ],
    )
    assert codes(result) == [None] * 4
    assert [entry["moved"] for entry in result["results"]] == [True, True, False, True]
    assert (result["results"][0]["from"], result["results"][0]["to"]) == (
        str(root / "a.txt"),
        str(root / "x/y/a.txt"),
    )
    assert (root / "moved/b").read_text() == "one\ntwo\nthree\n"
    assert (root / "moved/sub/c").exists()


@pytest_twisted.ensureDeferred
async def test_moves_that_fail(both: Caller, root: Path, second: Path) -> None:
    before = listing(root)
    result = await both.call(
        "coder::move",
        files=[
            {"from": "nope", "to": "new"},
            {"from": ".", "to": "new"},
            {"from": "a.txt", "to": str(second)},
            {"from": "dir", "to": str(second / "dir")},
            {"from": "a.txt", "to": "dir", "overwrite": True},
            {"from": "a.txt", "to": "dir/b"},
            {"from": "a.txt", "to": "none/b", "parents": False},
            {"from": ".env", "to": "env"},
            {"from": "a.txt", "to": "a.key"},
            {"from": "conf", "to": "public"},
            {"from": "empty", "to": "dir", "overwrite": True},
            {"from": "dir", "to": "dir/sub/dir"},
        ],
    )
    assert codes(result) == [
        *("C211", "C210", "C210", "C210", "C210", "C217", "C211", "C211", "C211", "C211", "C216", "C216")
    ]
    assert str(root / "dir/a.txt") in result["results"][4]["error"]["message"]
    assert not any(entry["moved"] for entry in result["results"])
    assert listing(root) == before


@pytest_twisted.ensureDeferred
async def test_moves_across_roots_copy(both: Caller, root: Path, second: Path) -> None:
    (root / "a.txt").chmod(0o751)
    result = await both.call("coder::move", files=[{"from": "a.txt", "to": str(second / "in/a.txt")}])
    assert codes(result) == [None]
    assert (second / "in/a.txt").read_text() == "one\ntwo\nthree\n"
    assert mode(second / "in/a.txt") == 0o751
    assert not (root / "a.txt").exists()


@pytest.mark.parametrize("copy_too", [False, True])
@pytest_twisted.ensureDeferred
async def test_a_move_across_roots_is_rolled_back(
    both: Caller, root: Path, second: Path, copy_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = coder_write._unlink

    def unlink(place: Any) -> None:
        if copy_too or place.root == os.fsencode(root):
            raise PermissionError(13, "Permission denied")
        remove(place)

    monkeypatch.setattr(coder_write, "_unlink", unlink)
    result = await both.call("coder::move", files=[{"from": "a.txt", "to": str(second / "a.txt")}])
    assert codes(result) == ["C216"]
    said = result["results"][0]["error"]["message"]
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert (second / "a.txt").exists() is copy_too
    if copy_too:
        assert str(root / "a.txt") in said
        assert str(second / "a.txt") in said
    else:
        assert "rolled back" in said
        assert "unchanged" in said


# -- update-file -------------------------------------------------------------------------------------------------


async def update(coder: Caller, *ops: dict[str, Any], text: str | bytes | None = None) -> Any:
    """What is said of operations on a.txt, which holds `text`."""
    path = Path(coder.settings.fs.host_roots[0]) / "a.txt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (entry,) = (await coder.call("coder::update-file", files=[{"path": "a.txt", "ops": list(ops)}]))[
        "results"
    ]
    return entry


def replace(pattern: str, replacement: str, **fields: Any) -> dict[str, Any]:
    return {"op": "replace", "pattern": pattern, "replacement": replacement, **fields}


@pytest_twisted.ensureDeferred
async def test_update(coder: Caller, root: Path) -> None:
    (root / "a.txt").chmod(0o751)
    result = await update(
        coder,
        {"op": "update_lines", "from_line": 3, "to_line": 3, "content": "drei\n"},
        replace("one|zero", "<$0>"),
        {"op": "insert", "at_line": 1, "content": "zero"},
        {"op": "remove", "from_line": 2, "to_line": 2},
    )
    assert (root / "a.txt").read_text() == "<zero>\n<one>\ndrei\n"
    assert mode(root / "a.txt") == 0o751
    assert result == {
        "path": str(root / "a.txt"),
        "success": True,
        "applied": 4,
        "new_line_count": 3,
        "echoes": [
            {"op_index": 0, "from_line": 1, "lines": ["<zero>", "<one>", "drei"]},
            {"op_index": 1, "from_line": 1, "lines": ["<zero>"], "total_replacements": 2},
            {"op_index": 1, "from_line": 2, "lines": ["<one>"], "total_replacements": 2},
            {"op_index": 2, "from_line": 1, "lines": ["<zero>", "<one>", "drei"]},
            {"op_index": 3, "from_line": 1, "lines": ["<zero>", "<one>", "drei"]},
        ],
        "echoes_truncated": False,
    }


@pytest.mark.parametrize(
    ("text", "op", "expected"),
    [
        ("a\nb\n", replace("a", "A"), "A\nb\n"),
        ("aA\n", replace("a", "x", ignore_case=True), "xx\n"),
        ("a\nb\nc\n", replace("a.*c", "x"), "a\nb\nc\n"),
        ("a\nb\nc\n", replace("a.*?c", "x", dot_matches_newline=True), "x\n"),
        ("a\nb\n", replace(r"\n", ";"), "a;b;"),
        ("a\nb\n", replace(r"^b", "x"), "a\nb\n"),
        ("a\nb\n", replace(r"(?m)^", "> "), "> a\n> b\n> "),
        ("john smith\n", replace(r"(?<f>\w+) (\w+)", "$2 ${f}$$"), "smith john$\n"),
        ("a\n", replace("z", "$0", expect_matches=0), "a\n"),
        ("aa\n", replace("a", "", expect_matches=2), "\n"),
        ("a\r\nb\r\n", replace(r"a\nb", "x"), "x\r\n"),
        ("a\r\nb\nc", {"op": "insert", "at_line": 2, "content": "x\ny\r\n"}, "a\r\nx\r\ny\r\nb\r\nc"),
        ("a\nb", {"op": "insert", "at_line": 3, "content": "c\n"}, "a\nb\nc"),
        ("", {"op": "insert", "at_line": 1, "content": "c"}, "c"),
        ("a\nb\n", {"op": "update_lines", "from_line": 1, "to_line": 2, "content": ""}, ""),
        ("é\n", replace("", "-", expect_matches=None), None),
    ],
)
@pytest_twisted.ensureDeferred
async def test_single_operations(
    coder: Caller, root: Path, text: str, op: dict[str, Any], expected: str | None
) -> None:
    result = await update(coder, op, text=text)
    assert result["success"] is (expected is not None)
    assert (root / "a.txt").read_bytes().decode() == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("ops", "code"),
    [
        ([], "C210"),
        ([{"op": "insert", "at_line": 0, "content": "x"}], "C210"),
        ([{"op": "insert", "at_line": 5, "content": "x"}], "C210"),
        ([{"op": "remove", "from_line": 0, "to_line": 1}], "C210"),
        ([{"op": "remove", "from_line": 2, "to_line": 1}], "C210"),
        ([{"op": "remove", "from_line": 3, "to_line": 4}], "C210"),
        (
            [{"op": "remove", "from_line": 1, "to_line": 2}, {"op": "insert", "at_line": 2, "content": "x"}],
            "C210",
        ),
        (
            [{"op": "insert", "at_line": 2, "content": "x"}, {"op": "insert", "at_line": 2, "content": "y"}],
            "C210",
        ),
        ([{"op": "insert", "at_line": 1, "content": "\ud800"}], "C210"),
        ([replace("", "x")], "C210"),
        ([replace("(", "x")], "C210"),
        ([replace("(?=x)", "x")], "C210"),
        ([replace("one", "$1")], "C210"),
        ([replace("one", "$name", expect_matches=0)], "C210"),
        ([replace("(one)", "$1a")], "C210"),
        ([replace("one", "x", expect_matches=2)], "C210"),
        ([replace("one", "x", expect_matches=0)], "C210"),
        ([replace("zzz", "x", expect_matches=1)], "C210"),
        ([replace("one", "x" * 60)], "C213"),
        ([{"op": "insert", "at_line": 1, "content": "x" * 60}], "C213"),
        ([replace("one", "x"), replace("two", "$9")], "C210"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_updates_that_change_nothing(
    coder: Caller, root: Path, ops: list[dict[str, Any]], code: str
) -> None:
    small = coder.with_settings(code={"max_write_bytes": 60})
    result = await update(small, *ops)
    assert result["error"]["code"] == code
    assert (result["success"], result["applied"], result["echoes"]) == (False, 0, [])
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert not [name for name in listing(root) if ".tmp." in name]


@pytest_twisted.ensureDeferred
async def test_files_that_are_not_updated(coder: Caller, root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "binary").write_bytes(b"\xff\xfe")
    small = coder.with_settings(code={"max_write_bytes": 10})
    ops = [replace("b", "x")]
    files = [
        {"path": path, "ops": ops} for path in ("dir", "fifo", "nope", "a.txt", "binary", "dir/b", ".env")
    ]
    result = await small.call("coder::update-file", files=files)
    assert codes(result) == ["C210", "C210", "C211", "C213", "C210", None, "C211"]
    assert (root / "dir/b").read_text() == "x\n"


@pytest_twisted.ensureDeferred
async def test_crlf_grows_to_the_limit_and_no_further(coder: Caller, root: Path) -> None:
    small = coder.with_settings(code={"max_write_bytes": 12})
    insert = {"op": "insert", "at_line": 1, "content": "x\ny"}
    assert (await update(small, insert, text="a\r\nb\r\n"))["success"]
    assert (await update(small, insert, text="a\r\nbb\r\n"))["error"]["code"] == "C213"


@pytest_twisted.ensureDeferred
async def test_update_of_100_000_lines(coder: Caller, root: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 100_001))
    ops: list[dict[str, Any]] = [
        {"op": "update_lines", "from_line": number, "to_line": number, "content": f"row {number}"}
        for number in range(100_000, 0, -2)
    ]
    begun = time.monotonic()
    result = await update(coder, *ops, replace(r"(?m)^(line|row)", "[$1]"), text=text)
    assert time.monotonic() - begun < 20
    assert (result["applied"], result["new_line_count"]) == (50_001, 100_000)
    assert result["echoes_truncated"] is True
    assert result["echoes"][0]["lines"][1:3] == ["[line] 99999", "[row] 100000"]
    assert (root / "a.txt").read_text().splitlines()[::50_000] == ["[line] 1", "[line] 50001"]


@pytest_twisted.ensureDeferred
async def test_an_operation_that_is_none_does_not_fit(coder: Caller) -> None:
    for op in (
        {"op": "dance"},
        {},
        {"op": "insert", "at_line": -1, "content": ""},
        {"op": "remove", "from_line": 1},
    ):
        reason = await coder.fails("coder::update-file", files=[{"path": "a.txt", "ops": [op]}])
        assert reason.message.startswith("serialization error: ")
