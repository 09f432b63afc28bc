"""Run by an interpreter that has agentd installed plainly, as a guest has it: ``python plain_install.py``.

Checks that ``twistd`` lists the plugin, that nothing heavy came along, and that the service answers. Exits 1 with a
line per fault.
"""

import json
import os
import subprocess
import sys
import sysconfig
import urllib.request
from importlib.metadata import distributions
from pathlib import Path

NOT_FOR_GUESTS = {
    "treq",
    "pyopenssl",
    "service-identity",
    "click",
    "rich",
    "numpy",
    "distributed",
    "google-re2",
    "pytest",
    "hypothesis",
}


def plugin_fault() -> str | None:
    """Whether ``twistd --help`` knows agentd."""
    twistd = Path(sysconfig.get_path("scripts")) / "twistd"
    listing = subprocess.run([twistd, "--help"], capture_output=True, text=True, cwd="/", check=True)
    return None if "agentd" in listing.stdout else "twistd --help does not list agentd"


def weight_fault() -> str | None:
    """Whether anything is installed that a guest must not pay for."""
    installed = {found.metadata["Name"].lower() for found in distributions()}
    heavy = sorted(installed & NOT_FOR_GUESTS)
    return f"a plain install brings {', '.join(heavy)}" if heavy else None


def checker_fault() -> str | None:
    """Whether the checker has all it needs: its page for a browser, and the daemon to replay models against."""
    for arguments in (("slice", "stdin", "all", "--format", "html"), ("replay", "stdin")):
        done = subprocess.run(
            [sys.executable, "-m", "checker", *arguments],
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
        )
        if done.returncode:
            return f"checker {arguments[0]} exits with {done.returncode}: {done.stderr.strip()}"
    return None


def service_fault() -> str | None:
    """Whether the service starts and answers."""
    with subprocess.Popen(
        [sys.executable, "-m", "agentd", "--listen", "tcp:0:interface=127.0.0.1", "--repair-identity", "off"],
        stdout=subprocess.PIPE,
        cwd="/",
    ) as process:
        try:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
            with urllib.request.urlopen(f"http://127.0.0.1:{line['port']}/v1/health", timeout=10) as answer:
                health = json.load(answer)
            resident = (
                Path(f"/proc/{process.pid}/status").read_text().split("VmRSS:")[1].split("\n")[0].strip()
            )
            print(f"agentd {health['version']} answers; resident memory {resident}")
            return None if health["bootstrapped"] is False else "a fresh daemon says it is bootstrapped"
        finally:
            process.terminate()


def main() -> int:
    """Check; the exit status."""
    if os.environ.get("PYTHONPATH"):
        print("PYTHONPATH is set: this would not look at the installation")
        return 1
    faults = [fault for fault in (plugin_fault(), weight_fault(), checker_fault(), service_fault()) if fault]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
