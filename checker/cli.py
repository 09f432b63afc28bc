"""The command line of the checker.

Exit codes: 0 holds, 1 violated, 2 usage, 3 incomplete, 4 vacuous or unkillable, 5 replay divergence, 6 pinned
count drift. Bad usage is one line on standard error.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from checker import models, pins
from checker.check import Exit, Options, Verdict, asked, check, judge, worst
from checker.commands import COMMANDS
from checker.commands.arguments import positive, seconds, size
from checker.limits import Limits
from checker.model import Model, ModelError
from checker.report import text
from checker.result import Result

Checked = tuple[Result, Verdict, str | None]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(Exit.USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="checker", description="A model checker over the rules of agentd.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    command = commands.add_parser("check", help="search models and decide their properties")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all of them")
    command.add_argument("--all", action="store_true", help="include the large configurations")
    command.add_argument("--property", action="append", default=[], metavar="NAME", help="only this one")
    command.add_argument(
        "--strict", action="store_true", help="also that witnesses, faults and pins are named and true"
    )
    command.add_argument("--engine", choices=("auto", "packed", "frontier"), default="auto")
    command.add_argument("--search", choices=("bfs", "dfs", "random", "swarm"), default="bfs")
    command.add_argument("--seed", type=int, default=0, help="of random walks and swarms")
    command.add_argument("--walks", type=positive, default=1000, help="random walks to take")
    command.add_argument("--length", type=positive, default=200, help="steps of a walk")
    command.add_argument("--searches", type=positive, default=8, help="searches of the swarm")
    command.add_argument("--jobs", type=positive, default=None, help="processes; by default one a processor")
    command.add_argument("--symmetric", action="store_true", help="search one state of each orbit")
    command.add_argument("--slice", action="store_true", help="leave out what no property depends on")
    command.add_argument("--depth", type=positive, metavar="N", help="stop at this many steps")
    command.add_argument("--states", type=positive, metavar="N", help="stop at this many states")
    command.add_argument(
        "--seconds", type=seconds, metavar="S", help="stop after this time, for each configuration"
    )
    command.add_argument("--memory", type=size, metavar="BYTES", help="stop at this much memory (K, M, G)")
    command.add_argument("--stop-at", type=positive, metavar="N", help="stop at so many violations")
    command.add_argument(
        "--spill", metavar="DIR", help="keep what does not fit in memory below this directory"
    )
    command.add_argument("--budget", type=size, default=1 << 30, metavar="BYTES", help="of states in memory")
    command.add_argument("--checkpoint", metavar="DIR", help="write what is needed to go on there")
    command.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    command.add_argument("--progress", action="store_true", help="say where the search is, once a second")
    command.add_argument("--coverage", action="store_true", help="say which responses each event gave")
    command.add_argument("--format", choices=("text", "json", "junit", "sarif", "mermaid"), default="text")
    command.add_argument("--output", metavar="FILE", help="instead of standard output")

    command = commands.add_parser("mutants", help="plant faults in the rules and see what notices them")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all of them")
    command.add_argument(
        "--seeded", action="store_true", help="only faults with a name, not the automatic ones"
    )
    command.add_argument(
        "--everything",
        action="store_true",
        help="put faults with a name to every property, not to those naming it",
    )
    command.add_argument("--jobs", type=positive, default=None, help="processes; by default one a processor")
    command.add_argument("--progress", action="store_true", help="say how many faults are done")

    command = commands.add_parser("show", help="describe a model, or the run that decides a property of it")
    command.add_argument("model", metavar="MODEL[:CONFIG]")
    command.add_argument("property", nargs="?", metavar="PROPERTY")
    command.add_argument("--format", choices=("text", "json", "mermaid"), default="text")

    commands.add_parser("models", help="list models and configurations")

    command = commands.add_parser("footprints", help="try whether events depend on what they do not read")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all of them")
    command.add_argument("--seed", type=int, default=0)

    command = commands.add_parser("pin", help="pin the counts of complete searches")
    command.add_argument("models", nargs="*", metavar="MODEL[:CONFIG]", help="by default, all of them")
    for module in COMMANDS.values():
        module.add(commands)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    try:
        given = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        own: dict[str, Callable[[argparse.Namespace], Exit]] = {
            "check": _check,
            "mutants": _mutants,
            "show": _show,
            "models": _models,
            "footprints": _footprints,
            "pin": _pin,
        }
        return int((own.get(given.command) or COMMANDS[given.command].run)(given))
    except BrokenPipeError:
        # Whoever read the report has seen enough; nothing more can be written, not even on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.HOLDS)
    except (ModelError, OSError) as error:
        sys.stderr.write(f"checker: {error}\n")
        return int(Exit.USAGE)


def _keys(named: Sequence[str], default_only: bool = True) -> list[str]:
    return list(named) or list(models.every(default_only))


def _load(given: argparse.Namespace) -> list[Model]:
    found = [models.load(key) for key in _keys(given.models, not given.all)]
    if not given.property:
        return found
    if given.models:
        return [asked(model, given.property) for model in found]
    # Without models named, those that have the properties are meant.
    having = [m for m in found if set(given.property) <= {prop.name for prop in m.properties}]
    if not having:
        raise ModelError(f"no model has the property {', '.join(map(repr, given.property))}")
    return [asked(model, given.property) for model in having]


def _check(given: argparse.Namespace) -> Exit:
    limits = Limits(given.depth, given.states, given.seconds, given.memory)
    if given.resume and not given.checkpoint:
        raise ModelError("--resume needs --checkpoint")
    found = _load(given)
    if given.checkpoint and len(found) > 1:
        raise ModelError("a checkpoint is of one configuration; name it")
    options = Options(
        engine=given.engine,
        symmetric=given.symmetric,
        sliced=given.slice,
        limits=limits,
        progress=sys.stderr if given.progress else None,
        stop_at=given.stop_at or 0,
        spill=given.spill,
        checkpoint=given.checkpoint,
        resume=given.resume,
        budget=given.budget,
    )
    pinned = pins.load()
    plain = given.search == "bfs" and not (given.symmetric or given.slice or given.property or given.stop_at)

    def checked(model: Model) -> Checked:
        result = _search(model, given, options)
        judged = judge(result, counterfactual=not given.models)
        drift = pins.drift(result, pinned) if plain and result.complete else None
        return result, judged, None if drift == pins.UNPINNED and not given.strict else drift

    codes: list[Exit] = []
    reports: list[Checked] = []
    at_once = given.format == "text" and not given.output
    if at_once:
        for lines, ends in _told(found, checked, given):
            _write(lines)
            codes += ends
    else:
        reports = [checked(model) for model in found]
        codes += [code for one in reports for code in _ends(one)]
    if given.strict:
        codes.append(_strict(found))
    code = worst(codes)
    if not at_once:
        _deliver(given, reports, code)
    return code


def _ends(one: Checked) -> list[Exit]:
    """What one configuration comes to."""
    _, judged, drift = one
    return [judged.code, Exit.DRIFTED] if drift else [judged.code]


def _told(
    found: Sequence[Model], checked: Callable[[Model], Checked], given: argparse.Namespace
) -> Iterator[tuple[list[str], list[Exit]]]:
    """The lines about each configuration, and what it comes to; several are checked at a time, where nothing that
    they share, a terminal or a limit of memory, stands against it."""

    def told(number: int) -> tuple[list[str], list[Exit]]:
        one = checked(found[number])
        lines = list(text.check(*one))
        return [*lines, *(text.coverage(one[0]) if given.coverage else ())], _ends(one)

    if len(found) < 2 or given.search != "bfs" or given.progress or given.memory or given.spill:
        yield from map(told, range(len(found)))
        return
    from checker.pool import each

    yield from each(told, len(found), given.jobs)


def _search(model: Model, given: argparse.Namespace, options: Options) -> Result:
    if given.search == "bfs":
        return check(model, options)
    from checker import sampling
    from checker.limits import Watch
    from checker.table import Table

    if options.symmetric or options.sliced or options.spill or options.checkpoint:
        raise ModelError("symmetry, slicing, spilling and checkpoints need --search bfs")
    watch = Watch(options.limits, options.progress)
    how = sampling.Sampling(given.seed, given.walks, given.length, given.searches, jobs=given.jobs)
    if given.search == "dfs":
        return sampling.depth_first(Table(model), watch)
    if given.search == "random":
        return sampling.random_walks(Table(model), watch, how)
    return sampling.swarm(model, watch, how)


def _strict(found: Iterable[Model]) -> Exit:
    from checker.strict import complaints

    told = list(complaints(found))
    for line in told:
        sys.stderr.write(f"{line}\n")
    return Exit.VACUOUS if told else Exit.HOLDS


def _deliver(given: argparse.Namespace, checked: list[Checked], code: Exit) -> None:
    """Write the report of a check in the format asked for."""
    if given.format == "text":
        report = "".join(f"{line}\n" for one in checked for line in text.check(*one))
    elif given.format == "mermaid":
        from checker.report.mermaid import diagram

        violated = [
            (result, prop) for result, judged, _ in checked for prop in (*judged.unexpected, *judged.expected)
        ]
        report = "\n".join(diagram(result.trace(prop), prop.name) for result, prop in violated)
    else:
        from agentd import __version__
        from checker.report import machine

        report = {
            "json": lambda: machine.as_json(checked, code),
            "junit": lambda: machine.as_junit(checked),
            "sarif": lambda: machine.as_sarif(checked, __version__),
        }[given.format]()
    if given.output:
        Path(given.output).write_text(report)
    else:
        sys.stdout.write(report)


def _mutants(given: argparse.Namespace) -> Exit:
    from checker.matrix import matrix

    def tell(done: int, total: int) -> None:
        sys.stderr.write(f"\r{done} of {total} faults")
        sys.stderr.flush()

    found = matrix(
        given.models or None,
        automatic=not given.seeded,
        everything=given.everything,
        jobs=given.jobs,
        tell=tell if given.progress else None,
    )
    _write(text.kill_matrix(found))
    if found.survivors():
        return Exit.VIOLATED
    return Exit.VACUOUS if found.unkillable or found.unbroken else Exit.HOLDS


def _show(given: argparse.Namespace) -> Exit:
    model = models.load(given.model)
    if given.property is None:
        _write(text.describe(model))
        return Exit.HOLDS
    prop = next((prop for prop in model.properties if prop.name == given.property), None)
    if prop is None:
        raise ModelError(f"{model.key} has no property {given.property!r}")
    result = check(asked(model, [prop.name]))
    decided = next((p for p in (*result.violations(), *result.witnessed()) if p.name == prop.name), None)
    if decided is None:
        from checker.report.words import verdict

        _write([f"{prop.name}: {verdict(result.model.properties[0], result)}, so there is no run to show"])
        return Exit.HOLDS
    trace = result.trace(decided)
    if given.format == "text":
        _write(text.finding(decided, result, "witness" if decided in result.witnessed() else "violated"))
    elif given.format == "mermaid":
        from checker.report.mermaid import diagram

        sys.stdout.write(diagram(trace, decided.name))
    else:
        import json

        from checker.report.machine import trace_data

        sys.stdout.write(json.dumps(trace_data(trace), indent=2) + "\n")
    return Exit.HOLDS


def _models(given: argparse.Namespace) -> Exit:
    for name in models.MODULES:
        for config, how in models.configs(name).items():
            _write(
                [f"{name}:{config}" + ("" if how.default else "  (large: only when named, or with --all)")]
            )
    return Exit.HOLDS


def _footprints(given: argparse.Namespace) -> Exit:
    from checker import footprints

    code = Exit.HOLDS
    for key in _keys(given.models):
        model = models.load(key)
        found = footprints.check(model, given.seed)
        _write([f"{model.key}: {found.tried:,} runs of events, {len(found.wrong)} wrong"])
        _write(f"  WRONG: {line}" for line in found.wrong)
        _write(f"  {event!r} reads {name} to no effect" for event, name in found.idle_reads)
        if found.wrong:
            code = Exit.VIOLATED
    return code


def _pin(given: argparse.Namespace) -> Exit:
    results = [check(models.load(key), Options(live=False)) for key in _keys(given.models)]
    incomplete = [result.model.key for result in results if not result.complete]
    if incomplete:
        raise ModelError(f"{', '.join(incomplete)}: not searched to the end, so nothing is pinned")
    pins.save(results)
    _write(text.summary(result) for result in results)
    return Exit.HOLDS


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
