"""Log lines: one JSON object, or one line of text, per event, on standard output.

A line is written with one write to a non-blocking-friendly buffer: a console that does not keep up must not hold
up the reactor, so lines that cannot be written at once wait in a bounded queue, and what overflows it is counted
and said. Fields come from the event's own format arguments; a failure is shown as its type and frames, never as a
message, because a message may quote what a caller sent.
"""

import json
import os
import stat
import time
from collections import deque
from typing import Any, Final

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer

QUEUE_LINES: Final = 2000
"""Lines that may wait for a slow console."""

_LEVELS: Final = {
    "debug": LogLevel.debug,
    "info": LogLevel.info,
    "warn": LogLevel.warn,
    "error": LogLevel.error,
    "critical": LogLevel.critical,
}
_CHATTER: Final = ("twisted.", "log_legacy")
"""Whose informational events say nothing about this daemon: ports and factories starting and stopping."""
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""Control characters, line ends among them, as a line of text shows them."""
_PLAIN = (str, int, float, bool, type(None))
_ENVELOPE: Final = frozenset({"format", "isError", "time", "system", "why", "failure", "debugInfo"})
"""Keys that Twisted adds to events for itself."""


def fields(event: LogEvent) -> dict[str, Any]:
    """What a line says, as JSON-ready values."""
    level = event.get("log_level", LogLevel.info)
    line: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(event["log_time"]))
        + f".{int(event['log_time'] * 1000) % 1000:03d}Z",
        "level": level.name,
        "target": event.get("log_namespace", "agentd"),
        "message": formatEvent(event),
    }
    for key, value in event.items():
        if key.startswith("log_") or key in line or key in _ENVELOPE:
            continue
        if isinstance(value, _PLAIN):
            line[key] = value
        elif isinstance(value, (list, tuple)) and all(isinstance(item, _PLAIN) for item in value):
            line[key] = list(value)
    failure = event.get("log_failure")
    if failure is None and isinstance(event.get("failure"), Failure):
        # twisted.python.log puts the whole traceback into the text, and with it the exception's message.
        failure, line["message"] = event["failure"], event.get("why")
    if isinstance(failure, Failure):
        line["message"] = line["message"] or "unhandled failure"
        line["failure"] = failure.type.__name__ if failure.type else "unknown"
        line["frames"] = [
            f"{name}:{number} {function}" for function, name, number, _, _ in failure.frames[-12:]
        ]
    return line


def as_text(line: dict[str, Any]) -> str:
    """A line for a person."""
    known = ("time", "level", "target", "message")
    rest = " ".join(f"{key}={line[key]}" for key in line if key not in known)
    text = f"{line['time']} {line['level'].upper():<5} {line['message']}"
    return (f"{text} {rest}" if rest else text).translate(_CONTROLS)


@implementer(ILogObserver)
class LineObserver:
    """Writes events of at least `level` to descriptor `fd`.

    A pipe or socket is written without blocking where the kernel allows it (``O_NONBLOCK`` is set on a new open
    file description only when `fd` is a pipe, so that a shared terminal keeps its mode).
    `fd` is the descriptor in use.
    """

    def __init__(self, fd: int, level: str, form: str) -> None:
        self.fd = fd
        self._least = _LEVELS[level]
        self._json = form == "json"
        self._waiting: deque[bytes] = deque()
        self._rest = b""
        self._dropped = 0
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            try:
                self.fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                self.fd = fd

    def __call__(self, event: LogEvent) -> None:
        """Observe one event."""
        level = event.get("log_level", LogLevel.info)
        if level < self._least:
            return
        if level <= LogLevel.info and event.get("log_namespace", "").startswith(_CHATTER):
            return
        self._put(self._line(event))

    def _line(self, event: LogEvent) -> bytes:
        line = fields(event)
        text = json.dumps(line, ensure_ascii=False) if self._json else as_text(line)
        return text.encode("utf-8", "replace") + b"\n"

    def _put(self, line: bytes) -> None:
        self._flush()
        if len(self._waiting) >= QUEUE_LINES:
            self._dropped += 1
            return
        if self._dropped and len(self._waiting) < QUEUE_LINES // 2:
            note = {"log_time": time.time(), "log_level": LogLevel.warn, "log_namespace": __name__}
            self._waiting.append(self._line({**note, "log_format": f"{self._dropped} log lines were lost"}))
            self._dropped = 0
        self._waiting.append(line)
        self._flush()

    def _flush(self) -> None:
        while self._rest or self._waiting:
            data = self._rest or self._waiting.popleft()
            try:
                sent = os.write(self.fd, data)
            except BlockingIOError:
                self._rest = data
                return
            except OSError:
                self._rest = b""
                return
            self._rest = data[sent:]
