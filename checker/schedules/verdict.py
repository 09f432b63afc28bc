"""What must hold of every schedule, whatever the scenario.

* Every request that arrived whole is answered once and completely, in the order of its connection, or its caller left.
* No answer is a 500, and nothing is logged as an error: a handler that fails does both.
* What was answered about an exec can be explained by one order of the operations (`checker.histories`): an id is
  started once, acknowledged once, and what was refused changed nothing.
* A stream tiles: it goes on where it left off, over bytes and gaps, and ends if the exec has ended and its reader
  reads.
* Either end of a tunnel is given what the other has said, in order, and all of it before its end (`TunnelPlay`).
* No id has two children, and none whose every start was refused has one.
* When everybody has left and every child has ended nothing is left: no timer, no request in flight, no work.
"""

import base64
from collections.abc import Iterator

from checker.histories.history import Op, Operation, answered
from checker.histories.linear import Verdict, judge
from checker.replay.wire import events
from checker.schedules.stage import Asked, Caller, Stage


def complaints(stage: Stage, logged: list[str], left: list[str]) -> Iterator[str]:
    """What is wrong with a schedule that is over, a line each."""
    for caller in stage.callers:
        yield from _answers(stage, caller)
        if caller.streaming:
            yield from _stream(stage, caller)
    if stage.tunnel is not None:
        yield from stage.tunnel.complaints()
    yield from (f"an error was logged: {line}" for line in logged)
    yield from _history(stage)
    yield from _children(stage)
    yield from (f"when all has ended, there is still {line}" for line in left)


def _answers(stage: Stage, caller: Caller) -> Iterator[str]:
    for _, answer in caller.answers:
        if answer.status >= 500 and answer.status != 503:
            yield f"{caller.name} was answered {answer.status}"
    if len(caller.answers) > len(caller.complete):
        # A refusal may come before a body is complete, and then that is the end of its connection.
        early = len(caller.answers) - len(caller.complete)
        if early > len(caller.sent) - len(caller.complete):
            yield f"{caller.name} was answered {len(caller.answers)} times, and asked {len(caller.complete)} times"
    elif len(caller.answers) < len(caller.complete) and not caller.gone:
        yield f"{caller.name} asked {len(caller.complete)} times, and was answered {len(caller.answers)} times"
    if caller.connection is not None and caller.connection.transport.late and not caller.gone:
        yield f"{caller.name} was sent something after the end of its connection"


def _children(stage: Stage) -> Iterator[str]:
    """Children by the id they were started for, which is their last argument."""
    allowed: dict[str, bool] = {}
    for caller in stage.callers:
        for place, asked in enumerate(caller.asks):
            if asked.op is Op.START:
                # What was answered with a refusal must not have been done all the same.
                done = place >= len(caller.answers) or caller.answers[place][1].status == 200
                allowed[asked.exec] = allowed.get(asked.exec, False) or (done and place < len(caller.sent))
    for exec_id, may in allowed.items():
        count = sum(child.plan.argv[-1] == exec_id for child in stage.memory.children.all)
        if count > may:
            yield f"{exec_id} has {count} children, and may have {int(may)}"


def _history(stage: Stage) -> Iterator[str]:
    """Every answer about an exec, explained."""
    seen: dict[str, list[Operation]] = {}
    for number, caller in enumerate(stage.callers):
        for place, asked in enumerate(caller.asks):
            if asked.op is None or place >= len(caller.sent):
                continue
            operation = _operation(number, asked, caller, place)
            if operation is not None:
                seen.setdefault(asked.exec, []).append(operation)
    for exec_id, step in stage.ends:
        # An exit that happened is an operation too: from then on the result may be out.
        seen.setdefault(exec_id, []).append(Operation(-1, exec_id, Op.RELEASE, step - 0.25, step + 0.25, 200))
    for exec_id, operations in seen.items():
        operations.sort(key=lambda one: one.invoked)
        judged = judge(operations)
        if judged.verdict is not Verdict.LINEARIZABLE:
            told = ", ".join(f"{one.op.value} {one.status or 'unanswered'}" for one in operations)
            yield f"no order explains what was answered about {exec_id}: {told}"


def _operation(number: int, asked: Asked, caller: Caller, place: int) -> Operation | None:
    assert asked.op is not None
    # What is not there whole was not asked for, unless it was refused: by its head, that is.
    if place < len(caller.answers):
        step, answer = caller.answers[place]
        if answer.status in (401, 503):
            return None  # which says that nothing was done
        early = place >= len(caller.complete)
        waited = any(name == "Prefer" for name, _ in asked.headers)
        # An answer that is waited for is of the moment it is given.
        # One that is early is of the moment its request began.
        invoked = (caller.sent if waited or early else caller.complete)[place] - 0.5
        return answered(Operation(number, asked.exec, asked.op, invoked), step + 0.5, answer)
    if place < len(caller.complete):
        return Operation(number, asked.exec, asked.op, caller.complete[place] - 0.5)
    return None


def _stream(stage: Stage, caller: Caller) -> Iterator[str]:
    if not caller.answers:
        return
    _, answer = caller.answers[-1]
    if answer.status != 200:
        return
    offset, over = 0, False
    for event, data in events(answer.body):
        if over:
            yield f"{caller.name} was told {event} after the end"
        if event == "output":
            if data["offset"] != offset:
                yield f"{caller.name} was given bytes from {data['offset']}, and had had {offset}"
            offset = data["offset"] + len(base64.b64decode(data["output"]))
        elif event == "gap":
            if data["from"] != offset:
                yield f"{caller.name} was told of a gap from {data['from']}, and had had {offset}"
            offset = data["to"]
        else:
            over = True
            if data["offset"] != offset:
                yield f"{caller.name} was told the end at {data['offset']}, and had had {offset}"
    reads = not caller.stopped or caller.resumed
    if stage.ends and reads and not (over and answer.headers["ended"] == "True"):
        yield f"{caller.name} was not told the end"
