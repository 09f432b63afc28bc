"""The command line: ``python -m checker COMMAND``; ``--help`` lists the commands."""

import signal
import sys

from checker.cli import main


def _leave(number: int, frame: object) -> None:
    """Go as a process goes that is told to, but by way of whatever has to be tidied up."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main(sys.argv[1:]))
