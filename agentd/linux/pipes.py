"""The capacity of a pipe (fcntl(2), pipe(7))."""

import fcntl


def grow(fd: int, size: int) -> int:
    """Ask that the pipe `fd` hold `size` bytes, and return how many it holds afterwards.

    The kernel rounds up to a power of two pages. It refuses a user whose pipes hold too much already, and
    anyone without CAP_SYS_RESOURCE above ``/proc/sys/fs/pipe-max-size``: the pipe then stays as it is, because a
    smaller pipe is slower and never wrong. Raises `OSError` for everything else (EBADF when it is no pipe).
    """
    try:
        return fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)
    except PermissionError:
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
