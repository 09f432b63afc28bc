"""twistd with faults put into it: ``python -m tests.wire.faulty -n --pidfile= agentd …``.

Some documented answers come from faults that no request can bring about. Here the daemon is the real one, on a real
socket, and one thing beneath it fails when it is asked to:

* a write to a child's stdin that begins with ``FAULT`` fails with EIO;
* an acknowledgement of an exec whose id begins with ``fault`` raises, with the id in the exception's message.
"""

import errno
import os
import sys
from typing import Any

from agentd.process.table import ExecTable

_write, _ack = os.write, ExecTable.ack


def _faulty_write(fd: int, data: Any) -> int:
    if bytes(data[:5]) == b"FAULT":
        raise OSError(errno.EIO, "injected")
    return _write(fd, data)


def _faulty_ack(self: ExecTable, exec_id: str) -> Any:
    if exec_id.startswith("fault"):
        raise RuntimeError(f"injected for {exec_id}")
    return _ack(self, exec_id)


if __name__ == "__main__":
    os.write = _faulty_write
    ExecTable.ack = _faulty_ack  # type: ignore[method-assign]
    from twisted.scripts.twistd import run

    sys.exit(run())
