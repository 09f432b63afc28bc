"""One virtual machine: start, ready, pause, save, clone, end.

Theory of operation
-------------------
QEMU's user network accepts a connection to a forwarded port at once, whatever the guest does, so only a whole answer
shows that the daemon is there: `ready` is a GET, repeated. QEMU's exit status is 0 after a power-off, a reset and a
panic alike, so how a machine ended is read from its last event and from the console.

    start ──► ready ──► pause ⇄ go_on          all clocks of the guest stand still
                │  └──► freeze ⇄ thaw          the process stands still: all clocks of the guest jump
                ├──► save(file)                paused, and the state of the machine is in a file
                └──► ended                     powered off, panicked, killed

A machine saved once can be started from the file as often as wished, on the same image and in the same shape: each is
a clone, which resumes where the source was paused and does not know it.
"""

import shutil
import signal
import socket
from collections.abc import Awaitable
from pathlib import Path
from shlex import quote
from typing import Any, Final

from attrs import frozen
from twisted.internet import error
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from agentd.client.client import Client
from agentd.client.errors import AgentError
from agentd.client.messages import Health
from agentd.client.retry import NO_RETRY
from agentd.vm import process, qmp
from agentd.vm.command import LOOPBACK, Forward, Settings, arguments
from agentd.vm.process import Attached, Detached, NotStarted
from agentd.vm.qmp import MachineRefused, Monitor

READY_SECONDS: Final = 120.0
"""How long a boot may take: ten times what it takes under software emulation on a quiet machine."""
PROBE_SECONDS: Final = 1.0
"""How long one readiness probe waits: a connection made before the guest listens is never answered."""
LOOK_SECONDS: Final = 0.03
SAVE_SECONDS: Final = 60.0
END_SECONDS: Final = 30.0
PORT_ATTEMPTS: Final = 5
NO_LIMIT: Final = 10 * 1024**3
"""Bytes a second for a save; QEMU's own limit is meant for networks."""
PANIC: Final = "Kernel panic"
POWERED_OFF: Final = "guest-shutdown"


class MachineFailed(Exception):
    """A machine is not what was asked for: it ended, or did not answer in time. The message ends with its console."""


@frozen
class End:
    """How a machine ended."""

    reason: str | None
    """QEMU's word for it: ``guest-shutdown``, ``guest-reset``, ``host-qmp-quit``; None when it said none."""
    panicked: bool

    @property
    def in_order(self) -> bool:
        """Whether the guest powered itself off."""
        return self.reason == POWERED_OFF and not self.panicked


