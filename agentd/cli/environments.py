"""`agentctl env`: the environments API, for the agent user of the VM.

`exec` runs a command to its end; with ``--detach`` it starts a background process and prints its id. `attach`
follows one, sends it standard input and passes on Ctrl-C; leaving does not end it. Both exit as the command
did, with 128 + n for signal n.
"""

import codecs
import os
import signal
from typing import TYPE_CHECKING, Any

import click
from twisted.internet.defer import CancelledError, Deferred

from agentd.cli import exits
from agentd.cli.options import common
from agentd.cli.session import Session, parse_assignments
from agentd.cli.terminal import StandardInput, Writer

if TYPE_CHECKING:
    from agentd.client.attach import Attached, Message
    from agentd.client.client import Client
    from agentd.client.environment_messages import ProcessExit, ProcessInfo
    from agentd.client.environments import Environment

DEFAULT_ID = "local"


@click.group("env")
def env() -> None:
    """Commands, files and processes of the VM's agent user.

    The environment's id comes from AGENTD_ENVIRONMENT_ID; it is "local" unless the daemon was told otherwise. Paths
    are paths in the VM, relative ones begin at the agent user's home.
    """


def environment(client: "Client") -> "Environment":
    """The environment that the settings name."""
    return client.environment(os.environ.get("AGENTD_ENVIRONMENT_ID") or DEFAULT_ID)


def status_of(ended: "ProcessExit | Any") -> int:
    """The exit status that an end means to its caller."""
    if ended.exit_code is not None:
        return int(ended.exit_code)
    name = ended.signal or ""
    try:
        number = int(name) if name.isdecimal() else signal.Signals[f"SIG{name}"].value
    except KeyError:
        return exits.REFUSED
    return exits.SIGNALLED + number


def _tell(session: Session, ended: "ProcessExit | Any") -> None:
    if ended.timed_out:
        session.note("the command's timeout expired")
    elif ended.signal:
        session.note(f"the command was ended by {ended.signal}")


