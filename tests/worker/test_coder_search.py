"""`coder::search`: what is found where, what is left out, and how much is returned."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from tests.worker.calls import Caller, caller, make_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    make_tree(
        root,
        {
            "a.rs": "fn one() {}\nfn needle() {}\nfn two() {}\nfn needle_two() {}\n",
            "src/needle.py": "x = 1\n",
            "src/b.py": "# é needle needle\r\n",
            "bin": b"needle" + b"x" * 20_000 + b"\0",
            ".env": "needle\n",
            "secrets/needle": "needle\n",
            "node_modules/needle.js": "needle\n",
            "bad": b"\xff needle\n",
        },
    )
    (root / "link").symlink_to("a.rs")
    (root / "needle-link").symlink_to("src")
    return root


@pytest.fixture
def coder(root: Path, tmp_path: Path) -> Iterator[Caller]:
    with caller(root, tmp_path) as found:
        yield found


def contents(root: Path, result: Any) -> list[tuple[str, int, int, str]]:
    return [
        (os.path.relpath(each["path"], root), each["line"], each["column"], each["text"])
        for each in result["content_matches"]
    ]


def paths(root: Path, result: Any) -> list[str]:
    return [os.path.relpath(each["path"], root) for each in result["path_matches"]]


@pytest_twisted.ensureDeferred
async def test_search(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::search", query="needle")
    assert contents(root, result) == [
        ("a.rs", 2, 4, "fn needle() {}"),
        ("a.rs", 4, 4, "fn needle_two() {}"),
        ("bad", 1, 5, "� needle"),  # columns are bytes, and U+FFFD has three
        ("src/b.py", 1, 6, "# é needle needle"),
    ]
    assert paths(root, result) == ["src/needle.py"]
    assert result["truncated"] is False
    assert not {"before", "after"} & set(result["content_matches"][0])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"query": "NEEDLE", "ignore_case": True}, ["a.rs", "a.rs", "bad", "src/b.py"]),
        ({"query": "needle("}, ["a.rs"]),
        ({"query": r"needle\(", "regex": True}, ["a.rs"]),
        ({"query": r"^fn needle\w*\(\) \{\}$", "regex": True}, ["a.rs", "a.rs"]),
        ({"query": r"needle$", "regex": True}, ["bad", "src/b.py"]),
        ({"query": "(?i)FN ONE", "regex": True}, ["a.rs"]),
        ({"query": "needle", "path": "src"}, ["src/b.py"]),
        ({"query": "needle", "include_globs": ["*.py"]}, ["src/b.py"]),
        ({"query": "needle", "include_globs": ["src/**"], "path": "src"}, ["src/b.py"]),
        ({"query": "needle", "exclude_globs": ["**/*.rs", "bad"]}, ["src/b.py"]),
        (
            {"query": "needle", "use_default_excludes": False, "exclude_globs": ["{a.rs,bad,src/**}"]},
            ["node_modules/needle.js"],
        ),
        ({"query": "needle", "path": "node_modules"}, ["node_modules/needle.js"]),
        ({"query": "needle", "search_content": False}, []),
        ({"query": "fn one() {}\nfn"}, []),
    ],
)
@pytest_twisted.ensureDeferred
async def test_what_is_searched(
    coder: Caller, root: Path, fields: dict[str, Any], expected: list[str]
) -> None:
    result = await coder.call("coder::search", fields)
    assert [path for path, *_ in contents(root, result)] == expected


@pytest_twisted.ensureDeferred
async def test_paths_are_tested_relative_to_the_root(coder: Caller, root: Path) -> None:
    search = {"search_content": False, "regex": True}
    assert paths(root, await coder.call("coder::search", search, query="^src/n")) == ["src/needle.py"]
    assert paths(root, await coder.call("coder::search", search, query="jail")) == []
    result = await coder.call("coder::search", query="needle", search_paths=False)
    assert result["path_matches"] == []


@pytest_twisted.ensureDeferred
async def test_context(coder: Caller, root: Path) -> None:
    result = await coder.call(
        "coder::search",
        query="needle",
        path=".",
        include_globs=["a.rs"],
        context_lines_before=1,
        context_lines_after=9,
    )
    first, second = result["content_matches"]
    assert (first["before"], first["after"]) == (["fn one() {}"], ["fn two() {}", "fn needle_two() {}"])
    assert (second["before"], "after" in second) == (["fn two() {}"], False)
    result = await coder.call("coder::search", query="one", context_lines_before=10, search_paths=False)
    assert "before" not in result["content_matches"][0]


@pytest_twisted.ensureDeferred
async def test_lines_are_cut_and_then_searched(coder: Caller, root: Path) -> None:
    search = {"query": "needle", "search_paths": False, "include_globs": ["src/b.py"]}
    result = await coder.call("coder::search", search, max_line_bytes=11)
    assert contents(root, result) == [("src/b.py", 1, 6, "# é needle")]
    assert contents(root, await coder.call("coder::search", search, max_line_bytes=10)) == []
    result = await coder.call("coder::search", search, query="$", regex=True, max_line_bytes=3)
    assert contents(root, result) == [("src/b.py", 1, 3, "# ")]  # not in the middle of the é
    assert (await coder.call("coder::search", search, max_line_bytes=0))["content_matches"] == []


@pytest_twisted.ensureDeferred
async def test_matches_and_bytes_are_limited(coder: Caller, root: Path) -> None:
    result = await coder.call("coder::search", query="needle", max_matches=1)
    assert (len(result["content_matches"]), result["truncated"]) == (1, True)
    result = await coder.call("coder::search", query="needle", max_matches=0)
    assert result == {"content_matches": [], "path_matches": [], "truncated": True}
    one = len(str(root / "a.rs")) + len("fn needle() {}")
    small = coder.with_settings(code={"search_response_budget_bytes": one})
    result = await small.call("coder::search", query="needle")
    assert (len(result["content_matches"]), result["truncated"]) == (1, True)
    smaller = coder.with_settings(code={"search_response_budget_bytes": one - 1})
    result = await smaller.call("coder::search", query="needle")
    assert (result["content_matches"], result["truncated"]) == ([], True)
    tiny = coder.with_settings(code={"max_read_bytes": 20})
    result = await tiny.call("coder::search", query="needle", search_paths=False)
    assert [path for path, *_ in contents(root, result)] == ["bad", "src/b.py"]


@pytest.mark.parametrize(
    "fields",
    [
        {"query": ""},
        {"query": "x", "search_content": False, "search_paths": False},
        {"query": "x", "context_lines_before": 11},
        {"query": "x", "context_lines_after": 11},
        {"query": "(", "regex": True},
        {"query": "(?=x)", "regex": True},
        {"query": "x", "include_globs": ["["]},
        {"query": "x", "exclude_globs": ["{a"]},
        {"query": "x" * 70_000},
    ],
)
@pytest_twisted.ensureDeferred
async def test_searches_that_are_c210(coder: Caller, fields: dict[str, Any]) -> None:
    assert await coder.code("coder::search", fields) == "C210"
