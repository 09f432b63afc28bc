"""A trace as a Mermaid sequence diagram."""

from collections.abc import Iterator

from checker.report.words import say, say_change
from checker.result import Trace

DAEMON = "daemon"


def diagram(trace: Trace, title: str = "") -> str:
    """The diagram: everybody who acts, the daemon, and notes for what changes in it."""
    lines = ["sequenceDiagram"]
    if title:
        lines.append(f"    title {_text(title)}")
    for actor in dict.fromkeys(step.event.actor for step in trace.steps):
        lines.append(f"    participant {_name(actor)} as {_text(actor)}")
    lines.append(f"    participant {DAEMON}")
    for number in range(len(trace.steps)):
        if trace.loop == number:
            lines.append("    loop for ever")
        lines += _step(trace, number)
    if trace.loop is not None:
        if trace.loop < len(trace.steps):
            lines.append("    end")
        else:
            lines.append(f"    Note over {DAEMON}: nothing more happens, for ever")
    return "\n".join(lines) + "\n"


def _step(trace: Trace, number: int) -> Iterator[str]:
    step = trace.steps[number]
    actor = _name(step.event.actor)
    yield f"    {actor}->>{DAEMON}: {number + 1}. {_text(step.event.name)}"
    for component, before, after in step.changes(trace.model):
        yield f"    Note over {DAEMON}: {_text(f'{component.name}: {say_change(before, after)}')}"
    if step.note:
        yield f"    Note over {DAEMON}: {_text(step.note)}"
    elif step.response is not None:
        yield f"    {DAEMON}-->>{actor}: {_text(say(step.response))}"


def _name(actor: str) -> str:
    return "a_" + "".join(c if c.isalnum() else "_" for c in actor)


def _text(text: str) -> str:
    """Text without what Mermaid takes for syntax."""
    return text.replace("#", "#35;").replace(";", "#59;").replace("\n", " ").replace("#35#59;", "#35;")
