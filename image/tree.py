"""The image's root as a directory: Debian's packages, the Python side, and what package scripts would have made.

Order matters at the end. The modules of the daemon are all imported inside the tree, which takes a second and stands
for a kernel panic ten seconds into a boot. Then everything is compiled, with hashes that are not checked instead of
times, because packing changes times: without compiled files a start of the daemon takes four times as long. Then the
cache of Twisted's plugins is written, since the root cannot be written to later. Last, every file gets the same age.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from image import python
from image.run import BuildFailed, inside

VERSION: Final = "3.11"
SITE: Final = f"usr/local/lib/python{VERSION}/dist-packages"
PYTHON: Final = f"/usr/bin/python{VERSION}"
HERE: Final = Path(__file__).parent

UNWANTED: Final = (
    "boot",
    "etc/apt",
    "etc/cron.daily",
    "etc/dpkg",
    "etc/logrotate.d",
    "etc/mime.types",
    "usr/bin/dpkg*",
    "usr/bin/localedef",
    "usr/bin/mawk",
    "usr/bin/tini",
    "usr/bin/update-alternatives",
    "usr/lib/mime",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl*",
    "usr/sbin/dpkg*",
    "usr/sbin/iconvconfig",
    "usr/sbin/tarcat",
    "usr/sbin/update-passwd",
    "usr/sbin/zic",
    "usr/share/base-files",
    "usr/share/base-passwd",
    "usr/share/bash-completion",
    "usr/share/debhelper",
    "usr/share/lintian",
    "usr/share/perl5",
    "usr/share/python*",
    "var/cache/apt",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log/apt",
    *(
        f"usr/lib/python{VERSION}/{name}"
        for name in (
            "ensurepip",
            "idlelib",
            "lib2to3",
            "pydoc_data",
            "test",
            "tkinter",
            "turtledemo",
            "config-*",
        )
    ),
)
"""Package management, converters, and the parts of the standard library that no daemon has a use for."""

DIRECTORIES: Final = {
    "dev": 0o755,
    "etc/agentd/hooks.d": 0o755,
    "home/agent": 0o750,
    "opt": 0o755,
    "proc": 0o555,
    "root": 0o700,
    "run": 0o755,
    "sys": 0o555,
    "tmp": 0o1777,
    "usr/local/bin": 0o755,
    "var/lib": 0o755,
    "var/log": 0o755,
    "var/tmp": 0o1777,
    "lib/agentd": 0o755,
    SITE: 0o755,
}

AGENT_ID: Final = 1000

FILES: Final = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        f"agent:x:{AGENT_ID}:{AGENT_ID}:agent:/home/agent:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    ),
    "etc/group": f"root:x:0:\ntty:x:5:\nagent:x:{AGENT_ID}:\nnogroup:x:65534:\n",
    "etc/hostname": "microvm\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    # As machine-id(5) writes what is still to be made; the run hook makes it.
    "etc/machine-id": "uninitialized\n",
    "etc/fstab": "",
}

TWISTD: Final = f"""\
#!{PYTHON} -I
import sys

from twisted.scripts.twistd import run

sys.exit(run())
"""

GUEST: Final = {
    "agentd-init": ("sbin/agentd-init", 0o755),
    "agentd-supervised": ("sbin/agentd-supervised", 0o755),
    "environment": ("etc/agentd/environment", 0o644),
    "pid1.py": ("lib/agentd/pid1.py", 0o644),
    "setup": ("lib/agentd/setup", 0o644),
    "supervise": ("lib/agentd/supervise", 0o755),
}
"""Files of ``image/guest`` and where they go."""

IMPORTS: Final = """
import importlib, pkgutil, agentd
for found in pkgutil.walk_packages(agentd.__path__, "agentd."):
    if found.name != "agentd.__main__" and not found.name.startswith("agentd.worker"):
        importlib.import_module(found.name)
