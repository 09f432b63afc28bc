"""agentd: the daemon inside a virtual machine that runs commands for the world outside it.

The layers, from the bottom: `linux` (one wrapper per system call), `rules` (pure decisions), the
capabilities `process`, `files`, `tunnel` and `guest`, then `http`, then the faces. An import never
points up; `tests/test_layers.py` holds that.
"""

from agentd._version import VERSION as __version__

__all__ = ["__version__"]
