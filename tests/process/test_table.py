"""The table of execs, with scripted children on a virtual clock (contract a.2, a.6, c.8, h.1)."""

from collections.abc import Callable

import pytest

from agentd.process.job import Job
from agentd.process.spawn import SpawnFailed
from agentd.process.table import Exec, ExecTable
from agentd.rules.execs import Ack, Phase
from tests.process.support import Scene, ScriptedChild

TTL = 900.0


class World:
    """A table whose execs run scripted children."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.scene.clock.advance(5000.0)
        self.wall = 1_700_000_000.75
        self.table = ExecTable(self.scene.clock, lambda: self.wall, TTL)
        self.runs = 0

    def run(self) -> Job:
        self.runs += 1
        return self.scene.job()[0]

    def start(self, exec_id: str = "e", run: Callable[[], Job] | None = None, reap: bool = False) -> Exec:
        return self.table.start(exec_id, run or self.run, reap)

    @property
    def child(self) -> ScriptedChild:
        return self.scene.children[-1]

    def finish(self, child: ScriptedChild | None = None) -> None:
        child = child or self.child
        child.exit()
        child.end_pipes()


@pytest.fixture
def world() -> World:
    return World()


def refuse() -> Job:
    raise SpawnFailed("no such program")


def test_a_start_registers_it(world: World) -> None:
    entry = world.start("e", reap=True)
    assert world.table.get("e") is entry
    assert (entry.exec_id, entry.reap, entry.record.phase) == ("e", True, Phase.RUNNING)
    assert entry.started_at == 1_700_000_000  # the wall clock's, in whole seconds
    assert list(world.table) == [entry]
    assert len(world.table) == 1
    assert world.table.busy


def test_a_retried_start_runs_nothing_in_any_phase(world: World) -> None:
    entry = world.start()
    for phase in (Phase.RUNNING, Phase.EXITED, Phase.ACKED):
        assert world.start(run=refuse, reap=True) is entry
        assert entry.record.phase is phase
        assert entry.reap is False  # the retry's body is otherwise ignored
        if phase is Phase.RUNNING:
            world.finish()
        elif phase is Phase.EXITED:
            world.table.ack("e")
    assert world.runs == 1
    assert (entry.record.spawns, entry.record.starts) == (1, 4)
    assert len(world.table) == 1


def test_a_start_that_fails_leaves_nothing_and_may_be_tried_again(world: World) -> None:
    with pytest.raises(SpawnFailed):
        world.start(run=refuse)
    assert (len(world.table), world.table.busy, world.table.get("e")) == (0, False, None)
    assert world.table.ack("e") == (None, Ack.UNKNOWN)
    assert world.start().record.starts == 1


def test_a_failed_start_of_one_does_not_touch_another(world: World) -> None:
    world.start("a")
    with pytest.raises(SpawnFailed):
        world.start("b", run=refuse)
    assert [entry.exec_id for entry in world.table] == ["a"]
    assert world.table.busy


def test_busy_counts_what_has_not_published(world: World) -> None:
    world.start("a")
    world.start("b")
    first, second = world.scene.children
    world.finish(first)
    assert world.table.busy
    second.exit()  # lingers: its pipes are open
    assert world.table.busy
    second.end_pipes()
    assert not world.table.busy
    world.start("c")
    assert world.table.busy


def test_a_child_that_ends_at_once_is_not_counted_for_ever(world: World) -> None:
    def ends_at_once() -> Job:
        job = world.run()
        world.finish()
        return job

    entry = world.start(run=ends_at_once)
    assert entry.record.phase is Phase.EXITED
    assert not world.table.busy


def test_the_phase_is_there_when_others_hear_of_the_result(world: World) -> None:
    entry = world.start()
    phases: list[Phase] = []
    entry.job.when_published().addCallback(lambda _: phases.append(entry.record.phase))
    world.finish()
    assert phases == [Phase.EXITED]


def test_acks_in_each_phase(world: World) -> None:
    assert world.table.ack("e") == (None, Ack.UNKNOWN)
    entry = world.start()
    assert world.table.ack("e") == (entry, Ack.STILL_RUNNING)
    world.finish()
    assert world.table.ack("e") == (entry, Ack.RELEASED)
    assert entry.record.acked_at == 5000.0
    assert world.table.ack("e") == (entry, Ack.ALREADY_ACKED)


def test_the_sweep_takes_it_exactly_at_its_ttl(world: World) -> None:
    world.start()
    world.finish()
    world.scene.clock.advance(10 * TTL)
    assert world.table.sweep() == 0  # nobody has acknowledged it
    world.table.ack("e")
    world.scene.clock.advance(TTL - 0.5)
    assert world.table.sweep() == 0
    world.scene.clock.advance(0.5)
    assert world.table.sweep() == 1
    assert (len(world.table), world.table.get("e")) == (0, None)
    assert world.child.group.released
    assert world.table.sweep() == 0
    world.start()
    assert world.runs == 2


def test_a_second_ack_does_not_start_the_ttl_again(world: World) -> None:
    world.start()
    world.finish()
    world.table.ack("e")
    world.scene.clock.advance(TTL - 1)
    world.table.ack("e")
    world.scene.clock.advance(1)
    assert world.table.sweep() == 1


def test_the_sweep_takes_what_is_due_and_leaves_the_rest(world: World) -> None:
    for name in ("old", "new", "unacked", "running"):
        world.start(name)
        if name != "running":
            world.finish()
    world.table.ack("old")
    world.scene.clock.advance(10)
    world.table.ack("new")
    world.scene.clock.advance(TTL - 10)
    assert world.table.sweep() == 1
    assert [entry.exec_id for entry in world.table] == ["new", "unacked", "running"]


def test_the_stepped_wall_clock_collects_nothing(world: World) -> None:
    world.start()
    world.finish()
    world.table.ack("e")
    world.wall += 1e9
    assert world.table.sweep() == 0


def test_the_table_may_change_while_it_is_walked(world: World) -> None:
    for number in range(5):
        world.start(str(number))
    seen = []
    for entry in world.table:
        seen.append(entry.exec_id)
        world.start(f"more-{entry.exec_id}")
    assert seen == ["0", "1", "2", "3", "4"]


def test_a_repr_shows_no_output_and_no_environment(world: World) -> None:
    entry = world.start()
    world.child.write(b"very-secret")
    assert "very-secret" not in repr(entry)
    assert "job" not in repr(entry)
