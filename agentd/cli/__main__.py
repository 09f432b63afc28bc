"""`agentctl` and `python -m agentd.cli`."""

import sys
from typing import Any


def _reactor() -> Any:
    from twisted.internet import reactor

    return reactor


def main() -> None:
    """Run the command line; the exit status is that of `agentd.cli.exits`."""
    try:
        from agentd.cli.app import run_app
    except ModuleNotFoundError as missing:
        sys.exit(f"agentctl: {missing.name} is not installed: pip install 'agentd[cli]'")
    sys.exit(run_app(sys.argv[1:], _reactor))


if __name__ == "__main__":
    main()
