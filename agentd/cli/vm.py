"""`vm`: machines on this host, from an image that `image/build` made.

`run` is the whole life of one: it ends with the command, and with agentctl, whatever ends that. `up` leaves one
running, under a name; the others take the name. Each hands out what the other commands need to reach the machine:
AGENTD_URL and AGENTD_TOKEN.
"""

import secrets
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentd.cli import exits
from agentd.cli.options import common
from agentd.cli.run import _killer, _see_through
from agentd.cli.session import Session, parse_assignments

if TYPE_CHECKING:
    from agentd.vm.command import Settings
    from agentd.vm.machine import Machine

TOKEN_BYTES = 32


def _forward(text: str) -> tuple[int, int]:
    local, colon, remote = text.partition(":")
    if (
        not (colon and local.isdecimal() and remote.isdecimal())
        or int(local) > 65535
        or not 0 < int(remote) < 65536
    ):
        raise click.BadParameter(f"{text!r} is not LOCAL:REMOTE, two ports; LOCAL 0 is any free one")
    return int(local), int(remote)


def _forwards(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(map(_forward, values))


_MACHINE = (
    click.option("--memory", type=click.IntRange(64, 65536), metavar="MIB", help="Memory [the image's own]."),
    click.option(
        "--forward",
        multiple=True,
        metavar="LOCAL:REMOTE",
        callback=_forwards,
        help="Lead a port of this machine to one of the guest's; repeatable.",
    ),
    click.option(
        "--accel", type=click.Choice(["auto", "tcg", "kvm"]), default="auto", help="Acceleration [auto]."
    ),
    click.option(
        "--env", "-e", multiple=True, metavar="NAME=VALUE", help="The launch environment; repeatable."
    ),
)


def _machine_options(function: Any) -> Any:
    for option in reversed(_MACHINE):
        function = option(function)
    return function


@click.group()
def vm() -> None:
    """Run virtual machines here, from an image made by image/build."""


@vm.command()
@click.argument("image", type=click.Path(exists=True, file_okay=False))
@click.option("--name", default="vm", metavar="NAME", help="What to call it [vm].")
@click.option("--closed", is_flag=True, help="Install no token: a machine to take a snapshot of.")
@_machine_options
@common
@click.pass_obj
def up(session: Session, /, image: str, name: str, closed: bool, **options: Any) -> int:
    """Start a machine from IMAGE and leave it running; prints its address and its token."""

    async def start() -> int:
        from agentd.vm import platform, store

        settings = await _settings(session, image, options)
        directory = store.Store.of_user().create(name)

        async def see(machine: "Machine") -> None:
            await platform.prepare(session.reactor(), machine)
            token = None if closed else await _launched(session, machine, options)
            _keep(directory, machine, token)
            _tell(session, name, machine, token)

        await _standing(session, settings, directory, None, see)
        return exits.OK

    return _drive(session, start)


@vm.command()
@click.argument("image", type=click.Path(exists=True, file_okay=False))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_machine_options
@common
@click.pass_obj
def run(session: Session, /, image: str, command: tuple[str, ...], **options: Any) -> int:
    """Start a machine from IMAGE, run COMMAND in it, and end the machine; exits as COMMAND does.

    Two dashes part the options from the command: agentctl vm run IMAGE --memory 512 -- ls -l
    """

    async def whole() -> int:
        from agentd.vm import machine as machines
        from agentd.vm import platform

        reactor = session.reactor()
        settings = await _settings(session, image, options)
        with tempfile.TemporaryDirectory(prefix="agentd-vm-") as directory:
            machine = await machines.start(reactor, settings, Path(directory))
            try:
                await platform.prepare(reactor, machine)
                session.url, session.token = machine.url, await _launched(session, machine, options)
                status = await _command(session, command)
                ended = await platform.end(reactor, machine)
                if not ended.in_order:
                    session.note("the machine did not power off in order")
                return status
            finally:
                if not machine.over:
                    await machine.kill()

    return _drive(session, whole)


@vm.command()
@click.argument("name")
@common
@click.pass_obj
def suspend(session: Session, name: str) -> int:
    """Tell the machine NAME, then stop it where it is."""

    async def stop(machine: "Machine", _: Path) -> None:
        from agentd.vm import platform

        await platform.suspend(session.reactor(), machine)
        session.show({"name": name, "state": "suspended"}, lambda: print("suspended", flush=True))

    return _with(session, name, stop)


@vm.command()
@click.argument("name")
@common
@click.pass_obj
def resume(session: Session, name: str) -> int:
    """Let the machine NAME go on, then tell it."""

    async def go(machine: "Machine", _: Path) -> None:
        from agentd.vm import platform

        await platform.resume(session.reactor(), machine)
        session.show({"name": name, "state": "running"}, lambda: print("running", flush=True))

    return _with(session, name, go)


@vm.command()
@click.argument("name")
@click.argument("snapshot", type=click.Path())
@common
@click.pass_obj
def snapshot(session: Session, name: str, snapshot: str) -> int:
    """Save the machine NAME into the new directory SNAPSHOT; it runs on afterwards if it ran before."""

    async def take(machine: "Machine", directory: Path) -> None:
        from agentd.vm import store

        saved = store.snapshot_into(Path(snapshot))
        ran = await machine.status() == "running"
        try:
            await machine.save(saved.state)
            saved.describe(machine.settings, store.read_token(directory))
        except BaseException:
            saved.remove()
            raise
        finally:
            if ran:
                await machine.go_on()
        size = saved.state.stat().st_size
        session.show(
            {"snapshot": str(saved.directory), "bytes": size},
            lambda: print(f"{saved.directory}: {size / 2**20:.0f} MiB", flush=True),
        )

    return _with(session, name, take)


@vm.command()
@click.argument("snapshot", type=click.Path(exists=True, file_okay=False))
@click.option("--name", default="clone", metavar="NAME", help="What to call the clone [clone].")
@click.option("--forward", multiple=True, metavar="LOCAL:REMOTE", callback=_forwards, help="As for `up`.")
@click.option("--env", "-e", multiple=True, metavar="NAME=VALUE", help="As for `up`; for a closed snapshot.")
@common
@click.pass_obj
def clone(session: Session, /, snapshot: str, name: str, **options: Any) -> int:
    """Start one more machine from SNAPSHOT.

    A snapshot of a closed machine gives clones with tokens of their own. Any other clone is its source once more, and
    has its source's token.
    """

    async def start() -> int:
        from agentd.vm import platform, store
        from agentd.vm.command import Forward

        saved = store.Snapshot(Path(snapshot).absolute())
        settings = saved.settings()
        asked = [Forward(0, settings.image.port), *(Forward(*pair) for pair in options["forward"])]
        directory = store.Store.of_user().create(name)

        async def see(machine: "Machine") -> None:
            await machine.ready()
            token = store.read_token(saved.directory)
            if token is None:
                token = await _launched(session, machine, options)
            else:
                await platform.post(session.reactor(), machine.url, "resume")
            _keep(directory, machine, token)
            _tell(session, name, machine, token)

        await _standing(session, settings.forwarding(asked), directory, saved.state, see)
        return exits.OK

    return _drive(session, start)


@vm.command()
@click.argument("name")
@common
@click.pass_obj
def down(session: Session, name: str) -> int:
    """End the machine NAME and remove what is kept of it, whatever state it is in."""

    async def end() -> int:
        from agentd.vm import machine as machines
        from agentd.vm import platform, store
        from agentd.vm.process import NotStarted

        directory = store.Store.of_user().find(name)
        said = "was not running"
        try:
            settings = store.read_settings(directory / store.RECORD)
            machine = await machines.attach(session.reactor(), settings, directory)
            ended = await platform.end(session.reactor(), machine)
            said = "powered off" if ended.in_order else "ended"
        except (NotStarted, ValueError):
            machines.kill_leftover(session.reactor(), directory)
        machines.remove(directory)
        session.show({"name": name, "state": said}, lambda: print(said, flush=True))
        return exits.OK

    return _drive(session, end)


@vm.command("ls")
@common
@click.pass_obj
def list_machines(session: Session) -> int:
    """List the machines of `up` and `clone`."""
    from agentd.vm import store

    names = store.Store.of_user().names()
    session.show({"machines": names}, lambda: print("\n".join(names) or "none", flush=True))
    return exits.OK


# What the commands share


def _drive(session: Session, command: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """As `Session.drive`, with what can happen to a machine in a line of its own."""

    async def explained() -> int:
        from agentd.vm.machine import MachineFailed
        from agentd.vm.process import NotStarted

        try:
            return await command()
        except (MachineFailed, NotStarted) as fault:
            raise exits.Refusal(" ".join(str(fault).split()), exits.UNREACHABLE) from None

    return session.drive(explained)


async def _settings(session: Session, image: str, options: dict[str, Any]) -> "Settings":
    from agentd.vm import accelerator
    from agentd.vm.command import Forward, Settings, Shape
    from agentd.vm.image import load

    found = load(image)
    chosen = options["accel"]
    if chosen == "auto":
        chosen = await accelerator.choose(session.reactor(), found)
    forwards = [Forward(0, found.port), *(Forward(*pair) for pair in options["forward"])]
    return Settings(found, Shape(options["memory"] or found.memory_mib, chosen), tuple(forwards))


async def _standing(
    session: Session,
    settings: "Settings",
    directory: Path,
    state: Path | None,
    see: Callable[["Machine"], Any],
) -> None:
    """Start a machine that stays, and `see` to it. If that fails, nothing of it is left."""
    from agentd.vm import machine as machines

    try:
        machine = await machines.start(session.reactor(), settings, directory, state=state, stays=True)
        try:
            await see(machine)
            await machine.forget()
        except BaseException:
            await machine.kill()
            raise
    except BaseException:
        machines.kill_leftover(session.reactor(), directory)
        machines.remove(directory)
        raise


async def _launched(session: Session, machine: "Machine", options: dict[str, Any]) -> str:
    """Bootstrap a machine, with the session's token or a fresh one, and return the token."""
    from agentd.vm import platform

    token = session.token or secrets.token_urlsafe(TOKEN_BYTES)
    await platform.launch(session.reactor(), machine, token, parse_assignments(options["env"]))
    return token


async def _command(session: Session, command: tuple[str, ...]) -> int:
    """Run a command in the session's machine as `agentctl run` does, and return the status to exit with."""
    client = session.client()
    try:
        handle = await client.start(command)
        session.on_interrupt = _killer(session, handle)
        return await _see_through(session, handle, feed=False)
    finally:
        session.on_interrupt = None
        await client.close()


def _keep(directory: Path, machine: "Machine", token: str | None) -> None:
    from agentd.vm import store

    if token is not None:
        store.write_token(directory, token)
    store.write_settings(directory / store.RECORD, machine.settings)


def _tell(session: Session, name: str, machine: "Machine", token: str | None) -> None:
    forwards = [[each.local, each.remote] for each in machine.settings.forwards[1:]]
    report: dict[str, Any] = {"name": name, "url": machine.url, "token": token, "forwards": forwards}

    def lines() -> None:
        print(f"export AGENTD_URL={machine.url}")
        if token is not None:
            print(f"export AGENTD_TOKEN={token}")
        for local, remote in forwards:
            print(f"# 127.0.0.1:{local} leads to port {remote}")
        print(end="", flush=True)

    session.show(report, lines)


def _with(session: Session, name: str, work: Callable[["Machine", Path], Any]) -> int:
    """Run `work` on the machine of that name, which stays."""

    async def attached() -> int:
        from agentd.vm import machine as machines
        from agentd.vm import store

        directory = store.Store.of_user().find(name)
        settings = store.read_settings(directory / store.RECORD)
        machine = await machines.attach(session.reactor(), settings, directory)
        try:
            await work(machine, directory)
        finally:
            await machine.forget()
        return exits.OK

    return _drive(session, attached)
