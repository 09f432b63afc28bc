"""`coder::info`, `read-file`, `list-folder`, `tree`: what is returned, within which budgets, and what is refused."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from agentd import __version__
from agentd.worker import coder_folders
from agentd.worker.errors import CoderError, Misfit
from tests.worker.calls import SERVED, Caller, caller, make_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    make_tree(
        root,
        {
            "a.txt": "one\ntwo\nthree\n",
            "tail": "one\ntwo",
            "empty": "",
            "bad": b"\xffx\ngood\n",
            "dir/b": "b\n",
            "dir/sub/c": "c\n",
            ".env": "secret\n",
            "conf/secrets/k": "k",
            "node_modules/m/x.js": "x",
            "target": "a file that is called so",
        },
    )
    (root / "link").symlink_to("a.txt")
    (root / "dirlink").symlink_to("dir")
    (root / "out").symlink_to("..")
    (root / "dangling").symlink_to("nope")
    return root


@pytest.fixture
def coder(root: Path, tmp_path: Path) -> Iterator[Caller]:
    with caller(root, tmp_path) as found:
        yield found


# -- every function ----------------------------------------------------------------------------------------------

TOP_LEVEL = {
    "read-file": lambda path: {"path": path},
    "list-folder": lambda path: {"path": path},
    "tree": lambda path: {"path": path},
    "search": lambda path: {"path": path, "query": "x"},
}
BATCHES = {
    "read-file": lambda path: {"paths": [path]},
    "create-file": lambda path: {"files": [{"path": path, "content": "x"}]},
    "delete-file": lambda path: {"paths": [path]},
    "update-file": lambda path: {
        "files": [{"path": path, "ops": [{"op": "remove", "from_line": 1, "to_line": 1}]}]
    },
    "move": lambda path: {"files": [{"from": path, "to": "new"}]},
}
ESCAPES = ["..", "../x", "/etc/hostname", "out/x", "dangling", "dangling/x", "new/../../x"]


@pytest.mark.parametrize("name", TOP_LEVEL)
@pytest.mark.parametrize(
    ("path", "code"),
    [
        *((path, "C215") for path in ESCAPES),
        ("", "C210"),
        ("a\0b", "C210"),
        ("x" * 4096, "C216"),
        ("nope", "C211"),
        ("nope/../none", "C211"),
        (".env", "C211"),
        ("conf/secrets/k", "C211"),
        ("conf/secrets/none", "C211"),
        ("a.txt/x", "C216"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_paths_that_fail_a_call(coder: Caller, name: str, path: str, code: str) -> None:
    assert await coder.code(f"coder::{name}", TOP_LEVEL[name](path)) == code


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("path", ESCAPES)
@pytest_twisted.ensureDeferred
async def test_an_escape_fails_a_whole_batch(coder: Caller, root: Path, name: str, path: str) -> None:
    good = BATCHES[name]("a.txt")
    (key,) = good
    good[key] += BATCHES[name](path)[key]
    assert await coder.code(f"coder::{name}", good) == "C215"
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert not (root / "new").exists()


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize(
    ("path", "code"),
    [("", "C210"), ("a\0b", "C210"), ("x" * 4096, "C216"), (".env", "C211"), ("conf/secrets/none", "C211")],
)
@pytest_twisted.ensureDeferred
async def test_other_bad_paths_fail_their_entry(
    coder: Caller, root: Path, name: str, path: str, code: str
) -> None:
    result = await coder.call(f"coder::{name}", BATCHES[name](path))
    (entry,) = result["results"]
    assert (entry["success"], entry["error"]["code"]) == (False, code)
    assert (root / ".env").read_text() == "secret\n"


@pytest.mark.parametrize("name", BATCHES)
@pytest_twisted.ensureDeferred
async def test_an_empty_batch_is_c210(coder: Caller, name: str) -> None:
    (key,) = BATCHES[name]("x")
    assert await coder.code(f"coder::{name}", {key: []}) == "C210"


@pytest_twisted.ensureDeferred
async def test_protected_and_missing_are_told_in_the_same_words(coder: Caller) -> None:
    said = []
    for path in (".env", "conf/secrets/k", "conf/secrets/none", "nope"):
        reason = await coder.fails("coder::read-file", path=path)
        assert isinstance(reason, CoderError)
        said.append(reason.text.replace(path, "PATH"))
    assert len(set(said)) == 1
    # Not even the sizes matter: what is looked at first is whether it may be seen.
    tiny = coder.with_settings(code={"max_read_bytes": 1, "max_output_bytes": 0})
    assert await tiny.code("coder::read-file", path=".env") == "C211"


@pytest.mark.parametrize("name", [*TOP_LEVEL, *BATCHES])
@pytest.mark.parametrize("data", [5, "x", [], {"path": 5, "paths": 5, "files": 5, "query": 5}])
def test_what_does_not_fit_is_a_plain_failure(name: str, data: object) -> None:
    with pytest.raises(Misfit) as refused:
        SERVED[f"coder::{name}"].parse(data)
    assert refused.value.code == "invocation_failed"
    assert refused.value.message.startswith("serialization error: ")


# -- info --------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_info(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::info")
    assert result["base_paths"] == [str(root)]
    assert result["primary_root"] == str(root)
    assert result["version"] == __version__
    assert result["max_output_bytes"] == 131072
    assert "**/secrets/**" in result["non_accessible_globs"]
    assert "**/.git/**" in result["default_exclude_globs"]


# -- read-file ---------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_read_a_whole_file(coder: Caller, root: Path) -> None:
    (root / "a.txt").chmod(0o640)
    os.utime(root / "a.txt", (0, 1_600_000_000.5))
    assert await coder.call("coder::read-file", path="link") == {
        "path": str(root / "a.txt"),
        "content": "one\ntwo\nthree\n",
        "is_utf8": True,
        "lines_returned": 3,
        "more_lines": False,
        "total_lines": 3,
        "size": 14,
        "mode": 0o640,
        "mtime": 1_600_000_000,
    }
    result = await coder.call("coder::read-file", path="empty")
    assert (result["content"], result["total_lines"]) == ("", 0)
    result = await coder.call("coder::read-file", path="bad")
    assert (result["content"], result["is_utf8"]) == ("�x\ngood\n", False)
    result = await coder.call("coder::read-file", path="tail", numbered=True)
    assert result["content"] == "1→one\n2→two"


@pytest.mark.parametrize(
    ("window", "content", "more", "total"),
    [
        ({"line_from": 2, "line_to": 2}, "two\n", True, None),
        ({"line_from": 2}, "two\nthree\n", False, 3),
        ({"line_to": 1}, "one\n", True, None),
        ({"line_from": 3, "line_to": 99}, "three\n", False, 3),
        ({"line_from": 9}, "", False, 3),
        ({"line_from": 2, "numbered": True}, "2→two\n3→three\n", False, 3),
    ],
)
@pytest_twisted.ensureDeferred
async def test_read_a_window(
    coder: Caller, window: dict[str, Any], content: str, more: bool, total: int | None
) -> None:
    result = await coder.call("coder::read-file", path="a.txt", **window)
    assert (result["content"], result["more_lines"], result.get("total_lines")) == (content, more, total)
    assert result["size"] == 14
    entry = (await coder.call("coder::read-file", paths=[{"path": "a.txt", **window}]))["results"][0]
    assert {**result, "success": True} == entry


@pytest_twisted.ensureDeferred
async def test_limits_of_whole_reads_and_of_windows(coder: Caller, root: Path) -> None:
    small = coder.with_settings(code={"max_read_bytes": 10, "max_output_bytes": 6})
    assert await small.code("coder::read-file", path="a.txt") == "C213"
    assert await small.code("coder::read-file", path="tail") == "C213"
    reason = await small.fails("coder::read-file", path="tail")
    for named in ("7 bytes", "2 lines", "line_from", "stat"):
        assert named in reason.message
    result = await small.call("coder::read-file", path="tail", max_output_bytes=99999)
    assert result["content"] == "one\ntwo"
    assert await small.code("coder::read-file", path="tail", numbered=True, max_output_bytes=99999) == "C213"
    assert await small.code("coder::read-file", path="tail", max_output_bytes=0) == "C213"
    # A window of a file of any size, cut between lines.
    result = await small.call("coder::read-file", path="a.txt", line_from=1)
    assert (result["content"], result["more_lines"], "total_lines" in result) == ("one\ntwo\n", True, False)


@pytest_twisted.ensureDeferred
async def test_stat(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::read-file", path="a.txt", stat=True)
    assert "content" not in result
    assert (result["lines_returned"], result["more_lines"]) == (0, False)
    assert (result["size"], result["total_lines"], result["is_utf8"]) == (14, 3, True)
    small = coder.with_settings(code={"max_read_bytes": 10})
    result = await small.call("coder::read-file", path="a.txt", stat=True)
    assert (result["size"], "total_lines" in result, "is_utf8" in result) == (14, False, False)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"path": "a.txt", "paths": ["a.txt"]},
        {"path": "dir"},
        {"path": "fifo"},
        {"path": "a.txt", "line_from": 0},
        {"path": "a.txt", "line_from": 3, "line_to": 2},
        {"path": "a.txt", "line_to": 0},
        {"path": "a.txt", "line_from": 1, "max_output_bytes": 5},
        {"path": "a.txt", "stat": True, "line_from": 1},
        {"path": "a.txt", "stat": True, "numbered": True},
        {"path": "a.txt", "stat": True, "max_output_bytes": 1},
    ],
)
@pytest_twisted.ensureDeferred
async def test_reads_that_are_c210(coder: Caller, root: Path, fields: dict[str, Any]) -> None:
    os.mkfifo(root / "fifo")
    assert await coder.code("coder::read-file", fields) == "C210"


@pytest_twisted.ensureDeferred
async def test_a_batch_shares_a_budget(coder: Caller) -> None:
    small = coder.with_settings(code={"batch_read_budget_bytes": 12})
    paths = ["tail", {"path": "a.txt", "stat": True}, "nope", "a.txt", "dir/b", "nope", ".env", "dir"]
    result = await small.call("coder::read-file", paths=paths, line_from=0, numbered=True, stat=True)
    assert list(result) == ["results"]
    entries = result["results"]
    assert [entry["success"] for entry in entries] == [True, True, False, True, True, False, False, False]
    assert [entry.get("error", {}).get("code") for entry in entries] == [
        *(None, None, "C211", None, None, "C211", "C211", "C210"),
    ]
    assert (entries[0]["content"], entries[0]["total_lines"]) == ("one\ntwo", 2)
    assert entries[1]["lines_returned"] == 0
    assert (entries[3]["content"], entries[3]["more_lines"]) == ("one\n", True)
    used_up = await small.call("coder::read-file", paths=["a.txt", "a.txt", "tail", "nope", ".env"])
    assert [entry.get("content") for entry in used_up["results"]] == ["one\ntwo\n", "one\n", None, None, None]
    assert [entry.get("error", {}).get("code") for entry in used_up["results"]] == [
        *(None, None, "C213", "C211", "C211"),
    ]
    assert "12" in used_up["results"][2]["error"]["message"]


# -- list-folder -------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_list_folder(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::list-folder")
    assert result["path"] == str(root)
    entries = {entry["name"]: entry for entry in result["entries"]}
    assert list(entries) == sorted(os.listdir(root))
    assert (result["total"], result["page"], result["page_size"], result["has_more"]) == (
        *(len(os.listdir(root)), 1, 100, False),
    )
    assert (entries["a.txt"]["kind"], entries["a.txt"]["size"]) == ("file", 14)
    assert entries["dir"]["kind"] == "dir"
    assert entries["dirlink"]["kind"] == "symlink"
    assert [name for name, entry in entries.items() if entry["non_accessible"]] == [".env"]
    below = await coder.call("coder::list-folder", path="conf/secrets")
    assert below["entries"][0]["non_accessible"]


@pytest.mark.parametrize(
    ("page", "page_size", "names", "more"),
    [
        (1, 2, ["00", "01"], True),
        (0, 2, ["00", "01"], True),
        (3, 2, ["04"], False),
        (4, 2, [], False),
        (2**32 - 1, 2, [], False),
        (1, 0, ["00"], True),
        (1, 9999, ["00", "01", "02", "03"], True),
        (1, 5, ["00", "01", "02", "03"], True),
        (1, None, ["00", "01", "02"], True),
    ],
)
@pytest_twisted.ensureDeferred
async def test_pages(
    coder: Caller, root: Path, page: int, page_size: int | None, names: list[str], more: bool
) -> None:
    make_tree(root, {f"pages/{number:02}": "" for number in range(5)})
    small = coder.with_settings(code={"list_max_page_size": 4, "list_default_page_size": 3})
    result = await small.call("coder::list-folder", path="pages", page=page, page_size=page_size)
    assert [entry["name"] for entry in result["entries"]] == names
    assert (result["total"], result["has_more"]) == (5, more)


@pytest.mark.parametrize("name", ["list-folder", "tree", "search"])
@pytest_twisted.ensureDeferred
async def test_a_file_is_no_folder(coder: Caller, name: str) -> None:
    assert await coder.code(f"coder::{name}", path="a.txt", query="x") == "C210"


# -- tree --------------------------------------------------------------------------------------------------------


def shape(node: dict[str, Any]) -> Any:
    """Names and what is below them; a folder without children is the reason why."""
    if "children" in node:
        return {child["name"]: shape(child) for child in node["children"]}
    return node.get("truncated", {}).get("reason", node["kind"])


@pytest_twisted.ensureDeferred
async def test_tree(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::tree")
    assert result["path"] == str(root)
    assert result["root"]["name"] == "jail"
    assert shape(result["root"]) == {
        ".env": "file",
        "a.txt": "file",
        "bad": "file",
        "conf": {"secrets": {"k": "file"}},
        "dangling": "symlink",
        "dir": {"b": "file", "sub": {"c": "file"}},
        "dirlink": "symlink",
        "empty": "file",
        "link": "symlink",
        "node_modules": "default_exclude",
        "out": "symlink",
        "tail": "file",
        "target": "file",
    }
    children = {child["name"]: child for child in result["root"]["children"]}
    assert children[".env"]["non_accessible"] is True
    assert children["a.txt"]["non_accessible"] is False
    assert "truncated" not in children["a.txt"]
    assert "children" not in children["a.txt"]


@pytest_twisted.ensureDeferred
async def test_tree_depth_and_limit(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::tree", path="dir", max_depth=0)
    assert shape(result["root"]) == "max_depth"
    result = await coder.call("coder::tree", path="dir", max_depth=1)
    assert shape(result["root"]) == {"b": "file", "sub": "max_depth"}
    result = await coder.call("coder::tree", max_depth=1, per_folder_limit=2)
    truncated = result["root"]["truncated"]
    assert (truncated["reason"], truncated["shown"], truncated["total"]) == ("per_folder_limit", 2, 13)
    result = await coder.call("coder::tree", path="dir", per_folder_limit=2)
    assert "truncated" not in result["root"]
    result = await coder.call("coder::tree", path="dir", per_folder_limit=0)
    assert (result["root"]["children"], result["root"]["truncated"]["total"]) == ([], 2)


@pytest_twisted.ensureDeferred
async def test_tree_filters(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::tree", use_default_excludes=False)
    assert shape(result["root"])["node_modules"] == {"m": {"x.js": "file"}}
    # Named itself, an excluded folder is looked into.
    result = await coder.call("coder::tree", path="node_modules")
    assert shape(result["root"]) == {"m": {"x.js": "file"}}
    result = await coder.call("coder::tree", path="node_modules/m")
    assert shape(result["root"]) == {"x.js": "file"}
    hidden = coder.with_settings(code={"non_accessible_globs": ["conf", "conf/**"]})
    result = await hidden.call("coder::tree")
    assert shape(result["root"])["conf"] == "dir"
    files = coder.with_settings(code={"default_exclude_globs": ["*.txt"]})
    assert "a.txt" not in shape((await files.call("coder::tree"))["root"])


@pytest_twisted.ensureDeferred
async def test_tree_has_an_end_whatever_is_asked(
    coder: Caller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coder_folders, "MAX_NODES", 8)
    result = await coder.call("coder::tree", max_depth=2**32 - 1, per_folder_limit=2**32 - 1)
    assert len(result["root"]["children"]) == 7
    (folder,) = [child for child in result["root"]["children"] if child["name"] == "conf"]
    assert folder["truncated"]["reason"] == "node_limit"
    deep = root / "deep"
    for _ in range(150):
        deep = deep / "d"
    deep.mkdir(parents=True)
    monkeypatch.undo()
    await coder.call("coder::tree", path="deep", max_depth=2**32 - 1)


@pytest_twisted.ensureDeferred
async def test_tree_of_a_folder_that_cannot_be_read(
    coder: Caller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentd.worker.walker import Tree

    whole = Tree.entries

    def entries(self: Tree, parts: Any) -> Any:
        if parts == (b"sub",):
            raise PermissionError(13, "Permission denied")
        return whole(self, parts)

    monkeypatch.setattr(Tree, "entries", entries)
    result = await coder.call("coder::tree", path="dir")
    sub = result["root"]["children"][1]
    assert (sub["name"], sub["children"], sub["truncated"]["reason"]) == ("sub", [], "io_error")
