"""Children start with default signal dispositions and nothing blocked, however the daemon was started.

Over an exec a signal that is *handled* goes back to its default, but one that is *ignored* stays ignored, and what
is blocked stays blocked (execve(2), signal(7)). A daemon started in the background of a shell ignores SIGINT and
SIGQUIT, one under ``nohup`` ignores SIGHUP, and every command would inherit that: a Ctrl-C that does nothing, a
shell whose ``trap`` is refused (POSIX forbids trapping what was ignored on entry). So whatever is ignored here is
handled instead, by doing nothing: the same for the daemon, and the default for its children.
"""

import signal
from types import FrameType
from typing import Final

RESTORED: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""What Python ignores for itself; `subprocess` puts these back in the child."""


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass


def keep_from_children() -> None:
    """Handle what is ignored and unblock what is blocked. For the main thread, before the first child."""
    for number in signal.valid_signals() - RESTORED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
