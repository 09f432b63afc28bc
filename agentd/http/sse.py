"""Server-sent events on the wire (WHATWG HTML 9.2; contract d)."""

KEEP_ALIVE = b":\n\n"
"""A comment: what a silent stream sends so that nobody in between takes it for dead."""


def event(name: bytes, data: bytes, last_id: int | None = None) -> bytes:
    """One event. `data` is one line; `last_id` is what a reconnecting caller gives as ``Last-Event-ID``."""
    if last_id is None:
        return b"event: %s\ndata: %s\n\n" % (name, data)
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name, last_id, data)
