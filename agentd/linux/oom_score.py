"""Who is killed first when memory runs out (proc(5), ``oom_score_adj``).

A daemon is often protected from the kernel's choice, and its children inherit that: the memory that a command eats
would then be paid for by everybody else. Raising the value needs no privilege.
"""

import os


def read(pid: int | None = None) -> int:
    """The adjustment of a process, by default this one; 0 when it cannot be read."""
    try:
        with open(_path(pid), "rb") as file:
            return int(file.read(16))
    except (OSError, ValueError):
        return 0


def write(pid: int, value: int) -> None:
    """Set the adjustment of `pid`. A process that is gone, or that may not be touched, is left alone."""
    try:
        fd = os.open(_path(pid), os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, b"%d" % value)
    except OSError:
        pass
    finally:
        os.close(fd)


def _path(pid: int | None) -> str:
    return f"/proc/{'self' if pid is None else pid}/oom_score_adj"
