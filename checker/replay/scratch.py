"""Files that a daemon in memory is given, for as long as this process lives.

A process of a pool ends without what `atexit` or a finalizer of Python's would do; it does what `multiprocessing` has
been told to do at its end, and so does a process that nobody forked.
"""

from multiprocessing.util import Finalize
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp


def directory() -> Path:
    """A fresh directory, which is removed when the process that asked for it ends."""
    path = mkdtemp(prefix="agentd-replay-")
    Finalize(None, rmtree, (path, True), exitpriority=0)
    return Path(path)
