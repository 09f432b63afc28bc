"""Fixtures: the image, a machine booted once and saved, and clones of it, half a second each.

AGENTD_VM_IMAGE names a built image to use instead of building one. Every machine's console is printed at the end of its
test: with a failure, it is part of the report.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from attrs import evolve
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from agentd.vm import image as images
from agentd.vm import machine as machines
from agentd.vm import platform
from agentd.vm.accelerator import choose
from agentd.vm.command import Forward, Settings, Shape
from agentd.vm.image import Image
from agentd.vm.machine import Machine
from image.python import SOURCES
from tests.conftest import REPOSITORY
from tests.vm.support import Guest, Saved

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only when these tests are asked for, by their directory or a file in it."""
    for argument in config.args:
        asked = Path(str(argument).partition("::")[0]).absolute()
        if asked == HERE or HERE in asked.parents:
            return None
    return True


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What images are built from: a copy, which nobody edits meanwhile."""
    directory = tmp_path_factory.mktemp("source")
    for name in (*SOURCES, "constraints.txt"):
        found = REPOSITORY / name
        if found.is_dir():
            shutil.copytree(found, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(found, directory / name)
    return directory


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Image:
    """The image of this commit."""
    given = os.environ.get("AGENTD_VM_IMAGE")
    directory = Path(given) if given else build_image(tmp_path_factory.mktemp("image"), source)
    return images.load(directory)


def build_image(directory: Path, source: Path, *options: str) -> Path:
    """Build an image into `directory`, quietly unless it fails."""
    done = subprocess.run(
        [REPOSITORY / "image/build", directory, "--source", source, *options],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="session")
def settings(image: Image) -> Settings:
    """One machine of that image, accelerated where that works."""
    accelerator = pytest_twisted.blockon(Deferred.fromCoroutine(choose(reactor, image)))
    return Settings(image, Shape(image.memory_mib, accelerator), (Forward(0, image.port),))


Start = Callable[..., Awaitable[Machine]]
Clone = Callable[..., Awaitable[Guest]]


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Start]:
    """`await start(words=…, state=…)`: a machine of this test's own; killed at its end if it still runs."""
    running: list[Machine] = []

    async def begin(words: tuple[str, ...] = (), state: Path | None = None, **shape: Any) -> Machine:
        wanted = evolve(settings, words=words, shape=evolve(settings.shape, **shape))
        directory = tmp_path / f"machine-{len(running)}"
        running.append(await machines.start(reactor, wanted, directory, state=state))
        return running[-1]

    yield begin
    for each in running:
        pytest_twisted.blockon(Deferred.fromCoroutine(each.kill()))
        print(f"--- console of {each.directory.name}\n{each.console[-6000:]}")


@pytest.fixture(scope="session")
def saved(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A machine that was booted, asked whether it is ready, and saved before it had a token."""
    directory = tmp_path_factory.mktemp("saved")

    async def make() -> None:
        machine = await machines.start(reactor, settings, directory / "machine")
        try:
            await platform.prepare(reactor, machine)
            await machine.save(directory / "state")
        finally:
            await machine.kill()

    pytest_twisted.blockon(Deferred.fromCoroutine(make()))
    return Saved(directory / "state", settings)


@pytest.fixture
def clone(saved: Saved, start: Start) -> Iterator[Clone]:
    """`await clone(env=…)`: a clone of the saved machine with a token of its own."""
    guests: list[Guest] = []

    async def make(state: Path | None = None, **launch: Any) -> Guest:
        machine = await start(state=state or saved.state)
        guests.append(Guest(machine))
        await machine.ready()
        await guests[-1].launch(**launch)
        return guests[-1]

    yield make
    for guest in guests:
        pytest_twisted.blockon(Deferred.fromCoroutine(guest.client.close()))
