"""`python -m image.figures IMAGE [BOOTS]`: what a machine of an image costs, as a table.

The guest marks the stages of its start in the kernel's log, which counts from the moment that the kernel runs; the
daemon's own line about listening has the time of the wall clock, which is set against that count. Needs the extra
`cli`.
"""

import json
import os
import re
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred

from agentd.client import Client
from agentd.vm import image as images
from agentd.vm import machine as machines
from agentd.vm import platform
from agentd.vm.command import Forward, Settings, Shape
from agentd.vm.machine import Machine

TOKEN: Final = "figures"
EXECS: Final = 40
LOOK: Final = """
awk '/VmRSS/ {print "rss", $2}' /proc/1/status
awk '/MemTotal|MemAvailable/ {print $1, $2}' /proc/meminfo
dmesg | grep agentd-image
"""


async def one(reactor: Any, settings: Settings, directory: Path) -> dict[str, float]:
    """Boot once and measure."""
    started = time.monotonic()
    machine = await machines.start(reactor, settings, directory)
    try:
        await machine.ready()
        answered, busy = time.monotonic(), _processor_seconds(machine.pid)
        await platform.post(reactor, machine.url, "ready")
        hooked = time.monotonic()
        await platform.launch(reactor, machine, TOKEN)
        found = await _inside(reactor, machine)
        found |= {"first answer": answered - started, "first answered hook": hooked - started}
        found["processor until then"] = busy
        if not (await platform.end(reactor, machine)).in_order:
            raise RuntimeError(machine.console)
        return found
    finally:
        await machine.kill()


def _processor_seconds(pid: int) -> float:
    """What a process has used so far (proc(5)): on a busy machine, closer to what a quiet one would take."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _inside(reactor: Any, machine: Machine) -> dict[str, float]:
    client = Client(machine.url, TOKEN, reactor=reactor)
    try:
        script = "import time; print(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))"
        booted = float((await client.run(["python3", "-c", script])).stdout or "nan")
        said = (await client.run([LOOK], shell=True)).stdout or ""
        latencies = []
        for _ in range(EXECS):
            before = time.monotonic()
            await client.run(["true"])
            latencies.append((time.monotonic() - before) * 1000)
    finally:
        await client.close()
    found = {name: float(at) for at, name in re.findall(r"\[ *([\d.]+)\] agentd-image: (\w[\w-]*)", said)}
    listening = next(json.loads(line) for line in machine.console.splitlines() if '"listening"' in line)
    found["listening"] = datetime.fromisoformat(listening["time"]).timestamp() - booted
    found["resident MiB"] = int(re.findall(r"rss (\d+)", said)[0]) / 1024
    total, available = (int(value) / 1024 for value in re.findall(r"Mem\w+: (\d+)", said))
    found["memory in use MiB"] = total - available
    found["exec ms"] = statistics.median(latencies)
    return found


async def table(reactor: Any, home: str, boots: int) -> None:
    """Measure and print."""
    image = images.load(home)
    settings = Settings(image, Shape(image.memory_mib), (Forward(0, image.port),))
    runs = []
    for _ in range(boots):
        with tempfile.TemporaryDirectory(prefix="agentd-vm-") as directory:
            runs.append(await one(reactor, settings, Path(directory)))
    for name in runs[0]:
        values = [run[name] for run in runs]
        print(f"{name:24} median {statistics.median(values):8.2f}   {min(values):8.2f} to {max(values):8.2f}")
    for path in (image.kernel, image.initrd, image.root):
        if path is not None:
            print(f"{path.name:24} {path.stat().st_size / 2**20:8.1f} MiB")


def main(arguments: list[str], reactor: Any) -> int:
    """Run the reactor until the table is printed."""
    faults: list[Any] = []
    boots = int(arguments[1]) if len(arguments) > 1 else 3

    def work() -> None:
        measuring = Deferred.fromCoroutine(table(reactor, arguments[0], boots))
        measuring.addErrback(faults.append).addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(work)
    reactor.run()
    for fault in faults:
        print(fault.getTraceback(), file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    from twisted.internet import reactor as chosen

    sys.exit(main(sys.argv[1:], chosen))