from twisted.plugin import getPlugins
from twisted.application.service import IServiceMaker
assert "agentd" in {maker.tapname for maker in getPlugins(IServiceMaker)}
"""

PLUGINS: Final = "from twisted.plugin import getCache; import twisted.plugins; getCache(twisted.plugins)"


def assemble(debian: Path, source: Path, target: Path, *, epoch: int, hooks: Path | None) -> dict[str, str]:
    """Make the root at `target`, which must not exist, from unpacked packages and the repository at `source`.

    `hooks` is a directory of hook handlers for the image. Returns the versions of the Python side. Raises
    `image.run.BuildFailed`.
    """
    shutil.copytree(debian, target, symlinks=True, ignore=_nodes)
    for pattern in UNWANTED:
        for path in target.glob(pattern):
            remove(path)
    for name, mode in DIRECTORIES.items():
        (target / name).mkdir(parents=True, exist_ok=True)
        (target / name).chmod(mode)
    for name, text in FILES.items():
        (target / name).unlink(missing_ok=True)
        (target / name).write_text(text)
    os.chown(target / "home/agent", AGENT_ID, AGENT_ID)
    _commands(target)
    for name, (place, mode) in GUEST.items():
        shutil.copyfile(HERE / "guest" / name, target / place)
        (target / place).chmod(mode)
    for handler in sorted(hooks.iterdir()) if hooks is not None else ():
        shutil.copyfile(handler, target / "etc/agentd/hooks.d" / handler.name)
        (target / "etc/agentd/hooks.d" / handler.name).chmod(0o755)
    versions = python.install(source, target / SITE, VERSION, epoch)
    python.cut(target / SITE)
    python.strip(target / f"usr/lib/python{VERSION}")
    (target / "usr/local/bin/twistd").write_text(TWISTD)
    (target / "usr/local/bin/twistd").chmod(0o755)
    _finish(target, epoch)
    return versions


def _nodes(directory: str, names: list[str]) -> list[str]:
    """Device nodes, which the guest's kernel makes."""
    return names if directory.endswith("/dev") else []


def _commands(target: Path) -> None:
    """A link to busybox for each of its commands that no package brought, and the name that programs know Python by."""
    (target / "usr/bin/python3").symlink_to(f"python{VERSION}")
    (target / "usr/bin/tini").symlink_to("tini-static")
    for name in inside(target, "/bin/busybox", "--list-full").split():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            path.symlink_to("/bin/busybox")
    for needed in ("bin/sh", "usr/bin/env"):
        if not os.path.lexists(target / needed):
            raise BuildFailed(f"busybox has no /{needed}")


def _finish(target: Path, epoch: int) -> None:
    inside(target, PYTHON, "-I", "-B", "-c", IMPORTS)
    same = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    inside(
        target,
        PYTHON,
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode=unchecked-hash",
        f"/usr/lib/python{VERSION}",
        f"/{SITE}",
        "/lib/agentd",
        env=same,
    )
    age(target, epoch)
    cache = target / SITE / "twisted/plugins/dropin.cache"
    cache.unlink(missing_ok=True)
    inside(target, PYTHON, "-c", PLUGINS, env=same)
    if not cache.exists():
        raise BuildFailed("Twisted wrote no plugin cache")
    age(target, epoch)
    # Twisted takes a cache for valid only if it is younger than every plugin.
    os.utime(cache, (epoch + 1, epoch + 1))


def age(tree: Path, epoch: int) -> None:
    """Give every file, link and directory of `tree` the same time."""
    for directory, directories, files in os.walk(tree):
        for name in (*directories, *files):
            os.utime(os.path.join(directory, name), (epoch, epoch), follow_symlinks=False)
    os.utime(tree, (epoch, epoch))


def remove(path: Path) -> None:
    """Take away a file, a link or a whole directory."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def size(tree: Path, block: int = 1) -> int:
    """Bytes in the regular files and the directories of `tree`, each counted once and rounded up to whole blocks."""
    seen: dict[tuple[int, int], int] = {}
    for directory, directories, files in os.walk(tree):
        for name in (*directories, *files):
            found = os.lstat(os.path.join(directory, name))
            if stat.S_ISREG(found.st_mode):
                seen[found.st_dev, found.st_ino] = -(-found.st_size // block) * block
            elif stat.S_ISDIR(found.st_mode):
                seen[found.st_dev, found.st_ino] = block if block > 1 else 0
    return sum(seen.values())
