"""agentd as process 1: the daemon, and the end of the machine when it has ended.

Process 1 must not end, for the kernel panics then. After an orderly end (the terminate hook, or a signal) the machine
is powered off. After a crash the panic is what should be seen: the console has the reason.
"""

import ctypes
import os
import signal
import sys
import time

POWER_OFF = 0x4321FEDC
LEAVE_SECONDS = 2.0


def end_everything() -> None:
    """Ask every other process to end, and kill what has not after a moment."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(-1, number)
        except ProcessLookupError:
            return
        end = time.monotonic() + LEAVE_SECONDS
        while time.monotonic() < end:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.01)
            except ChildProcessError:
                return


def mark(what: str) -> None:
    """Leave a line in the kernel's log: dmesg tells what a start spends its time on."""
    with open("/dev/kmsg", "w") as log:
        log.write(f"<7>agentd-image: {what}\n")


def main() -> None:
    """Run the daemon, then power off."""
    mark("Python")
    from agentd.__main__ import main as daemon

    if status := daemon(sys.argv[1:]):
        sys.exit(status)
    end_everything()
    os.sync()
    ctypes.CDLL(None, use_errno=True).reboot(POWER_OFF)
    raise OSError(ctypes.get_errno(), "the machine cannot be powered off")


if __name__ == "__main__":
    main()
