"""The command line: ``python -m checker COMMAND``; ``--help`` lists the commands."""

import sys

from checker.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
