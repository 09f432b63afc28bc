"""Bootstrap, execs, a stream and the daemon's life together, done to a daemon in memory: contract a, d, i."""

from collections.abc import Hashable, Iterator, Mapping
from typing import ClassVar, Final

from agentd.rules.execs import Phase, Record, Start
from agentd.rules.lifecycle import Lifecycle, Stage
from checker.model import Model
from checker.models.bootstrap_exec import UNKNOWN, exec_name
from checker.models.product import STREAMED
from checker.models.product_properties import DRAINING
from checker.replay.adapter import REFUSED, compared
from checker.replay.adapters.bootstrap_exec import BootstrapExec
from checker.replay.adapters.lifecycle import Living
from checker.replay.adapters.output import Streamed
from checker.replay.wire import Says
from checker.result import Step

Values = Mapping[str, Hashable]

NO_STREAM: Final[Mapping[Hashable, Says]] = {**REFUSED, UNKNOWN: Says(404, "unknown_exec")}


class Product(Streamed, BootstrapExec, Living):
    """The adapter of ``product``."""

    printed: ClassVar[Mapping[str, object]] = {"stderr": ""}
    refused: ClassVar[Mapping[Hashable, Says]] = {**REFUSED, DRAINING: Says(503, "shutting_down")}

    def begin(self, model: Model) -> None:
        """With nothing."""
        super().begin(model)
        self.streamed = self.names.exec(STREAMED)

    def on_start(self, step: Step, values: Values) -> Iterator[str]:
        """A start; of the exec that is streamed it brings another output."""
        yield from super().on_start(step, values)
        if step.event.args["id"] == STREAMED and step.response is Start.SPAWN:
            self.job = self.subject.job(self.streamed)
            self.streams = []

    def on_attach(self, step: Step, values: Values) -> Iterator[str]:
        """A caller attaches, if it may and there is something."""
        if step.response is None:
            yield from super().on_attach(step, values)
        else:
            yield from self.refused_attach(step, NO_STREAM[step.response])

    def on_expire(self, step: Step, values: Values) -> Iterator[str]:
        """The drain's deadline passes, and a daemon that has stopped closes its connections."""
        yield from super().on_expire(step, values)
        memory = self.subject.memory
        if memory.site.state.stage is Stage.STOPPED:
            memory.site.close()
            for number, reader in list(self.readers.items()):
                if not reader.request.connection.closed:
                    yield f"reader {number} is still attached to a daemon that has stopped"
            self.readers.clear()

    def state(self, values: Values) -> Iterator[str]:
        """All of it. What is in flight is not counted any more once the daemon has stopped."""
        yield from BootstrapExec.state(self, values)
        record = values[exec_name(STREAMED)]
        held = isinstance(record, Record) and record.phase is not Phase.ACKED
        yield from self.output_state(values, heads=held)
        life, found = values["life"], self.subject.memory.site.state
        assert isinstance(life, Lifecycle)
        if life.stage is Stage.STOPPED:
            yield from compared("the daemon's stage", life.stage, found.stage)
        else:
            yield from compared("the daemon's life", life, found)
