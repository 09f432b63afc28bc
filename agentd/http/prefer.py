"""``Prefer: wait=N`` (RFC 7240 4.3): how long a caller would like its answer held."""

import re
from collections.abc import Sequence

_PREFERENCE = re.compile(rb'(?:[^,"]|"(?:\\.|[^"\\])*(?:"|\Z))+')
"""One item of the list; a comma inside a quoted string separates nothing."""
_WAIT = re.compile(rb'\s*wait\s*=\s*("?)([0-9]+)\1\s*(?:;.*)?\Z', re.IGNORECASE | re.DOTALL)


def wait_seconds(values: Sequence[bytes], longest: float) -> float | None:
    """The wait that is granted for the ``Prefer`` header lines `values`, in seconds, cut to `longest`.

    None when no wait is asked for. The first preference of a name counts, and one that cannot be understood
    is ignored, both as the RFC says (section 2).
    """
    for line in values:
        for preference in _PREFERENCE.findall(line):
            if re.split(rb"[=;]", preference, maxsplit=1)[0].strip().lower() == b"wait":
                match = _WAIT.match(preference)
                return min(float(match[2]), longest) if match else None
    return None


def applied(seconds: float) -> tuple[bytes, bytes]:
    """The ``Preference-Applied`` header of a wait that was granted."""
    return b"Preference-Applied", b"wait=%d" % int(seconds)