def free_port() -> int:
    """A port of loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


class Machine:
    """A machine that runs, and its directory. Made by `start` and `attach`."""

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        directory: Path,
        qemu: Attached | Detached,
        monitor: Monitor,
    ) -> None:
        self._reactor = reactor
        self._qemu = qemu
        self._monitor = monitor
        self.settings = settings
        self.directory = directory

    @property
    def url(self) -> str:
        """Where its daemon answers."""
        return f"http://{LOOPBACK}:{self.settings.port}"

    @property
    def pid(self) -> int:
        """Of the QEMU process."""
        return self._qemu.pid

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._qemu.over

    @property
    def events(self) -> list[dict[str, Any]]:
        """What QEMU has reported since this process is connected to it."""
        return self._monitor.events

    @property
    def console(self) -> str:
        """Everything that the guest has printed on its serial console."""
        return (self.directory / "console").read_text(errors="replace")

    async def ready(self, limit: float = READY_SECONDS) -> Health:
        """Wait until the daemon has answered a request whole.

        Raises `MachineFailed` when the machine ends, or the time does.
        """
        client = Client(self.url, reactor=self._reactor, backoff=NO_RETRY, timeout=PROBE_SECONDS)
        end = self._reactor.seconds() + limit
        try:
            while True:
                try:
                    return await client.health()
                except AgentError as fault:
                    if self.over or self._reactor.seconds() > end:
                        why = "ended" if self.over else f"did not answer within {limit:g} s ({fault})"
                        raise MachineFailed(self._report(why)) from None
                await deferLater(self._reactor, LOOK_SECONDS)
        finally:
            await client.close()

    async def status(self) -> str:
        """QEMU's word for its state: ``running``, ``paused``, ``postmigrate`` …"""
        answer = await self._monitor.execute("query-status")
        return str(answer["status"])

    async def pause(self) -> None:
        """Stop it where it is. No clock of the guest goes on."""
        await self._monitor.execute("stop")

    async def go_on(self) -> None:
        """Let it run on after `pause` or `save`."""
        await self._monitor.execute("cont")

    def freeze(self) -> None:
        """Stop the whole process. The guest's clocks are those of this machine: they jump at `thaw`."""
        self._qemu.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process run on."""
        self._qemu.signal(signal.SIGCONT)

    async def save(self, state: Path) -> None:
        """Pause it and write its state into a file, which is there whole or not at all.

        Raises `MachineFailed` when it cannot be saved; it stays paused either way.
        """
        part = state.with_name(f".{state.name}.part")
        await self.pause()
        try:
            await self._monitor.execute("migrate-set-parameters", max_bandwidth=NO_LIMIT)
            await self._monitor.execute("migrate", uri=f"exec:cat > {quote(str(part))}")
            end = self._reactor.seconds() + SAVE_SECONDS
            while (answer := await self._monitor.execute("query-migrate")).get("status") != "completed":
                if answer.get("status") in ("failed", "cancelled") or self._reactor.seconds() > end:
                    raise MachineFailed(
                        f"the state was not saved: {answer.get('error-desc', 'no reason given')}"
                    )
                await deferLater(self._reactor, LOOK_SECONDS)
            part.replace(state)
        except MachineRefused as reason:
            raise MachineFailed(f"the state was not saved: {reason}") from None
        finally:
            part.unlink(missing_ok=True)

    async def ended(self, limit: float = END_SECONDS) -> End:
        """Wait for its end and tell which. Raises `MachineFailed` when the time is over first."""
        await self._until_over(limit)
        return End(self._monitor.shutdown, PANIC in self.console)

    async def _until_over(self, limit: float) -> None:
        end = self._reactor.seconds() + limit
        while not self.over:
            if self._reactor.seconds() > end:
                raise MachineFailed(self._report(f"did not end within {limit:g} s"))
            await deferLater(self._reactor, LOOK_SECONDS)
        await _lost(self._monitor)

    async def kill(self) -> None:
        """End it now, whatever state it is in, and wait until it is gone. May be repeated."""
        self._qemu.signal(signal.SIGKILL)
        await self._until_over(END_SECONDS)

    async def forget(self) -> None:
        """Let go of a machine that stays."""
        if isinstance(self._qemu, Detached):
            self._qemu.forget()
        self._monitor.close()
        await _lost(self._monitor)

    def _report(self, what: str) -> str:
        last = self.console.strip().splitlines()[-8:] if (self.directory / "console").exists() else []
        return "\n".join([f"the machine {what}", *last])


async def _lost(monitor: Monitor) -> None:
    """Wait until the connection is gone; several may."""
    waiting: Deferred[None] = Deferred()

    def pass_on(result: None) -> None:
        waiting.callback(None)
        return result

    monitor.lost.addCallback(pass_on)
    await waiting


async def start(
    reactor: Any, settings: Settings, directory: Path, *, state: Path | None = None, stays: bool = False
) -> Machine:
    """Start a machine in a directory of its own; with `state`, as a clone of the machine that was saved there.

    A forwarded port given as 0 becomes a free one. With `stays` the machine outlives this process, otherwise it ends
    with it. A clone runs once this returns.

    Raises `NotStarted`, `MachineFailed`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, PORT_ATTEMPTS + 1):
        chosen = settings.forwarding(
            Forward(each.local or free_port(), each.remote) for each in settings.forwards
        )
        words = arguments(chosen, directory, state)
        qemu: Attached | Detached
        try:
            qemu = (
                await process.detach(reactor, words, directory)
                if stays
                else Attached(reactor, words, directory)
            )
            monitor = await _connected(reactor, qemu, directory)
        except NotStarted as reason:
            # Somebody may have taken the port since it was looked for.
            taken = "host forwarding" in str(reason) and chosen != settings
            if not taken or attempt == PORT_ATTEMPTS:
                raise
            continue
        break
    machine = Machine(reactor, chosen, directory, qemu, monitor)
    if state is not None:
        await _or_killed(machine, _resumed(reactor, machine))
    return machine


async def attach(reactor: Any, settings: Settings, directory: Path) -> Machine:
    """The machine that was started in `directory` to stay. Raises `NotStarted` when it has gone."""
    qemu = process.find(reactor, directory)
    try:
        monitor = await _connected(reactor, qemu, directory)
    except BaseException:
        qemu.forget()
        raise
    return Machine(reactor, settings, directory, qemu, monitor)


async def _connected(reactor: Any, qemu: Attached | Detached, directory: Path) -> Monitor:
    """The monitor of a process that was just started. Raises `NotStarted` with its own words."""
    while True:
        try:
            return await qmp.connect(reactor, directory / "qmp")
        except (error.ConnectError, error.ConnectionDone, error.ConnectionLost, OSError):
            if qemu.over:
                raise NotStarted(qemu.said) from None
        except BaseException:
            qemu.signal(signal.SIGKILL)
            raise
        await deferLater(reactor, LOOK_SECONDS)


async def _resumed(reactor: Any, machine: Machine) -> None:
    """Wait until the state is loaded, and let the clone run."""
    end = reactor.seconds() + SAVE_SECONDS
    while await machine.status() == "inmigrate":
        if reactor.seconds() > end:
            raise MachineFailed("the state was not loaded in time")
        await deferLater(reactor, 0.01)
    await machine.go_on()


async def _or_killed(machine: Machine, work: Awaitable[None]) -> None:
    try:
        await work
    except BaseException as fault:
        await machine.kill()
        if isinstance(fault, (error.ConnectionDone, error.ConnectionLost, MachineRefused)):
            raise NotStarted(machine._qemu.said) from None
        raise


def kill_leftover(reactor: Any, directory: Path) -> None:
    """End the machine of `directory`, if there is one, without asking it anything."""
    try:
        found = process.find(reactor, directory)
    except NotStarted:
        return
    found.signal(signal.SIGKILL)
    found.forget()


def remove(directory: Path) -> None:
    """Take away what a machine that has ended left behind."""
    shutil.rmtree(directory, ignore_errors=True)
