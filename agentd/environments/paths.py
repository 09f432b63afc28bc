"""Where a path of a request leads, as text: relative ones start at the home (environments 4).

Nothing is resolved here, because only the kernel can: ``a/..`` is not ``.`` when ``a`` is a link.
"""


def absolute(home: str, path: str) -> str:
    """`path` as the system is asked for it."""
    return path if path.startswith("/") else f"{home.rstrip('/')}/{path}"


def shown(home: str, path: str) -> str:
    """`path` as an answer names it: absolute, without the components that never mean anything."""
    parts = [part for part in absolute(home, path).split("/") if part not in ("", ".")]
    return "/" + "/".join(parts)
