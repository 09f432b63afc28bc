"""``python -m agentd``: the same service as ``twistd -n agentd``, without what twistd adds to a start.

Exit status: 0 after an orderly stop, 1 when the port cannot be had, 2 for a bad option.
"""

import gc
import signal
import sys
from typing import Any

from twisted.logger import globalLogBeginner
from twisted.python.usage import UsageError

from agentd.tap import Options, makeService


def main(arguments: list[str]) -> int:
    """Run until told to stop; returns the exit status."""
    options = Options()
    try:
        options.parseOptions(arguments)
    except UsageError as reason:
        print(f"agentd: {reason}", file=sys.stderr)
        return 2
    globalLogBeginner.beginLoggingTo([options.observer()], redirectStandardIO=False)
    from twisted.internet import reactor as chosen

    reactor: Any = chosen
    service = makeService(options)
    service.privilegedStartService()
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.callWhenRunning(_settled)
    reactor.run()
    return 0


def _settled() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # What start-up has made will live as long as the process: no collection need look at it again.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
