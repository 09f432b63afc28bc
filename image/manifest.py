"""What was built: ``manifest.json`` beside the files, which is also how a machine is started from them.

    {"format": 1, "source": {…}, "boot": {…}, "files": {…}, "packages": {…}, "python": {…}, …}

`boot` names the kernel, the initrd and the root by their files, and holds the kernel's command line; `agentd.vm` reads
nothing else. There is nothing in it of the machine or of the moment of the build, so that two builds of one commit have
equal manifests, and `digest` stands for everything: kernel, initrd, root and command line.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from image import pack

FORMAT: Final = 1
NAME: Final = "manifest.json"


def write(directory: Path, boot: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Describe the files that `boot` names, add `facts`, and write the manifest into `directory`."""
    names = [boot[part] for part in ("kernel", "initrd", "root") if boot[part] is not None]
    files = {
        name: {"bytes": (directory / name).stat().st_size, "sha256": pack.digest(directory / name)}
        for name in names
    }
    whole = json.dumps([boot, files], sort_keys=True)
    manifest = {
        "format": FORMAT,
        "digest": hashlib.sha256(whole.encode()).hexdigest(),
        "boot": boot,
        "files": files,
        **facts,
    }
    (directory / NAME).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    return manifest
