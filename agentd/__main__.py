"""``python -m agentd``: the same service as ``twistd -n agentd``, without what twistd adds to a start.

Exit status: 0 after an orderly stop, 1 when the port cannot be had or the worker cannot start, 2 for a bad option.
"""

import gc
import sys
from typing import Any


def main(arguments: list[str]) -> int:
    """Run until told to stop; returns the exit status."""
    # Nothing that start-up makes is garbage: collections while importing cost a tenth of the start, so the
    # imports are in here, behind this line.
    gc.disable()
    from twisted.logger import globalLogBeginner
    from twisted.python.usage import UsageError

    from agentd.tap import Options, line_observer, makeService

    options = Options()
    try:
        options.parseOptions(arguments)
    except UsageError as reason:
        print(f"agentd: {reason}", file=sys.stderr)
        return 2
    globalLogBeginner.beginLoggingTo([line_observer(options.config)], redirectStandardIO=False)
    from twisted.internet import reactor as chosen

    reactor: Any = chosen
    service = makeService(options)
    service.privilegedStartService()
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()
    return service.exit_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
