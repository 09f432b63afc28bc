"""`image/build`: the recipe, from a repository to the files a machine boots from."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from image import debian, manifest, pack, tree
from image.run import BuildFailed, run

REPOSITORY: Final = Path(__file__).resolve().parent.parent
COMMON_LINE: Final = "console=ttyS0 panic=-1 quiet"
"""For every kernel: the console is the only witness of an early failure, and a panic must end the machine."""
MEMORY_MIB: Final = {"ext4": 256, "initrd": 384}


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="image/build",
        description="Build a minimal Debian machine image with agentd as its main process.",
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentd-image"
    parser.add_argument("output", type=Path, help="directory for the files and their manifest")
    parser.add_argument("--root", choices=("ext4", "initrd"), default="ext4", help="what the root is [ext4]")
    parser.add_argument(
        "--include", action="append", default=[], metavar="PACKAGE", help="one more Debian package"
    )
    parser.add_argument("--hooks", type=Path, metavar="DIR", help="hook handlers to bake in")
    parser.add_argument(
        "--source", type=Path, default=REPOSITORY, help="the repository to install agentd from"
    )
    parser.add_argument("--cache", type=Path, default=cache, help="where unpacked packages are kept")
    parser.add_argument("--mirror", help="where Debian packages come from, such as a snapshot")
    parser.add_argument("--refresh", action="store_true", help="unpack the packages anew")
    return parser


def source_time(source: Path) -> int:
    """The time every file gets: SOURCE_DATE_EPOCH, else that of the commit, else 1980."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    asked = ["git", "-C", str(source), "log", "-1", "--format=%ct"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return int(found.stdout) if found.returncode == 0 else 315532800


def build(given: argparse.Namespace) -> dict[str, Any]:
    """Build what was asked for and return the manifest. Raises `BuildFailed`."""
    if os.geteuid() != 0:
        raise BuildFailed("the image is made of root's files: run this as root")
    output: Path = given.output
    output.mkdir(parents=True, exist_ok=True)
    epoch = source_time(given.source)
    kernel = debian.kernel(given.cache, mirror=given.mirror, refresh=given.refresh)
    packages = tuple(sorted({*debian.PACKAGES, *given.include}))
    unpacked = debian.unpack(packages, given.cache, mirror=given.mirror, refresh=given.refresh)
    with tempfile.TemporaryDirectory(prefix="agentd-image-", dir=given.cache) as scratch:
        root = Path(scratch) / "root"
        versions = tree.assemble(unpacked.path, given.source, root, epoch=epoch, hooks=given.hooks)
        modules = _stripped(kernel, Path(scratch))
        boot: dict[str, Any] = {
            "kernel": "vmlinuz",
            "initrd": "initrd.img",
            "root": None if given.root == "initrd" else f"root.{given.root}",
            "line": f"{COMMON_LINE} rootfs={given.root} rdinit=/init",
            "memory_mib": MEMORY_MIB[given.root],
            "port": 9000,
        }
        shutil.copyfile(kernel.image, output / boot["kernel"])
        busybox = root / "bin/busybox"
        if given.root == "initrd":
            shutil.copyfile(tree.HERE / "guest/init", root / "init")
            (root / "init").chmod(0o755)
            pack.root_archive(output / boot["initrd"], root, modules, epoch)
        else:
            pack.boot_archive(output / boot["initrd"], tree.HERE / "guest/init", busybox, modules, epoch)
            pack.ext4(output / boot["root"], root, epoch)
        facts = {
            "source_date_epoch": epoch,
            "tree_bytes": tree.size(root),
            "byte_compiled": True,
            "plugin_cache": True,
            "kernel": {"package": kernel.package, "release": kernel.release, "version": kernel.version},
            "debian": unpacked.versions,
            "python": versions,
        }
    return manifest.write(output, boot, facts)


def _stripped(kernel: debian.Kernel, scratch: Path) -> tuple[Path, ...]:
    """Copies of the drivers without what only a debugger reads: 0.4 MB instead of 4."""
    home = scratch / "modules"
    home.mkdir()
    found = tuple(Path(shutil.copyfile(each, home / each.name)) for each in kernel.modules)
    run("strip", "--strip-debug", *found)
    return found


def main() -> int:
    """Build; the exit status."""
    try:
        made = build(options().parse_args())
    except (BuildFailed, OSError) as reason:
        print(f"image/build: {reason}", file=sys.stderr)
        return 1
    print(json.dumps({"digest": made["digest"], "files": made["files"]}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
