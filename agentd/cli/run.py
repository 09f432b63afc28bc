"""Commands about commands: `run`, `logs`, `kill`.

`run` follows both streams to its own, reads the result from the exec's record and not from the end of the
stream, acknowledges it, and exits with what the command exited with. Until then nothing is lost: if the
connection goes for good, the exec goes on and its id and offset are said. The first Ctrl-C ends the command,
the second leaves it and agentctl.
"""

import base64
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from twisted.internet.defer import CancelledError, Deferred

from agentd.cli import exits
from agentd.cli.options import common
from agentd.cli.session import Session, parse_assignments
from agentd.cli.terminal import StandardInput, Writer

if TYPE_CHECKING:
    from agentd.client.client import Client
    from agentd.client.execs import Exec
    from agentd.client.messages import PollResponse
    from agentd.client.sse import Event

QUIET_SECONDS = 1.0
"""`logs` without ``--follow`` ends when this long nothing more came: the stream has no mark for "all so far"."""

SIGPIPE = 13


def name_or_id(text: str | None) -> str | int | None:
    """A user or group as the protocol takes it: digits are an id."""
    return int(text) if text is not None and text.isdecimal() else text


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--user", "-u", metavar="NAME|UID", help="Run as this user.")
@click.option("--group", "-g", metavar="NAME|GID", help="Run as this group.")
@click.option("--cwd", "-C", metavar="DIR", help="Run in this directory.")
@click.option("--env", "-e", multiple=True, metavar="NAME=VALUE", help="Set a variable; repeatable.")
@click.option("--inherit-image-env", is_flag=True, help="Start from the environment of the image.")
@click.option("--timeout", "-t", type=float, metavar="SECONDS", help="End the command after so long.")
@click.option("--stdin", "-i", is_flag=True, help="Send standard input to the command.")
@click.option("--shell", "-s", is_flag=True, help="COMMAND is a script for /bin/sh, its words are its lines.")
@click.option("--shell-name", metavar="SHELL", help="The same, for this shell: a name or an absolute path.")
@click.option("--reap", is_flag=True, help="End what the command left running when it exits.")
@click.option(
    "--id", "exec_id", metavar="ID", help="The exec's id; running the same id again starts nothing."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@common
@click.pass_obj
def run(session: Session, /, command: tuple[str, ...], exec_id: str | None, **options: Any) -> int:
    """Run COMMAND in the VM and exit with its status.

    Its output goes to standard output and standard error as it comes. Ctrl-C ends it; a second Ctrl-C leaves.
    """
    request = {
        "shell": options["shell_name"] or options["shell"],
        "cwd": options["cwd"],
        "env": parse_assignments(options["env"]),
        "user": name_or_id(options["user"]),
        "group": name_or_id(options["group"]),
        "timeout": options["timeout"],
        "stdin": options["stdin"],
        "reap_group_on_exit": options["reap"],
        "inherit_image_env": options["inherit_image_env"],
    }

    async def follow(client: "Client") -> int:
        handle = client.exec(exec_id or str(uuid.uuid4()))
        session.on_interrupt = _killer(session, handle)
        await client.start(command, exec_id=handle.exec_id, **request)
        if session.as_json:
            session.show({"event": "started", "exec_id": handle.exec_id})
        return await _see_through(session, handle, feed=options["stdin"])

    return session.run(follow)


async def _see_through(session: Session, handle: "Exec", *, feed: bool) -> int:
    """Follow a started command to its end and return the status to exit with."""
    faults: list[Exception] = []
    feeding = Deferred.fromCoroutine(_feed(session, handle, faults)) if feed else None
    try:
        await _print_events(session, handle)
    except BrokenPipeError:
        await handle.kill()
        return exits.SIGNALLED + SIGPIPE
    except Exception:
        session.note(f"exec {handle.exec_id} may still run: see agentctl ps, logs and kill")
        raise
    finally:
        if feeding is not None:
            feeding.cancel()
    outcome = await handle.wait()
    await handle.ack()
    if faults:
        raise faults[0]
    status = exits.outcome_status(outcome)
    if session.as_json:
        session.show({"event": "outcome", "status": status, **_result(outcome)})
    elif note := exits.outcome_note(outcome):
        session.note(note)
    return status


async def _print_events(session: Session, handle: "Exec") -> None:
    sink = _sink(session)
    async with handle.follow() as events:
        async for event in events:
            await sink(event)


def _result(outcome: "PollResponse") -> dict[str, Any]:
    """An outcome without the output, which was printed as it came."""
    from agentd.client.client import as_json

    return {name: value for name, value in as_json(outcome).items() if name not in ("stdout", "stderr")}


@click.command()
@click.argument("exec_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on until the command exits.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Begin at this byte of the output.")
@common
@click.pass_obj
def logs(session: Session, exec_id: str, follow: bool, offset: int) -> int:
    """Print the output of an exec that the daemon still holds."""

    async def show(client: "Client") -> int:
        sink = _sink(session)
        async with client.exec(exec_id).follow(offset) as events:
            while True:
                coming = Deferred.fromCoroutine(anext(events, None))
                if not follow:
                    coming.addTimeout(QUIET_SECONDS, session.reactor(), onTimeoutCancel=_nothing)
                event = await coming
                if event is None:
                    return exits.OK
                try:
                    await sink(event)
                except BrokenPipeError:
                    return exits.SIGNALLED + SIGPIPE

    return session.run(show)


def _nothing(_: object, __: float) -> None:
    return None


@click.command()
@click.argument("exec_id", metavar="ID")
@common
@click.pass_obj
def kill(session: Session, exec_id: str) -> int:
    """End an exec's whole process group."""

    async def end(client: "Client") -> None:
        killed = await client.exec(exec_id).kill()
        words = "killed" if killed else "nothing was left to kill"
        session.show({"exec_id": exec_id, "killed": killed}, lambda: print(words, flush=True))

    return session.run(end)


def _killer(session: Session, handle: "Exec") -> Callable[[], object]:
    """What the first interrupt does while a command runs."""

    async def end() -> None:
        from agentd.client.errors import AgentError

        session.note("ending the command; interrupt again to leave it")
        try:
            await handle.kill()
        except AgentError as fault:
            session.note(f"it could not be ended: {exits.explain(fault)}")

    return lambda: Deferred.fromCoroutine(end())


async def _feed(session: Session, handle: "Exec", faults: list[Exception]) -> None:
    """Send standard input until it ends or the command has enough of it.

    If it cannot be sent whole, the command is ended: it must not take a part for all of it, nor wait for ever.
    """
    from agentd.client.errors import AgentError, StdinClosed

    try:
        await handle.feed(StandardInput(session.reactor()))
    except (StdinClosed, CancelledError):
        pass
    except (AgentError, OSError) as fault:
        faults.append(fault)
        await handle.kill()


def _sink(session: Session) -> Callable[["Event"], Any]:
    """Where events go: bytes to the two streams, or one JSON line each."""
    from agentd.client.client import as_json
    from agentd.client.sse import Gap, Output

    writers = {"stdout": Writer(session.reactor(), 1), "stderr": Writer(session.reactor(), 2)}

    async def plain(event: "Event") -> None:
        if isinstance(event, Output):
            await writers[event.stream].write(event.data)
        elif isinstance(event, Gap):
            session.note(f"{event.end - event.start} bytes of output lost, [{event.start}, {event.end})")

    async def lines(event: "Event") -> None:
        import json

        if isinstance(event, Output):
            data = base64.b64encode(event.data).decode()
            line = {"event": "output", "offset": event.offset, "stream": event.stream, "data_b64": data}
        elif isinstance(event, Gap):
            line = {"event": "gap", "from": event.start, "to": event.end}
        else:
            line = {"event": "exit", **as_json(event)}
        await writers["stdout"].write(json.dumps(line).encode() + b"\n")

    return lines if session.as_json else plain
