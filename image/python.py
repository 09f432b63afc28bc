"""The Python side: agentd and what it imports, as a directory of site-packages cut to what a guest needs.

agentd is built into a wheel from a copy of its sources, and installed with the versions of ``constraints.txt`` as
wheels for the image's interpreter, whatever interpreter runs the recipe. What goes afterwards was measured: of 49 MiB,
a good half are tests, headers, stubs and the parts of Twisted that a daemon does not have.

What looks superfluous and is not: ``twisted/spread`` (twisted.web.server imports it), ``cryptography``
(autobahn.twisted does, always), ``pycparser`` (so does cffi), the C sources in ``autobahn/nvx`` (opened when the module
is imported). `image.tree` imports every module of the daemon inside the finished tree, which finds such a mistake in a
second.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from image.run import run

SOURCES: Final = ("agentd", "checker", "twisted", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")

UNWANTED: Final = (
    "bin",
    "checker",
    "agentd/cli",
    "agentd/client",
    "agentd/vm",
    "autobahn/_flatc",
    "ujson-stubs",
    *(f"twisted/{part}" for part in ("conch", "mail", "names", "trial", "words")),
)
"""What only a host needs, and what nothing in a guest imports."""

TESTS: Final = frozenset({"test", "tests"})
FILES: Final = (".pyi", ".pyx", ".pxd", ".h", ".hpp")


def install(source: Path, target: Path, version: str, epoch: int) -> dict[str, str]:
    """Install the agentd of `source` and what it needs into `target`, for CPython `version` on x86-64.

    Returns the versions of what was installed. Raises `image.run.BuildFailed`.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    quiet = {"PIP_ROOT_USER_ACTION": "ignore", "SOURCE_DATE_EPOCH": str(epoch)}
    with tempfile.TemporaryDirectory(prefix="agentd-wheel-") as scratch:
        copy = Path(scratch) / "source"
        copy.mkdir()
        for name in SOURCES:
            found = source / name
            if found.is_dir():
                shutil.copytree(found, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy2(found, copy / name)
        # Every file one age, so that the wheel depends on what they hold alone.
        for path in copy.rglob("*"):
            os.utime(path, (epoch, epoch))
        run(*pip, "wheel", "--no-deps", "--wheel-dir", f"{scratch}/wheels", copy, env=quiet)
        (wheel,) = Path(scratch, "wheels").glob("*.whl")
        platforms = ["manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 37))]
        run(
            *pip,
            "install",
            "--no-compile",
            f"--target={target}",
            "--only-binary=:all:",
            f"--python-version={version}",
            "--implementation=cp",
            *(f"--platform={platform}" for platform in platforms),
            f"--constraint={source / 'constraints.txt'}",
            wheel,
            env=quiet,
        )
    versions = {}
    for info in sorted(target.glob("*.dist-info")):
        name, _, number = info.name.removesuffix(".dist-info").partition("-")
        versions[name.lower().replace("_", "-")] = number
    return versions


def cut(site: Path) -> None:
    """Take away what a guest does not need, and what tells where or by whom it was installed."""
    for name in UNWANTED:
        shutil.rmtree(site / name, ignore_errors=True)
    for info in site.glob("*.dist-info"):
        for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            (info / name).unlink(missing_ok=True)
    for directory in sorted(site.rglob("*"), reverse=True):
        if directory.is_dir() and directory.name in TESTS:
            shutil.rmtree(directory)
    for path in site.rglob("*"):
        if path.is_file() and path.suffix in FILES:
            path.unlink()
    strip(site)


def strip(tree: Path) -> None:
    """Take the symbols that no loader needs out of every shared object below `tree`."""
    objects = [path for path in sorted(tree.rglob("*.so*")) if path.is_file() and not path.is_symlink()]
    if objects:
        run("strip", "--strip-unneeded", "--enable-deterministic-archives", *objects)
