"""``checker check``: search models and decide their properties.

Exit codes: 0 everything holds, 1 something does not, 2 usage, 3 a search was cut short, 4 something holds for no good
reason, 6 counts are not what they were.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checker import models, pins
from checker.check import Exit, Options, asked, check, judge, worst
from checker.commands.arguments import add_workers, positive, seconds, size, workers
from checker.commands.output import keys, write
from checker.limits import Limits
from checker.model import Model, ModelError
from checker.report.formats import FORMATS, Checked, form
from checker.result import Result

if TYPE_CHECKING:
    from checker.fleet import Fleet


def add(commands: Any) -> None:
    """Declare the command to an `argparse` group of commands."""
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
    add_workers(command)
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
    command.add_argument("--format", choices=("text", *FORMATS), default="text")
    command.add_argument("--output", metavar="FILE", help="instead of standard output")


def run(given: argparse.Namespace) -> Exit:
    """Search and decide. Raises ModelError for what cannot be done; OSError."""
    if given.resume and not given.checkpoint:
        raise ModelError("--resume needs --checkpoint")
    if given.scheduler and (given.progress or given.spill or given.checkpoint):
        raise ModelError("with --scheduler nothing is kept on disk, and there is no progress to be seen")
    found = _load(given)
    if given.checkpoint and len(found) > 1:
        raise ModelError("a checkpoint is of one configuration; name it")
    at_once = given.format == "text" and not given.output
    codes: list[Exit] = []
    parts: list[Any] = []
    with workers(given) as fleet:
        for part, ends in _told(found, given, fleet):
            codes += ends
            if at_once:
                write(part)
            else:
                parts.append(part)
    if given.strict:
        codes.append(_strict(found))
    code = worst(codes)
    if not at_once:
        report = form(given.format, given.coverage).whole(parts, code)
        if given.output:
            Path(given.output).write_text(report)
        else:
            sys.stdout.write(report)
    return code


def _checked(given: argparse.Namespace, model: Model, fleet: "Fleet | None" = None) -> Checked:
    result = _search(model, given, fleet)
    plain = given.search == "bfs" and not (given.symmetric or given.slice or given.property or given.stop_at)
    drift = pins.drift(result, pins.load()) if plain and result.complete else None
    judged = judge(result, counterfactual=not given.models)
    return result, judged, None if drift == pins.UNPINNED and not given.strict else drift


def _load(given: argparse.Namespace) -> list[Model]:
    found = [models.load(key) for key in keys(given.models, not given.all)]
    if not given.property:
        return found
    if given.models:
        return [asked(model, given.property) for model in found]
    # Without models named, those that have the properties are meant.
    having = [m for m in found if set(given.property) <= {prop.name for prop in m.properties}]
    if not having:
        raise ModelError(f"no model has the property {', '.join(map(repr, given.property))}")
    return [asked(model, given.property) for model in having]


def _ends(one: Checked) -> list[Exit]:
    """What one configuration comes to."""
    _, judged, drift = one
    return [judged.code, Exit.DRIFTED] if drift else [judged.code]


Told = tuple[Any, list[Exit]]
"""What there is to say about one configuration, and what it comes to."""


def _tell(given: argparse.Namespace, model: Model, fleet: "Fleet | None" = None) -> Told:
    one = _checked(given, model, fleet)
    return form(given.format, given.coverage).part(*one), _ends(one)


def tell_named(given: argparse.Namespace, key: str) -> Told:
    """Check a configuration that is known by its name, on a machine of a fleet."""
    model = models.load(key)
    return _tell(given, asked(model, given.property) if given.property else model)


def _told(found: Sequence[Model], given: argparse.Namespace, fleet: "Fleet | None") -> Iterator[Told]:
    """Each configuration in turn; several are checked at a time, where nothing that they share, a terminal or a limit
    of memory, stands against it. A fleet shares the configurations, or the searches of a swarm."""
    if fleet is not None and given.search != "swarm":
        yield from fleet.each(tell_named, given, [model.key for model in found])
    elif fleet or len(found) < 2 or given.search != "bfs" or given.progress or given.memory or given.spill:
        yield from (_tell(given, model, fleet) for model in found)
    else:
        from checker.pool import each

        yield from each(lambda number: _tell(given, found[number]), len(found), given.jobs)


def _search(model: Model, given: argparse.Namespace, fleet: "Fleet | None") -> Result:
    options = Options(
        engine=given.engine,
        symmetric=given.symmetric,
        sliced=given.slice,
        limits=Limits(given.depth, given.states, given.seconds, given.memory),
        progress=sys.stderr if given.progress else None,
        stop_at=given.stop_at or 0,
        spill=given.spill,
        checkpoint=given.checkpoint,
        resume=given.resume,
        budget=given.budget,
    )
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
    return sampling.swarm(model, watch, how, fleet)


def _strict(found: Iterable[Model]) -> Exit:
    from checker.strict import complaints

    told = list(complaints(found))
    for line in told:
        sys.stderr.write(f"{line}\n")
    return Exit.VACUOUS if told else Exit.HOLDS
