"""Descriptors of processes: a handle that cannot come to mean another process (pidfd_open(2)).

Only needed for processes the daemon did not start. A child of its own keeps its pid until the daemon reaps it.
"""

import os
import signal


def open(pid: int) -> int:
    """A close-on-exec descriptor of process `pid`; it turns readable when the process ends.

    Raises `OSError`: ESRCH when there is no such process, EINVAL when `pid` is not positive or is no leader
    of a thread group.
    """
    return os.pidfd_open(pid)


def send_signal(pidfd: int, number: int) -> None:
    """Send signal `number` to the process of `pidfd` (pidfd_send_signal(2)).

    Raises `OSError`: ESRCH when it has ended and been reaped, EPERM when it is somebody else's.
    """
    signal.pidfd_send_signal(pidfd, number)
