"""Log lines: shape, levels, what is kept out of them, and a console that does not keep up."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import fail
from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.python import log as legacy
from twisted.python.failure import Failure
from twisted.python.log import LogPublisher as LegacyPublisher

from agentd.log import QUEUE_LINES, LineObserver, fields

SECRET = "s3cr3t"


class Sink:
    """A file that an observer writes to, as one that reads it sees it."""

    def __init__(self, path: Path, level: str = "debug", form: str = "json") -> None:
        self._path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.publisher = LogPublisher(LineObserver(self.fd, level, form))
        self.logger = Logger("agentd.test", observer=self.publisher)

    @property
    def lines(self) -> list[str]:
        return self._path.read_bytes().decode().split("\n")[:-1]

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    made = Sink(tmp_path / "log")
    yield made
    os.close(made.fd)


def test_a_line_is_one_json_object(sink: Sink) -> None:
    """Time in UTC with milliseconds, level, origin, message, and the event's own fields."""
    sink.logger.info("{name} is {value}", name="x", value=5, parts=["a", 1, None], other=object())
    (entry,) = sink.entries
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry == {
        "level": "info",
        "target": "agentd.test",
        "message": "x is 5",
        "name": "x",
        "value": 5,
        "parts": ["a", 1, None],
    }


def test_whatever_is_logged_is_one_line(sink: Sink) -> None:
    """Line ends, control characters and lone surrogates included."""
    sink.logger.info("{text}", text="a\nb\r\n\x1b[31m\ud800\N{PILE OF POO}\u2028")
    (entry,) = sink.entries
    assert entry["message"] == "a\nb\r\n\x1b[31m?\N{PILE OF POO}\u2028"
    text = Sink(sink._path.with_name("text"), form="text")
    text.logger.info("{text}", text="a\nb\r\x1b[31m\x7f\ud800")
    (line,) = text.lines
    assert "a\\x0ab\\x0d\\x1b[31m\\x7f?" in line
    os.close(text.fd)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warn", "error", "critical"]),
        ("info", ["info", "warn", "error", "critical"]),
        ("warn", ["warn", "error", "critical"]),
        ("error", ["error", "critical"]),
        ("critical", ["critical"]),
    ],
)
def test_the_least_level(tmp_path: Path, level: str, expected: list[str]) -> None:
    """And everything above it."""
    sink = Sink(tmp_path / "log", level)
    for each in LogLevel.iterconstants():
        sink.logger.emit(each, "x")
    assert [entry["level"] for entry in sink.entries] == expected
    os.close(sink.fd)


def test_a_line_for_a_person(tmp_path: Path) -> None:
    """Message first, fields behind it."""
    sink = Sink(tmp_path / "log", form="text")
    sink.logger.warn("{name} is odd", name="x", size=3)
    (line,) = sink.lines
    assert re.fullmatch(r"\S+Z WARN  x is odd name=x size=3", line)
    os.close(sink.fd)


def test_what_twisted_says_about_itself_is_left_out(sink: Sink) -> None:
    """Its informational events; not its warnings."""
    chatter = Logger("twisted.internet.tcp", observer=sink.publisher)
    chatter.info("starting")
    chatter.warn("odd")
    Logger("agentd", observer=sink.publisher).info("ours")
    assert [entry["message"] for entry in sink.entries] == ["odd", "ours"]


def broken() -> Failure:
    """A failure whose message quotes what it should not."""
    try:
        raise ValueError(f"cannot take {SECRET}")
    except ValueError:
        return Failure()


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_failure_is_its_type_and_frames(tmp_path: Path, form: str) -> None:
    """From either of Twisted's loggers; never its message, which may quote a caller."""
    sink = Sink(tmp_path / "log", form=form)
    sink.logger.failure("doing a thing", failure=broken())
    sink.logger.failure("", failure=broken())
    old = LegacyPublisher(sink.publisher, sink.publisher)
    old.msg(failure=broken(), why="an old way", isError=1, system="-")
    old.msg(failure=broken(), why=None, isError=1, system="-")
    text = Path(sink._path).read_text()
    assert SECRET not in text
    assert "Traceback" not in text
    assert text.count("\n") == 4
    for message in ("doing a thing", "unhandled failure", "an old way"):
        assert message in text
    assert text.count("ValueError") == 4
    assert text.count("test_log.py") == 4
    os.close(sink.fd)


def test_an_unhandled_deferred_is_its_type_too(sink: Sink) -> None:
    """What Twisted logs when nobody took a failure."""
    from twisted.logger import globalLogPublisher

    globalLogPublisher.addObserver(sink.publisher)
    try:
        fail(broken())
        legacy.err(broken(), "the global one")
    finally:
        globalLogPublisher.removeObserver(sink.publisher)
    text = Path(sink._path).read_text()
    assert "ValueError" in text
    assert "the global one" in text
    assert SECRET not in text


def test_a_field_cannot_replace_what_a_line_always_has() -> None:
    """Time, level, origin and message are the event's own."""
    line = fields(
        {
            "log_time": 0.25,
            "log_format": "hello",
            "log_namespace": "n",
            "level": "x",
            "target": "y",
            "message": "z",
        }
    )
    assert (line["time"], line["level"], line["target"], line["message"]) == (
        "1970-01-01T00:00:00.250Z", "info", "n", "hello",
    )  # fmt: skip


def test_a_slow_console_holds_nobody_up() -> None:
    """Lines wait, within bounds; what does not fit is counted and said when there is room again."""
    reading, writing = os.pipe()
    observer = LineObserver(writing, "debug", "text")
    logger = Logger("agentd.test", observer=LogPublisher(observer))
    big = "x" * 200
    for _ in range(QUEUE_LINES + 200):
        logger.info("{big}", big=big)
    os.set_blocking(reading, False)
    assert os.get_blocking(writing), "the descriptor may be shared: its mode stays"
    got = b""
    for number in range(4 * QUEUE_LINES):
        try:
            while piece := os.read(reading, 1 << 20):
                got += piece
        except BlockingIOError:
            pass
        logger.info("later {number}", number=number)
        if b"log lines were lost" in got:
            break
    lost = re.search(rb"^\S+Z WARN  (\d+) log lines were lost$", got, re.MULTILINE)
    assert lost, got[-300:]
    assert 0 < int(lost[1]) <= 200 + 4 * QUEUE_LINES
    for fd in (reading, writing, observer.fd):
        os.close(fd)


def test_a_console_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    """The daemon goes on."""
    reading, writing = os.pipe()
    observer = LineObserver(writing, "debug", "json")
    os.close(reading)
    Logger("agentd.test", observer=LogPublisher(observer)).info("into the void")
    for fd in (writing, observer.fd):
        os.close(fd)
