"""A real browser for tests: headless Chromium, driven over its own protocol on two pipes.

With ``--remote-debugging-pipe`` the browser reads commands from descriptor 3 and writes answers and events to
descriptor 4, each a JSON text that a zero byte ends (the Chrome DevTools Protocol). No port is opened. Input goes in as
a user's does, as keys and clicks at a place, and what a page requested or complained of is remembered.
"""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import define, field

DEADLINE_SECS: Final = 60.0
"""For one answer of the browser, or for a page to come to say something; a machine that tests may be slow."""
KEYS: Final = {
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "/": 191,
}

# Opens the two pipes under the numbers that the browser expects; a shell can, and no code runs between fork and exec.
_WITH_PIPES = 'exec 3<"$1" 4>"$2"; shift 2; exec "$@"'


@define(eq=False)
class Browser:
    """A browser process."""

    process: subprocess.Popen[bytes]
    commands: int
    answers: int
    waiting: list[dict[str, Any]] = field(factory=list)
    """Events nobody has looked at."""
    _read: bytearray = field(factory=bytearray)
    _number: int = 0

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Give a command and wait for its answer; events that come meanwhile are kept."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if session is not None:
            command["sessionId"] = session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + DEADLINE_SECS
        while True:
            message = self._next(end, method)
            if message.get("id") != self._number:
                self.waiting.append(message)
                continue
            assert "error" not in message, (method, params, message["error"])
            result: dict[str, Any] = message["result"]
            return result

    def _next(self, end: float, what: str) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            while b"\0" not in self._read:
                assert selector.select(max(0.0, end - time.monotonic())), f"no answer to {what}"
                got = os.read(self.answers, 1 << 16)
                assert got, f"the browser ended before it answered {what}"
                self._read += got
        message, _, rest = bytes(self._read).partition(b"\0")
        self._read = bytearray(rest)
        found: dict[str, Any] = json.loads(message)
        return found

    def tab(self) -> "Tab":
        """A new page, empty."""
        target = self.call("Target.createTarget", url="about:blank", newWindow=True, width=1400, height=1000)[
            "targetId"
        ]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        return Tab(self, target, session)


@define(eq=False)
class Tab:
    """One page."""

    browser: Browser
    target: str
    session: str
    _events: list[dict[str, Any]] = field(factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command for this page."""
        return self.browser.call(method, self.session, **params)

    def open(self, url: str) -> None:
        """Go there and wait until it has loaded. Not for another fragment of the page that is open."""
        assert "errorText" not in self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({json.dumps(url.partition('#')[0])})")
        self.until("document.readyState === 'complete'")

    def close(self) -> None:
        """Close the page."""
        self.browser.call("Target.closeTarget", targetId=self.target)

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression is true; returns its value."""
        end = time.monotonic() + DEADLINE_SECS
        while not (found := self.ask(expression)):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.01)
        return found

    def text(self, selector: str) -> str:
        """What the first such element says."""
        found = self.ask(f"document.querySelector({json.dumps(selector)}).textContent")
        assert isinstance(found, str)
        return found

    def texts(self, selector: str) -> list[str]:
        """What each such element says."""
        found = self.ask(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")
        assert isinstance(found, list)
        return found

    def press(self, key: str) -> None:
        """Press and let go of a key, wherever the focus is."""
        code = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": {"Enter": "\r"}.get(key, key)} if key in ("Enter", " ", "/") else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def write(self, text: str) -> None:
        """Type a text, wherever the focus is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str, containing: str = "") -> None:
        """Click into the middle of the first such element, or of the first that contains a text."""
        middle = self.ask(
            f"""(() => {{
              const found = [...document.querySelectorAll({json.dumps(selector)})]
                .find((e) => e.textContent.includes({json.dumps(containing)}));
              if (found === undefined) return null;
              found.scrollIntoView({{ block: "center", inline: "center" }});
              const box = found.getBoundingClientRect();
              return [box.left + box.width / 2, box.top + box.height / 2];
            }})()"""
        )
        assert middle, f"no {selector} with {containing!r}"
        where = {"x": middle[0], "y": middle[1], "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **where)

    def events(self) -> list[dict[str, Any]]:
        """What has come from this page so far."""
        self.ask("0")  # after which everything is here that came before
        self._events += [e for e in self.browser.waiting if e.get("sessionId") == self.session]
        self.browser.waiting = [e for e in self.browser.waiting if e.get("sessionId") != self.session]
        return self._events

    def requested(self) -> set[str]:
        """Everything the page asked for, itself included."""
        return {
            event["params"]["request"]["url"]
            for event in self.events()
            if event["method"] == "Network.requestWillBeSent"
        }

    def complaints(self) -> list[str]:
        """What the console shows: messages, errors, and exceptions nobody caught."""
        methods = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events() if event["method"] in methods]


@contextmanager
def chromium(directory: Path) -> Iterator[Browser]:
    """A browser with a profile in `directory`, ended in the end."""
    read_commands, commands = os.pipe()
    answers, write_answers = os.pipe()
    arguments = [
        "chromium",
        "--headless=new",
        "--remote-debugging-pipe",
        "--no-sandbox",  # which it refuses to do for root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={directory}",
    ]
    pipes = (f"/proc/self/fd/{read_commands}", f"/proc/self/fd/{write_answers}")
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WITH_PIPES, "sh", *pipes, *arguments],
            pass_fds=(read_commands, write_answers),
            env={**os.environ, "HOME": str(directory), "TMPDIR": str(directory)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A group of its own: what the browser starts for itself ends with it, whatever happens.
            process_group=0,
        )
    os.close(read_commands)
    os.close(write_answers)
    browser = Browser(process, commands, answers)
    try:
        yield browser
        browser.call("Browser.close")
        process.wait(DEADLINE_SECS)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # which it is when it ended as it was asked to
        process.wait()
        os.close(commands)
        os.close(answers)
