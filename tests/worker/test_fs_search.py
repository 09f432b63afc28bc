"""`shell::fs::grep` and `sed`: lines found and replaced, what is passed over, and every way to be refused."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from agentd.worker import fs_search
from tests.worker.calls import Caller, caller, listing, make_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    make_tree(
        root,
        {
            "a.py": "import os\nx = 'needle'\n# NEEDLE\n",
            "src/b.py": "needle\r\nsecond needle\r\n",
            "src/deep/c.rs": "fn needle() {}\n",
            "src/deep/.hidden": "needle",
            "bin.dat": b"needle\0needle",
            "late.dat": b"needle\n" * 2000 + b"\0",
            ".env": "needle\n",
            "secrets/k": "needle\n",
            "latin.txt": b"caf\xe9 needle\n",
        },
    )
    (root / "link.py").symlink_to("a.py")
    (root / "srclink").symlink_to("src")
    return root


@pytest.fixture
def fs(root: Path, tmp_path: Path) -> Iterator[Caller]:
    with caller(root, tmp_path) as found:
        yield found


def found(root: Path, result: Any) -> list[tuple[str, int, str]]:
    return [
        (os.path.relpath(each["path"], root), each["line"], each["content"]) for each in result["matches"]
    ]


# -- grep --------------------------------------------------------------------------------------------------------


@pytest_twisted.ensureDeferred
async def test_grep_finds_lines_in_walk_order(fs: Caller, root: Path) -> None:
    result = await fs.call("shell::fs::grep", path=".", pattern="needle", exclude_glob=["late.dat"])
    assert found(root, result) == [
        ("a.py", 2, "x = 'needle'"),
        ("latin.txt", 1, "caf� needle"),
        ("src/b.py", 1, "needle"),
        ("src/b.py", 2, "second needle"),
        ("src/deep/.hidden", 1, "needle"),
        ("src/deep/c.rs", 1, "fn needle() {}"),
    ]
    assert result["truncated"] is False


@pytest.mark.parametrize(
    ("pattern", "ignore_case", "expected"),
    [
        ("needle", True, [2, 3]),
        ("^# needle$", True, [3]),
        ("^# needle$", False, []),
        ("os$", False, [1]),
        (r"\bos\b", False, [1]),
        (r"'\w+'", False, [2]),
        (r"[^x]\z", False, [1, 2, 3]),
        (r"os\nx", False, []),
        (r"(?s)os.x", False, []),
        (r"(?m)^x", False, [2]),
        ("", False, [1, 2, 3]),
    ],
)
@pytest_twisted.ensureDeferred
async def test_grep_patterns_are_about_single_lines(
    fs: Caller, pattern: str, ignore_case: bool, expected: list[int]
) -> None:
    result = await fs.call("shell::fs::grep", path="a.py", pattern=pattern, ignore_case=ignore_case)
    assert [each["line"] for each in result["matches"]] == expected


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["*.py"], [], ["a.py", "src/b.py"]),
        (["src/*"], [], ["src/b.py"]),
        (["src/**"], [], ["src/b.py"]),
        (["**/*.rs"], [], ["src/deep/c.rs"]),
        (["**"], ["*.py", "l*"], ["src/deep/.hidden", "src/deep/c.rs"]),
        (["*.py"], ["src/*"], ["a.py"]),
        (["{a,b}.py"], [], []),
    ],
)
@pytest_twisted.ensureDeferred
async def test_grep_globs(
    fs: Caller, root: Path, include: list[str], exclude: list[str], expected: list[str]
) -> None:
    result = await fs.call(
        "shell::fs::grep", path=".", pattern="needle", include_glob=include, exclude_glob=exclude
    )
    assert sorted({path for path, _, _ in found(root, result)}) == expected


@pytest_twisted.ensureDeferred
async def test_grep_stops_at_max_matches(fs: Caller) -> None:
    result = await fs.call("shell::fs::grep", path="late.dat", pattern="needle", max_matches=3)
    assert (len(result["matches"]), result["truncated"]) == (3, True)
    result = await fs.call("shell::fs::grep", path="late.dat", pattern="needle", max_matches=0)
    assert (len(result["matches"]), result["truncated"]) == (2000, False)
    result = await fs.call("shell::fs::grep", path="a.py", pattern="needle", max_matches=1)
    assert result["truncated"] is True


@pytest_twisted.ensureDeferred
async def test_grep_cuts_lines_at_a_character(fs: Caller, root: Path) -> None:
    (root / "long").write_text("éé needle\nshort\n")
    result = await fs.call("shell::fs::grep", path="long", pattern="needle", max_line_bytes=3)
    assert found(root, result) == [("long", 1, "é…")]
    result = await fs.call("shell::fs::grep", path="long", pattern="short", max_line_bytes=5)
    assert found(root, result) == [("long", 2, "short")]


@pytest_twisted.ensureDeferred
async def test_grep_looks_at_a_megabyte_of_a_line(fs: Caller, root: Path) -> None:
    with (root / "huge").open("wb") as file:
        file.write(
            b"first\n" + b"a" * 900_000 + b"near" + b"b" * 3_000_000 + b"far\nlast far\n" + b"c" * 2_000_000
        )
    near = await fs.call("shell::fs::grep", path="huge", pattern="near", max_line_bytes=5)
    assert found(root, near) == [("huge", 2, "aaaaa…")]
    far = await fs.call("shell::fs::grep", path="huge", pattern="far")
    assert found(root, far) == [("huge", 3, "last far")]


@pytest_twisted.ensureDeferred
async def test_grep_results_are_bounded_whatever_is_asked(
    fs: Caller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs_search, "MAX_RESULT_BYTES", 10_000)
    result = await fs.call("shell::fs::grep", path="late.dat", pattern="needle", max_matches=2**62)
    assert result["truncated"] is True
    assert 1 < len(result["matches"]) < 2000


@pytest_twisted.ensureDeferred
async def test_grep_refusals(fs: Caller, root: Path) -> None:
    assert await fs.code("shell::fs::grep", path=".", pattern="x", recursive=False) == "S210"
    assert await fs.code("shell::fs::grep", path=".", pattern="(") == "S217"
    assert await fs.code("shell::fs::grep", path=".", pattern="(?=x)") == "S217"
    assert await fs.code("shell::fs::grep", path=".", pattern="x" * 4097) == "S210"
    assert await fs.code("shell::fs::grep", path=".", pattern=r"\w{200}") == "S217"
    assert await fs.code("shell::fs::grep", path=".", pattern="((a{100}){100}){100}") == "S217"
    assert await fs.code("shell::fs::grep", path=".", pattern="x", include_glob=["y" * 70_000]) == "S210"
    assert await fs.code("shell::fs::grep", path=".", pattern="x", max_matches=-1) == "S210"
    result = await fs.call("shell::fs::grep", path="a.py", pattern="x", recursive=False)
    assert len(result["matches"]) == 1


@pytest_twisted.ensureDeferred
async def test_grep_passes_over_the_denylist(fs: Caller, root: Path) -> None:
    denying = fs.with_settings(fs={"denylist_paths": [str(root / "src")]})
    result = await denying.call("shell::fs::grep", path=".", pattern="needle", include_glob=["*.py"])
    assert [path for path, _, _ in found(root, result)] == ["a.py"]


@pytest_twisted.ensureDeferred
async def test_grep_of_what_is_no_file_finds_nothing(fs: Caller, root: Path) -> None:
    os.mkfifo(root / "fifo")
    result = await fs.call("shell::fs::grep", path="fifo", pattern="x")
    assert result == {"matches": [], "truncated": False}


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$", "(.*)(.*)(.*)x", "a?" * 200 + "a" * 200])
@pytest_twisted.ensureDeferred
async def test_grep_is_linear(fs: Caller, root: Path, pattern: str) -> None:
    (root / "as").write_text("a" * 50_000 + "\n")
    begun = time.monotonic()
    await fs.call("shell::fs::grep", path="as", pattern=pattern)
    assert time.monotonic() - begun < 5


# -- sed ---------------------------------------------------------------------------------------------------------


async def sed(fs: Caller, text: str, **fields: Any) -> tuple[str, Any]:
    """What becomes of a file, and what is said of it."""
    path = Path(fs.cwd) / "jail" / "f"
    path.write_bytes(text.encode())
    result = await fs.call("shell::fs::sed", files=["f"], **fields)
    return path.read_bytes().decode(), result


@pytest.mark.parametrize(
    ("text", "fields", "expected", "count"),
    [
        ("a a\na\n", {"pattern": "a", "replacement": "b"}, "b b\nb\n", 3),
        ("a a\na\n", {"pattern": "a", "replacement": "b", "first_only": True}, "b a\nb\n", 2),
        ("A a\n", {"pattern": "a", "replacement": "b", "ignore_case": True}, "b b\n", 2),
        ("a.c abc\n", {"pattern": "a.c", "replacement": "$0", "regex": False}, "$0 abc\n", 1),
        (
            "A.C a.c\n",
            {"pattern": "a.c", "replacement": "-", "regex": False, "ignore_case": True},
            "- -\n",
            2,
        ),
        (
            "john smith\n",
            {"pattern": r"(\w+) (?P<last>\w+)", "replacement": "${last}, $1$9"},
            "smith, john\n",
            1,
        ),
        ("x\n", {"pattern": "x", "replacement": "$$1"}, "$1\n", 1),
        ("a\nb\n", {"pattern": r"a\nb", "replacement": "-"}, "a\nb\n", 0),
        ("a\nb\n", {"pattern": r"\n", "replacement": ";"}, "a;b;", 2),
        ("a\nb\n", {"pattern": r"\s+", "replacement": ""}, "ab", 2),
        ("a\nb", {"pattern": "b$", "replacement": "c"}, "a\nc", 1),
        ("a\nb\n", {"pattern": "^", "replacement": "> "}, "> a\n> b\n", 2),
        ("a\r\n", {"pattern": "a", "replacement": "b"}, "b\r\n", 1),
        ("nothing\n", {"pattern": "zzz", "replacement": "y"}, "nothing\n", 0),
        ("", {"pattern": "x", "replacement": "y"}, "", 0),
        ("aé\n", {"pattern": "", "replacement": "-"}, "-a-é-\n-", 4),
        ("a" + "b\n" * 200, {"pattern": r"(?s)a.*\z", "replacement": "c"}, "c" + "b\n" * 199, 1),
    ],
)
@pytest_twisted.ensureDeferred
async def test_sed_works_line_by_line(
    fs: Caller, text: str, fields: dict[str, Any], expected: str, count: int
) -> None:
    after, result = await sed(fs, text, **fields)
    assert after == expected
    assert result["total_replacements"] == count
    assert result["results"] == [{"path": "f", "replacements": count, "success": True, "error": None}]


@pytest_twisted.ensureDeferred
async def test_sed_of_many_lines_that_match_across_their_ends(fs: Caller) -> None:
    """Each line begins what only a later one ends: looking for that from every line would be quadratic."""
    begun = time.monotonic()
    text = "a\n" * 100_000 + "z\n"
    after, result = await sed(fs, text, pattern=r"a[^b]*z", replacement="")
    assert (after, result["total_replacements"]) == (text, 0)
    assert time.monotonic() - begun < 10


@pytest_twisted.ensureDeferred
async def test_sed_keeps_mode_and_replaces_the_file(fs: Caller, root: Path) -> None:
    (root / "a.py").chmod(0o751)
    before = (root / "a.py").stat().st_ino
    await fs.call("shell::fs::sed", files=["a.py"], pattern="zzz", replacement="y")
    after = (root / "a.py").stat()
    assert after.st_mode & 0o7777 == 0o751
    assert after.st_ino != before
    assert not [name for name in listing(root) if ".tmp." in name]


@pytest_twisted.ensureDeferred
async def test_sed_walks(fs: Caller, root: Path) -> None:
    result = await fs.call(
        "shell::fs::sed", path="src", pattern="needle", replacement="pin", include_glob=["*.py", "*.rs"]
    )
    assert [(os.path.relpath(each["path"], root), each["replacements"]) for each in result["results"]] == [
        ("src/b.py", 2),
        ("src/deep/c.rs", 1),
    ]
    assert (root / "src/b.py").read_bytes() == b"pin\r\nsecond pin\r\n"
    assert (root / "src/deep/.hidden").read_text() == "needle"


@pytest_twisted.ensureDeferred
async def test_sed_changes_nothing_when_a_path_is_bad(fs: Caller, root: Path) -> None:
    def contents() -> list[bytes]:
        return [path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()]

    before = contents()
    for files, code in (
        (["a.py", ".env"], "S215"),
        (["a.py", "nope"], "S211"),
        (["a.py", "../outside"], "S215"),
        (["a.py", ""], "S210"),
    ):
        assert await fs.code("shell::fs::sed", files=files, pattern="needle", replacement="x") == code
    assert await fs.code("shell::fs::sed", path=".", pattern="needle", replacement="x") == "S215"
    assert contents() == before


@pytest_twisted.ensureDeferred
async def test_sed_failures_of_single_files(fs: Caller, root: Path) -> None:
    small = fs.with_settings(fs={"max_read_bytes": 1000, "max_write_bytes": 40})
    files = ["link.py", "late.dat", "bin.dat", "latin.txt", "src", "a.py"]
    result = await small.call("shell::fs::sed", files=files, pattern="needle", replacement="pin")
    said = {each["path"]: (each["success"], each["error"]) for each in result["results"]}
    assert said["a.py"] == (True, None)
    assert not any(said[name][0] for name in files[:-1])
    assert "link" in said["link.py"][1]
    assert "larger" in said["late.dat"][1]
    assert "binary" in said["bin.dat"][1]
    assert "UTF-8" in said["latin.txt"][1]
    assert result["total_replacements"] == 1
    grown = await small.call("shell::fs::sed", files=["a.py"], pattern="[a-z]", replacement="nnnnnnnnnn")
    assert "larger" in grown["results"][0]["error"]
    assert not [name for name in listing(root) if ".tmp." in name]


@pytest_twisted.ensureDeferred
async def test_sed_refusals(fs: Caller) -> None:
    both = {"pattern": "a", "replacement": "b"}
    assert await fs.code("shell::fs::sed", both) == "S210"
    assert await fs.code("shell::fs::sed", both, files=["a.py"], path="a.py") == "S210"
    assert await fs.code("shell::fs::sed", both, path=".", recursive=False) == "S210"
    assert await fs.code("shell::fs::sed", files=["a.py"], pattern="", replacement="", regex=False) == "S210"
    assert await fs.code("shell::fs::sed", files=["a.py"], pattern="(", replacement="") == "S217"
    assert await fs.code("shell::fs::sed", files=["a.py"], pattern="x" * 5000, replacement="") == "S210"


@pytest_twisted.ensureDeferred
async def test_sed_of_100_000_lines(fs: Caller) -> None:
    text = "".join(f"line {number}\n" for number in range(100_000))
    after, result = await sed(fs, text, pattern=r"^line (\d+)$", replacement="row $1")
    assert result["total_replacements"] == 0  # the line end is part of what ``$`` looks at
    after, result = await sed(fs, text, pattern=r"line (\d+)", replacement="row $1")
    assert result["total_replacements"] == 100_000
    assert after == text.replace("line", "row")
