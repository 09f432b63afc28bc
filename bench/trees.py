"""``python -m bench tar``: a tree of small files up and down, against `tar -x` and `tar -c`.

Up is an archive sent to the daemon and extracted by it beneath a fresh directory; down is a tree that it packs and
sends. Both are checked: an extracted tree, and what `tar` makes of a downloaded archive, must equal the source in
names, types, modes and bytes.
"""

import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Final
from urllib.parse import quote

from bench import floors
from bench.daemon import Choice, SetupFailed, Target, target
from bench.process import MIB
from bench.pulse import Pulse
from bench.report import Goal, Report
from bench.transfer import Series, download, scratch, upload

GOAL: Final = Goal(least=0.5)
GROWTH_MIB: Final = 16
PER_DIRECTORY: Final = 100
DISK_PER_FILE: Final = 32768
"""What a small file may take of the disk in all its copies, generously, in bytes."""


def run(choice: Choice, files: int, rounds: int, directory: str | None) -> Report:
    """`rounds` uploads and downloads of a tree of `files` files, in `directory`, which the daemon sees too."""
    report = Report("tar", {"files": files, "rounds": rounds})
    with target(choice) as daemon, scratch(directory, files * DISK_PER_FILE) as place:
        report.version = daemon.version
        tree, archive = place / "tree", place / "tree.tar"
        _plant(tree, files)
        floors.pack(tree, archive)
        report.settings["archive_mib"] = round(archive.stat().st_size / MIB, 1)
        planted = fingerprint(tree)
        up = Series("extracting", "tar -x")
        down = Series("packing", "tar -c")
        right_up = right_down = 0
        with Pulse(daemon.server) as pulse:
            for _ in range(rounds):
                right_up += _up(daemon, up, archive, planted)
                right_down += _down(daemon, down, tree, planted)
    up.report(report, daemon, pulse, files, "files", GOAL, GROWTH_MIB)
    down.report(report, daemon, pulse, files, "files", GOAL, GROWTH_MIB)
    report.count("extracted trees equal to the source", right_up, rounds)
    report.count("downloaded archives that hold the source", right_down, rounds)
    return report


def _plant(root: Path, files: int) -> None:
    """Files of 0.5 to 4 KiB, a hundred to a directory, some executable."""
    for number in range(files):
        directory = root / f"d{number // PER_DIRECTORY:04}"
        if number % PER_DIRECTORY == 0:
            directory.mkdir(parents=True)
        path = directory / f"file-{number:06}"
        path.write_bytes((b"%06d " % number) * (75 + number * 37 % 500))
        path.chmod(0o755 if number % 10 == 0 else 0o644)


def fingerprint(root: Path) -> str:
    """SHA-256 over the names, types, modes, link targets and bytes beneath `root`."""
    seen = hashlib.sha256()
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted([*names, *files]):
            path = os.path.join(directory, name)
            mode = os.lstat(path).st_mode
            seen.update(f"{os.path.relpath(path, root)}\0{mode:o}\0".encode())
            if stat.S_ISLNK(mode):
                seen.update(os.readlink(path).encode())
            elif stat.S_ISREG(mode):
                seen.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return seen.hexdigest()


def _up(daemon: Target, series: Series, archive: Path, planted: str) -> bool:
    bare, ours = archive.with_name("bare"), archive.with_name("ours")

    def floor() -> float:
        bare.mkdir()
        seconds = floors.unpack(archive, bare)
        shutil.rmtree(bare)
        return seconds

    def extract() -> None:
        answer = upload(daemon.server, f"/v1/fs/tar?path={quote(str(ours))}", archive)
        if answer.status != 204:
            raise OSError(f"an extraction was answered {answer.status}: {answer.body[:200]!r}")

    series.pair(daemon, floor, extract)
    if not ours.exists():
        raise SetupFailed("the daemon does not see this file system")
    equal = fingerprint(ours) == planted
    shutil.rmtree(ours)
    return equal


def _down(daemon: Target, series: Series, tree: Path, planted: str) -> bool:
    bare, ours = tree.with_name("bare.tar"), tree.with_name("ours.tar")
    request = f"/v1/fs/tar?path={quote(str(tree))}"
    series.pair(daemon, lambda: floors.pack(tree, bare), lambda: download(daemon.server, request, ours))
    unpacked = tree.with_name("unpacked")
    unpacked.mkdir()
    floors.unpack(ours, unpacked)
    equal = fingerprint(unpacked) == planted
    shutil.rmtree(unpacked)
    bare.unlink()
    ours.unlink()
    return equal
