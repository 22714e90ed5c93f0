"""The engine processes of one loaded version: one for each device. They begin and end together."""

import logging
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from lensbox.serve.models.control import EngineAddress, Loaded, new_address
from lensbox.serve.models.files import Content, Stamp
from lensbox.serve.observability.logs import LogStyle
from lensbox.serve.observability.metrics import ServiceCounters
from lensbox.serve.processes.child import engine_main
from lensbox.serve.processes.lifecycle import Child, described
from lensbox.serve.settings import Settings

_log = logging.getLogger(__name__)

# Seconds without a heartbeat, after the time in which a stuck engine should have exited.
ENGINE_SILENCE = 10.0


class Plan(NamedTuple):
    """The values that all groups of a service share.

    slots: numbers of running engines in the shared metrics. A later engine takes the number of one that has
    ended, with its files: swaps do not add files.
    """

    settings: Settings
    devices: Sequence[str]
    log: LogStyle
    context: Any
    counters: ServiceCounters
    slots: set[int]


class Group:
    """A group of engine processes over one content.

    number: unique in the service. name: of the model; for a service with --artifact, known once `is_ready`.
    need: what an engine of the version that serves takes, if this version has to fit beside it. loaded: what
    each engine has told. failure: why the group cannot start; "" so far. change: stamp of the changed file at
    the last look; empty without a change.
    """

    def __init__(
        self, plan: Plan, number: int, name: str, version: str, content: Content, need: Any = None
    ) -> None:
        self.number, self.name, self.version, self.content = number, name, version, content
        self.loaded: dict[str, Loaded] = {}
        self.failure = ""
        self.change: Stamp = ()
        self._plan = plan
        self._folder = tempfile.mkdtemp(prefix="lensbox-engine-")
        self._children = [
            self._child(new_address(device), need and (need, len(plan.devices))) for device in plan.devices
        ]

    @property
    def is_ready(self) -> bool:
        """True once all engines have been ready."""
        return len(self.loaded) == len(self._children)

    @property
    def addresses(self) -> tuple[EngineAddress, ...]:
        return tuple(child.arguments[3] for child in self._children)

    @property
    def need(self) -> Any:
        """What the largest engine takes, for `memory.check_memory`."""
        return max(loaded.need for loaded in self.loaded.values())

    @property
    def waits_for(self) -> list[Any]:
        return [one for child in self._children for one in child.waits_for]

    def step(self, is_first: bool = False) -> None:
        """Keep the engines alive. Before all are ready, an end is a failure, unless `is_first`."""
        for child in self._children:
            if not self.is_ready and not is_first:
                child.receive()
                if not self.failure and child.exit_code is not None:
                    self.failure = f"{child.name} ended with {described(child.exit_code)} while it loaded"
                if self.failure or child.process is not None:
                    continue
            child.keep_alive(self._plan.context, self._plan.counters)

    def end(self) -> None:
        """End all engines and free everything: memory, temporary files, the content."""
        for child in self._children:
            child.end()
            self._plan.counters.forget(child.slot)
            self._plan.slots.discard(int(child.slot.rpartition("-")[2]))
        shutil.rmtree(self._folder, ignore_errors=True)
        self.content.close()

    def _child(self, address: EngineAddress, need: Any) -> Child:
        taken, settings = self._plan.slots, self._plan.settings
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(number)
        slot = f"engine-{number}"
        arguments = slot, self._plan.log, settings, address, self.content, need, self._folder
        child = Child(
            f"the engine on {address.device}",
            slot,
            engine_main,
            arguments,
            lambda loading: settings.call_limit(loading) + ENGINE_SILENCE,
            lambda message: self._take(child, message),
        )
        return child

    def _take(self, child: Child, message: "Loaded | str") -> None:
        """Take what an engine tells once: that it is ready, or why it cannot start."""
        if isinstance(message, str):
            if child.slot not in self.loaded:
                self.failure = self.failure or message
            else:
                _log.error("%s cannot start: %s", child.name, message)
            return
        # A restarted engine has no need to fit beside an old version.
        child.arguments = (*child.arguments[:5], None, child.arguments[6])
        child.loading = message.seconds
        self.loaded[child.slot] = message
        self.name = self.name or message.name
