"""A daemon of this installation in a process of its own, on a port of its own choosing on loopback."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

from checker.model import ModelError

START_SECS: Final = 30.0
STOP_SECS: Final = 10.0


@contextmanager
def spawned() -> Iterator[str]:
    """The URL of a fresh daemon, which ends with the context. Raises ModelError when it does not start.

    It repairs no identity, for that would be the identity of this machine, and inherits no configuration.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AGENTD_")}
    environ |= {"AGENTD_REPAIR_IDENTITY": "off", "AGENTD_LOG_FORMAT": "json"}
    with TemporaryDirectory(prefix="agentd-checker-") as directory:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "agentd", "--listen", "tcp:0:interface=127.0.0.1"),
                *("--hooks-dir", os.path.join(directory, "hooks.d")),
            ],
            cwd=directory,
            env={**environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield f"http://127.0.0.1:{_port(process)}"
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(process: "subprocess.Popen[bytes]") -> int:
    """The port that the daemon says it listens on. What it logs afterwards is read, so that it is never held up."""
    found: list[int] = []
    told = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if not told.is_set() and b'"listening"' in line:
                    found.append(int(json.loads(line)["port"]))
                    told.set()
        told.set()

    threading.Thread(target=read, daemon=True).start()
    if not told.wait(START_SECS) or not found:
        raise ModelError("the daemon of this installation does not start")
    return found[0]
