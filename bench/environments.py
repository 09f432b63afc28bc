"""``python -m bench environments``: the environments API against what it is made of.

A command to its end against the bare spawn of the same program; a large upload against `cp`, a listing against
`os.scandir` with a `lstat` of each entry; and the output of a process through long polls. Everything runs as an agent
user other than root where the daemon may become one, since that is what the API is for.
"""

import json
import os
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from bench import floors
from bench.client import Connection, Server
from bench.daemon import Choice, SetupFailed, Target, target
from bench.process import MIB
from bench.pulse import Pulse
from bench.report import Goal, Report
from bench.transfer import Series, scratch, upload

PROGRAM: Final = "/bin/true"
WARM: Final = 20
"""Commands before the first that counts."""
AGENT: Final = "agent"
AGENT_ID: Final = 65534
"""The user and group that a daemon of root runs the agent's commands as."""
EXEC_GOAL: Final = Goal(most=2.5)
PUT_GOAL: Final = Goal(least=0.7)
GROWTH_MIB: Final = 16
LIST_GOAL: Final = Goal(most=3)
OUTPUT_MB: Final = 8
OUTPUT_GOAL: Final = Goal(least=50)


def run(
    choice: Choice, count: int, size: int, entries: int, rounds: int, directory: str | None, environment: str
) -> Report:
    """`count` commands; `rounds` uploads of `size` bytes, listings of `entries` files and outputs of 8 MiB."""
    shape = {"count": count, "bytes": size, "entries": entries, "rounds": rounds, "program": PROGRAM}
    report = Report("environments", shape)
    with scratch(directory, 3 * size) as place:
        home = place / "home"
        home.mkdir()
        place.chmod(0o755)
        with target(choice, (*_agent(place, home), "--environment-id", environment)) as daemon:
            report.version = daemon.version
            root = f"/v1/environments/{environment}"
            _commands(report, daemon.server, root, str(place), count)
            _uploads(report, daemon, root, place, home, size, rounds)
            _listings(report, daemon.server, root, home, entries, rounds)
            _outputs(report, daemon.server, root, str(place), rounds)
    return report


def _agent(place: Path, home: Path) -> tuple[str, ...]:
    """The options that give a daemon of ours an agent user whose home is `home`."""
    ids = (AGENT_ID, AGENT_ID) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(home, *ids)
    users, groups = place / "passwd", place / "group"
    users.write_text(f"{AGENT}:x:{ids[0]}:{ids[1]}::{home}:/bin/sh\n")
    groups.write_text(f"{AGENT}:x:{ids[1]}:\n")
    return (
        "--agent-user", AGENT, "--passwd-file", str(users), "--group-file", str(groups),
        "--max-body-bytes", str(1 << 40),
    )  # fmt: skip


def _ask(connection: Connection, request: bytes, status: int = 200) -> Any:
    answer = connection.exchange(request)
    if answer.status != status:
        raise SetupFailed(f"the environments API answered {answer.status}: {answer.body[:200]!r}")
    return answer.json()


def _commands(report: Report, server: Server, root: str, cwd: str, count: int) -> None:
    ask = server.post_json(f"{root}/exec", {"argv": [PROGRAM], "cwd": cwd})
    pairs: list[tuple[float, float]] = []
    right = 0
    with Connection(server) as connection:
        for turn in range(WARM + count):
            bare = floors.spawn([PROGRAM])
            began = time.perf_counter()
            found = _ask(connection, ask)
            seconds = time.perf_counter() - began
            right += found["exit_code"] == 0
            if turn >= WARM:
                pairs.append((seconds, bare))
    report.figure("bare posix_spawn and wait", "ms", [bare * 1e3 for _, bare in pairs])
    report.figure("a command to its end", "ms", [seconds * 1e3 for seconds, _ in pairs])
    report.ratio("exec / bare spawn", pairs, EXEC_GOAL)
    report.count("commands with exit 0", right, WARM + count)


def _uploads(
    report: Report, daemon: Target, root: str, place: Path, home: Path, size: int, rounds: int
) -> None:
    source = place / "source"
    with source.open("wb") as file:
        block = os.urandom(MIB)
        while (left := size - file.tell()) > 0:
            file.write(block[:left])
    stored = home / "stored"
    series = Series("PUT", "cp")
    right = 0

    def ours() -> None:
        answer = upload(daemon.server, f"{root}/files?path={quote(str(stored))}", source)
        if answer.status not in (200, 201):
            raise SetupFailed(f"an upload was answered {answer.status}: {answer.body[:200]!r}")

    def floor() -> float:
        seconds = floors.copy(source, place / "copy")
        (place / "copy").unlink()
        return seconds

    with Pulse(daemon.server) as pulse:
        for _ in range(rounds):
            series.pair(daemon, floor, ours)
            right += stored.stat().st_size == size
            stored.unlink()
    series.report(report, daemon, pulse, size / MIB, "MiB", PUT_GOAL, GROWTH_MIB)
    report.count("uploads of every byte", right, rounds)


def _listings(report: Report, server: Server, root: str, home: Path, entries: int, rounds: int) -> None:
    tree = home / "many"
    tree.mkdir()
    for number in range(entries):
        (tree / f"file-{number}").touch()
    ask = server.prepare("GET", f"{root}/files/list?path={quote(str(tree))}")
    pairs: list[tuple[float, float]] = []
    right = 0
    with Connection(server) as connection:
        for _ in range(rounds + 1):
            began = time.perf_counter()
            with os.scandir(tree) as found:
                looked = [entry.stat(follow_symlinks=False) for entry in found]
            bare = time.perf_counter() - began
            began = time.perf_counter()
            answer = connection.exchange(ask)
            pairs.append((time.perf_counter() - began, bare))
            right += len(json.loads(answer.body)["entries"]) == len(looked)
    report.figure(f"list of {entries} entries", "ms", [seconds * 1e3 for seconds, _ in pairs[1:]])
    report.figure("os.scandir and a lstat of each", "ms", [bare * 1e3 for _, bare in pairs[1:]])
    report.ratio("list / scandir and lstat", pairs[1:], LIST_GOAL)
    report.count("listings of every entry", right, rounds + 1)


def _outputs(report: Report, server: Server, root: str, cwd: str, rounds: int) -> None:
    size = OUTPUT_MB * MIB
    # It begins when it is told to, so that not a byte is written before the clock runs.
    script = f"read go; head -c {size} /dev/zero | tr '\\0' x"
    speeds: list[float] = []
    right = 0
    with Connection(server) as connection:
        for _ in range(rounds):
            argv = ["/bin/sh", "-c", script]
            begin = server.post_json(f"{root}/processes", {"argv": argv, "cwd": cwd})
            began = time.perf_counter()
            pid = _ask(connection, begin, 201)["pid"]
            at = received = 0
            while True:
                ask = server.prepare("GET", f"{root}/processes/{pid}/output?since={at}&wait_secs=30")
                page = _ask(connection, ask)
                received += sum(len(chunk["data"]) for chunk in page["chunks"])
                at = page["next"]
                if page["exited"]:
                    break
            speeds.append(received / 1e6 / (time.perf_counter() - began))
            right += (received, at) == (size, size)
            connection.exchange(server.prepare("DELETE", f"{root}/processes/{pid}"))
    report.figure(f"{OUTPUT_MB} MiB of output through long polls", "MB/s", speeds, OUTPUT_GOAL)
    report.count("outputs of every byte", right, rounds)
