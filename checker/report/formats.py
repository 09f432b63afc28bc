"""The formats of a check's report: what each says of one configuration, and how that is put together."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from attrs import frozen

from checker.check import Exit, Verdict
from checker.report import text
from checker.result import Result

Checked = tuple[Result, Verdict, str | None]
"""One configuration: what was found, what it comes to, and how its counts drifted."""


@frozen
class Format:
    """One of them."""

    part: Callable[[Result, Verdict, str | None], Any]
    """What there is to say about a configuration; can be pickled, which a result cannot."""
    whole: Callable[[Sequence[Any], Exit], str]
    """The report."""


def _late(name: str) -> Callable[..., Any]:
    """A function of `checker.report.machine`, which a check that is read by people need not import."""

    def call(*values: Any) -> Any:
        from checker.report import machine

        return getattr(machine, name)(*values)

    return call


def _diagrams(result: Result, judged: Verdict, drift: str | None) -> list[str]:
    from checker.report.mermaid import diagram

    return [diagram(result.trace(prop), prop.name) for prop in (*judged.unexpected, *judged.expected)]


def _lines(coverage: bool, result: Result, judged: Verdict, drift: str | None) -> list[str]:
    def said() -> Iterator[str]:
        yield from text.check(result, judged, drift)
        if coverage:
            yield from text.coverage(result)

    return list(said())


def _joined(parts: Sequence[list[str]], code: Exit) -> str:
    return "".join(f"{line}\n" for part in parts for line in part)


FORMATS: Final = {
    "json": Format(_late("json_part"), _late("as_json")),
    "junit": Format(_late("junit_part"), _late("as_junit")),
    "sarif": Format(_late("sarif_part"), _late("as_sarif")),
    "mermaid": Format(_diagrams, lambda parts, code: "\n".join(one for part in parts for one in part)),
}
"""Those that are for programs."""


def form(name: str, coverage: bool = False) -> Format:
    """The format of this name; with `coverage` text says which responses each event gave."""
    return Format(partial(_lines, coverage), _joined) if name == "text" else FORMATS[name]
