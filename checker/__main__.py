"""The command line: ``python -m checker check|mutants|show|models|footprints|pin``."""

import sys

from checker.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