@env.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("--cwd", "-C", metavar="DIR", help="Run in this directory.")
@click.option("--env", "-e", "pairs", multiple=True, metavar="NAME=VALUE", help="Set a variable; repeatable.")
@click.option("--timeout", "-t", type=click.IntRange(min=1), metavar="SECONDS", help="Kill it after so long.")
@click.option("--stdin", "-i", is_flag=True, help="Send standard input to the command.")
@click.option("--shell", "-s", is_flag=True, help="COMMAND is one line for a login shell.")
@click.option("--detach", "-d", is_flag=True, help="Start it in the background and print its id.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@common
@click.pass_obj
def exec_(
    session: Session,
    command: tuple[str, ...],
    cwd: str | None,
    pairs: tuple[str, ...],
    timeout: int | None,
    stdin: bool,
    shell: bool,
    detach: bool,
) -> int:
    """Run COMMAND as the agent user and exit with its status; or start it with --detach."""
    request: dict[str, Any] = {"cwd": cwd, "env": parse_assignments(pairs), "timeout": timeout}
    request |= {"command": " ".join(command)} if shell else {"argv": list(command)}

    async def run(client: "Client") -> int:
        from agentd.client.client import as_json

        place = environment(client)
        if detach:
            process = await place.spawn(**request, stdin=stdin)
            session.show({"pid": process.pid}, lambda: print(process.pid, flush=True))
            return exits.OK
        given = await _all_input(session) if stdin else None
        result = await place.exec(**request, stdin=given)
        if session.as_json:
            session.show(as_json(result))
            return status_of(result)
        try:
            await Writer(session.reactor(), 1).write(result.stdout.encode())
            await Writer(session.reactor(), 2).write(result.stderr.encode())
        except BrokenPipeError:
            return exits.SIGNALLED + signal.SIGPIPE
        for name, cut in (("stdout", result.stdout_truncated), ("stderr", result.stderr_truncated)):
            if cut:
                session.note(f"{name} was cut; for more, use --detach and env attach")
        _tell(session, result)
        return status_of(result)

    return session.run(run)


async def _all_input(session: Session) -> str:
    """Standard input to its end, as text."""
    parts = [data async for data in StandardInput(session.reactor())]
    try:
        return b"".join(parts).decode()
    except UnicodeDecodeError:
        raise exits.Refusal("standard input is not UTF-8, which is all this API takes", exits.USAGE) from None


@env.command()
@common
@click.pass_obj
def ps(session: Session) -> int:
    """List the background processes, exited ones included."""

    async def show(client: "Client") -> None:
        from agentd.client.client import as_json

        found = await environment(client).processes()
        session.show([as_json(each) for each in found], lambda: _table(found))

    return session.run(show)


def _table(found: "list[ProcessInfo]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("PID", "STATE", "STARTED", "OUTPUT", "COMMAND"):
        table.add_column(heading, overflow="fold")
    for each in found:
        words = each.command if each.command is not None else " ".join(each.argv or ())
        row = (each.pid, _state(each), each.started_at[:19] + "Z", str(each.output_end), words)
        table.add_row(*(Text(_plain(cell)) for cell in row))
    Console().print(table)


def _state(each: "ProcessInfo") -> str:
    if each.exit is None:
        return "running"
    return f"exited {each.exit.exit_code}" if each.exit.signal is None else f"killed {each.exit.signal}"


def _plain(text: str) -> str:
    """Text from the VM as a terminal may show it: on one line, without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)


@env.command()
@click.argument("pid")
@click.option("--since", type=click.IntRange(min=0), default=0, help="Begin at this byte of the output.")
@click.option("--stdin", "-i", is_flag=True, help="Send standard input to the process.")
@common
@click.pass_obj
def attach(session: Session, pid: str, since: int, stdin: bool) -> int:
    """Follow a background process and exit as it does.

    Ctrl-C is sent to it; a second one leaves it, which does not end it.
    """

    async def follow(client: "Client") -> int:
        async with await environment(client).process(pid).attach(since) as attached:
            session.on_interrupt = lambda: Deferred.fromCoroutine(attached.signal("INT"))
            feeding = Deferred.fromCoroutine(_feed(session, attached)) if stdin else None
            try:
                return await _print(session, attached)
            except BrokenPipeError:
                return exits.SIGNALLED + signal.SIGPIPE
            finally:
                if feeding is not None:
                    feeding.cancel()

    return session.run(follow)


async def _feed(session: Session, attached: "Attached") -> None:
    """Send standard input until it ends."""
    from agentd.client.errors import AgentError

    # Whole characters only: what cannot be text in the end becomes U+FFFD.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        async for data in StandardInput(session.reactor()):
            await attached.write(decoder.decode(data))
        await attached.write(decoder.decode(b"", True), eof=True)
    except CancelledError:
        return
    except (AgentError, OSError) as fault:
        session.note(f"standard input: {exits.explain(fault)}")


async def _print(session: Session, attached: "Attached") -> int:
    """What the process writes, to the two streams; or with ``--json`` every message as a line."""
    from agentd.client.attach import ErrorMessage, ExitMessage, OutputMessage
    from agentd.client.client import as_json

    writers = {"stdout": Writer(session.reactor(), 1), "stderr": Writer(session.reactor(), 2)}
    message: Message
    async for message in attached:
        if session.as_json:
            session.show(as_json(message))
        elif isinstance(message, OutputMessage):
            await writers[message.stream].write(message.data.encode())
        elif isinstance(message, ErrorMessage):
            session.note(message.message)
        if isinstance(message, ExitMessage):
            if not session.as_json:
                _tell(session, message.exit)
            return status_of(message.exit)
    return exits.UNREACHABLE


@env.command()
@click.argument("pid")
@click.option(
    "--signal",
    "-s",
    "name",
    type=click.Choice(["TERM", "KILL", "INT", "HUP"]),
    help="Only send this; the record stays.",
)
@common
@click.pass_obj
def kill(session: Session, pid: str, name: Any) -> int:
    """Kill a background process and forget it; or send it a signal."""

    async def end(client: "Client") -> None:
        process = environment(client).process(pid)
        await (process.delete() if name is None else process.signal(name))
        session.show({"pid": pid, "signal": name or "KILL", "deleted": name is None}, lambda: None)

    return session.run(end)


@env.command()
@click.argument("source", metavar="SRC")
@click.argument("path")
@click.option("--parents", "-p", is_flag=True, help="Make missing parents.")
@common
@click.pass_obj
def put(session: Session, source: str, path: str, parents: bool) -> int:
    """Write the local file SRC to PATH in the VM; SRC may be - for standard input."""

    async def send(client: "Client") -> None:
        from agentd.client.client import as_json

        place = environment(client)
        if source == "-":
            stored = await place.write(path, StandardInput(session.reactor()), mkdir=parents)
        else:
            stored = await place.put(source, path, mkdir=parents)
        session.show(
            as_json(stored), lambda: print(f"{stored.size} bytes to {_plain(stored.path)}", flush=True)
        )

    return session.run(send)


@env.command()
@click.argument("path")
@click.argument("destination", metavar="DST")
@common
@click.pass_obj
def get(session: Session, path: str, destination: str) -> int:
    """Fetch PATH of the VM into the local file DST; DST may be - for standard output."""

    async def fetch(client: "Client") -> int:
        place = environment(client)
        if destination == "-":
            writer = Writer(session.reactor(), 1)
            async with await place.read(path) as download:
                try:
                    async for data in download:
                        await writer.write(data)
                except BrokenPipeError:
                    return exits.SIGNALLED + signal.SIGPIPE
            return exits.OK
        local = (
            os.path.join(destination, os.path.basename(path)) if os.path.isdir(destination) else destination
        )
        size = await place.get(path, local)
        session.show({"path": local, "size": size}, lambda: print(f"{size} bytes to {local}", flush=True))
        return exits.OK

    return session.run(fetch)


@env.command()
@click.argument("path", default=".")
@common
@click.pass_obj
def ls(session: Session, path: str) -> int:
    """List a directory of the VM."""

    async def show(client: "Client") -> None:
        from agentd.client.client import as_json

        listing = await environment(client).list(path)
        found = [as_json(entry) for entry in listing.entries]
        session.show(
            {"path": listing.path, "entries": found, "truncated": listing.truncated}, lambda: _rows(found)
        )
        if listing.truncated:
            session.note("there are more entries than are listed")

    return session.run(show)


_KINDS = {"directory": "d", "symlink": "l", "file": "-"}


def _rows(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        kind = _KINDS.get(entry["type"], "?")
        size = "-" if entry["size"] is None else entry["size"]
        target = f" -> {_plain(entry['target'])}" if entry["target"] is not None else ""
        when = (entry["modified_at"] or "-")[:19]
        print(
            f"{kind}{entry['mode'] or '----'} {size:>12} {when:19} {_plain(entry['name'])}{target}",
            flush=True,
        )


@env.command()
@click.argument("path")
@click.option("--recursive", "-r", is_flag=True, help="A directory with everything in it.")
@common
@click.pass_obj
def rm(session: Session, path: str, recursive: bool) -> int:
    """Remove a file of the VM, or a link itself."""

    async def remove(client: "Client") -> None:
        await environment(client).remove(path, recursive=recursive)
        session.show({"removed": path}, lambda: None)

    return session.run(remove)
