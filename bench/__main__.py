"""``python -m bench NAME``: measure one thing, print what was found.

Exit status: 0 whatever the speed, 1 if a count is wrong (an answer, an exit, a byte), 2 if the run could not begin,
143 after SIGTERM. Whatever the way out, the processes it started are ended and its files are removed.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable

from bench.client import ProtocolError
from bench.daemon import Choice, SetupFailed
from bench.report import Report

Run = Callable[[argparse.Namespace, Choice], Report]


def _exec(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import execs

    return execs.run(choice, given.count, given.parallel, given.rounds)


def _stream(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import stream

    return stream.run(choice, given.bytes, given.rounds, given.streams, given.stream_bytes)


def _idle(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import idle

    return idle.run(choice, given.count, given.rounds, given.starts)


def _files(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import files

    return files.run(choice, given.bytes, given.rounds, given.directory)


def _tar(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import trees

    return trees.run(choice, given.files, given.rounds, given.directory)


def _tunnel(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import tunnel

    return tunnel.run(choice, given.bytes, given.rounds)


def _environments(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import environments

    return environments.run(
        choice, given.count, given.bytes, given.entries, given.rounds, given.directory, given.environment_id
    )


def _checker(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import checker

    return checker.run(choice.python, given.rounds, given.mutants, given.replay, given.large)


def _worker(given: argparse.Namespace, choice: Choice) -> Report:
    from bench import worker

    return worker.run(choice, given.count, given.files, given.bytes, given.entries, given.rounds)


def positive(text: str) -> int:
    """A number of things, at least one."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def size(text: str) -> int:
    """A number of bytes; K, M and G are powers of 1024."""
    factors = {"K": 10, "M": 20, "G": 30}
    shift = factors.get(text[-1:].upper(), 0)
    return positive(text[:-1] if shift else text) << shift


def parser() -> argparse.ArgumentParser:
    """The command line."""
    common = argparse.ArgumentParser(add_help=False)
    which = common.add_argument_group("which daemon")
    which.add_argument("--url", help="a daemon that runs already, http://HOST:PORT; default: start one")
    which.add_argument("--token", help="its bearer token; default: $AGENTD_TOKEN", default=None)
    which.add_argument(
        "--pid", type=positive, help="its process, if it is on this machine, to see its memory"
    )
    which.add_argument(
        "--python",
        default=sys.executable,
        help="the interpreter that runs the daemon and the floors' servers; agentd must be installed for it",
    )
    shape = common.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON")
    shape.add_argument("--markdown", action="store_true", help="print the rows of docs/performance.md")

    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n")[0])
    names = top.add_subparsers(dest="benchmark", required=True)

    def add(name: str, run: Run, text: str) -> Callable[[str, Callable[[str], int], int, str], None]:
        one = names.add_parser(name, help=text, description=text, parents=[common])
        one.set_defaults(run=run)

        def option(flag: str, kind: Callable[[str], int], default: int, meaning: str) -> None:
            one.add_argument(flag, type=kind, default=default, help=f"{meaning}; default {default}")

        return option

    option = add("exec", _exec, "start to acknowledgement of a command, alone and many at once")
    option("--count", positive, 300, "operations of each kind")
    option("--parallel", positive, 200, "commands at once")
    option("--rounds", positive, 5, "rounds of commands at once")

    option = add("stream", _stream, "capture of a large output, and many readers of one exec")
    option("--bytes", size, 1 << 30, "bytes of output to capture (K, M, G)")
    option("--rounds", positive, 5, "captures")
    option("--streams", positive, 100, "readers of one exec")
    option("--stream-bytes", size, 8 << 20, "bytes of output that they follow (K, M, G)")

    option = add("idle", _idle, "health requests, time to the first answer, resident memory")
    option("--count", positive, 2000, "requests a round")
    option("--rounds", positive, 15, "rounds")
    option("--starts", positive, 10, "starts")

    option = add("files", _files, "a large file read and written, against cp")
    option("--bytes", size, 1 << 30, "bytes of the file (K, M, G)")
    option("--rounds", positive, 5, "reads and writes")

    option = add("tar", _tar, "a tree of small files up and down, against tar")
    option("--files", positive, 20_000, "files of the tree")
    option("--rounds", positive, 5, "uploads and downloads")

    option = add("tunnel", _tunnel, "bytes through a tunnel, against a bare relay")
    option("--bytes", size, 512 << 20, "bytes each way (K, M, G)")
    option("--rounds", positive, 5, "transfers each way")

    option = add(
        "environments", _environments, "the environments API: commands, an upload, a listing, output"
    )
    option("--count", positive, 200, "commands")
    option("--bytes", size, 1 << 30, "bytes of the upload (K, M, G)")
    option("--entries", positive, 10_000, "entries of the directory")
    option("--rounds", positive, 5, "uploads, listings and outputs")
    names.choices["environments"].add_argument(
        "--environment-id", default="local", help="the environment of the daemon; default local"
    )

    option = add("checker", _checker, "the model checker: a default check, its engines, its mutants")
    option("--rounds", positive, 3, "default checks and wide searches")
    checker = names.choices["checker"]
    checker.add_argument("--mutants", action="store_true", help="the whole mutant matrix too")
    checker.add_argument("--replay", action="store_true", help="every edge replayed against the daemon too")
    checker.add_argument(
        "--large", action="store_true", help="a product of a hundred million states too: minutes"
    )

    option = add("worker", _worker, "calls of the worker's functions through an engine")
    option("--count", positive, 300, "commands")
    option("--files", positive, 20_000, "files of the tree that is searched")
    option("--bytes", size, 200 << 20, "bytes of that tree (K, M, G)")
    option("--entries", positive, 10_000, "entries of the directory that is listed")
    option("--rounds", positive, 5, "searches and listings")

    for name in ("files", "tar", "environments"):
        names.choices[name].add_argument(
            "--directory", help="where the files are made, on a file system that the daemon sees too"
        )
    return top


def main(arguments: list[str]) -> int:
    """Run one benchmark; returns the exit status."""
    given = parser().parse_args(arguments)
    token = given.token if given.token is not None else os.environ.get("AGENTD_TOKEN")
    try:
        report = given.run(given, Choice(given.python, given.url, token, given.pid))
    except (SetupFailed, ProtocolError, OSError) as reason:
        print(f"bench: {reason}", file=sys.stderr)
        return 2
    if given.json:
        json.dump(report.as_json(), sys.stdout, indent=2)
        print()
    else:
        print(report.as_markdown() if given.markdown else report.as_text(), end="")
    return 0 if report.right else 1


def _terminated(number: int, frame: object) -> None:
    # As an exception, so that whatever was started is ended on the way out.
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(main(sys.argv[1:]))
