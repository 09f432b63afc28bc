"""Reports for machines: JSON, JUnit XML, and SARIF 2.1.0.

What there is to say about one configuration is plain data, made where it was checked, perhaps in another process; a
report puts the parts together.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from agentd import __version__
from checker.check import Exit, Verdict
from checker.properties import Property
from checker.report import text
from checker.report.words import kind, say, verdict
from checker.result import Result, Trace

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def trace_data(trace: Trace) -> dict[str, Any]:
    """A trace as data. Events are named, so that it can be replayed (`checker.packed.replay`)."""
    return {
        "model": trace.model.key,
        "digest": trace.model.digest(),
        "loop": trace.loop,
        "steps": [
            {
                "event": step.event.name,
                "kind": step.event.kind,
                "actor": step.event.actor,
                "response": say(step.response),
                "error": step.note or None,
                "changes": {
                    c.name: [say(before), say(after)] for c, before, after in step.changes(trace.model)
                },
            }
            for step in trace.steps
        ],
    }


def as_json(parts: Sequence[dict[str, Any]], code: Exit) -> str:
    """Everything, as one object."""
    return json.dumps({"exit": int(code), "configurations": list(parts)}, indent=2) + "\n"


def json_part(result: Result, judged: Verdict, drift: str | None) -> dict[str, Any]:
    """One configuration: counts, properties with their traces, coverage."""
    expected = set(judged.expected)
    return {
        "model": result.model.key,
        "digest": result.model.digest(),
        "bounds": {name: say(value) for name, value in result.model.bounds.items()},
        "engine": result.engine,
        "states": result.states,
        "transitions": result.transitions,
        "stutters": result.stutters,
        "generated": result.generated,
        "depth": result.depth,
        "levels": list(result.levels),
        "limit": result.limit,
        "seconds": round(result.seconds, 6),
        "rule_calls": result.calls,
        "exit": int(judged.code),
        "drift": drift,
        "not_broken": list(judged.unbroken),
        "never_happens": list(judged.idle),
        "properties": [
            {
                "name": prop.name,
                "kind": kind(prop),
                "meaning": prop.meaning,
                "verdict": verdict(prop, result),
                "expected": prop in expected,
                "trace": trace_data(result.trace(prop)) if verdict(prop, result) == "violated" else None,
            }
            for prop in _all(result)
        ],
        "coverage": {
            name: {say(response): count for response, count in responses.items()}
            for name, responses in result.coverage.items()
        },
    }


def _all(result: Result) -> list[Property]:
    """The properties of the model, and those decided that every model has."""
    return list(dict.fromkeys([*result.model.properties, *result.hits]))


def as_junit(parts: Sequence[ElementTree.Element], code: Exit) -> str:
    """A test suite for each configuration."""
    suites = ElementTree.Element("testsuites", name="checker")
    suites.extend(parts)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def junit_part(result: Result, judged: Verdict, drift: str | None) -> ElementTree.Element:
    """A test case for each property, and one for the pinned counts."""
    suite = ElementTree.Element("testsuite", name=result.model.key, time=f"{result.seconds:.3f}")
    failures = skipped = 0
    for prop in _all(result):
        case = ElementTree.SubElement(suite, "testcase", classname=result.model.key, name=prop.name)
        told = verdict(prop, result)
        if told == "undecided":
            skipped += 1
            ElementTree.SubElement(case, "skipped", message=f"stopped at {result.limit}")
        elif told == "unwitnessed" or prop in judged.unexpected or prop.name in judged.unbroken:
            failures += 1
            failure = ElementTree.SubElement(case, "failure", message=_message(prop, told))
            if told == "violated":
                failure.text = "\n" + "\n".join(text.steps(result.trace(prop))) + "\n"
    case = ElementTree.SubElement(suite, "testcase", classname=result.model.key, name="pinned counts")
    if drift:
        failures += 1
        ElementTree.SubElement(case, "failure", message=drift)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    suite.set("skipped", str(skipped))
    return suite


def _message(prop: Property, told: str) -> str:
    if told == "holds":
        return f"{prop.name}: holds, where the configuration exists to violate it"
    return f"{prop.name}: {told}" + (f". {prop.meaning}" if prop.meaning else "")


def as_sarif(parts: Sequence[dict[str, Any]], code: Exit) -> str:
    """One run of the checker, with what it complains of."""
    rules = {rule["id"]: rule for part in reversed(parts) for rule in reversed(part["rules"])}
    driver = {"name": "agentd checker", "version": __version__, "rules": list(reversed(rules.values()))}
    results = [result for part in parts for result in part["results"]]
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def sarif_part(result: Result, judged: Verdict, drift: str | None) -> dict[str, Any]:
    """Violations as results with their steps as a code flow, located at the property that is violated."""
    rules, results = [], []
    for prop in (*judged.unexpected, *judged.unwitnessed):
        rules.append(_rule(prop))
        told = verdict(prop, result)
        found: dict[str, Any] = {
            "ruleId": prop.name,
            "level": "error",
            "message": {"text": f"{result.model.key}: {_message(prop, told)}"},
            "locations": [_location(prop)],
        }
        if told == "violated":
            flow = [{"location": {"message": {"text": line}}} for line in text.steps(result.trace(prop))]
            found["codeFlows"] = [{"threadFlows": [{"locations": flow}]}]
        results.append(found)
    for line in (*(f"not broken: {name}" for name in judged.unbroken), *([drift] if drift else [])):
        rules.append({"id": "pinned counts"})
        message = {"text": f"{result.model.key}: {line}"}
        results.append({"ruleId": "pinned counts", "level": "error", "message": message})
    return {"rules": rules, "results": results}


def _rule(prop: Property) -> dict[str, Any]:
    return {
        "id": prop.name,
        "shortDescription": {"text": prop.name},
        "fullDescription": {"text": prop.meaning or prop.name},
    }


def _location(prop: Property) -> dict[str, Any]:
    """Where the predicate of a property is written, relative to the repository."""
    predicate = getattr(prop, "holds", None) or getattr(prop, "then", None) or getattr(prop, "final", None)
    code = getattr(_written(predicate), "__code__", None)
    if code is None:
        return {}
    root = Path(__file__).parents[2]
    path = Path(code.co_filename)
    uri = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return {
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": code.co_firstlineno}}
    }


def _written(predicate: Any) -> Any:
    """The function somebody wrote for a property: of one that a helper made of others, the first of those."""
    for cell in getattr(predicate, "__closure__", None) or ():
        if callable(cell.cell_contents):
            return _written(cell.cell_contents)
    return predicate
