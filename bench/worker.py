"""``python -m bench worker``: what calls of the worker's functions cost, through an engine (`bench.engine`).

* `shell::exec` of `/bin/true`, each call beside its floor, the bare spawn of the same program; and `shell::list`, which
  does nothing, for what the passage alone costs.
* `coder::search` and `shell::fs::grep` of a literal over a tree, each beside GNU grep on the same tree; and how long
  other calls wait for their answers meanwhile.
* `coder::tree` and `coder::list-folder` of one large directory.
"""

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench import floors
from bench.daemon import Choice, SetupFailed, target
from bench.engine import Engine, nowhere
from bench.report import Goal, Report

PROGRAM: Final = "/bin/true"
FUNCTIONS: Final = 29
WARM: Final = 20
NEEDLE: Final = "the_needle_of_the_benchmark"
EVERY: Final = 1000
"""One file of so many has the needle."""
FOLDER: Final = 100
"""Files of the tree in one directory."""
MEANWHILE: Final = 0.02
"""Seconds between two calls that are made while a search runs."""


def run(choice: Choice, count: int, files: int, size: int, entries: int, rounds: int) -> Report:
    """`count` commands; `rounds` searches of `files` files with `size` bytes in all, and of `entries` entries."""
    if not choice.own:
        raise SetupFailed("the worker is measured at an engine of its own: without --url")
    report = Report(
        "worker",
        {
            "count": count,
            "program": PROGRAM,
            "files": files,
            "bytes": size,
            "entries": entries,
            "rounds": rounds,
        },
    )
    with Engine() as engine, tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as place:
        tree, folder = Path(place) / "tree", Path(place) / "folder"
        options = ("--worker", "--iii-url", engine.url, "--worker-config", nowhere())
        with target(choice, options) as daemon:
            report.version = daemon.version
            engine.accept(FUNCTIONS)
            _commands(report, engine, count)
            _make_tree(tree, files, size // files)
            _searches(report, engine, tree, files, rounds)
            _make_folder(folder, entries)
            _folders(report, engine, folder, entries, rounds)
            if daemon.watched is not None:
                report.figure("resident memory afterwards", "MiB", [daemon.watched.rss()])
    return report


def _timed(engine: Engine, function_id: str, data: Any) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    answer = engine.call(function_id, data)
    return time.perf_counter() - began, answer.get("result", {})


# -- commands ------------------------------------------------------------------------------------------------------


def _commands(report: Report, engine: Engine, count: int) -> None:
    right = 0
    pairs: list[tuple[float, float]] = []
    passages: list[float] = []
    for turn in range(WARM + count):
        bare = floors.spawn([PROGRAM])
        seconds, answer = _timed(engine, "shell::exec", {"command": PROGRAM, "args": []})
        passage, listed = _timed(engine, "shell::list", {})
        right += answer.get("exit_code") == 0 and listed == {"jobs": [], "count": 0}
        if turn >= WARM:
            pairs.append((seconds, bare))
            passages.append(passage)
    report.figure("bare posix_spawn and wait", "ms", [bare * 1e3 for _, bare in pairs])
    report.figure("shell::list", "ms", [seconds * 1e3 for seconds in passages])
    report.figure("shell::exec", "ms", [seconds * 1e3 for seconds, _ in pairs])
    report.ratio("shell::exec / bare spawn", pairs, Goal(most=3.0))
    report.count("calls with the right outcome", right, WARM + count)


# -- searches ------------------------------------------------------------------------------------------------------


def _make_tree(root: Path, files: int, size: int) -> None:
    """Text of many lines, in directories of `FOLDER` files."""
    line = b"A line of text like any other in a file of a program, of some length.\n"
    text = line * (size // len(line)) + b"." * (size % len(line))
    for number in range(files):
        directory = root / f"d{number // FOLDER:04}"
        if number % FOLDER == 0:
            directory.mkdir(parents=True)
        tail = f"\n{NEEDLE} {number}\n".encode() if number % EVERY == 0 else b""
        (directory / f"f{number}.txt").write_bytes(text + tail)


def _searches(report: Report, engine: Engine, tree: Path, files: int, rounds: int) -> None:
    hits = len(range(0, files, EVERY))
    ways = {
        "coder::search": ({"query": NEEDLE, "regex": False, "path": str(tree)}, "content_matches"),
        "shell::fs::grep": ({"pattern": NEEDLE, "path": str(tree), "recursive": True}, "matches"),
    }
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    waits: list[float] = []
    right = 0
    _grep(tree)  # into the page cache
    for _ in range(rounds):
        for name, (data, key) in ways.items():
            bare = _grep(tree)
            seconds, answer = _timed(engine, name, data)
            # As speeds: the floor's time comes first.
            pairs[name].append((bare, seconds))
            right += len(answer.get(key, ())) == hits
            waits += _meanwhile(engine, name, data)
    for name, taken in pairs.items():
        report.figure(f"{name} of a literal", "ms", [seconds * 1e3 for _, seconds in taken])
    report.figure("GNU grep -r", "ms", [bare * 1e3 for taken in pairs.values() for bare, _ in taken])
    for name, taken in pairs.items():
        report.ratio(f"speed of {name} / GNU grep -r", taken, Goal(least=0.3))
    report.figure("another call during a search (goal < 50)", "ms", [wait * 1e3 for wait in waits])
    report.count("searches that found everything", right, rounds * len(ways))


def _grep(tree: Path) -> float:
    began = time.perf_counter()
    # Its output is read: with /dev/null for it, GNU grep ends at the first match of all.
    subprocess.run(
        ["grep", "-r", "-F", NEEDLE, str(tree)],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )
    return time.perf_counter() - began


def _meanwhile(engine: Engine, name: str, data: Any) -> list[float]:
    """How long small calls wait for their answers while a search runs."""
    search = engine.send(name, data)
    waits: list[float] = []
    while True:
        small, began = engine.send("shell::list", {}), time.perf_counter()
        ended = False
        while True:
            number = engine.receive()["invocation_id"]
            ended = ended or number == search
            if number == small:
                break
        waits.append(time.perf_counter() - began)
        if ended:
            return waits
        time.sleep(MEANWHILE)


# -- large directories ---------------------------------------------------------------------------------------------


def _make_folder(folder: Path, entries: int) -> None:
    folder.mkdir()
    for number in range(entries):
        (folder / f"entry-{number:06}").touch()


def _folders(report: Report, engine: Engine, folder: Path, entries: int, rounds: int) -> None:
    right = 0
    trees: list[float] = []
    lists: list[float] = []
    for _ in range(rounds):
        seconds, tree = _timed(
            engine, "coder::tree", {"path": str(folder), "max_depth": 2, "per_folder_limit": entries}
        )
        trees.append(seconds * 1e3)
        right += len(tree.get("root", {}).get("children", ())) == entries
        seconds, page = _timed(engine, "coder::list-folder", {"path": str(folder), "page_size": entries})
        lists.append(seconds * 1e3)
        right += page.get("total") == entries
    report.figure(f"coder::tree of {entries} entries (goal < 100)", "ms", trees)
    report.figure(f"coder::list-folder of {entries} entries (goal < 100)", "ms", lists)
    report.count("listings of everything", right, 2 * rounds)
