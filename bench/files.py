"""``python -m bench files``: one large file in and out, against `cp` within the same file system.

The page cache is warm: what is compared is the way through the daemon and a socket with the way through `cp`. A
write carries a SHA-256 of what was stored, so the time of hashing the same bytes stands beside it, and the ratio is
also given with that time added to the floor.
"""

import filecmp
from pathlib import Path
from typing import Final
from urllib.parse import quote

from bench import floors
from bench.daemon import Choice, SetupFailed, Target, target
from bench.process import MIB
from bench.pulse import Pulse
from bench.report import Goal, Report
from bench.transfer import Series, download, scratch, upload

GOAL: Final = Goal(least=0.7)
GROWTH_MIB: Final = 16


def run(choice: Choice, count: int, rounds: int, directory: str | None) -> Report:
    """`rounds` reads and writes of a file of `count` bytes, in `directory`, which the daemon sees too."""
    report = Report("files", {"bytes": count, "rounds": rounds})
    options = ("--max-body-bytes", str(count))
    with target(choice, options) as daemon, scratch(directory, 3 * count) as place:
        report.version = daemon.version
        source = place / "source"
        _fill(source, count)
        read = Series("reading", "cp, before a read")
        write = Series("writing", "cp, before a write")
        hashing: list[float] = []
        read_right = written_right = 0
        with Pulse(daemon.server) as pulse:
            for _ in range(rounds):
                read_right += _read(daemon, read, source, count)
                hashing.append(floors.digest(source))
                written_right += _write(daemon, write, source)
    read.report(report, daemon, pulse, count / MIB, "MiB", GOAL, GROWTH_MIB)
    write.report(report, daemon, pulse, count / MIB, "MiB", GOAL, GROWTH_MIB)
    report.figure("SHA-256 of the file, alone", "MiB/s", [count / MIB / seconds for seconds in hashing])
    report.ratio(
        "speed of writing / cp and then SHA-256",
        [(floor + digest, ours) for (ours, floor), digest in zip(write.pairs, hashing, strict=True)],
    )
    report.count("reads of every byte", read_right, rounds)
    report.count("writes equal to their source", written_right, rounds)
    return report


def _fill(path: Path, count: int) -> None:
    block = bytes(range(256)) * 4096
    with path.open("wb") as file:
        while (left := count - file.tell()) > 0:
            file.write(block[:left])


def _copied(source: Path) -> float:
    copy = source.with_name("copy")
    seconds = floors.copy(source, copy)
    copy.unlink()
    return seconds


def _read(daemon: Target, series: Series, source: Path, count: int) -> bool:
    received = 0

    def ours() -> None:
        nonlocal received
        received = download(daemon.server, f"/v1/fs/file?path={quote(str(source))}")

    series.pair(daemon, lambda: _copied(source), ours)
    return received == count


def _write(daemon: Target, series: Series, source: Path) -> bool:
    stored = source.with_name("stored")

    def ours() -> None:
        answer = upload(daemon.server, f"/v1/fs/file?path={quote(str(stored))}", source)
        if answer.status != 204:
            raise OSError(f"a write was answered {answer.status}: {answer.body[:200]!r}")

    series.pair(daemon, lambda: _copied(source), ours)
    if not stored.exists():
        raise SetupFailed("the daemon does not see this file system")
    equal = filecmp.cmp(source, stored, shallow=False)
    stored.unlink()
    return equal
